# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Types of actors. A handle's methods are untyped by themselves; sheaf.types.typed(handle) shows a
# checker those that are decorated with @sheaf.method with their signatures.
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf._internal.actor_class import ActorInfo, MethodInfo
from sheaf.ids import ActorID

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
C = TypeVar("C", covariant=True)
S = TypeVar("S")

class ActorMethod(_core.Caller, Generic[P, R]):
    def __init__(
        self, ref: ObjectRef[Any], info: ActorInfo, method: MethodInfo, given: dict[str, Any]
    ) -> None: ...
    @overload
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ObjectRef[R]: ...
    @overload
    def remote(self, first: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRef[R]: ...
    @overload
    def remote(
        self, first: Any, second: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ObjectRef[R]: ...
    @overload
    def options(self, *, num_returns: int | str, **options: Any) -> Any: ...
    @overload
    def options(self, **options: Any) -> ActorMethod[P, R]: ...
    def __call__(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...  # Within the class; a handle's raises.

class Handle:
    _ref: ObjectRef[Any]
    @property
    def _actor_id(self) -> ActorID: ...

class ActorHandle(Handle, Generic[C]):
    _info: ActorInfo
    def __init__(self, ref: ObjectRef[Any], info: ActorInfo) -> None: ...
    def __getattr__(self, name: str) -> ActorMethod[..., Any]: ...
    @property
    def _ray_actor_id(self) -> ActorID: ...

class ActorClass(Generic[C]):
    _class: type
    __name__: str
    def __init__(
        self, cls: type, given: dict[str, Any], root: ActorClass[Any] | None = None
    ) -> None: ...
    def options(self, **given: Any) -> ActorClass[C]: ...
    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[C]: ...
    def __getattr__(self, name: str) -> Any: ...

ActorProxy = ActorHandle

def kill(actor: Handle, *, no_restart: bool = True) -> None: ...
def exit_actor() -> None: ...

class _MethodDecorator:
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
    ) -> ActorMethod[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, P], R], /) -> ActorMethod[P, R]: ...

@overload
def method(
    function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /
) -> ActorMethod[P, R]: ...
@overload
def method(function: Callable[Concatenate[S, P], R], /) -> ActorMethod[P, R]: ...
@overload
def method(**options: Any) -> _MethodDecorator: ...

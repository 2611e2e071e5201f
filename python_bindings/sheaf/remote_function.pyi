# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Types of remote functions. Arguments are checked as those of the function; a call that passes
# references, of which a function sees the values, is checked for its result only.
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.object_ref import ObjectRefGenerator

MOST_BOUND: int

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

class RemoteFunction(_core.Caller, Generic[P, R]):
    _function: Callable[P, R]
    __name__: str
    __qualname__: str
    def __init__(
        self,
        function: Callable[P, R],
        given: dict[str, Any],
        root: RemoteFunction[P, R] | None = None,
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
    def remote(
        self, first: Any, second: Any, third: ObjectRef[Any], /, *args: Any, **kwargs: Any
    ) -> ObjectRef[R]: ...
    @overload
    def options(self, *, num_returns: int | str, **options: Any) -> Any: ...
    @overload
    def options(self, **options: Any) -> RemoteFunction[P, R]: ...

class StreamingFunction(_core.Caller, Generic[P, R]):
    # What a generator function becomes: the same class, whose calls give their items one by one.
    __name__: str
    __qualname__: str
    @overload
    def remote(self, *args: P.args, **kwargs: P.kwargs) -> ObjectRefGenerator: ...
    @overload
    def remote(self, first: ObjectRef[Any], /, *args: Any, **kwargs: Any) -> ObjectRefGenerator: ...
    @overload
    def options(self, *, num_returns: int | str, **options: Any) -> Any: ...
    @overload
    def options(self, **options: Any) -> StreamingFunction[P, R]: ...

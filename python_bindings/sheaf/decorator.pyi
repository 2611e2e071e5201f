# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Types of @sheaf.remote; decorator.py says what it does.
from collections.abc import Callable, Generator, Iterator
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from sheaf.actor import ActorClass
from sheaf.remote_function import RemoteFunction, StreamingFunction

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

class _Decorator(Protocol):
    @overload
    def __call__(self, target: type[C], /) -> ActorClass[C]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, target: Callable[P, Generator[R, Any, Any]] | Callable[P, Iterator[R]], /
    ) -> StreamingFunction[P, R]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> RemoteFunction[P, R]: ...

@overload
def remote(target: type[C], /) -> ActorClass[C]: ...  # type: ignore[overload-overlap]
@overload
def remote(  # type: ignore[overload-overlap]
    target: Callable[P, Generator[R, Any, Any]] | Callable[P, Iterator[R]], /
) -> StreamingFunction[P, R]: ...
@overload
def remote(target: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(*, num_returns: int | str, **options: Any) -> Any: ...
@overload
def remote(**options: Any) -> _Decorator: ...

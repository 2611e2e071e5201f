# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of users' functions: plain ones, generators, coroutines, and classes that are made once per
process; what goes wrong in them names the operator and one row."""

from __future__ import annotations

import asyncio
import collections
import functools
import inspect
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from sheaf.data.errors import UserCodeError, shown

__all__ = ["ClassUdf", "bound", "is_async", "operator_name", "results", "user_error"]

_ASYNC_AT_ONCE = 16  # Coroutines of one task that are under way together.
_INSTANCES: dict[str, Any] = {}  # Of ClassUdf, in this process.
_INSTANCES_LOCK = threading.Lock()
_LOCAL = threading.local()


class ClassUdf:
    """A class whose instance is the user's function. Each process makes one instance, at first use;
    copies of this object in one process share it.

    Args:
        cls: the class; its instances can be called.
        args: of its constructor.
        kwargs: of its constructor.
    """

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None):
        self.cls, self.args, self.kwargs = cls, tuple(args), dict(kwargs or {})
        self._key = uuid.uuid4().hex

    @property
    def __name__(self) -> str:
        return self.cls.__name__

    def instance(self) -> Any:
        """The instance of this process.

        Returns:
            It; made now when there is none.

        Raises:
            UserCodeError: the constructor raised; the next call tries again.
        """
        with _INSTANCES_LOCK:
            if self._key not in _INSTANCES:
                try:
                    _INSTANCES[self._key] = self.cls(*self.args, **self.kwargs)
                except Exception as error:
                    raise user_error(f"the constructor of {self.__name__}", error) from error
            return _INSTANCES[self._key]


def bound(fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The user's function as one of a single argument.

    Args:
        fn: a callable or a ClassUdf.
        args: come behind the row or batch.
        kwargs: go along.

    Returns:
        The function.
    """
    call = fn.instance() if isinstance(fn, ClassUdf) else fn
    if not args and not kwargs:
        return call
    return functools.partial(_called, call, args, kwargs or {})


def _called(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Any:
    return call(value, *args, **kwargs)


def is_async(fn: Any) -> bool:
    """Whether a function of bound, or the user's own, is a coroutine function.

    Args:
        fn: any callable.

    Returns:
        Whether calling it gives a coroutine.
    """
    while isinstance(fn, functools.partial):
        fn = fn.args[0] if fn.func is _called else fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004
    )


def operator_name(operator: str, fn: Any) -> str:
    """ "Map(f)" for a function f.

    Args:
        operator: "Map".
        fn: the user's function, or a ClassUdf.

    Returns:
        The name.
    """
    while hasattr(fn, "func"):  # functools.partial
        fn = fn.func
    return f"{operator}({getattr(fn, '__name__', None) or type(fn).__name__})"


def user_error(operator: str, error: BaseException, row: Any = None) -> UserCodeError:
    """What an exception of the user's code becomes; raise it `from` that exception.

    Args:
        operator: its name.
        error: the exception.
        row: one row that the code was called with.

    Returns:
        The error.
    """
    problem = f"{type(error).__name__}: {error}"
    if isinstance(error, ValueError) and "read-only" in str(error):
        problem += " (batches are views of shared memory: pass zero_copy_batch=False to get copies)"
    return UserCodeError(operator, problem, "" if row is None else shown(row))


def _loop() -> asyncio.AbstractEventLoop:
    """One event loop per thread: what a class keeps between calls (sessions, locks) belongs to
    it."""
    loop = getattr(_LOCAL, "loop", None)
    if loop is None or loop.is_closed():
        loop = _LOCAL.loop = asyncio.new_event_loop()
    return loop


async def _drained(source: Any, take: Callable[[list[Any]], Any]) -> list[Any]:
    return [take([value]) async for value in source]


async def _taken(result: Any, take: Callable[[list[Any]], Any]) -> Any:
    return take([await result])


def results(
    fn: Callable[[Any], Any],
    values: Iterator[Any],
    operator: str,
    row_of: Callable[[Any], Any] = lambda value: value,
    take: Callable[[Any, list[Any]], Any] = lambda value, box: box[0],
) -> Iterator[Any]:
    """What the function gives for each of these, in order. Coroutines run together, 16 at a time.

    Args:
        fn: of one argument; it may be a coroutine function. A generator's values come as a list
            when it is asynchronous, and as the generator otherwise: who iterates over it guards
                itself.
        values: what it is called with.
        operator: its name, for errors.
        row_of: gives one row of a value, for errors.
        take: is called with a value and a list of what the function gave for it, before the
            function is called again; gives what is yielded.

    Yields:
        One result per value.

    Raises:
        UserCodeError: the function raised.
    """
    pending: collections.deque[tuple[Any, asyncio.Future[Any]]] = collections.deque()
    try:
        for value in values:
            try:
                box = [fn(value)]
                if inspect.isasyncgen(box[0]):
                    box[0] = _drained(box[0], functools.partial(take, value))
                elif inspect.iscoroutine(box[0]):
                    box[0] = _taken(box[0], functools.partial(take, value))
                else:
                    box[0] = take(value, box)
            except Exception as error:
                raise user_error(operator, error, row_of(value)) from error
            if not inspect.iscoroutine(box[0]):
                yield box.pop()
                continue
            pending.append((value, _loop().create_task(box.pop())))
            if len(pending) >= _ASYNC_AT_ONCE:
                yield _awaited(pending, operator, row_of)
        while pending:
            yield _awaited(pending, operator, row_of)
    finally:
        for _, task in pending:
            task.cancel()
        if pending:
            _loop().run_until_complete(
                asyncio.gather(*(task for _, task in pending), return_exceptions=True)
            )


def _awaited(pending: Any, operator: str, row_of: Callable[[Any], Any]) -> Any:
    value, task = pending.popleft()
    try:
        return _loop().run_until_complete(task)
    except Exception as error:
        raise user_error(operator, error, row_of(value)) from error

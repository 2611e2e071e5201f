# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of users' functions: plain ones, generators, coroutines, and classes that are made once per
process; what goes wrong in them names the operator and one row.

What they give is taken so that nobody changes it any more: a function may fill one array for each
batch, or return one dict for each row. Memory that nobody else holds is taken as it is, which the
counts of references tell, and so is that of the rows which the function was called with. All else
is copied; so is what Arrow has made, which does not tell whose memory it is. What is to be taken
comes in a list, which alone refers to it: a variable would count as a holder.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import datetime
import decimal
import functools
import inspect
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.columns import column_of
from sheaf.data.errors import UserCodeError, shown
from sheaf.data.util.memory import Memory, own_arrow

__all__ = [
    "ClassUdf",
    "bound",
    "is_async",
    "is_users",
    "operator_name",
    "own_column",
    "own_table",
    "results",
    "take_batch",
    "take_row",
    "user_error",
]

_ASYNC_AT_ONCE = 16  # Coroutines of one task that are under way together.
_INSTANCES: dict[str, Any] = {}  # Of ClassUdf, in this process.
_INSTANCES_LOCK = threading.Lock()
_LOCAL = threading.local()
_HELD_ONCE = 2  # sys.getrefcount of what one container refers to: its own argument counts.
_CONSTANT = {
    bool,
    bytes,
    complex,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    float,
    int,
    str,
    type(None),
    *(kind for kind in np.sctypeDict.values() if kind not in (np.void, np.object_)),
}
_are_constant = frozenset(_CONSTANT).issuperset


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


def is_users(code: Any) -> bool:
    """Whether a function or class is none of Sheaf's, so that what it gives is to be taken.

    Args:
        code: a callable.

    Returns:
        Whether it is the user's.
    """
    while isinstance(code, functools.partial):
        code = code.func
    return (getattr(code, "__module__", None) or "").partition(".")[0] != "sheaf"


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
    take_each: Callable[[Any, list[Any]], Any] | None = None,
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
        take_each: the same for each value of an asynchronous generator; `take` when not given.

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
                    box[0] = _drained(box[0], functools.partial(take_each or take, value))
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


def take_batch(results: Any, at: int = 0, memory: Memory | None = None, held: bool = False) -> Any:
    """A batch that a function gave.

    Args:
        results: a list; it is one of these.
        at: which one.
        memory: that of what the function was called with.
        held: whether somebody else has a reference to `results`.

    Returns:
        The pa.Table.

    Raises:
        BatchError: it is no batch.
    """
    held = held or sys.getrefcount(results[at]) > _HELD_ONCE
    batch = results[at]
    if isinstance(batch, Mapping):
        held = held or type(batch) is not dict
        columns = {name: own_column(str(name), batch, name, held, memory) for name in batch}
        return blocks.batch_to_table(columns)
    return own_table(blocks.batch_to_table(batch), memory)


def own_column(
    name: str, batch: Any, key: Any, held: bool = False, memory: Memory | None = None
) -> Any:
    """A column that a function gave.

    Args:
        name: of the column, for errors.
        batch: what holds the column, which column_of takes.
        key: where.
        held: whether somebody else has a reference to `batch`.
        memory: that of what the function was called with.

    Returns:
        A pa.Array or pa.ChunkedArray that nobody changes any more.

    Raises:
        BatchError: it is no column.
    """
    held = held or sys.getrefcount(batch[key]) > _HELD_ONCE
    column = batch[key]
    if isinstance(column, np.ndarray):
        return column_of(name, _own_array(column, held, memory))
    library = type(column).__module__.partition(".")[0]
    if library in ("pandas", "polars", "pyarrow"):
        made = column_of(name, column)
        if getattr(column, "dtype", None) == np.dtype(object):  # Made anew, value by value.
            return made
        return own_arrow(made, memory)
    if library == "torch" and getattr(column, "is_cpu", False):
        column = column.detach().clone()
    elif library != "torch" and not isinstance(column, np.generic) and hasattr(column, "__array__"):
        column = _own_array(np.asarray(column), True, memory)
    return column_of(name, column)


def _own_array(array: Any, held: bool, memory: Memory | None) -> Any:
    """It, or a copy when somebody else may write to its memory."""
    root = array
    while isinstance(root.base, np.ndarray):
        held = held or sys.getrefcount(root.base) > _HELD_ONCE
        root = root.base
    if root.base is not None:  # Memory of others.
        held = array.flags.writeable or not (
            type(root.base) is bytes or (memory is not None and memory.has_array(root))
        )
    return array.copy() if held else array


def own_table(table: Any, memory: Memory | None = None) -> Any:
    """A table whose memory is nobody else's.

    Args:
        table: a pa.Table.
        memory: that nobody changes, or None.

    Returns:
        A pa.Table.
    """
    if not table.num_columns or (memory is not None and table is memory.table):
        return table
    columns = [own_arrow(column, memory) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def take_row(
    results: Any, at: int = 0, given: Any = None, held: bool = False, memory: Memory | None = None
) -> Any:
    """A row that a function gave.

    Args:
        results: a list or tuple; it is one of these.
        at: which one.
        given: the row that the function was called with, to which the caller refers.
        held: whether somebody else has a reference to `results`.
        memory: that of what the function was called with.

    Returns:
        A dict; what is no mapping as it is.
    """
    held = held or sys.getrefcount(results[at]) > (
        _HELD_ONCE + 1 if results[at] is given else _HELD_ONCE
    )
    row = results[at]
    if not isinstance(row, Mapping):
        return row
    if _are_constant(map(type, row.values())):
        return dict(row) if held else row
    held = held or type(row) is not dict
    return {name: _own_value(row, name, held, memory) for name in row}


def _own_value(container: Any, key: Any, held: bool, memory: Memory | None) -> Any:
    held = held or sys.getrefcount(container[key]) > _HELD_ONCE
    value = container[key]
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if kind is np.ndarray and value.dtype != object:
        return _own_array(value, held, memory)
    if kind in (list, tuple):
        if _are_constant(map(type, value)):
            return value[:] if held else value
        return kind([_own_value(value, at, held, memory) for at in range(len(value))])
    if kind is dict:
        return {name: _own_value(value, name, held, memory) for name in value}
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return value.detach().clone()
    try:
        return copy.deepcopy(value)
    except Exception:  # What cannot be copied cannot be pickled either, which will be said.
        return value

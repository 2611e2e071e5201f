# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Transforms that run a user's function on rows or batches."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.batches import check_batch_size, rebatch
from sheaf.data.errors import BatchError, DataError, shown
from sheaf.data.transforms.framed import Framed, Joined, OwnFrame, own_frame
from sheaf.data.user_code import (
    bound,
    is_async,
    operator_name,
    results,
    take_batch,
    take_row,
    user_error,
)
from sheaf.data.util.memory import Memory

Transform = Callable[[Iterator[Any]], Iterator[Any]]
_ROWS_AT_ONCE = 16384  # Of a row function's results, as Python values.


def map_rows(
    fn: Any,
    *,
    fn_args: Iterable[Any] = (),
    fn_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Transform:
    """Each row through a function.

    Args:
        fn: takes a dict, gives a dict; a callable, a coroutine function, or a ClassUdf.
        fn_args: of it, behind the row.
        fn_kwargs: of it.
        name: of the operator, for errors; "Map(f)" when not given.

    Returns:
        The transform.
    """
    name = name or operator_name("Map", fn)
    return functools.partial(_map_rows, fn, tuple(fn_args), dict(fn_kwargs or {}), name)


def _map_rows(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, tables: Iterator[Any]
) -> Iterator[Any]:
    call = bound(fn, args, kwargs)
    if is_async(call):
        memory = Memory()
        take = functools.partial(_take_row, memory)
        made = results(call, _rows(tables, memory), name, take=take)
        yield from _tables_of(name, made, "one dict per row")
        return
    memory = Memory()
    for memory.table in _parts(tables):
        rows: list[Any] = []
        add = rows.append
        row: Any = None
        try:
            for row in blocks.table_to_rows(memory.table):
                add(take_row([call(row)], 0, row, False, memory))
        except Exception as error:
            raise user_error(name, error, row) from error
        yield _table_of(name, rows, "one dict per row")


def flat_map(
    fn: Any,
    *,
    fn_args: Iterable[Any] = (),
    fn_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Transform:
    """Each row through a function that gives any number of rows.

    Args:
        fn: takes a dict, gives a list of dicts, or yields them; as of map_rows.
        fn_args: of it, behind the row.
        fn_kwargs: of it.
        name: of the operator, for errors; "FlatMap(f)" when not given.

    Returns:
        The transform.
    """
    name = name or operator_name("FlatMap", fn)
    return functools.partial(_flat_map, fn, tuple(fn_args), dict(fn_kwargs or {}), name)


def _flat_map(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, tables: Iterator[Any]
) -> Iterator[Any]:
    call = bound(fn, args, kwargs)

    def made() -> Iterator[Any]:
        last: list[Any] = [None]
        memory = Memory()

        def remembered() -> Iterator[Any]:
            for last[0] in _rows(tables, memory):
                yield last[0]

        take, take_each = (functools.partial(one, memory) for one in (_take_rows, _take_row))
        for several in results(call, remembered(), name, take=take, take_each=take_each):
            if isinstance(several, (Mapping, str, bytes)) or not isinstance(several, Iterable):
                problem = BatchError(
                    f"returned {shown(several)} of type {type(several).__name__}: want a list of "
                    "dicts, or yield them"
                )
                raise user_error(name, problem, last[0]) from problem
            try:
                if isinstance(several, list):
                    yield from several
                else:
                    several = iter(several)
                    while box := list(itertools.islice(several, 1)):
                        yield take_row(box, memory=memory)
            except GeneratorExit:
                raise
            except Exception as error:  # Of the user's generator.
                raise user_error(name, error, last[0]) from error

    yield from _tables_of(name, made(), "a list of dicts per row")


def filter_rows(
    fn: Any,
    *,
    fn_args: Iterable[Any] = (),
    fn_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Transform:
    """The rows for which a function gives what is true.

    Args:
        fn: takes a dict; as of map_rows.
        fn_args: of it, behind the row.
        fn_kwargs: of it.
        name: of the operator, for errors; "Filter(f)" when not given.

    Returns:
        The transform.
    """
    name = name or operator_name("Filter", fn)
    return functools.partial(_filter_rows, fn, tuple(fn_args), dict(fn_kwargs or {}), name)


def _filter_rows(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, tables: Iterator[Any]
) -> Iterator[Any]:
    call = bound(fn, args, kwargs)
    for part in _parts(tables, keep_empty=True):
        kept: list[bool] = []
        row: Any = None
        try:
            if is_async(call):
                kept = [bool(one) for one in results(call, blocks.table_to_rows(part), name)]
            else:
                for row in blocks.table_to_rows(part):
                    kept.append(bool(call(row)))
        except DataError:
            raise
        except Exception as error:
            raise user_error(name, error, row) from error
        yield (
            part.filter(pa.array(kept, pa.bool_()))
            if part.num_columns
            else blocks.empty_rows(sum(kept))
        )


def map_batches(
    fn: Any,
    *,
    batch_size: int | None = None,
    batch_format: str | None = "default",
    zero_copy_batch: bool = True,
    fn_args: Iterable[Any] = (),
    fn_kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Transform:
    """Batches of rows through a function.

    Args:
        fn: takes a batch and gives one, or yields several; a callable, a coroutine function, an
            asynchronous generator, or a ClassUdf.
        batch_size: rows of a batch; the last of a task has what is left. None: whole blocks.
        batch_format: "default", "numpy", "pandas", "pyarrow", "polars" or None.
        zero_copy_batch: batches are read-only views of the block; False: copies.
        fn_args: of it, behind the batch.
        fn_kwargs: of it.
        name: of the operator, for errors; "MapBatches(f)" when not given.

    Returns:
        The transform.

    Raises:
        ValueError: `batch_size` is 0 or less, or `batch_format` is none of these.
    """
    check_batch_size(batch_size)
    if batch_format not in blocks.BATCH_FORMATS:
        raise ValueError(f"batch_format={batch_format!r}: want one of {list(blocks.BATCH_FORMATS)}")
    name = name or operator_name("MapBatches", fn)
    shape = (batch_size, batch_format, zero_copy_batch)
    return functools.partial(_map_batches, fn, tuple(fn_args), dict(fn_kwargs or {}), name, shape)


def _map_batches(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    shape: tuple[int | None, str | None, bool],
    tables: Iterator[Any],
) -> Iterator[Any]:
    call = bound(fn, args, kwargs)
    batch_size, batch_format, zero_copy = shape
    last: list[Any] = [None]  # The latest batch: errors show its first row.

    def made(given: Memory) -> Any:
        if isinstance(given, Framed):
            return call(given.frame)
        return call(given.lend(blocks.table_to_batch(given.table, batch_format, zero_copy)))

    def remembered() -> Iterator[Any]:
        for table in rebatch(tables, batch_size):
            last[0] = table if isinstance(table, Framed) else Memory(table)
            yield last[0]

    def first_row(given: Memory) -> Any:
        part = blocks.slice_rows(given.table, 0, 1)
        return next(blocks.table_to_rows(part, exact=False), None)

    joined = Joined()
    for result in results(made, remembered(), name, first_row, _take_batch, _take_each):
        try:
            if isinstance(result, OwnFrame):
                yield from joined.add(result)
                continue
            yield from joined.rest()
            if isinstance(result, list):
                yield from result
            elif isinstance(result, pa.Table):
                yield result
            else:
                while box := list(itertools.islice(result, 1)):
                    yield take_batch(box, 0, last[0])
        except GeneratorExit:
            raise
        except Exception as error:  # Of the user's generator, or of what it gave.
            raise user_error(name, error, first_row(last[0])) from error
    yield from joined.rest()


def _take_row(memory: Memory, row: Any, box: list[Any]) -> Any:
    return take_row(box, memory=memory)


def _take_rows(memory: Memory, row: Any, box: list[Any]) -> Any:
    """What flat_map's function gives; generators are left to who iterates."""
    if not isinstance(box[0], (list, tuple)):
        return box[0]
    held = sys.getrefcount(box[0]) > 2
    several = box[0]
    return [take_row(several, at, None, held, memory) for at in range(len(several))]


def _take_batch(given: Memory, box: list[Any]) -> Any:
    """What map_batches' function gives: a table, an OwnFrame, or a list of tables. Generators are
    left to who iterates."""
    if inspect.isgenerator(box[0]) or isinstance(box[0], Iterator):
        return box[0]
    if isinstance(box[0], list):
        held = sys.getrefcount(box[0]) > 2
        several = box[0]
        return [take_batch(several, at, given, held) for at in range(len(several))]
    own = own_frame(box[0], given) if isinstance(given, Framed) else None
    return take_batch(box, 0, given) if own is None else own


def _take_each(given: Memory, box: list[Any]) -> Any:
    return take_batch(box, 0, given)


def _parts(tables: Iterator[Any], keep_empty: bool = False) -> Iterator[Any]:
    for table in tables:
        for start in range(0, max(table.num_rows, int(keep_empty)), _ROWS_AT_ONCE):
            yield blocks.slice_rows(table, start, _ROWS_AT_ONCE)


def _rows(tables: Iterator[Any], memory: Memory) -> Iterator[dict[str, Any]]:
    """The rows of tables; `memory` is that of the latest one."""
    for memory.table in tables:
        yield from blocks.table_to_rows(memory.table)


def _tables_of(name: str, rows: Iterator[Any], wanted: str) -> Iterator[Any]:
    while part := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        yield _table_of(name, part, wanted)


def _table_of(name: str, rows: list[Any], wanted: str) -> Any:
    if set(map(type, rows)) != {dict}:
        wrong = [row for row in rows if not isinstance(row, Mapping)]
        if wrong:
            problem = BatchError(
                f"returned {shown(wrong[0])} of type {type(wrong[0]).__name__}: want {wanted}"
            )
            raise user_error(name, problem) from problem
    try:
        return blocks.rows_to_table(rows)
    except Exception as error:
        raise user_error(name, error, rows[0]) from error

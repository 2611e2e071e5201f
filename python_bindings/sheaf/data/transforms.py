# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the operators of a dataset do with blocks, as functions from an iterator of tables to an
iterator of tables. They hold no data, pickle (by cloudpickle where the user's function needs it),
and can be called any number of times: each call is one task.

Tables that come out are of any size; cut_blocks makes blocks of them. A table without rows keeps
its schema where the schema of the result follows from it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.batches import check_batch_size, rebatch
from sheaf.data.errors import BatchError, DataError, shown
from sheaf.data.schema import check_columns
from sheaf.data.task_context import TaskContext
from sheaf.data.user_code import ClassUdf, bound, is_async, operator_name, results, user_error

__all__ = [
    "ClassUdf",
    "Transform",
    "chain",
    "cut_blocks",
    "drop",
    "filter_expression",
    "filter_rows",
    "flat_map",
    "limit_rows",
    "map_batches",
    "map_rows",
    "prepare",
    "read",
    "rename",
    "select",
    "with_columns",
    "write",
]

Transform = Callable[[Iterator[Any]], Iterator[Any]]
_ROWS_AT_ONCE = 16384  # Of a row function's results, as Python values.


def prepare(fn: Any) -> None:
    """Makes the instance of a ClassUdf in this process now, so that an actor fails at its start;
    nothing for other functions. Raises UserCodeError."""
    if isinstance(fn, ClassUdf):
        fn.instance()


def chain(transforms: Sequence[Transform]) -> Transform:
    """Transforms one behind the other.

    Args:
        transforms: the first one takes the input.

    Returns:
        The transform.
    """
    return functools.partial(_chain, list(transforms))


def _chain(transforms: list[Transform], tables: Iterator[Any]) -> Iterator[Any]:
    for transform in transforms:
        tables = transform(tables)
    return tables


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
        made = results(call, _rows(tables), name)
        yield from _tables_of(name, made, "one dict per row")
        return
    for part in _parts(tables):
        rows: list[Any] = []
        add = rows.append
        row: Any = None
        try:
            for row in blocks.table_to_rows(part):
                add(call(row))
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

        def remembered() -> Iterator[Any]:
            for last[0] in _rows(tables):
                yield last[0]

        for several in results(call, remembered(), name):
            if isinstance(several, (Mapping, str, bytes)) or not isinstance(several, Iterable):
                problem = BatchError(
                    f"returned {shown(several)} of type {type(several).__name__}: want a list of "
                    "dicts, or yield them"
                )
                raise user_error(name, problem, last[0]) from problem
            try:
                yield from several
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
    last: list[Any] = [None]  # The latest batch, as a table: errors show its first row.

    def made(table: Any) -> Any:
        return call(blocks.table_to_batch(table, batch_format, zero_copy))

    def remembered() -> Iterator[Any]:
        for last[0] in rebatch(tables, batch_size):
            yield last[0]

    def first_row(table: Any) -> Any:
        return next(blocks.table_to_rows(blocks.slice_rows(table, 0, 1)), None)

    for result in results(made, remembered(), name, first_row):
        several = (
            result
            if inspect.isgenerator(result) or isinstance(result, (list, Iterator))
            else (result,)
        )
        try:
            for batch in several:
                yield blocks.batch_to_table(batch)
        except GeneratorExit:
            raise
        except Exception as error:  # Of the user's generator, or of what it gave.
            raise user_error(name, error, first_row(last[0])) from error


def filter_expression(expression: Any, *, name: str = "Filter") -> Transform:
    """The rows for which an expression is true; not those where it is NULL.

    Args:
        expression: of sheaf.data.expressions; its value is boolean.
        name: of the operator, for errors.

    Returns:
        The transform.
    """
    return functools.partial(_filter_expression, expression, name)


def _filter_expression(expression: Any, name: str, tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        mask = expression.evaluate(table)
        if not pa.types.is_boolean(mask.type):
            raise BatchError(f"{name}: {expression} is {mask.type}, and a filter wants a boolean")
        yield table.filter(mask)


def with_columns(expressions: Mapping[str, Any]) -> Transform:
    """Further columns, or others in the place of those of the same names. All see the columns that
    came in.

    Args:
        expressions: names of columns with expressions of sheaf.data.expressions.

    Returns:
        The transform.
    """
    return functools.partial(_with_columns, dict(expressions))


def _with_columns(expressions: dict[str, Any], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        made = {name: expression.evaluate(table) for name, expression in expressions.items()}
        for name, column in made.items():
            place = table.schema.get_field_index(name)
            table = (
                table.append_column(name, column)
                if place < 0
                else table.set_column(place, name, column)
            )
        yield table


def select(columns: Sequence[str]) -> Transform:
    """Some of the columns, in this order. A name that is not there raises ColumnNotFoundError.

    Args:
        columns: their names.

    Returns:
        The transform.
    """
    return functools.partial(_select, list(columns))


def _select(columns: list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        if not table.num_columns and not table.num_rows:  # Of a dataset without rows.
            yield table
            continue
        check_columns(columns, table.column_names, "select_columns")
        yield table.select(columns)


def drop(columns: Sequence[str]) -> Transform:
    """All but some of the columns. A name that is not there raises ColumnNotFoundError.

    Args:
        columns: the names of those that go.

    Returns:
        The transform.
    """
    return functools.partial(_drop, list(columns))


def _drop(columns: list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        check_columns(columns, table.column_names, "drop_columns")
        yield table.select([name for name in table.column_names if name not in columns])


def rename(names: Mapping[str, str] | Sequence[str]) -> Transform:
    """Other names of columns. A name that is not there raises ColumnNotFoundError, two columns of
    one name ValueError.

    Args:
        names: old names with new ones, or new names for all columns.

    Returns:
        The transform.
    """
    return functools.partial(_rename, dict(names) if isinstance(names, Mapping) else list(names))


def _rename(names: dict[str, str] | list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        if isinstance(names, dict):
            check_columns(names, table.column_names, "rename_columns")
            new = [names.get(name, name) for name in table.column_names]
        elif len(names) != table.num_columns:
            raise ValueError(
                f"rename_columns: {len(names)} names for {table.num_columns} columns: {names}"
            )
        else:
            new = names
        twice = next((name for name in new if new.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"rename_columns: two columns would be named '{twice}'")
        yield table.rename_columns(new)


def limit_rows(count: int) -> Transform:
    """The first rows of a task. It takes no further table once it has them.

    Args:
        count: rows, 0 or more.

    Returns:
        The transform.
    """
    return functools.partial(_limit_rows, count)


def _limit_rows(count: int, tables: Iterator[Any]) -> Iterator[Any]:
    left = count
    for table in tables:
        yield blocks.slice_rows(table, 0, left)
        left -= min(left, table.num_rows)
        if left <= 0:
            return


def read(read_task: Any) -> Transform:
    """The blocks that a read task gives; what comes in is left alone.

    Args:
        read_task: a ReadTask, or what gives blocks when it is called.

    Returns:
        The transform.
    """
    return functools.partial(_read, read_task)


def _read(read_task: Any, tables: Iterator[Any]) -> Iterator[Any]:
    for made in read_task():
        yield blocks.batch_to_table(made)


def write(datasink: Any, context: TaskContext | None = None) -> Transform:
    """Writes what comes in through a sink, as one task of it.

    Args:
        datasink: a Datasink. Its write() is called once, also for no rows.
        context: handed to it; that of the task which runs when not given.

    Returns:
        The transform; it yields one table of one row: num_rows, size_bytes, wall_s, and in
        `write_return` what write() returned, as an object.
    """
    return functools.partial(_write, datasink, context)


def _write(datasink: Any, context: TaskContext | None, tables: Iterator[Any]) -> Iterator[Any]:
    counts = [0, 0]

    def counted() -> Iterator[Any]:
        for table in tables:
            counts[0] += table.num_rows
            counts[1] += blocks.size_bytes(table)
            yield table

    start = time.perf_counter()
    source = counted()
    returned = datasink.write(source, context or TaskContext.current())
    for _ in source:  # A sink that writes nothing of it still runs what makes it.
        pass
    yield pa.table(
        {
            "num_rows": [counts[0]],
            "size_bytes": [counts[1]],
            "wall_s": [time.perf_counter() - start],
            "write_return": _object(returned),
        }
    )


def _object(value: Any) -> Any:
    from sheaf.data.arrow_types import objects_array

    return objects_array([value])


def cut_blocks(tables: Iterator[Any], target_max: int, target_min: int = 0) -> Iterator[Any]:
    """Tables as blocks: small ones joined while they have less than `target_min` bytes together,
    large ones split into equal parts of at most `target_max`, as far as rows allow.

    Args:
        tables: what an operator gives.
        target_max: bytes, above 0.
        target_min: bytes; at most `target_max`.

    Yields:
        Blocks with rows; when there is none, one without, if a table came that has a schema.
    """
    waiting: list[Any] = []
    size = 0
    empty: Any = None
    found = False
    for table in tables:
        if not table.num_rows:
            empty = table if empty is None or not empty.num_columns else empty
            continue
        found = True
        bytes_here = blocks.size_bytes(table)
        if waiting and size + bytes_here > target_max:
            yield _joined(waiting)
            waiting, size = [], 0
        if bytes_here > target_max:
            yield from _split(table, bytes_here, target_max)
            continue
        waiting.append(table)
        size += bytes_here
        if size >= target_min:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)
    if not found and empty is not None:
        yield empty


def _joined(tables: list[Any]) -> Any:
    return tables[0] if len(tables) == 1 else blocks.combine(blocks.concat(tables))


def _split(table: Any, size: int, target_max: int) -> Iterator[Any]:
    parts = min(table.num_rows, -(-size // target_max))
    if parts == 1:
        yield table
        return
    for part in range(parts):
        start, stop = part * table.num_rows // parts, (part + 1) * table.num_rows // parts
        piece = blocks.slice_rows(table, start, stop - start)
        bytes_here = blocks.size_bytes(piece)
        if bytes_here > target_max:  # Rows are not of one size.
            yield from _split(piece, bytes_here, target_max)
        else:
            yield piece


def _parts(tables: Iterator[Any], keep_empty: bool = False) -> Iterator[Any]:
    for table in tables:
        for start in range(0, max(table.num_rows, int(keep_empty)), _ROWS_AT_ONCE):
            yield blocks.slice_rows(table, start, _ROWS_AT_ONCE)


def _rows(tables: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from blocks.table_to_rows(table)


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

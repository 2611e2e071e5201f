# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the operators of a dataset do with blocks, as functions from an iterator of tables to an
iterator of tables. They hold no data, pickle (by cloudpickle where the user's function needs it),
and can be called any number of times: each call is one task.

Tables that come out are of any size; cut_blocks makes blocks of them. A table without rows keeps
its schema where the schema of the result follows from it.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.datasource.datasource import ReadTask
from sheaf.data.task_context import TaskContext
from sheaf.data.transforms.columns import (
    count_rows,
    drop,
    filter_expression,
    limit_rows,
    rename,
    select,
    with_columns,
)
from sheaf.data.transforms.users import Transform, filter_rows, flat_map, map_batches, map_rows
from sheaf.data.user_code import ClassUdf, take_batch

__all__ = [
    "ClassUdf",
    "Transform",
    "chain",
    "count_rows",
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
    flat: list[Transform] = []
    one: Any
    for one in transforms:  # A chain of chains would be as deep as they are many.
        flat += one.args[0] if is_chain(one) else [one]
    return functools.partial(_chain, flat)


def is_chain(transform: Any) -> bool:
    """Whether chain() made it: `args[0]` has its transforms.

    Args:
        transform: any.

    Returns:
        Whether it is.
    """
    return isinstance(transform, functools.partial) and transform.func is _chain


def _chain(transforms: list[Transform], tables: Iterator[Any]) -> Iterator[Any]:
    for transform in transforms:
        tables = transform(tables)
    return tables


def read(read_task: Any) -> Transform:
    """The blocks that a read task gives; what comes in is left alone.

    Args:
        read_task: a ReadTask, or what gives blocks when it is called.

    Returns:
        The transform.
    """
    return functools.partial(_read, read_task)


def _read(read_task: Any, tables: Iterator[Any]) -> Iterator[Any]:
    made = iter(read_task())
    while box := list(itertools.islice(made, 1)):
        yield box[0] if isinstance(read_task, ReadTask) else take_batch(box)


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

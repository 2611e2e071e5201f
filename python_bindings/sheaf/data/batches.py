# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of any size as batches of one size, in order or shuffled within a buffer."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.block import combine, concat, slice_rows, table_to_batch

__all__ = ["batches", "behind", "check_batch_size", "rebatch", "shuffled"]


def check_batch_size(batch_size: Any) -> None:
    """Raises ValueError or TypeError when `batch_size` is neither None nor a whole number above
    0."""
    if batch_size is None:
        return
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)):
        raise TypeError(f"batch_size={batch_size!r}: want a whole number of rows, or None")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: want 1 or more rows, or None for whole blocks")


def rebatch(
    tables: Iterator[Any], batch_size: int | None, drop_last: bool = False
) -> Iterator[Any]:
    """Tables of exactly `batch_size` rows. Within one block they are slices of it; across blocks
    their columns have one chunk per block.

    Args:
        tables: blocks; those without rows are left out.
        batch_size: rows; None: each block is one batch.
        drop_last: leaves out the last batch when it is smaller.

    Yields:
        One pa.Table per batch.
    """
    if batch_size is None:
        yield from (table for table in tables if table.num_rows)
        return
    waiting: collections.deque[Any] = collections.deque()
    rows = 0
    for table in tables:
        if not table.num_rows:
            continue
        waiting.append(table)
        rows += table.num_rows
        while rows >= batch_size:
            yield _take(waiting, batch_size)
            rows -= batch_size
    if rows and not drop_last:
        yield _take(waiting, rows)


def behind(tables: Iterator[Any], rows: int) -> Iterator[Any]:
    """Tables without the first rows of all.

    Args:
        tables: blocks or batches.
        rows: how many are left out.

    Yields:
        The rest.
    """
    for table in tables:
        if rows >= table.num_rows:
            rows -= table.num_rows
            continue
        yield slice_rows(table, rows) if rows else table
        rows = 0


def _take(waiting: collections.deque[Any], rows: int) -> Any:
    """The first rows of these tables, which have at least as many; they are taken out."""
    parts = []
    while rows:
        table = waiting.popleft()
        if table.num_rows > rows:
            waiting.appendleft(slice_rows(table, rows))
            table = slice_rows(table, 0, rows)
        rows -= table.num_rows
        parts.append(table)
    return concat(parts)


def shuffled(
    tables: Iterator[Any],
    batch_size: int | None,
    buffer_size: int,
    seed: int | None = None,
    drop_last: bool = False,
) -> Iterator[Any]:
    """Batches of rows drawn at random from a buffer, which is filled with further blocks while it
    has fewer than `buffer_size` rows besides the batch.

    Args:
        tables: blocks.
        batch_size: rows; None: as many as the buffer holds.
        buffer_size: rows that stay in the buffer while there are more to come, 1 or more.
        seed: the same gives the same batches for the same blocks.
        drop_last: leaves out the last batch when it is smaller.

    Yields:
        One pa.Table per batch.
    """
    random = np.random.default_rng(seed)
    batch_size = batch_size or buffer_size
    # A buffer that is shuffled once serves many batches: it holds at least twice what must stay.
    target = max(2 * buffer_size, buffer_size + batch_size)
    waiting: list[Any] = []
    rows = 0
    mixed: Any = None
    done = 0  # Rows of `mixed` that have been given out.
    for table in tables:
        if not table.num_rows:
            continue
        waiting.append(table)
        rows += table.num_rows
        left = mixed.num_rows - done if mixed is not None else 0
        if left + rows < target:
            continue
        mixed, done = _mixed(mixed, done, waiting, random), 0
        waiting, rows = [], 0
        while mixed.num_rows - done >= buffer_size + batch_size:
            yield slice_rows(mixed, done, batch_size)
            done += batch_size
    if mixed is not None or waiting:
        mixed, done = _mixed(mixed, done, waiting, random), 0
        yield from rebatch(iter([mixed]), batch_size, drop_last)


def _mixed(mixed: Any, done: int, waiting: list[Any], random: Any) -> Any:
    parts = [*([] if mixed is None else [slice_rows(mixed, done)]), *waiting]
    table = combine(concat(parts))
    return table.take(pa.array(random.permutation(table.num_rows)))


def batches(
    tables: Iterator[Any],
    batch_size: int | None,
    batch_format: str | None = "default",
    zero_copy: bool = True,
    drop_last: bool = False,
) -> Iterator[Any]:
    """Blocks as batches in the format that users see.

    Args:
        tables: blocks.
        batch_size: rows; None: each block is one batch.
        batch_format: as of table_to_batch.
        zero_copy: as of table_to_batch.
        drop_last: leaves out the last batch when it is smaller.

    Yields:
        The batches.
    """
    for table in rebatch(tables, batch_size, drop_last):
        yield table_to_batch(table, batch_format, zero_copy)

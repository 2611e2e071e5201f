# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows of a table by their keys, and Arrow's hash kernels over them.

Groups come in the order in which their keys first come. NULL keys are one group, NaN is one, and
-0.0 is 0.0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import is_opaque, key, movable
from sheaf.data.errors import BatchError


class Groups:
    """Rows of a table by their keys."""

    def __init__(self, table: Any, keys: Sequence[str]):
        self.table = table = movable(table)
        if keys:
            self._find(table, keys)
            return
        # All rows are one group.
        rows = table.num_rows
        self.count = min(1, rows)
        self.lengths = np.full(self.count, rows, np.int64)
        self.starts = np.zeros(self.count, np.int64)
        self.ids = np.zeros(rows, np.int64)
        self.keys = pa.table({})

    def _find(self, table: Any, keys: Sequence[str]) -> None:
        columns = [_key(name, table.column(name)) for name in keys]
        self.ids, first = numbered_rows(columns)
        self.count = len(first)
        self.lengths = np.bincount(self.ids, minlength=self.count)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])[: self.count].astype(np.int64)
        self.keys = pa.table(
            [
                _as(column.take(pa.array(first)), table.column(name).type)
                for name, column in zip(keys, columns)
            ],
            names=list(keys),
        )

    @functools.cached_property
    def order(self) -> Any:
        """The rows by groups."""
        return np.argsort(self.ids, kind="stable")

    def rows_of(self, number: int) -> Any:
        """The rows of a group, as a pa.Table."""
        if len(self.order) == self.lengths[number]:
            return self.table
        start = self.starts[number]
        return self.table.take(pa.array(self.order[start : start + self.lengths[number]]))

    def aggregated(self, column: Any, function: str, options: Any = None) -> Any:
        """One value per group, by a hash kernel of Arrow."""
        table = pa.table([pa.chunked_array([self.ids]), column], names=["g", "x"])
        found = table.group_by("g", use_threads=False).aggregate([("x", function, options)])
        order = np.argsort(found.column("g").to_numpy())
        return found.column(f"x_{function}").take(pa.array(order)).combine_chunks()

    def lists(self, column: Any) -> Any:
        """The values of each group as a list."""
        values = column.take(pa.array(self.order)).combine_chunks()
        return lists_of(values, self.lengths)

    def joined(self, column: Any) -> Any:
        """The lists of each group, one behind the other."""
        lists = column.take(pa.array(self.order)).combine_chunks()
        sizes = lists.value_lengths().fill_null(0).to_numpy()
        ends = np.concatenate([[0], np.cumsum(sizes)])
        bounds = np.concatenate([self.starts, [len(self.order)]])
        return lists_of(lists.flatten(), np.diff(ends[bounds]))


def numbered_rows(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Numbers of the groups of equal values, in the order in which they first come.

    Args:
        columns: as of coded_rows.

    Returns:
        (ids, first): the number of the group of each row, and the first row of each group.
    """
    codes, bound = coded_rows(columns)
    rows = len(codes)
    first_of = np.full(bound, rows)
    first_of[codes[::-1]] = np.arange(rows - 1, -1, -1)  # The last one that is written stays.
    there = np.flatnonzero(first_of < rows)
    there = there[np.argsort(first_of[there])]
    numbers = np.empty(bound, np.int64)
    numbers[there] = np.arange(len(there))
    return numbers[codes], first_of[there]


def coded_rows(columns: Sequence[Any]) -> tuple[Any, int]:
    """A number for each row, equal where all values are; NULL is a value, NaN one.

    Column by column, integers of a small range as they are, all others through the hash tables by
    which Arrow makes dictionaries: its grouping of several columns at once takes ten times as long,
    and a hundred times for floats.

    Args:
        columns: at least one, of types that kernels compare; pa.ChunkedArray.

    Returns:
        (codes, bound): an int64 NumPy array, and what all of it is below; about as much as there
        are rows.
    """
    codes, bound = _coded(columns[0])
    for column in columns[1:]:
        more, count = _coded(column)
        codes, bound = codes * count + more, bound * count  # Below 2**63, as rows are below 2**30.
        if bound > _sparse(len(codes)):
            codes, bound = _hashed(pa.chunked_array([codes]))
    return codes, bound


def _sparse(rows: int) -> int:
    """Codes of a larger range are not worth a table of it."""
    return 2 * rows + 1024


def _coded(column: Any) -> tuple[Any, int]:
    kind = column.type
    integral = pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    if integral and kind != pa.uint64() and len(column) > column.null_count:
        numbers = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        numbers = numbers.cast(pa.int64())
        ends = pc.min_max(numbers).as_py()
        bound = ends["max"] - ends["min"] + 2
        if bound <= _sparse(len(column)):
            there = numbers.fill_null(ends["min"]).to_numpy() - ends["min"] + 1
            if numbers.null_count:
                there[pc.is_null(numbers).to_numpy()] = 0
            return there, bound
    return _hashed(column)


def _hashed(column: Any) -> tuple[Any, int]:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    whole = blocks.combine(pa.table({"key": column})).column(0).combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0)
    coded = whole.dictionary_encode(null_encoding="encode")
    return coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)


def lists_of(values: Any, lengths: Any) -> Any:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _as(column: Any, kind: Any) -> Any:
    """What the user sees of the keys: short floats are as they were."""
    return column.cast(kind) if pa.types.is_float16(kind) else column


def _key(name: str, column: Any) -> Any:
    if is_opaque(column.type):
        raise BatchError(
            f"column '{name}' is {column.type}, by which rows cannot be grouped: group by a number "
            "or text that add_column makes of it, or use map_groups"
        )
    return key(column)

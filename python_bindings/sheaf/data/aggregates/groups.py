# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows of a table by their keys, and Arrow's hash kernels over them.

Groups come in the order in which their keys first come. NULL keys are one group, NaN is one, and
-0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        self.order = np.arange(rows)
        self.lengths = np.full(self.count, rows, np.int64)
        self.starts = np.zeros(self.count, np.int64)
        self.ids = np.zeros(rows, np.int64)
        self.keys = pa.table({})

    def _find(self, table: Any, keys: Sequence[str]) -> None:
        columns = [_key(name, table.column(name)) for name in keys]
        names = [f"k{number}" for number in range(len(columns))]
        rows = pa.array(np.arange(table.num_rows))
        found = (
            pa.table([*columns, rows], names=[*names, "row"])
            .group_by(names, use_threads=False)
            .aggregate([("row", "list")])
        )
        # Arrow numbers groups as it likes: here they come in the order of their first rows.
        first = pc.list_element(found.column("row_list"), 0).to_numpy()
        found = found.take(pa.array(np.argsort(first)))
        lists = found.column("row_list").combine_chunks()
        self.order = lists.flatten().to_numpy()  # Rows by groups.
        self.lengths = lists.value_lengths().to_numpy()
        self.count = len(self.lengths)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])[: self.count].astype(np.int64)
        self.keys = pa.table(
            [_as(found.column(name), table.column(key).type) for name, key in zip(names, keys)],
            names=list(keys),
        )
        self.ids = np.empty(table.num_rows, np.int64)
        self.ids[self.order] = np.repeat(np.arange(self.count), self.lengths)

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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""groupby(...).aggregate(...) as an exchange: partial results in map tasks, which go to partitions
by their keys, and are merged there. Without keys there is one group, and nothing is partitioned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import block as blocks
from sheaf.data import partition as rows_to
from sheaf.data.aggregate import runs_code_of_user
from sheaf.data.exchange import Method
from sheaf.data.schema import check_columns

_NUMBER = "__aggregate__"  # Which aggregate a row of partial results is of.


@dataclasses.dataclass
class Aggregate(Method):
    """Groups by keys, one row for each.

    Attributes:
        keys: columns; none: one group of all rows.
        aggregates: each with partial, merge and finish.
    """

    keys: tuple[str, ...] = ()
    aggregates: tuple[Any, ...] = ()
    keeps_rows: bool = False

    def __post_init__(self) -> None:
        self.is_plain = not any(runs_code_of_user(one) for one in self.aggregates)

    def schema(self, schema: Any) -> Any:
        return None

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        assert self.count is not None
        if not table.num_columns and not table.num_rows:  # Of a dataset without rows.
            return table, np.zeros(self.count + 1, np.int64)
        check_columns(self.keys, table.column_names, "groupby")
        keys = list(self.keys)
        table = _one_zero(table, keys)
        states = [self._numbered(i, a.partial(table, keys)) for i, a in enumerate(self.aggregates)]
        if not states:
            states = [self._numbered(0, table.select(keys).group_by(keys).aggregate([]))]
        made = blocks.combine(blocks.concat(states))
        parts = (
            rows_to.by_hash(made, keys, self.count) if keys else np.zeros(made.num_rows, np.int64)
        )
        return rows_to.cut(made, parts, self.count)

    def _numbered(self, number: int, state: Any) -> Any:
        names = [name if name in self.keys else f"{number}:{name}" for name in state.column_names]
        numbers = pa.array(np.full(state.num_rows, number, np.int32))
        return state.rename_columns(names).append_column(_NUMBER, numbers)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        if not table.num_columns or (not table.num_rows and self.keys):
            return
        keys = list(self.keys)
        numbers = table.column(_NUMBER).to_numpy()
        out: Any = None
        for number, aggregate in enumerate(self.aggregates):
            own = [name for name in table.column_names if name.startswith(f"{number}:")]
            state = table.select([*keys, *own]).filter(pa.array(numbers == number))
            state = state.rename_columns([*keys, *(n.partition(":")[2] for n in own)])
            result = self._in_order(aggregate.finish(aggregate.merge(state, keys)))
            if out is None:
                out = result
                continue
            for name in result.column_names:
                if name not in keys:
                    out = out.append_column(name, result.column(name))
        if out is None:
            out = self._in_order(table.select(keys).group_by(keys).aggregate([]))
        yield out

    def _in_order(self, table: Any) -> Any:
        """Sorted by keys, so that results of several aggregates stand side by side."""
        if not self.keys:
            return table
        order = [(key, False) for key in self.keys]
        try:
            return table.take(rows_to.sort_order(table, order))
        except TypeError:  # Keys without an order: that of their text.
            texts = {
                f"{n}": pa.array([repr(v) for v in table.column(k).to_pylist()])
                for n, k in enumerate(self.keys)
            }
            return table.take(rows_to.sort_order(pa.table(texts), [(n, False) for n in texts]))


def _one_zero(table: Any, keys: Sequence[str]) -> Any:
    """The table with 0.0 for -0.0 in keys: they are one group."""
    for key in keys:
        place = table.schema.get_field_index(key)
        if pa.types.is_floating(table.schema.field(place).type):
            column = table.column(place)
            table = table.set_column(place, key, pc.add(column, pa.scalar(0.0, column.type)))
    return table


@dataclasses.dataclass
class MapGroups(Method):
    """Each group through a function of the user's.

    Attributes:
        keys: columns; none: one group of all rows.
        transform: of map_batches, called with one table per group.
    """

    keys: tuple[str, ...] = ()
    transform: Any = None
    keeps_rows: bool = False
    is_plain: bool = False

    def schema(self, schema: Any) -> Any:
        return None

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        assert self.count is not None
        check_columns(self.keys, table.column_names, "groupby")
        if not self.keys:
            return rows_to.cut(table, np.zeros(table.num_rows, np.int64), self.count)
        return rows_to.cut(table, rows_to.by_hash(table, self.keys, self.count), self.count)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        yield from self.transform(groups_of(table, self.keys))


def groups_of(table: Any, keys: Sequence[str]) -> Iterator[Any]:
    """The groups of a table, each as a slice of one that is sorted by group."""
    if not table.num_rows:
        return
    if not keys:
        yield table
        return
    codes = np.zeros(table.num_rows, np.int64)
    for key in keys:
        coded = _codes(table.column(key))
        codes = codes * (int(coded.max()) + 1) + coded
        _, codes = np.unique(codes, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    table = table.take(pa.array(order))
    borders = np.flatnonzero(np.diff(codes[order])) + 1
    for start, stop in zip([0, *borders.tolist()], [*borders.tolist(), table.num_rows]):
        yield table.slice(start, stop - start)


def _codes(column: Any) -> Any:
    """A number for each row, equal where values are; in the order of values where they have one."""
    from sheaf.data.columns import values_of

    kind = column.type
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(repr(v), len(seen)) for v in values_of(column)], np.int64)
    column = blocks.combine(pa.table({"key": column})).column(0)
    if pa.types.is_floating(kind):  # -0.0 is 0.0, as in by_hash.
        column = pc.add(column, pa.scalar(0.0, kind))
    coded = column.combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    coded = coded if pa.types.is_dictionary(kind) else coded.dictionary_encode()
    ranks = np.empty(len(coded.dictionary) + 1, np.int64)
    order = rows_to.sort_order(pa.table({"key": coded.dictionary}), [("key", False)]).to_numpy()
    ranks[order] = np.arange(len(order))
    ranks[-1] = len(order)
    return ranks[coded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)]

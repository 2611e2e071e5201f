# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""groupby(...).aggregate(...) as an exchange: partial results in map tasks, which go to partitions
by their keys, and are merged there. Without keys there is one group, and nothing is partitioned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import aggregate
from sheaf.data import block as blocks
from sheaf.data.aggregates import keys as of_keys
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.exchange import Method
from sheaf.data.exchanges.partition import Borders
from sheaf.data.operators import Bundle
from sheaf.data.schema import check_columns
from sheaf.data.transforms.framed import framed

_FEW_GROUPS = 10_000  # Fewer go to one reducer.


def _runs_code_of_user(one: Any) -> bool:
    kind = type(one)
    return kind is aggregate.AggregateFn or not kind.__module__.startswith("sheaf.data.aggregates")


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
    wants_few: bool = True

    def __post_init__(self) -> None:
        self.is_plain = not any(_runs_code_of_user(one) for one in self.aggregates)

    def schema(self, schema: Any) -> Any:
        return None

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        if not table.num_columns and not table.num_rows:  # Of a dataset without rows.
            return rows_to.whole(table, self._partitions)
        made = blocks.combine(aggregate.partial(table, self.keys, self.aggregates))
        made = made.replace_schema_metadata(table.schema.metadata)  # Errors name its file.
        if not self.keys:
            return rows_to.whole(made, self._partitions)
        return rows_to.by_hash(made, list(self.keys), self._partitions)

    def _reducer_bytes(self, bundles: Sequence[Bundle]) -> int:
        groups = max((bundle.num_rows for bundle in bundles), default=0)
        return self.most_bytes if groups < _FEW_GROUPS else super()._reducer_bytes(bundles)

    def combined(self, table: Any) -> Any:
        return aggregate.merge(blocks.combine(table), self.keys, self.aggregates)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        if not table.num_columns:
            return
        if not table.num_rows and self.keys and not self.is_plain:
            return  # Of what type the user's results are only they show.
        merged = aggregate.merge(table, self.keys, self.aggregates)
        yield self._in_order(aggregate.finish(merged, self.keys, self.aggregates))

    def _in_order(self, table: Any) -> Any:
        if not self.keys:
            return table
        order = [(key, False) for key in self.keys]
        return table.take(rows_to.sort_order(table, order))


@dataclasses.dataclass
class MapGroups(Method):
    """Each group through a function of the user's.

    Attributes:
        keys: columns; none: one group of all rows.
        transform: of map_batches, called with one table per group.
        frames: whether its function takes DataFrames; "views" that share memory, or "copies".
    """

    keys: tuple[str, ...] = ()
    transform: Any = None
    frames: str = ""
    warns_of_skew: bool = True
    keeps_rows: bool = False
    is_plain: bool = False

    def schema(self, schema: Any) -> Any:
        return None

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        check_columns(self.keys, table.column_names, "groupby")
        if not self.keys:
            return rows_to.whole(table, self._partitions)
        return rows_to.by_hash(table, self.keys, self._partitions)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        groups = groups_of(table, self.keys)
        yield from self.transform(
            framed(groups, zero_copy=self.frames == "views") if self.frames else groups
        )


def groups_of(table: Any, keys: Sequence[str]) -> Iterator[Any]:
    """The groups of a table, each as a slice of one that is sorted by group."""
    if not table.num_rows:
        return
    if not keys:
        yield table
        return
    table = of_keys.movable(table)
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
    if of_keys.is_opaque(column.type):
        return of_keys.numbered(column)
    coded = blocks.combine(pa.table({"key": of_keys.key(column)})).column(0).combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    coded = coded.dictionary_encode()
    ranks = np.empty(len(coded.dictionary) + 1, np.int64)
    order = rows_to.sort_order(pa.table({"key": coded.dictionary}), [("key", False)]).to_numpy()
    ranks[order] = np.arange(len(order))
    ranks[-1] = len(order)
    return ranks[coded.indices.fill_null(len(order)).to_numpy(zero_copy_only=False)]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sorts as exchanges: a look at some rows of each block says where partitions begin, so that all
have about as many rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import movable
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.exchange import Method
from sheaf.data.exchanges.partition import Borders
from sheaf.data.operators import Bundle, Work
from sheaf.data.schema import check_columns
from sheaf.data.task_context import TaskContext

_SAMPLES = 1000  # Rows of each block that are looked at, at most.


@dataclasses.dataclass
class Sort(Method):
    """All rows in the order of keys.

    Attributes:
        keys: names, each with whether it is descending.
        bounds: values of the first key between partitions, rising; None: from samples.
        held: the blocks, while samples are taken.
    """

    samples: bool = True
    keys: tuple[tuple[str, bool], ...] = ()
    bounds: tuple[Any, ...] | None = None
    held: list[Bundle] = dataclasses.field(default_factory=list, repr=False)

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any, budget: int) -> Any:
        own = super().begin(sizes, cpus, context, budget)
        own.held = []
        if self.bounds is not None:
            own.honoured, own.count = True, len(self.bounds) + 1
        return own

    def __getstate__(self) -> dict[str, Any]:
        """Without the blocks, which are the executor's: a reference in a function that is pickled
        would keep its block for ever."""
        return {**self.__dict__, "held": []}

    # In the executor: samples first, then cuts, then reducers.

    def arrange_samples(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """A look at each block, unless there is little."""
        self.held = list(given[0])
        if self._is_small() or self.bounds is not None:
            return []
        return [Work((bundle,), "sample") for bundle in self.held if bundle.num_rows]

    def _is_small(self) -> bool:
        total = sum(bundle.size_bytes for bundle in self.held)
        return total < self.small_bytes and self.bounds is None

    def arrange_cuts(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Each block is cut at bounds between the samples."""
        if self._is_small():
            return []
        bounds: Any = self.bounds
        if bounds is None:
            bounds = self._choose([bundle.metadata.extra for bundle in given[0]])
            self.count = bounds.num_rows + 1
        held, self.held = self.held, []
        return [Work((bundle,), bounds) for bundle in held]

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        if self.held:
            held, self.held = self.held, []
            return [Work(tuple(held), (len(held),), self.is_plain)]
        return super().arrange(given)

    def _choose(self, samples: Sequence[Any]) -> Any:
        """Bounds at equal distances of the samples, each of which stands for some rows."""
        samples = [(table, rows) for table, rows in samples if table.num_rows]
        if not samples:
            return pa.table({})
        table = blocks.concat([table for table, _ in samples])
        weights = np.concatenate([np.full(len(t), rows / len(t)) for t, rows in samples])
        order = rows_to.sort_order(table, self.keys).to_numpy()
        reached = np.cumsum(weights[order])
        wanted = reached[-1] * np.arange(1, self._partitions) / self._partitions
        places = np.unique(np.minimum(np.searchsorted(reached, wanted), len(order) - 1))
        chosen = blocks.combine(table.take(pa.array(order[places])))
        rows = chosen.to_pylist()
        return chosen.take(
            pa.array([n for n, row in enumerate(rows) if not n or row != rows[n - 1]], pa.int64())
        )

    # In tasks.

    def work(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        """Keys of some rows, and how many rows there are, beside a table without rows."""
        (table,) = given
        names = self._checked(table)
        keys = movable(table.select(names))
        if table.num_rows > _SAMPLES:
            random = np.random.default_rng([table.num_rows, TaskContext.current().task_idx])
            chosen = np.sort(random.choice(table.num_rows, _SAMPLES, replace=False))
            keys = keys.take(pa.array(chosen))
        yield table.slice(0, 0), (keys, table.num_rows)

    def _checked(self, table: Any) -> list[str]:
        names = [name for name, _ in self.keys]
        check_columns(names, table.column_names, "sort")
        return list(dict.fromkeys(names))

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        self._checked(table)
        if not isinstance(payload, tuple):
            return rows_to.by_bounds(table, self.keys if payload.num_rows else (), payload)
        first = self.keys[:1]
        name, down = first[0]
        values = payload[::-1] if down else payload
        try:
            bounds = pa.array(values, table.column(name).type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            bounds = pa.array(values)  # 2.5 among integers.
        return rows_to.by_bounds(table, first, pa.table({name: bounds}))

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.concat(given)
        if not table.num_columns and not table.num_rows:
            return
        self._checked(table)
        yield rows_to.take(table, rows_to.sort_order(table, self.keys))

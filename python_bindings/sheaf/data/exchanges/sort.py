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
from sheaf.data.exchanges.exchange import Method, sizes_of, work_of
from sheaf.data.exchanges.partition import Borders
from sheaf.data.exchanges.skew import shares
from sheaf.data.operators import Bundle, Work
from sheaf.data.schema import check_columns
from sheaf.data.task_context import TaskContext

_SAMPLES = 1000  # Rows of each block that are looked at, at most.
_FINER = 16  # Samples that are kept for one partition, at most, by which it may be split.


@dataclasses.dataclass(frozen=True)
class Ends:
    """Where partitions end.

    Attributes:
        keys: of rows, in the order of the sort. A key that many rows have stands twice.
        behind: whether rows that equal this one come in front of the end, not behind it.
    """

    keys: Any
    behind: Any

    def between(self, part: int) -> Ends:
        """Those around a partition: one or two."""
        there = slice(max(0, part - 1), part + 1)
        return Ends(self.keys[there], self.behind[there])

    def is_one_key(self, part: int) -> bool:
        """Whether all rows of a partition are equal."""
        return 0 < part < len(self.behind) and bool(self.behind[part])


@dataclasses.dataclass
class Sort(Method):
    """All rows in the order of keys.

    Attributes:
        keys: names, each with whether it is descending.
        bounds: values of the first key between partitions, rising; None: from samples.
        held: the blocks, while samples are taken.
        ends: of partitions, that were chosen by samples.
        finer: samples in order, of which some lie within each partition.
    """

    samples: bool = True
    keys: tuple[tuple[str, bool], ...] = ()
    bounds: tuple[Any, ...] | None = None
    held: list[Bundle] = dataclasses.field(default_factory=list, repr=False)
    ends: Ends | None = None
    finer: Any = dataclasses.field(default=None, repr=False)

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any, budget: int) -> Any:
        own = super().begin(sizes, cpus, context, budget)
        own.held = []
        if self.bounds is not None:
            own.honoured, own.count = True, len(self.bounds) + 1
        return own

    def __getstate__(self) -> dict[str, Any]:
        """Without what is the executor's: a reference in a function that is pickled would keep its
        block for ever."""
        return {**self.__dict__, "held": [], "ends": None, "finer": None}

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
            bounds = self.ends = self._choose([bundle.metadata.extra for bundle in given[0]])
            self.count = bounds.keys.num_rows + 1
        held, self.held = self.held, []
        return [Work((bundle,), bounds) for bundle in held]

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        if self.held:
            held, self.held = self.held, []
            return [Work(tuple(held), (len(held),), self.is_plain)]
        return super().arrange(given)

    def _split(self, given: Sequence[Sequence[Bundle]]) -> dict[int, list[Work]]:
        """Equal rows are in the order in which they come, so each task has some of them; others are
        shared by finer ends, each task leaving out what the others have."""
        if self.ends is None:
            return {}
        sizes = sizes_of(given[0])
        found = {}
        for part in self.skewed.among(sizes):
            (there,) = self._ports(given, part, part + 1)
            if self.ends.is_one_key(part):
                found[part] = [work_of([slices]) for slices in shares(there, self.most_bytes)]
                continue
            work = work_of([there])
            finer = self._finer_ends(self.ends, part, -(-int(sizes[part]) // self.most_bytes))
            if finer.keys.num_rows:
                found[part] = [
                    dataclasses.replace(work, payload=(*work.payload, finer.between(piece), piece))
                    for piece in range(finer.keys.num_rows + 1)
                ]
        return found

    def _finer_ends(self, ends: Ends, part: int, count: int) -> Ends:
        """Ends within a partition, which make at most `count` of it."""
        finer, borders = rows_to.by_bounds(self.finer, self.keys, ends.keys, ends.behind)
        first, stop = borders.offsets[part : part + 2].tolist()
        chosen = _distinct(finer.slice(first, stop - first).to_pylist())[1:]
        places = np.unique(np.arange(1, count) * len(chosen) // count) if chosen else []
        rows = [first + chosen[place] for place in places]
        return Ends(finer.take(pa.array(rows, pa.int64())), np.zeros(len(rows), bool))

    def _choose(self, samples: Sequence[Any]) -> Ends:
        """Ends at equal distances of the samples, each of which stands for some rows."""
        samples = [(table, rows) for table, rows in samples if table.num_rows]
        if not samples:
            return Ends(pa.table({}), np.zeros(0, bool))
        table = blocks.concat([table for table, _ in samples])
        weights = np.concatenate([np.full(len(t), rows / len(t)) for t, rows in samples])
        order = rows_to.sort_order(table, self.keys).to_numpy()
        reached = np.cumsum(weights[order])

        def at_distances(count: int) -> Any:
            wanted = reached[-1] * np.arange(1, count) / count
            places = np.minimum(np.searchsorted(reached, wanted), len(order) - 1)
            return blocks.combine(table.take(pa.array(order[places])))

        chosen = at_distances(self._partitions)
        self.finer = at_distances(min(_FINER * self._partitions, len(order)))
        starts = _distinct(chosen.to_pylist())
        rows: list[int] = []
        for start, stop in zip(starts, [*starts[1:], chosen.num_rows]):
            # A key that fills a partition, about, has one for itself.
            rows += [start] * min(2, stop - start)
        behind = np.zeros(len(rows), bool)
        behind[1:] = np.diff(rows) == 0
        return Ends(chosen.take(pa.array(rows, pa.int64())), behind)

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
        if isinstance(payload, Ends):
            keys = self.keys if payload.keys.num_rows else ()
            return rows_to.by_bounds(table, keys, payload.keys, payload.behind)
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
        names = self._checked(table)
        if len(payload) > 1:
            table = self._piece(table, table.select(names), *payload[1:])
        yield rows_to.take(table, rows_to.sort_order(table, self.keys))

    def _piece(self, table: Any, keys: Any, ends: Ends, piece: int) -> Any:
        """The rows of a table between two ends."""
        mark = max(keys.column_names, key=len) + "_"
        numbered = keys.append_column(mark, pa.array(np.arange(table.num_rows)))
        made, borders = rows_to.by_bounds(numbered, self.keys, ends.keys, ends.behind)
        part = min(piece, 1)
        first, stop = borders.offsets[part : part + 2].tolist()
        return rows_to.take(table, blocks.combine(made.slice(first, stop - first))[mark].chunk(0))


def _distinct(rows: Sequence[dict[str, Any]]) -> list[int]:
    """The places in a sorted list of rows that do not equal the one in front; NaN is NaN."""
    found = [tuple("nan" if v != v else v for v in row.values()) for row in rows]
    return [n for n, row in enumerate(found) if not n or row != found[n - 1]]

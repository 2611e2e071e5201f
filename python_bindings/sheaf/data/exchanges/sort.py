# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sorts as exchanges: a look at some rows of each block says where partitions begin, so that all
have about as many rows. What does not fit into memory becomes sorted runs first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import comparable, movable
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges import runs
from sheaf.data.exchanges.exchange import MOST_PARTITIONS, Method, sizes_of, without_rows, work_of
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


@dataclasses.dataclass(frozen=True)
class Within:
    """What of the rows that a reducer reads it is to leave out.

    Attributes:
        ends: of its own rows: one or two.
        piece: which of those that the ends make is its own.
        in_order: the tables that it reads are sorted.
    """

    ends: Ends
    piece: int
    in_order: bool = False


@dataclasses.dataclass
class Sort(Method):
    """All rows in the order of keys.

    Attributes:
        keys: names, each with whether it is descending.
        bounds: values of the first key between partitions, rising; None: from samples.
        held: the blocks, while samples are taken.
        in_runs: whether those are sorted runs.
        ends: of partitions, that were chosen by samples.
        finer: samples in order, of which some lie within each partition.
    """

    samples: bool = True
    keys: tuple[tuple[str, bool], ...] = ()
    bounds: tuple[Any, ...] | None = None
    held: list[Bundle] = dataclasses.field(default_factory=list, repr=False)
    in_runs: bool = False
    budget: int = 0
    ends: Ends | None = None
    finer: Any = dataclasses.field(default=None, repr=False)

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any, budget: int) -> Any:
        own = super().begin(sizes, cpus, context, budget)
        own.held, own.in_runs, own.budget = [], False, budget
        if self.bounds is not None:
            own.honoured, own.count = True, len(self.bounds) + 1
        return own

    def __getstate__(self) -> dict[str, Any]:
        """Without what is the executor's: a reference in a function that is pickled would keep its
        block for ever."""
        return {**self.__dict__, "held": [], "ends": None, "finer": None}

    # In the executor: samples first, then cuts, then reducers; or runs, then reducers.

    def arrange_runs(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Blocks fill the budget: those that are there become sorted runs, as will all others."""
        self.in_runs = True
        return runs.works_of(given[0], self.budget, self.cpus)

    def arrange_samples(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """A look at each block, unless there is little."""
        self.held = list(given[0])
        if self.in_runs or self._is_small() or self.bounds is not None:
            return []
        return [Work((bundle,), "sample") for bundle in self.held if bundle.num_rows]

    def _is_small(self) -> bool:
        total = sum(bundle.size_bytes for bundle in self.held)
        return total < self.small_bytes and self.bounds is None

    def arrange_cuts(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Each block is cut at bounds between the samples."""
        if self.in_runs or self._is_small():
            return []
        bounds: Any = self.bounds
        if bounds is None:
            samples = [bundle.metadata.extra for bundle in given[0]]
            bounds = self.ends = self._choose(
                [(keys, np.full(len(keys), rows / max(1, len(keys)))) for keys, rows in samples]
            )
            self.count = bounds.keys.num_rows + 1
        held, self.held = self.held, []
        return [Work((bundle,), bounds) for bundle in held]

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        held, self.held = self.held, []
        if self.in_runs:
            return self._arrange_runs(held)
        if held:
            return [Work(tuple(held), (len(held),), self.is_plain)]
        return super().arrange(given)

    def _arrange_runs(self, held: Sequence[Bundle]) -> list[Work]:
        """A range of keys of all runs for each task."""
        keys, indices = self.keys, [bundle.metadata.extra.keys for bundle in held]
        if self.bounds is None:
            total = sum(bundle.size_bytes for bundle in held)
            self.count = min(MOST_PARTITIONS, max(2 * self.cpus, -(-total // self.most_bytes)))
            sizes = [bundle.metadata.extra.sizes for bundle in held]
            ends = self._choose(list(zip(indices, sizes, strict=True)))
        else:
            keys, (name, down) = self.keys[:1], self.keys[0]
            values = _bounds_of(self.bounds, down, indices[0].column(name).type)
            ends = Ends(pa.table({name: values}), np.zeros(len(values), bool))
        ranges = runs.Ranges(held, keys, ends.keys, ends.behind)
        self.counts.rows, self.counts.sizes = ranges.rows, ranges.sizes
        works: list[Work] = []
        for part in range(ends.keys.num_rows + 1):
            within = Within(ends.between(part), part, in_order=True)
            parts = [ranges.slices(part) or [without_rows(held[0])]]
            if ends.is_one_key(part):
                parts = shares(parts[0], self.most_bytes) or parts
            if len(parts) > 1:
                self.counts.split += (part,)
            shared = [work_of([slices]) for slices in parts]
            works += [dataclasses.replace(w, payload=(*w.payload, within)) for w in shared]
        return works

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
                    dataclasses.replace(
                        work, payload=(*work.payload, Within(finer.between(piece), piece))
                    )
                    for piece in range(finer.keys.num_rows + 1)
                ]
        return found

    def _finer_ends(self, ends: Ends, part: int, count: int) -> Ends:
        """Ends within a partition, which make at most `count` of it."""
        finer, borders = rows_to.by_bounds(self.finer, self.keys, ends.keys, ends.behind)
        first, stop = borders.offsets[part : part + 2].tolist()
        chosen = _distinct(finer.slice(first, stop - first))[1:]
        places = np.unique(np.arange(1, count) * len(chosen) // count)
        rows = [first + chosen[place] for place in places] if chosen else []
        return Ends(finer.take(pa.array(rows, pa.int64())), np.zeros(len(rows), bool))

    def _choose(self, samples: Sequence[Any]) -> Ends:
        """Ends at equal distances of samples: tables of keys, each with what its rows weigh."""
        samples = [(table, weights) for table, weights in samples if table.num_rows]
        if not samples:
            return Ends(pa.table({}), np.zeros(0, bool))
        table = blocks.concat([table for table, _ in samples])
        weights = np.concatenate([weights for _, weights in samples])
        order = rows_to.sort_order(table, self.keys).to_numpy()
        reached = np.cumsum(weights[order])

        def at_distances(count: int) -> Any:
            wanted = reached[-1] * np.arange(1, count) / count
            places = np.minimum(np.searchsorted(reached, wanted), len(order) - 1)
            return blocks.combine(table.take(pa.array(order[places])))

        chosen = at_distances(self._partitions)
        self.finer = at_distances(min(_FINER * self._partitions, len(order)))
        starts = _distinct(chosen)
        rows: list[int] = []
        for start, stop in zip(starts, [*starts[1:], chosen.num_rows]):
            # A key that fills a partition, about, has one for itself.
            rows += [start] * min(2, stop - start)
        behind = np.zeros(len(rows), bool)
        behind[1:] = np.diff(rows) == 0
        return Ends(chosen.take(pa.array(rows, pa.int64())), behind)

    # In tasks.

    def work(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        """Keys of some rows, and how many rows there are, beside a table without rows; or a run."""
        names = [self._checked(table) for table in given][0]
        if payload == "run":
            yield runs.sorted_run(given, names, self.keys)
            return
        (table,) = given
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
        bounds = _bounds_of(payload, down, table.column(name).type)
        return rows_to.by_bounds(table, first, pa.table({name: bounds}))

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        within = payload[1] if len(payload) > 1 else None
        if within is not None and within.in_order:
            given = self._trimmed(given, within)
        table = blocks.concat(given)
        if not table.num_columns and not table.num_rows:
            return
        names = self._checked(table)
        if within is not None and not within.in_order:
            ends, part = within.ends, min(within.piece, 1)
            own = table.select(names)
            table = runs.within(table, own, self.keys, ends.keys, ends.behind, part)
        yield rows_to.take(table, rows_to.sort_order(table, self.keys))

    def _trimmed(self, given: Sequence[Any], within: Within) -> list[Any]:
        names, ends = self._checked(given[0]), within.ends
        keys = self.keys[:1] if self.bounds is not None else self.keys
        part = min(within.piece, 1)
        return list(runs.trimmed(given, names, keys, ends.keys, ends.behind, part))


def _bounds_of(values: Sequence[Any], down: bool, kind: Any) -> Any:
    """What a user says of bounds, in the order of the sort."""
    values = values[::-1] if down else values
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values)  # 2.5 among integers.


def _distinct(table: Any) -> list[int]:
    """The places in a sorted table of rows that do not equal the one in front; NaN is NaN. It asks
    Arrow, as Python has no value for some, such as moments with nanoseconds."""
    differs = np.zeros(table.num_rows, bool)
    differs[:1] = True
    for column in map(comparable, table.columns):
        if pa.types.is_null(column.type):
            continue
        here, before = column.slice(1), column.slice(0, max(0, table.num_rows - 1))
        same = pc.fill_null(pc.equal(here, before), False).to_numpy()
        tests = [pc.is_null, *([pc.is_nan] if pa.types.is_floating(column.type) else [])]
        for is_one in tests:
            one, other = (pc.fill_null(is_one(c), False).to_numpy() for c in (here, before))
            same = same | (one & other)
        differs[1:] |= ~same
    return np.flatnonzero(differs).tolist()

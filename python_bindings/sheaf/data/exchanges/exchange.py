# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Exchanges: rows go to partitions, partitions to reducers. A map task makes one object, whose
parts are the partitions; a reducer reads its part of each.

A method is what differs between them: `partition` (in map tasks), `arrange` (in the executor: which
slices one reducer gets) and `reduce`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from sheaf.data import block as blocks
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.partition import Borders, Pieces
from sheaf.data.exchanges.skew import Counts, Skewed
from sheaf.data.operators import Bundle, Work
from sheaf.data.schema import check_columns
from sheaf.data.task_context import TaskContext
from sheaf.data.user_code import ClassUdf

_PARTITION_BYTES = 64 << 20  # What a reducer gets, about,
_LEAST_PARTITION_BYTES = 4 << 20  # or less, where it is not much for all CPUs.
MOST_PARTITIONS, _PARTITIONS_OF_UNKNOWN = 1000, 64
_RUN_BYTES = 32 << 20  # What is merged of several map tasks is so much, where there is.


@dataclasses.dataclass
class Method:
    """What all exchanges have.

    Attributes:
        count: partitions; None: as many as the bytes ask for.
        keeps_rows: whether the number of rows stays.
        is_plain: whether it runs no code of the user's.
        alone: whether cutting depends on the number of the task.
        samples: whether it looks at some rows before it cuts any.
        udfs: classes that an actor makes at its start.
        wants_few: whether few tasks that read much for it do less than many that read little.
        wants_all_inputs: a reducer gets a slice of each input that has a block, be it without rows.
    """

    count: int | None = None
    keeps_rows: bool = True
    is_plain: bool = True
    samples: bool = False
    alone: bool = False
    udfs: tuple[ClassUdf, ...] = ()
    wants_few: bool = False
    wants_all_inputs: bool = False
    small_bytes: int = 0
    most_bytes: int = _PARTITION_BYTES  # For a reducer, as far as the count allows.
    cpus: int = 1
    honoured: bool = False  # The count was asked for.
    merges: bool = False  # There is more than the store can hold.
    warns_of_skew: bool = False  # All rows of a partition must be in one task, as a rule.
    skewed: Skewed = Skewed()
    counts: Counts = dataclasses.field(default_factory=Counts, repr=False)

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any, budget: int) -> Any:
        """This method for one execution over inputs of about these bytes, with this budget of
        bytes."""
        own = copy.copy(self)
        own.counts = Counts()
        own.small_bytes = max(1, int(context.small_input_bytes))  # What is empty is one block.
        own.skewed = Skewed.of(context)
        own.cpus = cpus
        own.honoured = self.count is not None
        # All reducers that run have what they read and what they make in the store.
        own.most_bytes = max(1 << 20, min(_PARTITION_BYTES, budget // (4 * cpus)))
        if own.count is None:
            known = [size for size in sizes if size is not None]
            least = -(-sum(known) // own.most_bytes)
            if len(known) < len(sizes):
                least = max(least, _PARTITIONS_OF_UNKNOWN)
            own.count = min(MOST_PARTITIONS, max(4 * cpus, least))
        return own

    def small_side(self, bounds: Sequence[int | None], context: Any) -> int | None:
        """The input that goes to all tasks of the other, which is not partitioned then, by bytes
        that inputs do not exceed; None: both are partitioned."""
        return None

    def schema(self, schema: Any) -> Any:
        """The result's, from the input's; None: only a run tells."""
        return schema

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        """The table in the order of its partitions, and where each lies."""
        raise NotImplementedError

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        """Tables of some partitions: payload says how many slices are of each input."""
        raise NotImplementedError

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Which slices each reducer gets: of small partitions several; a part of one that is far
        larger than others."""
        total = sum(bundle.size_bytes for port in given for bundle in port)
        if not any(given):
            return []
        self.counts.set_all([bundle for port in given for bundle in port])
        if total < self.small_bytes and not self.honoured:
            return [self._work(given, 0, self._partitions, self.is_plain)]
        split = self._split(given)
        self.counts.split = tuple(split)
        if self.warns_of_skew:
            self.counts.warn(type(self).__name__, self.skewed)
        works = []
        here = total < self.small_bytes and self.is_plain
        for first, stop in _apart(self._groups(given), split):
            if first in split:
                works.extend(split[first])
                continue
            work = self._work(given, first, stop, here)
            if any(bundle.num_rows for bundle in work.bundles) or self.honoured:
                works.append(work)
        return works

    def _split(self, given: Sequence[Sequence[Bundle]]) -> dict[int, list[Work]]:
        """The works of each partition that several tasks share, as it is far larger than others."""
        return {}

    @property
    def _partitions(self) -> int:
        assert self.count is not None
        return self.count

    def _work(
        self, given: Sequence[Sequence[Bundle]], first: int, stop: int, here: bool = False
    ) -> Work:
        """Partitions [first, stop) of all inputs."""
        return work_of(self._ports(given, first, stop), here)

    def _ports(
        self, given: Sequence[Sequence[Bundle]], first: int, stop: int
    ) -> list[list[Bundle]]:
        """The slices of each input; without any rows, a block of the first has the schema."""
        ports = [
            [part for bundle in port if (part := self._part(bundle, first, stop)).num_rows]
            for port in given
        ]
        if self.wants_all_inputs or not any(ports):
            ports = [
                some or [without_rows(bundle) for bundle in port[:1]]
                for some, port in zip(ports, given, strict=True)
            ]
        return ports

    def _part(self, bundle: Bundle, first: int, stop: int) -> Bundle:
        return part_of(bundle, first, stop, self.merges)

    def _groups(self, given: Sequence[Sequence[Bundle]]) -> list[tuple[int, int]]:
        assert self.count is not None
        if self.honoured:
            return [(part, part + 1) for part in range(self.count)]
        bundles = [bundle for port in given for bundle in port]
        return _grouped(self._sizes(bundles), self._reducer_bytes(bundles))

    def _sizes(self, bundles: Sequence[Bundle]) -> Any:
        """Bytes of each partition."""
        return sizes_of(bundles)

    def _reducer_bytes(self, bundles: Sequence[Bundle]) -> int:
        """How much a reducer gets, where partitions are smaller."""
        total = int(self._sizes(bundles).sum())
        return min(self.most_bytes, max(_LEAST_PARTITION_BYTES, total // (2 * self.cpus)))

    # Out of core: what fills the budget is merged, so that many small parts become some large ones,
    # which the store writes to disk and reads once.

    def arrange_round(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Works of which each merges some partitions of what map tasks have made so far."""
        works = []
        self.merges = True
        self.counts.add_top(given[0])
        for first, stop in _grouped(sizes_of(given[0]), _RUN_BYTES):
            there = [(b, self._part(b, first, stop)) for b in given[0]]
            there = [(b, part) for b, part in there if part.num_rows]
            if there:
                rows = [np.diff(b.metadata.extra.offsets[first : stop + 1]) for b, _ in there]
                bundles = tuple(part for _, part in there)
                works.append(Work(bundles, (first, self._partitions, np.array(rows))))
        return works

    def merged(self, given: Sequence[Any], payload: Any) -> tuple[Any, Borders]:
        """One output of several, as if one map task had made it."""
        first, count, rows = payload
        ends = np.cumsum(rows, axis=1)
        tables, lengths, sizes = [], np.zeros(count, np.int64), np.zeros(count, np.int64)
        for part in range(rows.shape[1]):
            slices = [
                blocks.slice_rows(table, int(end - of), int(of))
                for table, end, of in zip(given, ends[:, part], rows[:, part])
                if of
            ]
            if slices:
                tables.append(self.combined(blocks.concat(slices)))
                lengths[first + part] = tables[-1].num_rows
                sizes[first + part] = blocks.size_bytes(tables[-1])
        table = blocks.combine(blocks.concat(tables))
        return table, Borders(np.concatenate([[0], np.cumsum(lengths)]), sizes)

    def combined(self, table: Any) -> Any:
        """What one partition of some map tasks is merged to."""
        return table


def sizes_of(bundles: Sequence[Bundle]) -> Any:
    """Bytes of each partition."""
    return np.sum([bundle.metadata.extra.sizes for bundle in bundles], axis=0)


def _grouped(sizes: Any, least: int) -> list[tuple[int, int]]:
    """Ranges of partitions that have so many bytes together, but for the last."""
    groups, first, size = [], 0, 0
    for part, more in enumerate(sizes.tolist()):
        size += more
        if size >= least or part == len(sizes) - 1:
            groups.append((first, part + 1))
            first, size = part + 1, 0
    return groups


def _apart(groups: Sequence[tuple[int, int]], alone: Container[int]) -> Iterator[tuple[int, int]]:
    """The ranges, with each partition of `alone` by itself."""
    for first, stop in groups:
        for part in range(first, stop):
            if part in alone:
                if first < part:
                    yield first, part
                yield part, part + 1
                first = part + 1
        if first < stop:
            yield first, stop


def part_of(bundle: Bundle, first: int, stop: int, copied: bool = False) -> Bundle:
    """Partitions [first, stop) of a map task's output."""
    borders = bundle.metadata.extra
    begin, end = int(borders.offsets[first]), int(borders.offsets[stop])
    size = int(borders.sizes[first:stop].sum())
    if borders.places is None:
        return dataclasses.replace(
            bundle, start=bundle.start + begin, stop=bundle.start + end, size_bytes=size
        )
    there = np.flatnonzero(np.diff(borders.offsets[first : stop + 1])) + first
    places = tuple((*place, borders.digest) for place in borders.places[there].tolist())
    pieces = Pieces(bundle.block, places, copied)
    return Bundle(pieces, 0, end - begin, size, sources=bundle.sources)


def without_rows(bundle: Bundle) -> Bundle:
    """No row of a map task's output, for its schema."""
    borders = bundle.metadata.extra
    if borders.places is None:
        return bundle.cut(0, 0)
    first = int(np.flatnonzero(np.diff(borders.offsets))[0])
    return part_of(bundle, first, first + 1).cut(0, 0)


def work_of(ports: Sequence[Sequence[Bundle]], here: bool = False) -> Work:
    """A reducer's, with how many slices are of each input."""
    bundles = tuple(bundle for port in ports for bundle in port)
    return Work(bundles, tuple(len(port) for port in ports), here)


@dataclasses.dataclass
class Shuffle(Method):
    """All rows in random order.

    Attributes:
        came: bytes of each partition of what was merged, before it was: those of rounds depend on
            which blocks these have, and what a seed gives must not.
    """

    seed: int | None = None
    came: Any = dataclasses.field(default=None, repr=False)
    alone: bool = True
    reseeds: bool = False  # Each execution has another order, which follows from the seed.
    run: int = 0

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any, budget: int) -> Any:
        own = super().begin(sizes, cpus, context, budget)
        own.came = None
        self.run += 1
        return own

    def arrange_round(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        sizes = sizes_of(given[0])
        self.came = sizes if self.came is None else self.came + sizes
        return super().arrange_round(given)

    def _sizes(self, bundles: Sequence[Bundle]) -> Any:
        return sizes_of(bundles) if self.came is None else self.came

    def _work(
        self, given: Sequence[Sequence[Bundle]], first: int, stop: int, here: bool = False
    ) -> Work:
        """With a seed its payload says how many rows of each partition each slice has."""
        work = super()._work(given, first, stop, here)
        if self.seed is None or stop - first < 2:
            return work
        rows = [np.diff(bundle.metadata.extra.offsets[first : stop + 1]) for bundle in given[0]]
        some = np.array([of for of in rows if of.any()], np.int64).reshape(-1, stop - first)
        return dataclasses.replace(work, payload=(*work.payload, some))

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        settled = TaskContext.current().kwargs
        number = settled["tables_shuffled"] = settled.get("tables_shuffled", -1) + 1
        return rows_to.at_random(table, self._partitions, self._seed(0, table.num_rows, number))

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.concat(given)
        order = np.random.default_rng(self._seed(1)).permutation(table.num_rows)
        if len(payload) > 1:  # By partitions first: which rows of them came together is chance.
            slices, parts = payload[1].shape
            part = np.repeat(np.tile(np.arange(parts), slices), payload[1].ravel())
            order = np.argsort(part, kind="stable")[order]
        yield rows_to.take(table, order)

    def _seed(self, *more: int) -> list[int]:
        run = [self.run] if self.reseeds else []
        return TaskContext.current().random_seed(self.seed, *more, *run)


@dataclasses.dataclass
class ByKeys(Method):
    """Rows of equal keys to one partition."""

    keys: tuple[str, ...] = ()
    sort: bool = False
    where: str = "repartition"

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        check_columns(self.keys, table.column_names, self.where)
        return rows_to.by_hash(table, self.keys, self._partitions)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.concat(given)
        if self.sort:
            order = rows_to.sort_order(table, [(key, False) for key in self.keys])
            table = rows_to.take(table, order)
        yield blocks.combine(table)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Exchanges: rows go to partitions, partitions to reducers. A map task makes one block, whose
slices are the partitions; a reducer gets its slice of each.

A method is what differs between them: `partition` (in map tasks), `arrange` (in the executor: which
slices one reducer gets) and `reduce`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data import partition as rows_to
from sheaf.data.operators import Bundle, Work
from sheaf.data.schema import check_columns
from sheaf.data.task_context import TaskContext
from sheaf.data.user_code import ClassUdf

_PARTITION_BYTES = 64 << 20  # What a reducer gets, about.
_MOST_PARTITIONS = 1000
_SAMPLES = 1000  # Rows of each block that a sort looks at, at most.


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
        wants_all_inputs: a reducer gets a slice of each input that has a block, be it without rows.
    """

    count: int | None = None
    keeps_rows: bool = True
    is_plain: bool = True
    samples: bool = False
    alone: bool = False
    udfs: tuple[ClassUdf, ...] = ()
    wants_all_inputs: bool = False
    small_bytes: int = 0
    honoured: bool = False  # The count was asked for.

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any) -> Any:
        """This method for one execution over inputs of about these bytes."""
        own = copy.copy(self)
        own.small_bytes = int(context.small_input_bytes)
        own.honoured = self.count is not None
        if own.count is None:
            known = [size for size in sizes if size is not None]
            total = sum(known) if len(known) == len(sizes) else 0
            own.count = min(_MOST_PARTITIONS, max(4 * cpus, -(-total // _PARTITION_BYTES)))
        return own

    def schema(self, schema: Any) -> Any:
        """The result's, from the input's; None: only a run tells."""
        return schema

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        """The table sorted by partition, and where each begins."""
        raise NotImplementedError

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        """Tables of some partitions: payload says how many slices are of each input."""
        raise NotImplementedError

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Which slices each reducer gets: of small partitions several."""
        total = sum(bundle.size_bytes for port in given for bundle in port)
        if not any(given):
            return []
        if total < self.small_bytes and not self.honoured:
            # As parts of whole blocks: no slices are needed.
            return [Work(tuple(b for port in given for b in port), _counts(given), self.is_plain)]
        works = []
        here = total < self.small_bytes and self.is_plain
        for first, stop in self._groups(given):
            slices = [
                [
                    bundle.cut(int(offsets[first]), int(offsets[stop]))
                    for bundle in port
                    for offsets in [bundle.metadata.extra]
                    if offsets[stop] > offsets[first]
                ]
                for port in given
            ]
            if any(slices):
                if self.wants_all_inputs:
                    slices = [
                        some or [bundle.cut(0, 0) for bundle in port[:1]]
                        for some, port in zip(slices, given, strict=True)
                    ]
                works.append(Work(tuple(b for port in slices for b in port), _counts(slices), here))
            elif self.honoured:  # An empty partition is a block without rows.
                empty = [[bundle.cut(0, 0) for bundle in port[:1]] for port in given]
                works.append(Work(tuple(b for port in empty for b in port), _counts(empty), here))
        return works

    def _groups(self, given: Sequence[Sequence[Bundle]]) -> list[tuple[int, int]]:
        assert self.count is not None
        if self.honoured:
            return [(part, part + 1) for part in range(self.count)]
        sizes = np.zeros(self.count)
        for port in given:
            for bundle in port:
                rows = np.diff(bundle.metadata.extra)
                sizes += rows * (bundle.size_bytes / max(1, bundle.num_rows))
        groups, first, size = [], 0, 0.0
        for part in range(self.count):
            size += float(sizes[part])
            if size >= _PARTITION_BYTES or part == self.count - 1:
                groups.append((first, part + 1))
                first, size = part + 1, 0.0
        return groups


def _counts(ports: Sequence[Sequence[Bundle]]) -> tuple[int, ...]:
    return tuple(len(port) for port in ports)


@dataclasses.dataclass
class Shuffle(Method):
    """All rows in random order."""

    seed: int | None = None
    alone: bool = True

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        assert self.count is not None
        parts = rows_to.at_random(table.num_rows, self.count, self._seed(0))
        return rows_to.cut(table, parts, self.count)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        order = np.random.default_rng(self._seed(1)).permutation(table.num_rows)
        yield table.take(pa.array(order)) if table.num_columns else table

    def _seed(self, phase: int) -> list[int] | None:
        if self.seed is None:
            return None
        return [self.seed, phase, TaskContext.current().task_idx]


@dataclasses.dataclass
class ByKeys(Method):
    """Rows of equal keys to one partition."""

    keys: tuple[str, ...] = ()
    sort: bool = False
    where: str = "repartition"

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        assert self.count is not None
        check_columns(self.keys, table.column_names, self.where)
        parts = rows_to.by_hash(table, self.keys, self.count)
        return rows_to.cut(table, parts, self.count)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        if self.sort:
            table = table.take(rows_to.sort_order(table, [(key, False) for key in self.keys]))
        yield table


@dataclasses.dataclass
class Sort(Method):
    """All rows in the order of keys."""

    keys: tuple[tuple[str, bool], ...] = ()  # Names, each with whether it is descending.
    bounds: tuple[Any, ...] | None = None  # Of the first key, rising, where the caller knows them.
    samples: bool = True

    def begin(self, sizes: Sequence[int | None], cpus: int, context: Any) -> Any:
        own = super().begin(sizes, cpus, context)
        own._held: list[Bundle] = []
        if self.bounds is not None:
            own.honoured, own.count = True, len(self.bounds) + 1
        return own

    # In the executor: samples first, then cuts, then reducers.

    def arrange_samples(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """A look at each block, unless there is little."""
        self._held = list(given[0])
        if self._is_small() or self.bounds is not None:
            return []
        return [Work((bundle,), "sample") for bundle in self._held if bundle.num_rows]

    def _is_small(self) -> bool:
        total = sum(bundle.size_bytes for bundle in self._held)
        return total < self.small_bytes and self.bounds is None

    def arrange_cuts(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Each block is cut at bounds between the samples."""
        if self._is_small():
            return []
        bounds = self.bounds
        if bounds is None:
            bounds = self._choose([bundle.metadata.extra for bundle in given[0]])
        held, self._held = self._held, []
        self.count = len(bounds) + 1
        return [Work((bundle,), bounds) for bundle in held]

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        if self._held:
            held, self._held = self._held, []
            return [Work(tuple(held), (len(held),), self.is_plain)]
        return super().arrange(given)

    def _choose(self, samples: Sequence[Any]) -> Any:
        """Bounds at equal distances of the samples, each of which stands for some rows."""
        assert self.count is not None
        values = pa.chunked_array([values for values, _ in samples])
        weights = np.concatenate([np.full(len(v), rows / max(1, len(v))) for v, rows in samples])
        order = rows_to.sort_order(pa.table({"key": values}), [("key", False)]).to_numpy()
        if not len(order):
            return values.combine_chunks()
        reached = np.cumsum(weights[order])
        wanted = reached[-1] * np.arange(1, self.count) / self.count
        places = np.unique(np.minimum(np.searchsorted(reached, wanted), len(order) - 1))
        chosen = values.take(pa.array(order[places])).unique()
        return chosen.drop_null() if isinstance(chosen, pa.Array) else chosen.combine_chunks()

    # In tasks.

    def work(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        """A sample of the first key, beside a table without rows."""
        (table,) = given
        name = self.keys[0][0]
        check_columns([key for key, _ in self.keys], table.column_names, "sort")
        column = table.column(name)
        if table.num_rows > _SAMPLES:
            random = np.random.default_rng([table.num_rows, TaskContext.current().task_idx])
            chosen = np.sort(random.choice(table.num_rows, _SAMPLES, replace=False))
            column = column.take(pa.array(chosen))
        values = (
            pa.concat_arrays(column.drop_null().chunks)
            if column.num_chunks
            else pa.array([], column.type)
        )
        yield table.slice(0, 0), (values, table.num_rows)

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Any]:
        name, descending = self.keys[0]
        check_columns([key for key, _ in self.keys], table.column_names, "sort")
        column = table.column(name)
        bounds = pa.array(payload, column.type) if isinstance(payload, tuple) else payload
        return rows_to.cut(table, rows_to.by_bounds(column, bounds, descending), len(bounds) + 1)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        table = blocks.combine(blocks.concat(given))
        if not table.num_columns and not table.num_rows:
            return
        check_columns([key for key, _ in self.keys], table.column_names, "sort")
        yield table.take(rows_to.sort_order(table, self.keys))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sorted runs: of what does not fit into memory some blocks at a time are sorted, and the store
writes each such run to disk once. When all are there each reducer reads its range of keys of every
run (the external sort of Knuth, volume 3, 5.4.9). A run is one object of many parts, whose first
rows are known, so that a range is some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import movable
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.exchange import part_of
from sheaf.data.exchanges.partition import Borders
from sheaf.data.operators import Bundle, Work

_MOST_RUN_BYTES, _LEAST_RUN_BYTES = 256 << 20, 1 << 20
_MOST_PARTS, _PART_BYTES = 1000, 64 << 10  # Of a run.


@dataclasses.dataclass(slots=True)
class Run(Borders):
    """The parts of a sorted run.

    Attributes:
        keys: of the first row of each part, a table.
    """

    keys: Any = None


def works_of(bundles: Sequence[Bundle], budget: int, cpus: int) -> list[Work]:
    """Blocks in the order in which they came, as works that each make a run."""
    # What all tasks read and make fits into half of the budget.
    least = max(_LEAST_RUN_BYTES, min(_MOST_RUN_BYTES, budget // (4 * cpus)))
    works: list[Work] = []
    gathered: list[Bundle] = []
    size = 0
    for bundle in bundles:
        if not bundle.num_rows:  # It may have no columns either.
            continue
        gathered.append(bundle)
        size += bundle.size_bytes
        if size >= least:
            works.append(Work(tuple(gathered), "run"))
            gathered, size = [], 0
    if gathered:
        works.append(Work(tuple(gathered), "run"))
    return works


def sorted_run(
    given: Sequence[Any], names: Sequence[str], keys: Sequence[tuple[str, bool]]
) -> tuple[Any, Run]:
    """In a task: some blocks as one run.

    Args:
        given: tables.
        names: the columns of keys, each once.
        keys: names of columns, each with whether it is descending.

    Returns:
        The sorted table, and its parts.
    """
    table = blocks.concat(given)
    table = rows_to.take(table, rows_to.sort_order(table, keys))
    rows = table.num_rows
    count = max(1, min(_MOST_PARTS, blocks.size_bytes(table) // _PART_BYTES, rows))
    offsets = rows * np.arange(count + 1, dtype=np.int64) // count
    cuts = zip(offsets[:-1].tolist(), offsets[1:].tolist())
    sizes = np.array([blocks.size_bytes(table.slice(a, b - a)) for a, b in cuts], np.int64)
    first = rows_to.take(movable(table.select(names)), offsets[:-1] if rows else offsets[:0])
    return table, Run(offsets, sizes, keys=first)


class Ranges:
    """Where the partitions of a sorted result lie in runs.

    Args:
        runs: bundles, whose metadata have a Run each.
        keys: names of columns, each with whether it is descending.
        bounds, behind: of partitions, as for partition.by_bounds.

    Attributes:
        rows, sizes: of each partition, about.
    """

    def __init__(
        self, runs: Sequence[Bundle], keys: Sequence[tuple[str, bool]], bounds: Any, behind: Any
    ) -> None:
        self._runs = [bundle for bundle in runs if bundle.num_rows]
        count = bounds.num_rows + 1
        self._ends: list[tuple[Any, Any]] = []  # Of each run: where parts of partitions may begin.
        self.rows, self.sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for bundle in self._runs:
            run = bundle.metadata.extra
            first = rows_to.by_bounds(run.keys, keys, bounds, behind)[1].offsets
            self._ends.append(_certain(run.keys, keys, bounds) or (first, first))
            self.rows += np.diff(run.offsets[first])
            self.sizes += np.diff(np.concatenate([[0], np.cumsum(run.sizes)])[first])

    def slices(self, part: int) -> list[Bundle]:
        """All parts of runs that may have rows of a partition, and some of its neighbours'."""
        found = []
        for bundle, (first, last) in zip(self._runs, self._ends):
            # A part that begins before the partition may end in it.
            begin, end = max(0, int(first[part]) - 1), int(last[part + 1])
            if begin < end:
                # A view of a part would pin all of its run, which the store then could not spill.
                found.append(part_of(bundle, begin, end, copied=True))
        return found


def _rounds(table: Any, bounds: Any) -> list[bool]:
    """For each column of bounds, whether that of a table is compared as floats with it."""
    names = bounds.column_names
    return [rows_to.rounds(table.column(n).type, bounds.column(n).type) for n in names]


def _certain(first: Any, keys: Sequence[tuple[str, bool]], bounds: Any) -> Any:
    """Of a run that is in the order of exact numbers, while bounds are floats, which are equal for
    some of those: the first part that may begin in each partition, and the last, as far as the keys
    in front say that; None: bounds do not change what is equal."""
    found = _rounds(first, bounds)
    if not any(found):
        return None
    some = keys[: found.index(True) + 1]
    ends = bounds.select([name for name, _ in some])
    behind = np.ones(ends.num_rows, bool)
    return tuple(rows_to.by_bounds(first, some, ends, of)[1].offsets for of in (None, behind))


def trimmed(
    given: Sequence[Any],
    names: Sequence[str],
    keys: Sequence[tuple[str, bool]],
    bounds: Any,
    behind: Any,
    part: int,
) -> Iterator[Any]:
    """In a task: the rows of sorted tables that are in a partition.

    Args:
        given: tables.
        names: the columns of keys, each once.
        keys, bounds, behind: as for partition.by_bounds.
        part: which partition of those that the bounds make.

    Yields:
        As many tables.
    """
    for table in given:
        own = table.select(names)
        if any(_rounds(own, bounds)):
            yield within(table, own, keys, bounds, behind, part)
            continue
        _, borders = rows_to.by_bounds(own, keys, bounds, behind)
        first, stop = borders.offsets[part : part + 2].tolist()
        yield blocks.slice_rows(table, first, stop - first)


def within(
    table: Any, own: Any, keys: Sequence[tuple[str, bool]], bounds: Any, behind: Any, part: int
) -> Any:
    """The rows of a table that are in a partition, in their order.

    Args:
        table: in any order.
        own: its columns of keys.
        keys, bounds, behind, part: as of trimmed.

    Returns:
        A pa.Table.
    """
    mark = max(own.column_names, key=len) + "_"
    numbered = own.append_column(mark, pa.array(np.arange(table.num_rows)))
    made, borders = rows_to.by_bounds(numbered, keys, bounds, behind)
    first, stop = borders.offsets[part : part + 2].tolist()
    return rows_to.take(table, blocks.combine(made.slice(first, stop - first))[mark].chunk(0))

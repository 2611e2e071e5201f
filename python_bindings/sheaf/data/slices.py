# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks cut and put together without a shuffle: repartition, zip, split."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.operators import Bundle, Work


def cut_at(bundles: Sequence[Bundle], ends: Sequence[int]) -> list[list[Bundle]]:
    """Slices of bundles, as if they were one: rows up to the first end, from there to the second,
    and so on; an end beyond all rows gives what there is.

    Args:
        bundles: in order.
        ends: rising row numbers.

    Returns:
        For each end its slices, none of them empty.
    """
    out: list[list[Bundle]] = []
    at, index, inside = 0, 0, 0
    for end in ends:
        part: list[Bundle] = []
        while at < end and index < len(bundles):
            bundle = bundles[index]
            step = min(end - at, bundle.num_rows - inside)
            if step:
                part.append(bundle.cut(inside, inside + step))
            at, inside = at + step, inside + step
            if inside == bundle.num_rows:
                index, inside = index + 1, 0
        out.append(part)
    return out


def rows_of(bundles: Sequence[Bundle]) -> int:
    """Rows of all of them."""
    return sum(bundle.num_rows for bundle in bundles)


def equal_rows(counts: Sequence[int]) -> int:
    """How many rows each of the inputs of a zip has.

    Raises:
        ValueError: they have several numbers of rows.
    """
    if len(set(counts)) > 1:
        raise ValueError(f"zip: the datasets have {list(counts)} rows: want equal numbers")
    return counts[0]


def even_ends(rows: int, count: int) -> list[int]:
    """Where `count` parts of about equal numbers of rows end."""
    return [rows * part // count for part in range(1, count + 1)]


@dataclasses.dataclass
class JoinBlocks:
    """`count` blocks, or blocks of `rows` rows, from slices of those that come.

    Attributes:
        count, rows: one of them is given.
        small_bytes: below this, it is done in the process of the executor.
    """

    count: int | None
    rows: int | None
    small_bytes: int

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """Works of which each makes one block."""
        bundles = given[0]
        rows = rows_of(bundles)
        if self.rows is not None:
            ends = [*range(self.rows, rows, self.rows), rows]
        else:
            assert self.count is not None
            ends = even_ends(rows, self.count)
        here = sum(bundle.size_bytes for bundle in bundles) < self.small_bytes
        parts = cut_at(bundles, ends)
        empty = tuple(bundle.cut(0, 0) for bundle in bundles[:1])  # It has the schema.
        return [Work(tuple(part) or empty, (), here) for part in parts if part or empty]

    def work(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        """One block."""
        yield blocks.combine(blocks.concat(given)), None


@dataclasses.dataclass
class ZipBlocks:
    """Columns of several inputs side by side, in the blocks of the first.

    Attributes:
        small_bytes: below this, it is done in the process of the executor.
    """

    small_bytes: int

    def arrange(self, given: Sequence[Sequence[Bundle]]) -> list[Work]:
        """A work for each block of the first input.

        Raises:
            ValueError: the inputs have several numbers of rows.
        """
        equal_rows([rows_of(bundles) for bundles in given])
        ends, end = [], 0
        for bundle in given[0]:
            if bundle.num_rows:
                end += bundle.num_rows
                ends.append(end)
        sides = [cut_at(bundles, ends) for bundles in given]
        if not ends and all(given):  # The columns, then.
            sides = [[[bundles[0].cut(0, 0)]] for bundles in given]
        here = sum(b.size_bytes for bundles in given for b in bundles) < self.small_bytes
        return [
            Work(tuple(b for part in parts for b in part), tuple(len(part) for part in parts), here)
            for parts in zip(*sides)
        ]

    def work(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        """One block: columns of a name that is taken get _1, _2 and so on."""
        at = 0
        columns: dict[str, Any] = {}
        for count in payload:
            side = blocks.concat(given[at : at + count])
            at += count
            for name, column in zip(side.column_names, side.columns):
                number, unique = 0, name
                while unique in columns:
                    number += 1
                    unique = f"{name}_{number}"
                columns[unique] = column
        yield pa.table(columns), None

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows to partitions: by a hash of keys, by bounds, at random. All give a table in the order of its
partitions, and where each lies in it. The kernels are those of sheaf.arrow; what has types that
those do not move goes by NumPy and pyarrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import sheaf
import sheaf.arrow
from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import comparable, movable, to_hash
from sheaf.data.columns import values_of
from sheaf.data.schema import cast, unified
from sheaf.util.parts import Parts, get_parts

_PART_BYTES = 1 << 10  # With less per partition, a table is stored as one piece.


@dataclasses.dataclass(slots=True)
class Borders:
    """Where the partitions of one table lie, which is in their order.

    Attributes:
        offsets: the first row of each, and the number of rows at the end.
        sizes: bytes of each, about.
        top: keys that many rows have, each with how many, about.
        places: (offset, bytes) of each in the object that holds them; None: that is the table.
        digest: of all places.
    """

    offsets: Any
    sizes: Any
    top: tuple[tuple[tuple[Any, ...], int], ...] = ()
    places: Any = None
    digest: int = 0

    def stored(self, table: Any) -> Any:
        """The value that a task returns for the table: one whose partitions can be read by
        themselves, unless they are tiny."""
        count = len(self.sizes)
        if not table.num_columns or int(self.sizes.sum()) < _PART_BYTES * count:
            return table
        cuts = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist())
        made = Parts([table.slice(a, b - a) if b > a else None for a, b in cuts])
        self.places = np.array([place[:2] for place in made.places], np.uint64)
        self.digest = made.places[0][2]
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class Pieces:
    """Some partitions of a map task's output, read where they are needed.

    Attributes:
        ref: of the output.
        places: of parts in it.
        copied: a view of a part pins all of its object. Where those are more than the store holds,
            its reader has a copy instead.
    """

    ref: Any
    places: tuple[tuple[int, int, int], ...]
    copied: bool = False


def fetched(given: Sequence[Any], cuts: Sequence[Any]) -> list[Any]:
    """`given` with the tables of all Pieces in their place.

    Args:
        given: blocks, and Pieces.
        cuts: (start, stop) for each: which rows of Pieces are wanted; None: all.

    Returns:
        As many.
    """
    wanted = [(one.ref, place) for one in given if isinstance(one, Pieces) for place in one.places]
    if not wanted:
        return list(given)
    # Who knows where objects are reads what is on this node in place.
    refs = list({one.ref: None for one in given if isinstance(one, Pieces)})
    sheaf.wait(refs, num_returns=len(refs), fetch_local=False)
    found = iter(get_parts(wanted))
    out = []
    for one, cut in zip(given, cuts):
        if isinstance(one, Pieces):
            copied, parts = one.copied, [next(found) for _ in one.places]
            one = blocks.concat(parts)
            if cut is not None and cut[1] - cut[0] < one.num_rows:
                one = blocks.slice_rows(one, cut[0], cut[1] - cut[0])
            if copied:
                one = _copied(one)
        out.append(one)
    return out


def _copied(table: Any) -> Any:
    """A table in memory of this process."""
    try:
        made = pa.table(sheaf.arrow.concat([_numbered(table)]))
        return made.rename_columns(table.column_names)
    except sheaf.arrow.UnsupportedType:
        return table.take(pa.array(np.arange(table.num_rows)))


def whole(table: Any, count: int) -> tuple[Any, Borders]:
    """All rows in the first of `count` partitions."""
    offsets = np.full(count + 1, table.num_rows, np.int64)
    offsets[0] = 0
    sizes = np.zeros(count, np.int64)
    sizes[0] = blocks.size_bytes(table)
    return table, Borders(offsets, sizes)


def by_hash(table: Any, keys: Sequence[str], count: int) -> tuple[Any, Borders]:
    """Equal keys go to equal partitions, whatever the types of numbers; -0.0 is 0.0, NaN is NaN,
    and NULL is NULL.

    Args:
        table: a pa.Table.
        keys: names of columns.
        count: of partitions.

    Returns:
        The table by partitions, and where they lie.
    """
    if count == 1 or not table.num_rows:
        return whole(table, count)
    table = movable(table)
    stand_ins = {key: column for key in keys if (column := to_hash(table.column(key))) is not None}
    try:
        return _partitioned(table, keys, stand_ins, n=count)
    except sheaf.arrow.UnsupportedType:
        return _cut(table, numbers(table, keys, count), count)


def numbers(table: Any, keys: Sequence[str], count: int) -> Any:
    """Returns the partition of each row as by_hash has it, an int64 NumPy array."""
    table = movable(table)
    names = [str(number) for number in range(len(keys))]
    columns = [table.column(key) for key in keys]
    hashed = [own if (own := to_hash(column)) is not None else column for column in columns]
    hashes = pa.table(sheaf.arrow.hash(pa.table(hashed, names=names), names)).column(0).to_numpy()
    high, low = hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)
    n = np.uint64(count)
    parts = (high * n + (low * n >> np.uint64(32))) >> np.uint64(32)  # hash * n / 2**64
    return parts.astype(np.int64)


def by_bounds(
    table: Any, keys: Sequence[tuple[str, bool]], bounds: Any, behind: Any = None
) -> tuple[Any, Borders]:
    """Partitions of a sorted result. NULL comes last and NaN before it, in both directions.

    Args:
        table: a pa.Table.
        keys: names of columns, each with whether it is descending.
        bounds: rows of these columns, in the order of the sort: row i is the first that may be in
            partition i + 1.
        behind: flags, a NumPy array: where it is set, rows equal to row i are in partition i still;
            it may stand twice, first without. None: none is set.

    Returns:
        The table by partitions, and where they lie.

    Raises:
        TypeError: a column has no order.
    """
    if not bounds.num_rows or not table.num_rows:
        return whole(table, bounds.num_rows + 1)
    table = movable(table)
    names = [name for name, _ in keys]
    casts, bounds = _in_one_type(table, bounds)
    falls = [down for _, down in keys]
    width, own = table.num_columns, names
    if behind is not None and behind.any():  # One more key: rows have 0, such bounds 1.
        mark = max([*table.column_names, *names], key=len) + "_"
        table = table.append_column(mark, pa.array(np.zeros(table.num_rows, np.int8)))
        bounds = bounds.append_column(mark, pa.array(behind, pa.int8()))
        names, falls = [*names, mark], [*falls, False]
    try:
        made, borders = _partitioned(table, names, casts, bounds=bounds, descending=falls)
    except sheaf.arrow.UnsupportedType as error:
        raise _no_order(table, own) from error
    borders.sizes -= (table.num_columns - width) * np.diff(borders.offsets)
    return made.select(range(width)), borders


def rounds(kind: Any, end: Any) -> bool:
    """Whether exact numbers of one type are compared with bounds of another as floats, so that some
    that differ are equal then."""
    both = unified(kind, end)
    return both is not None and pa.types.is_floating(both) and not pa.types.is_floating(kind)


def _in_one_type(table: Any, bounds: Any) -> tuple[dict[str, Any], Any]:
    """What stands in for columns of a table that are not of the types of their bounds, and the
    bounds. Raises TypeError."""
    casts, ends = {}, []
    for name, end in zip(bounds.column_names, map(comparable, bounds.columns)):
        column = table.column(name)
        kind = unified(comparable(column).type, end.type)
        if kind is None:
            raise TypeError(
                f"sort: boundaries of type {end.type} for the column '{name}' of type "
                f"{column.type}: want values of its own type"
            )
        if column.type != kind:
            casts[name] = cast(comparable(column), kind)
        ends.append(cast(end, kind))
    return casts, pa.table(ends, bounds.column_names)


def at_random(table: Any, count: int, seed: Sequence[int]) -> tuple[Any, Borders]:
    """Any partition for each row; the same for the same seed."""
    if count == 1 or not table.num_columns:
        return whole(table, count)
    table = movable(table)
    state = np.random.SeedSequence(seed)
    try:
        number = int(state.generate_state(1, np.uint64)[0])
        return _partitioned(table, None, {}, n=count, seed=number)
    except sheaf.arrow.UnsupportedType:
        return _cut(table, np.random.default_rng(state).integers(0, count, table.num_rows), count)


def _partitioned(
    table: Any, keys: Sequence[str] | None, columns: Mapping[str, Any], **how: Any
) -> tuple[Any, Borders]:
    """By the kernels; `columns` stand in for some of the keys."""
    names = table.column_names
    wide = _numbered(table)
    by = None if keys is None else [str(names.index(key)) for key in keys]
    for place, key in enumerate(keys or ()):
        if by is not None and key in columns:
            by[place] = f"by{place}"
            wide = wide.append_column(by[place], columns[key])
    parts = sheaf.arrow.partition(wide, keys=by, **how)
    made = pa.table(parts.table).select(range(len(names))).rename_columns(names)
    made = made.replace_schema_metadata(table.schema.metadata)  # It says of which file it is.
    top: list[tuple[Any, ...]] = []
    if parts.top_keys is not None:
        top = list(zip(*(_shown(column) for column in pa.table(parts.top_keys).columns)))
    return made, Borders(
        np.array(parts.offsets, np.int64),
        np.array(parts.num_bytes, np.int64),
        tuple(zip(top, parts.top_rows)),
    )


def _shown(column: Any) -> list[Any]:
    """Values as skew() shows them: nanoseconds, which only pandas has a type for, as text."""
    kind = column.type
    fine = pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns"
    return values_of(column.cast(pa.string()) if fine else column)


def _numbered(table: Any) -> Any:
    """The table with numbers for names: any text may be one, and in C it ends at NUL."""
    return table.rename_columns([str(number) for number in range(table.num_columns)])


def _cut(table: Any, parts: Any, count: int) -> tuple[Any, Borders]:
    """The same with pyarrow; `parts` is the partition of each row."""
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(parts, minlength=count), out=offsets[1:])
    table = blocks.combine(table).take(pa.array(np.argsort(parts, kind="stable")))
    per_row = blocks.size_bytes(table) / max(1, table.num_rows)
    return table, Borders(offsets, (np.diff(offsets) * per_row).astype(np.int64))


def take(table: Any, indices: Any) -> Any:
    """Rows of a table by a pa.Array or NumPy array of their numbers."""
    if not table.num_columns:
        return blocks.empty_rows(len(indices))
    table = movable(table)
    try:
        made = pa.table(sheaf.arrow.gather(_numbered(table), indices))
        return made.rename_columns(table.column_names)
    except sheaf.arrow.UnsupportedType:
        return blocks.combine(table).take(pa.array(indices))


def sort_order(table: Any, keys: Sequence[tuple[str, bool]]) -> Any:
    """The order of rows of a sorted table, stable, NULL last.

    Args:
        table: a pa.Table.
        keys: names of columns, each with whether it is descending.

    Returns:
        A pa.Array of indices.

    Raises:
        TypeError: a column cannot be sorted.
    """
    order = [(name, "descending" if down else "ascending") for name, down in keys]
    names = [name for name, _ in keys]
    try:
        columns = [comparable(table.column(name)) for name in dict.fromkeys(names)]
        return pc.sort_indices(pa.table(columns, list(dict.fromkeys(names))), sort_keys=order)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise _no_order(table, names) from error


def _no_order(table: Any, names: Sequence[str]) -> TypeError:
    kinds = ", ".join(f"'{name}' is {table.schema.field(name).type}" for name in names)
    return TypeError(
        f"these columns cannot be sorted: {kinds}; sort by a number or text that add_column makes"
    )

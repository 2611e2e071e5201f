# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Joins as exchanges: both sides go to partitions by a hash of their keys, and are joined there."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import block as blocks
from sheaf.data.aggregates.keys import is_opaque, key, movable, to_floats
from sheaf.data.errors import BatchError, SchemaMismatchError
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.exchange import Method, sizes_of, work_of
from sheaf.data.exchanges.matching import Matches
from sheaf.data.exchanges.partition import Borders
from sheaf.data.exchanges.skew import shares
from sheaf.data.operators import Bundle, Work
from sheaf.data.schema import check_columns, unified

KINDS = {
    "inner": "inner",
    "left_outer": "left outer",
    "right_outer": "right outer",
    "full_outer": "full outer",
    "left_semi": "left semi",
    "right_semi": "right semi",
    "left_anti": "left anti",
    "right_anti": "right anti",
}


# Kinds in which a row of one side, left or right, needs no other row of that side.
_DECIDED_BY_ROWS = (
    frozenset({"inner", "left_outer", "left_semi", "left_anti"}),
    frozenset({"inner", "right_outer", "right_semi", "right_anti"}),
)
# Kinds whose result has rows of the left side, or the right, that match none.
_KEEPS = (
    frozenset({"left_outer", "full_outer", "left_anti"}),
    frozenset({"right_outer", "full_outer", "right_anti"}),
)
_LARGEST = 2**63 - 1  # Of int64.


@dataclasses.dataclass
class Join(Method):
    """Rows of two inputs with equal keys. NULL equals nothing, -0.0 is 0.0, NaN is NaN.

    Attributes:
        kind: of KINDS.
        left, right: the keys of both sides.
        suffixes: of columns whose names both have.
        wants_all_inputs: as of Method, for the columns and types of both sides.
    """

    wants_few: bool = True
    wants_all_inputs: bool = True
    warns_of_skew: bool = True
    kind: str = "inner"
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    suffixes: tuple[str | None, str | None] = (None, None)

    def check(self) -> None:
        """Raises ValueError: the kind is none, or the numbers of keys differ."""
        if self.kind not in KINDS:
            raise ValueError(f"join: join_type={self.kind!r}: want one of {sorted(KINDS)}")
        if not self.left or len(self.left) != len(self.right):
            raise ValueError(
                f"join: on={list(self.left)}, right_on={list(self.right)}: want equal numbers"
            )

    def small_side(self, bounds: Sequence[int | None], context: Any) -> int | None:
        if all(size is not None for size in bounds):
            if sum(size or 0 for size in bounds) < int(context.small_input_bytes):
                return None  # It runs here, without tasks.
        fits = [
            (size, side)
            for side, size in enumerate(bounds)
            if size is not None
            and size < int(context.broadcast_join_bytes)
            and self.kind in _DECIDED_BY_ROWS[1 - side]
        ]
        return min(fits)[1] if fits else None

    def schema(self, schema: Any) -> Any:
        return None

    def _split(self, given: Sequence[Sequence[Bundle]]) -> dict[int, list[Work]]:
        """Rows of the large side are shared by tasks of which each has all of the other side."""
        sizes = [sizes_of(port) if port else np.zeros(self._partitions, int) for port in given]
        found: dict[int, list[Work]] = {}
        for side in (0, 1):
            if self.kind not in _DECIDED_BY_ROWS[side]:
                continue
            for part in self.skewed.among(sizes[side]):
                other = int(sizes[1 - side][part])
                if part in found or other > sizes[side][part]:
                    continue
                whole = self._ports(given, part, part + 1)
                for slices in shares(whole[side], max(self.most_bytes, other)):
                    ports = [slices, whole[1]] if side == 0 else [whole[0], slices]
                    found.setdefault(part, []).append(work_of(ports))
        return {part: works for part, works in found.items() if len(works) > 1}

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        keys = (self.left, self.right)[side]
        check_columns(keys, table.column_names, "join")
        return rows_to.by_hash(table, keys, self._partitions)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        sides = [list(given[: payload[0]]), list(given[payload[0] :])]
        tables = [blocks.combine(blocks.concat(side)) if side else None for side in sides]
        left, right = tables
        if left is None or right is None:
            yield from self._one_sided(tables)
            return
        shown = self._shown(left.column_names, right.column_names)
        kinds = [
            kind if kind == right.schema.field(other).type else None
            for kind, other in zip((left.schema.field(key).type for key in self.left), self.right)
        ]
        left, right = self._same_keys(movable(left), movable(right))
        keys = (list(self.left), list(self.right))
        found = Matches(
            [left.column(name) for name in keys[0]], [right.column(name) for name in keys[1]]
        )
        # All columns have numbers for names, so that none are lost where names clash.
        numbers = [_numbered(left, "l"), _numbered(right, "r")]
        if self._is_semi:
            joined = self._chosen(numbers, found)
        else:
            joined = self._joined(numbers, keys, (left, right), found)
        marks = [
            [f"{mark}{t.column_names.index(name)}" for name in names]
            for mark, t, names in zip("lr", (left, right), keys)
        ]
        for number, kind in [*zip(marks[0], kinds), *zip(marks[1], kinds)]:
            if number in shown and kind is not None:
                place = joined.column_names.index(number)
                joined = joined.set_column(place, number, _as(joined.column(place), kind))
        yield joined.select(list(shown)).rename_columns(list(shown.values()))

    def _chosen(self, sides: Sequence[Any], found: Matches) -> Any:
        """Of semi and anti joins: some rows of one side."""
        side = self.kind.startswith("right")
        matched = found.matched_right() if side else found.matched_left()
        rows = np.flatnonzero(matched == self.kind.endswith("semi"))
        return rows_to.take(sides[side], rows)

    def _joined(
        self, sides: Sequence[Any], keys: Sequence[list[str]], named: Sequence[Any], found: Matches
    ) -> Any:
        pairs = found.pairs(
            self.kind in ("left_outer", "full_outer"), self.kind in ("right_outer", "full_outer")
        )
        left, right = (_taken(side, rows) for side, rows in zip(sides, pairs))
        if self.kind == "full_outer":  # The left side's keys have the values of both.
            for one, other in zip(*keys):
                place = named[0].column_names.index(one)
                theirs = right.column(named[1].column_names.index(other))
                lacks = pa.array(pairs[0] < 0)
                column = pc.if_else(lacks, theirs, left.column(place))
                left = left.set_column(place, left.column_names[place], column)
        for name in right.column_names:
            left = left.append_column(name, right.column(name))
        return left

    @property
    def _is_semi(self) -> bool:
        return self.kind.endswith(("semi", "anti"))

    def _shown(self, left: Sequence[str], right: Sequence[str]) -> dict[str, str]:
        """The numbers of the result's columns, in their order, with their names.

        Raises:
            ValueError: two columns would have one name.
        """
        if self._is_semi:
            mark, names = ("l", left) if self.kind.startswith("left") else ("r", right)
            return {f"{mark}{place}": name for place, name in enumerate(names)}
        shared = (set(left) - set(self.left)) & (set(right) - set(self.right))
        if shared and self.suffixes[0] == self.suffixes[1]:
            raise ValueError(
                f"join: both sides have {sorted(shared)}: want left_suffix or right_suffix"
            )
        one, other = (suffix or "" for suffix in self.suffixes)
        # The keys are those of the right side where all its rows stay, else those of the left.
        by_right = self.kind == "right_outer"
        kept = shared | set(self.right if by_right else self.left)
        shown = {
            f"l{n}": name + one * (name in (kept if by_right else shared))
            for n, name in enumerate(left)
            if not (by_right and name in self.left)
        }
        shown |= {
            f"r{n}": name + other * (name in (shared if by_right else kept))
            for n, name in enumerate(right)
            if by_right or name not in self.right
        }
        twice = sorted(n for n, times in collections.Counter(shown.values()).items() if times > 1)
        if twice:
            raise ValueError(
                f"join: the result would have two columns {', '.join(map(repr, twice))}: want "
                "another left_suffix or right_suffix, or rename_columns before"
            )
        return shown

    def _same_keys(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Both sides with keys of the same types.

        Raises:
            BatchError: rows cannot be joined by a key.
            SchemaMismatchError: a pair has types of which neither holds the other.
        """
        tables = [left, right]
        for names in zip(self.left, self.right):
            columns = [key(table.column(name)) for table, name in zip(tables, names)]
            kinds = [column.type for column in columns]
            wanted = _key_type(names, *kinds)
            for side, (name, column) in enumerate(zip(names, columns)):
                table = tables[side]
                if wanted == pa.int64() and pa.types.is_uint64(column.type):
                    beyond = pc.greater(column, pa.scalar(_LARGEST, pa.uint64())).fill_null(False)
                    if pc.any(beyond).as_py():  # Equal to nothing on the other side.
                        if self.kind in _KEEPS[side]:
                            raise _mismatch(names, kinds)
                        table, column = (x.filter(pc.invert(beyond)) for x in (table, column))
                try:
                    column = _cast(column, wanted)
                except pa.ArrowInvalid as error:
                    raise _mismatch(names, kinds) from error
                tables[side] = table.set_column(table.column_names.index(name), name, column)
        return tables[0], tables[1]

    def _one_sided(self, tables: Sequence[Any]) -> Iterator[Any]:
        """What remains of one side where the other has not even a block."""
        left, right = tables
        if left is not None and self.kind in ("left_outer", "full_outer", "left_anti"):
            yield left
        elif right is not None and self.kind in ("right_outer", "full_outer", "right_anti"):
            names = dict(zip(self.right, self.left)) if self.kind == "full_outer" else {}
            yield right.rename_columns([names.get(name, name) for name in right.column_names])


def _numbered(table: Any, mark: str) -> Any:
    return table.rename_columns([f"{mark}{place}" for place in range(table.num_columns)])


def _taken(table: Any, rows: Any) -> Any:
    """The rows of a table with these numbers; NULLs where it is -1."""
    lacks = rows < 0
    if not lacks.any():
        return rows_to.take(table, rows)
    return table.take(pa.array(rows, mask=lacks))


def _as(column: Any, kind: Any) -> Any:
    """A key of the result in the type that both sides had."""
    if pa.types.is_dictionary(kind):
        encoded = column.dictionary_encode()
        return encoded if encoded.type == kind else encoded.cast(kind)
    return column.cast(kind) if pa.types.is_float16(kind) else column


def _key_type(names: tuple[str, str], a: Any, b: Any) -> Any:
    """The type in which two keys are compared.

    Raises:
        BatchError: a side's is none that values are compared in.
        SchemaMismatchError: neither holds the values of the other.
    """
    for name, kind, side in zip(names, (a, b), ("left", "right")):
        if is_opaque(kind):
            raise BatchError(
                f"join: column '{name}' of the {side} side is {kind}, by which rows cannot be "
                "joined: join by a number or text that add_column makes of it"
            )
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return a if a == b else pa.int64()
    if pa.types.is_null(a) and pa.types.is_null(b):
        return pa.int64()  # What the result has for it.
    both = unified(a, b)
    if both is None:
        raise _mismatch(names, (a, b))
    return both


def _mismatch(names: tuple[str, str], kinds: Sequence[Any]) -> SchemaMismatchError:
    a, b = map(str, kinds)
    return SchemaMismatchError(names[0], a, "the left side", b, f"the right side ('{names[1]}')")


def _cast(column: Any, kind: Any) -> Any:
    if pa.types.is_floating(kind) and not pa.types.is_floating(column.type):
        return to_floats(column).cast(kind)
    return column.cast(kind)

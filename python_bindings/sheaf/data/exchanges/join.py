# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Joins as exchanges: both sides go to partitions by a hash of their keys, which pyarrow joins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.errors import SchemaMismatchError
from sheaf.data.exchanges import partition as rows_to
from sheaf.data.exchanges.exchange import Method
from sheaf.data.exchanges.partition import Borders
from sheaf.data.schema import check_columns

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


@dataclasses.dataclass
class Join(Method):
    """Rows of two inputs with equal keys. NULL equals nothing.

    Attributes:
        kind: of KINDS.
        left, right: the keys of both sides.
        suffixes: of columns whose names both have.
        wants_all_inputs: as of Method, for the columns and types of both sides.
    """

    wants_all_inputs: bool = True
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

    def partition(self, table: Any, payload: Any, side: int) -> tuple[Any, Borders]:
        keys = (self.left, self.right)[side]
        check_columns(keys, table.column_names, "join")
        return rows_to.by_hash(table, keys, self._partitions)

    def reduce(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        sides = [list(given[: payload[0]]), list(given[payload[0] :])]
        tables = [blocks.combine(blocks.concat(side)) if side else None for side in sides]
        if tables[0] is None or tables[1] is None:
            yield from self._one_sided(tables)
            return
        left, right = _same_keys(tables[0], self.left, tables[1], self.right)
        shared = (set(left.column_names) - set(self.left)) & (
            set(right.column_names) - set(self.right)
        )
        semi = self.kind.endswith(("semi", "anti"))
        if shared and self.suffixes[0] == self.suffixes[1] and not semi:
            raise ValueError(
                f"join: both sides have {sorted(shared)}: want left_suffix or right_suffix"
            )
        carried = [
            _Carried(table, keys, {} if semi else {n: n + (suffix or "") for n in shared})
            for table, keys, suffix in zip(
                (left, right), (self.left, self.right), self.suffixes, strict=True
            )
        ]
        joined = carried[0].table.join(
            carried[1].table,
            keys=list(self.left),
            right_keys=list(self.right),
            join_type=KINDS[self.kind],
            left_suffix=self.suffixes[0],
            right_suffix=self.suffixes[1],
            use_threads=False,
        )
        if not (semi and self.kind.startswith("right")):
            joined = carried[0].put_back(joined)
        if not (semi and self.kind.startswith("left")):
            joined = carried[1].put_back(joined)
        yield joined

    def _one_sided(self, tables: Sequence[Any]) -> Iterator[Any]:
        """What remains of one side where the other has not even a block."""
        left, right = tables
        if left is not None and self.kind in ("left_outer", "full_outer", "left_anti"):
            yield left
        elif right is not None and self.kind in ("right_outer", "full_outer", "right_anti"):
            yield right.rename_columns(
                [dict(zip(self.right, self.left)).get(name, name) for name in right.column_names]
                if self.kind != "right_anti"
                else right.column_names
            )


class _Carried:
    """A side whose columns of types that pyarrow does not join (lists, structs, tensors, only NULL)
    are the numbers of their rows meanwhile.

    Args:
        table: the side.
        keys: its columns that are joined by.
        renamed: new names of columns, where the join gives them some.
    """

    def __init__(self, table: Any, keys: Sequence[str], renamed: dict[str, str]) -> None:
        self.table, self._columns = table, {}
        for place, field in enumerate(table.schema):
            if field.name not in keys and not _joinable(field.type):
                self._columns[renamed.get(field.name, field.name)] = table.column(place)
                self.table = self.table.set_column(
                    place, field.name, pa.array(range(table.num_rows), pa.int64())
                )

    def put_back(self, joined: Any) -> Any:
        """The joined table with the columns themselves."""
        for name, column in self._columns.items():
            place = joined.column_names.index(name)
            joined = joined.set_column(place, name, column.take(joined.column(place)))
        return joined


def _joinable(kind: Any) -> bool:
    views = (pa.types.is_string_view, pa.types.is_binary_view)
    return not (
        pa.types.is_null(kind)
        or pa.types.is_nested(kind)
        or isinstance(kind, pa.BaseExtensionType)
        or any(is_view(kind) for is_view in views)
    )


def _same_keys(
    left: Any, left_keys: Sequence[str], right: Any, right_keys: Sequence[str]
) -> tuple[Any, Any]:
    """Both sides with keys of the same types.

    Raises:
        SchemaMismatchError: a pair has types of which neither holds the other.
    """
    for one, other in zip(left_keys, right_keys):
        a, b = left.schema.field(one).type, right.schema.field(other).type
        if a == b and not pa.types.is_null(a):
            continue
        nulls = [pa.types.is_null(kind) for kind in (a, b)]
        numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (a, b)]
        texts = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in (a, b)]
        if any(nulls):  # pyarrow joins by no column of that type.
            kind = pa.int64() if all(nulls) else a if nulls[1] else b
        elif all(numbers):
            kind = pa.int64() if pa.types.is_integer(a) and pa.types.is_integer(b) else pa.float64()
        elif all(texts):
            kind = pa.large_string()
        else:
            raise SchemaMismatchError(
                one, str(a), "the left side", str(b), f"the right side ('{other}')"
            )
        left = left.set_column(left.column_names.index(one), one, left.column(one).cast(kind))
        right = right.set_column(
            right.column_names.index(other), other, right.column(other).cast(kind)
        )
    return left, right

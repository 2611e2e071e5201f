# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Columns as keys: what kernels hash, compare and sort instead of them, so that equal values are
equal in whichever type or block they come."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.columns import values_of


def comparable(column: Any) -> Any:
    """The column in a type that kernels compare by value: dictionaries decoded, views as text,
    short floats and decimals wider; the same where its type is one.

    Args:
        column: a pa.Array or pa.ChunkedArray.

    Returns:
        The column.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return comparable(column.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return comparable(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def movable(table: Any) -> Any:
    """A table without views of text and runs, of which neither the kernels nor pyarrow take rows.

    Args:
        table: a pa.Table.

    Returns:
        The pa.Table, with text and values instead; the same where it has none.
    """
    tests = (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_run_end_encoded)
    for place, field in enumerate(table.schema):
        if any(is_one(field.type) for is_one in tests):
            table = table.set_column(place, field.name, comparable(table.column(place)))
    return table


def key(column: Any) -> Any:
    """The column as one of a key: comparable, and -0.0 is 0.0.

    Args:
        column: a pa.Array or pa.ChunkedArray.

    Returns:
        The column.
    """
    column = comparable(column)
    if pa.types.is_floating(column.type):
        return pc.add(column, pa.scalar(0.0, column.type))
    return column


def is_opaque(kind: Any) -> bool:
    """Whether kernels do not compare values of this type: lists, structs, tensors, intervals."""
    return (
        pa.types.is_nested(kind)
        or isinstance(kind, pa.BaseExtensionType)
        or pa.types.is_interval(kind)
    )


def to_floats(column: Any) -> Any:
    """Numbers as float64, each the nearest one: equal decimals of two scales are one float.

    Args:
        column: a pa.Array or pa.ChunkedArray of integers, floats or decimals.

    Returns:
        The column.
    """
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.float64(), safe=False)


def without_nan(column: Any) -> Any:
    """A column of floats with NULL for NaN."""
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def to_hash(column: Any) -> Any:
    """What is hashed instead of a column, so that equal values of any types are equal.

    Args:
        column: a pa.ChunkedArray.

    Returns:
        The column; None: itself.
    """
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return to_floats(column)  # 1 is 1.0, of another block or side.
    if is_opaque(kind):
        return pa.array([_text(value) for value in values_of(column)], pa.string())
    plain = comparable(column)
    if plain is column:
        return None
    inner = to_hash(plain)
    return plain if inner is None else inner


def numbered(column: Any) -> Any:
    """A number for each row of an opaque column, equal where values are.

    Args:
        column: a pa.ChunkedArray.

    Returns:
        An int64 NumPy array.
    """
    seen: dict[Any, int] = {}
    values = values_of(column)
    return np.array([seen.setdefault(_same(v, False), len(seen)) for v in values], np.int64)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return hashlib.blake2b(repr(_same(value, True)).encode(errors="replace")).hexdigest()[:32]


def _same(value: Any, wide: bool) -> Any:
    """Something hashable, the same for equal values of one type; `wide`: of types that become one
    (integers and floats, structs with other fields that are NULL)."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if value.dtype.kind == "f" or wide:
            value = value.astype(np.float64 if wide else value.dtype) + 0  # -0.0 becomes 0.0.
            value = np.where(value != value, np.array(np.nan, value.dtype), value)
        return value.shape, value.tobytes()
    if isinstance(value, dict):
        items = [(name, _same(one, wide)) for name, one in value.items()]
        if wide:
            items = sorted((item for item in items if item[1] is not None), key=lambda one: one[0])
        return tuple(items)
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(_same(one, wide) for one in value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "as_tuple") or (isinstance(value, int) and not isinstance(value, bool)):
        value = float(value) if wide else value
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows to partitions: by a hash of keys, by bounds, at random; a table sorted by partition and
where each begins."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import block as blocks
from sheaf.data.columns import values_of

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x5851F42D4C957F2D)


def cut(table: Any, parts: Any, count: int) -> tuple[Any, Any]:
    """A table in the order of its rows' partitions.

    Args:
        table: a pa.Table.
        parts: a NumPy array: the partition of each row.
        count: of partitions.

    Returns:
        The table, and the first row of each partition, with the number of rows at the end.
    """
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(parts, minlength=count), out=offsets[1:])
    if count == 1 or not table.num_columns:
        return table, offsets
    order = np.argsort(parts, kind="stable")
    return blocks.combine(table).take(pa.array(order)), offsets


def by_hash(table: Any, keys: Sequence[str], count: int) -> Any:
    """The partition of each row: equal keys have equal ones, whatever the types of numbers; -0.0 is
    0.0, NaN is NaN, and NULL is NULL."""
    mixed = np.zeros(table.num_rows, np.uint64)
    for key in keys:
        mixed = (mixed ^ _hash(table.column(key))) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(count)).astype(np.int64)


def _hash(column: Any) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False)
        missing = numbers.is_null().to_numpy(zero_copy_only=False)
        values = numbers.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0.
        bits = np.where(np.isnan(values), np.nan, values).view(np.uint64) * _MIX
        bits ^= bits >> np.uint64(32)
        bits[missing] = _NULL
        return bits
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return np.array([_of_value(value) for value in values_of(column)], np.uint64)
    coded = column.dictionary_encode()
    hashes = np.array(
        [_of_value(value) for value in coded.dictionary.to_pylist()] + [_NULL], np.uint64
    )
    codes = coded.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)
    return hashes[codes]


def _of_value(value: Any) -> int:
    if value is None:
        return int(_NULL)
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    return (zlib.crc32(data) | (zlib.crc32(data, 0x9E3779B9) << 32)) & 0xFFFFFFFFFFFFFFFF


def at_random(rows: int, count: int, seed: Sequence[int] | None) -> Any:
    """A random partition for each row; the same for the same seed."""
    return np.random.default_rng(seed).integers(0, count, rows)


def by_bounds(column: Any, bounds: Any, descending: bool) -> Any:
    """The partition of each row of a sorted result, by its first key. NULL and NaN come last, in
    both directions.

    Args:
        column: the key.
        bounds: values between partitions, in rising order, as a pa.Array.
        descending: whether large keys come first.

    Returns:
        A NumPy array.
    """
    count = len(bounds) + 1
    last = column.is_null(nan_is_null=True).to_numpy()
    column = column.cast(bounds.type) if column.type != bounds.type else column
    values, limits = _comparable(column), _comparable(bounds)
    parts = np.full(len(column), count - 1, np.int64)
    there = ~last
    places = np.searchsorted(limits, values[there], side="right")
    parts[there] = count - 1 - places if descending else places
    return parts


def _comparable(column: Any) -> Any:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        kind = column.type
    if pa.types.is_integer(kind) and column.null_count:
        column = column.fill_null(0)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8()).fill_null(0)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.asarray(
            column.to_numpy()
            if isinstance(column, pa.ChunkedArray)
            else column.to_numpy(zero_copy_only=False)
        )
    out = np.empty(len(column), object)
    out[:] = column.to_pylist()
    return out


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
    try:
        return pc.sort_indices(table.select([name for name, _ in keys]), sort_keys=order)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        kinds = ", ".join(f"'{name}' is {table.schema.field(name).type}" for name, _ in keys)
        raise TypeError(f"these columns cannot be sorted: {kinds}") from error

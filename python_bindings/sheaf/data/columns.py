# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One column: Python values and NumPy arrays to Arrow, and back to NumPy."""

from __future__ import annotations

import collections
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import arrow_types
from sheaf.data.errors import BatchError, SchemaMismatchError, shown

__all__ = ["column_of", "column_to_numpy", "values_of"]

_REFUSALS = (pa.ArrowException, OverflowError, TypeError, ValueError)  # Of pa.array.
_PLAIN = (bool, int, float, str, bytes)


def column_of(name: str, values: Any) -> Any:
    """One column of a batch as Arrow.

    Args:
        name: of the column, for errors.
        values: an array of NumPy, Arrow, pandas, Polars, PyTorch or TensorFlow, a list or a tuple;
            one element per row. An array of several dimensions is a column of tensors.

    Returns:
        A pa.Array or pa.ChunkedArray.

    Raises:
        BatchError: `values` is None, a scalar or a mapping.
        SchemaMismatchError: it mixes numbers, strings or bytes.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (list, tuple, range, collections.deque)):
        return _of_values(name, values)
    if not isinstance(values, np.ndarray):
        values = _foreign(name, values)
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return values
    return _of_ndarray(name, values)


def _foreign(name: str, values: Any) -> Any:
    """Columns of other libraries, as Arrow or NumPy."""
    library = type(values).__module__.partition(".")[0]
    if library == "polars":
        return values.to_arrow()
    if library == "pandas" and hasattr(values, "dtype"):
        if values.dtype == object:
            return _of_values(name, list(values))
        return pa.Array.from_pandas(values)
    if library == "torch":
        try:
            return values.detach().cpu().numpy()
        except TypeError as error:
            raise BatchError(
                f"column '{name}' is a tensor of {values.dtype}, which NumPy does not have: return "
                "x.float()"
            ) from error
    if isinstance(values, np.generic) or not hasattr(values, "__array__"):
        raise BatchError(
            f"column '{name}' is {shown(values)} of type {type(values).__name__}: want an array or "
            "a list with one element per row"
        )
    return np.asarray(values)


def _of_ndarray(name: str, array: Any) -> Any:
    if array.ndim == 0:
        raise BatchError(
            f"column '{name}' is the scalar {shown(array.item())}: want an array with one element "
            "per row"
        )
    if _is_masked(type(array)):
        return _of_masked(name, array)
    dtype = array.dtype
    if dtype.kind == "O":
        return _of_values(name, array.tolist() if array.ndim > 1 else list(array))
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    if dtype.kind == "M" and np.datetime_data(dtype)[0] not in ("D", "s", "ms", "us", "ns"):
        array = array.astype("datetime64[s]")
    if array.ndim > 1 and dtype.kind in "biuf" and dtype.itemsize <= 8:
        return arrow_types.tensor_array(array)
    if array.ndim > 1:
        return _of_values(name, array.tolist())
    if dtype.kind in "iuf" and dtype.itemsize <= 8 and array.flags.c_contiguous:
        # As pa.array gives it, which first imports pandas: 0.3 s of each process.
        aligned = array if array.flags.aligned else array.copy()
        buffers = [None, pa.py_buffer(aligned)]
        return pa.Array.from_buffers(pa.from_numpy_dtype(dtype), len(array), buffers)
    try:
        return pa.array(array)
    except _REFUSALS:  # Complex numbers, records, and what else Arrow has no type for.
        return _objects(name, list(array))


def _is_masked(kind: type) -> bool:
    """Whether a type is numpy.ma's, which is not imported for that."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and issubclass(kind, masked.MaskedArray)


def _of_masked(name: str, array: Any) -> Any:
    """What is masked is NULL. Tensors have no NULLs: arrays of several dimensions become lists,
    also where nothing is masked, so that what a function gives is of one type for all values."""
    if array.dtype.kind in "OV":
        return _of_values(name, array.tolist() if array.dtype.kind == "V" else _lists(array))
    mask = np.ma.getmaskarray(array).reshape(-1)
    column = _of_ndarray(name, np.asarray(array.data).reshape(-1))
    if isinstance(column.type, pa.BaseExtensionType):  # Complex numbers are objects.
        return _objects(name, _lists(array))
    if mask.any():
        column = pc.if_else(pa.array(~mask), column, None)
    for axis in range(array.ndim - 1, 0, -1):
        ends = np.arange(math.prod(array.shape[:axis]) + 1) * array.shape[axis]
        column = pa.ListArray.from_arrays(pa.array(ends).cast(pa.int32()), column)
    return column


def _lists(array: Any) -> list[Any]:
    """The elements of an array, None for what is masked."""
    if array.ndim > 1:
        return [_lists(one) for one in array]
    if array.dtype.kind == "V":
        return list(array.tolist())
    hidden = np.ma.getmaskarray(array)
    return [None if gone else one for one, gone in zip(np.ma.getdata(array), hidden)]


def _unmasked(values: Sequence[Any]) -> list[Any]:
    """Values without masks: None for what is masked. Beside masked arrays all become lists."""
    if any(_is_masked(type(one)) and one.ndim for one in values):
        values = [
            _lists(one) if isinstance(one, np.ndarray) and one.ndim else one for one in values
        ]
    plain = [None if _is_masked(type(one)) and np.ma.is_masked(one) else one for one in values]
    return [one.data if _is_masked(type(one)) else one for one in plain]


def _first(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _is_array(value: Any) -> bool:
    """Arrays, and tensors of other libraries; not NumPy's scalars."""
    if isinstance(value, np.ndarray):
        return True
    return (
        hasattr(value, "__array__")
        and not isinstance(value, np.generic)
        and hasattr(value, "shape")
        and hasattr(value, "dtype")
    )


def _of_values(name: str, values: Sequence[Any]) -> Any:
    if any(map(_is_masked, set(map(type, values)))):
        values = _unmasked(values)
    if _is_array(_first(values)):
        try:
            arrays = [value if value is None else _as_array(value) for value in values]
            if all(one is None or one.ndim == 0 for one in arrays):  # Numbers, as scalars are.
                return pa.array([one if one is None else one[()] for one in arrays])
            return arrow_types.variable_tensor_array(arrays)
        except _REFUSALS:
            if getattr(_first(values), "ndim", 0) != 1:
                return _objects(name, values)
    try:
        return _fine(pa.array(values), values)
    except _REFUSALS:
        return _of_difficult(name, values)


def _fine(column: Any, values: Sequence[Any]) -> Any:
    """The column with the nanoseconds of pandas' moments and spans, which Arrow leaves out of a
    list."""
    kind = column.type
    if pa.types.is_timestamp(kind) and any(getattr(one, "nanosecond", 0) for one in values):
        return pa.array(values, pa.timestamp("ns", kind.tz))
    if pa.types.is_duration(kind) and any(getattr(one, "nanoseconds", 0) for one in values):
        return pa.array(values, pa.duration("ns"))
    return column


def _as_array(value: Any) -> Any:
    if not _is_array(value):
        raise ValueError("not an array")
    if type(value).__module__.partition(".")[0] == "torch":
        value = value.detach().cpu()
    return np.asarray(value)


def _of_difficult(name: str, values: Sequence[Any]) -> Any:
    """What pa.array refuses: NaN among strings is NULL, as pandas has it; plain values of several
    kinds are an error; the rest, which are objects that Arrow has no type for, are pickled."""
    places: dict[str, int] = {}
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and value != value):
            continue
        places.setdefault(_kind(value), row)
    kinds = {kind: row for kind, row in places.items() if kind}
    if len(kinds) == len(places) and len(kinds) > 1 and set(kinds) != {"int", "float"}:
        (a, row_a), (b, row_b) = list(kinds.items())[:2]
        raise SchemaMismatchError(name, a, f"row {row_a}", b, f"row {row_b}")
    try:
        return pa.array(values, from_pandas=True)
    except _REFUSALS:
        pass
    if set(kinds) == {"int"}:
        try:
            return pa.array(values, pa.uint64())
        except _REFUSALS:
            pass
    return _objects(name, values)


def _kind(value: Any) -> str:
    """The kind of a plain value; "" of containers and objects."""
    if isinstance(value, np.generic):
        value = value.item()
    return next((kind.__name__ for kind in _PLAIN if isinstance(value, kind)), "")


def _objects(name: str, values: Sequence[Any]) -> Any:
    try:
        return arrow_types.objects_array(values)
    except Exception as error:
        kind = type(_first(values)).__name__
        raise BatchError(
            f"column '{name}' holds values of type {kind}, which neither Arrow nor pickle "
            f"can hold: {type(error).__name__}: {error}"
        ) from error


def column_to_numpy(column: Any) -> Any:
    """A column as NumPy, without a copy where Arrow keeps values as NumPy does (numbers without
    NULL in one chunk). Integers with NULLs become floats with NaN; strings, lists, structs and
    decimals an array of dtype object; tensors of one shape one array.

    Args:
        column: a pa.Array or pa.ChunkedArray.

    Returns:
        The array, one element along its first axis per row.
    """
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        elif isinstance(kind, pa.BaseExtensionType):
            parts = [column_to_numpy(chunk) for chunk in column.chunks]
            return _joined(parts, kind)
    if arrow_types.is_tensor(kind):
        return arrow_types.tensors_to_numpy(column)
    if isinstance(column, arrow_types.PickledObjectArray):
        return column.to_numpy()
    if isinstance(kind, pa.BaseExtensionType):
        result = np.empty(len(column), dtype=object)
        result[:] = column.to_pylist()
        return result
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def _joined(parts: list[Any], kind: Any) -> Any:
    if not parts:
        shape = arrow_types.tensor_shape(kind)
        if shape is None:
            return np.empty(0, dtype=object)
        return np.empty((0, *shape), dtype=kind.storage_type.value_type.to_pandas_dtype())
    if len({part.dtype == object for part in parts}) > 1:  # NULLs in some chunks.
        parts = [part if part.dtype == object else _rows_of(part) for part in parts]
    return np.concatenate(parts)


def _rows_of(array: Any) -> Any:
    result = np.empty(len(array), dtype=object)
    for row, value in enumerate(array):
        result[row] = value
    return result


def values_of(column: Any) -> list[Any]:
    """A column as Python values, one per row; tensors as NumPy arrays.

    Args:
        column: a pa.Array or pa.ChunkedArray.

    Returns:
        The values.
    """
    if isinstance(column.type, pa.BaseExtensionType):
        return list(column_to_numpy(column))
    return column.to_pylist()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors as a column of pandas, with the names of Ray: one array, whose first axis is that of the
rows. Datasets take such columns as they are, without an object per row."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray, ExtensionDtype, register_extension_dtype

from sheaf.data.arrow_types import tensor_array, variable_tensor_array

__all__ = ["TensorArray", "TensorArrayElement", "TensorDtype"]

TensorArrayElement = np.ndarray  # What one row is.


@register_extension_dtype
class TensorDtype(ExtensionDtype):  # type: ignore[misc]
    """The dtype of a column of tensors.

    Args:
        shape: of a row; None for axes that differ.
        dtype: of the elements.
    """

    type = np.ndarray
    na_value = None  # pandas puts it where there is no tensor.

    def __init__(self, shape: Sequence[int | None] = (), dtype: Any = np.float64):
        self._shape, self._dtype = tuple(shape), np.dtype(dtype)

    @property
    def name(self) -> str:
        """Its text."""
        return f"numpy.ndarray(shape={self._shape}, dtype={self._dtype})"

    @property
    def element_shape(self) -> tuple[int | None, ...]:
        """The shape of a row."""
        return self._shape

    @property
    def element_dtype(self) -> Any:
        """The dtype of the elements."""
        return self._dtype

    @property
    def is_variable_shaped(self) -> bool:
        """Whether rows have several shapes."""
        return None in self._shape

    @property
    def _metadata(self) -> tuple[str, ...]:
        return ("_shape", "_dtype")

    @classmethod
    def construct_from_string(cls, string: str) -> TensorDtype:
        """Raises TypeError: tensors are not made by the name of a dtype."""
        raise TypeError(f"{string!r} is no dtype of tensors: use TensorArray(array)")

    @classmethod
    def construct_array_type(cls) -> Any:
        """Returns TensorArray."""
        return TensorArray


class TensorArray(ExtensionArray):  # type: ignore[misc]
    """A column of tensors for a DataFrame.

    Args:
        values: an array whose first axis is that of the rows, another TensorArray, or arrays, one a
            row, of one shape or of several; scalars are tensors without axes.

    Raises:
        TypeError: it is nothing that makes an array of numbers or booleans.
    """

    def __init__(self, values: Any):
        if isinstance(values, TensorArray):
            values = values._values
        if not isinstance(values, np.ndarray) or values.dtype == object:
            values = _stacked(values)
        if values.ndim == 0:
            raise TypeError(f"TensorArray({values!r}): want an array with an axis of rows")
        if values.dtype != object and values.dtype.kind not in "biuf":
            raise TypeError(f"TensorArray: elements of dtype {values.dtype}: want numbers")
        self._values: Any = values

    # What pandas asks for.

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> TensorArray:
        made = cls(scalars)
        return made.copy() if copy else made

    @classmethod
    def _from_factorized(cls, values: Any, original: Any) -> TensorArray:
        raise NotImplementedError("tensors are no categories")

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[TensorArray]) -> TensorArray:
        return cls([row for part in to_concat for row in part._values])

    def __getitem__(self, item: Any) -> Any:
        item = pd.api.indexers.check_array_indexer(self, item)
        if isinstance(item, numbers.Integral):
            return self._values[int(item)]
        return type(self)(self._values[item])

    def __setitem__(self, key: Any, value: Any) -> None:
        key = pd.api.indexers.check_array_indexer(self, key)
        self._values[key] = value._values if isinstance(value, TensorArray) else value

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: Any) -> Any:
        rows = other if isinstance(other, (TensorArray, list, tuple)) else [other] * len(self)
        return np.array([np.array_equal(a, b) for a, b in zip(self._values, rows)], dtype=bool)

    @property
    def dtype(self) -> TensorDtype:
        """Its TensorDtype."""
        if self._values.dtype != object:
            return TensorDtype(self._values.shape[1:], self._values.dtype)
        there = [row for row in self._values if row is not None]
        sizes = zip(*(row.shape for row in there))
        shape = [axis[0] if len(set(axis)) == 1 else None for axis in sizes]
        return TensorDtype(shape, np.result_type(*there) if there else np.float64)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        if self._values.dtype != object:
            return int(self._values.nbytes)
        return sum(row.nbytes for row in self._values if row is not None)

    @property
    def numpy_shape(self) -> tuple[int | None, ...]:
        """The shape of all, with that of the rows first."""
        return (len(self), *self.dtype.element_shape)

    @property
    def numpy_ndim(self) -> int:
        """How many axes that has."""
        return len(self.numpy_shape)

    @property
    def numpy_dtype(self) -> Any:
        """The dtype of the elements."""
        return self.dtype.element_dtype

    @property
    def is_variable_shaped(self) -> bool:
        """Whether rows have several shapes."""
        return self.dtype.is_variable_shaped

    def isna(self) -> Any:
        """Returns which rows have no tensor."""
        if self._values.dtype != object:
            return np.zeros(len(self), dtype=bool)
        return np.array([row is None for row in self._values], dtype=bool)

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Any:
        """Some rows.

        Args:
            indices: of rows; -1 is a row without a tensor where allow_fill says so.
            allow_fill: see indices.
            fill_value: has no effect.

        Returns:
            A TensorArray.
        """
        indices = np.asarray(indices, dtype=np.intp)
        if not allow_fill or not (indices < 0).any():
            return type(self)(self._values[indices])
        if (indices < -1).any():
            raise ValueError("take: indices below -1")
        return type(self)([None if i < 0 else self._values[i] for i in indices])

    def copy(self) -> TensorArray:
        """Returns a copy."""
        return type(self)(self._values.copy())

    def to_numpy(
        self, dtype: Any = None, copy: bool = False, na_value: Any = None, **_: Any
    ) -> Any:
        """Returns one array, of dtype object where rows have several shapes."""
        values = self._values if dtype is None else self._values.astype(dtype)
        return values.copy() if copy and values is self._values else values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.to_numpy(dtype, copy=bool(copy))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        """Tensors of another dtype: a TensorDtype, object (one array a row), or one of NumPy."""
        if isinstance(dtype, TensorDtype):
            return type(self)(self._values.astype(dtype.element_dtype, copy=copy))
        if dtype is object or dtype == np.dtype(object):
            made = np.empty(len(self), dtype=object)
            made[:] = list(self._values)
            return made
        return self._values.astype(dtype, copy=copy)

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:
        return lambda row: None if row is None else np.array2string(np.asarray(row), threshold=8)

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002 - Arrow's name.
        if self._values.dtype == object or self._values.ndim == 1:
            rows = [None if row is None else np.asarray(row) for row in self._values]
            return variable_tensor_array(rows)
        return tensor_array(self._values)


def _stacked(values: Any) -> Any:
    """Rows as one array where all have one shape, else as an array of arrays."""
    if hasattr(values, "__array__") and not isinstance(values, np.ndarray):
        values = np.asarray(values)
        if values.dtype != object:
            return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"TensorArray({values!r}): want an array, or arrays")
    rows: list[Any] = [None if row is None else np.asarray(row) for row in values]
    if not rows:
        return np.empty((0,))
    if all(row is not None and row.shape == rows[0].shape for row in rows):
        return np.stack(rows)
    made = np.empty(len(rows), dtype=object)
    made[:] = rows
    return made

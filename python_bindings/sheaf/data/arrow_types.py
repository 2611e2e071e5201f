# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Arrow extension types that blocks use: tensors of one shape, tensors of several, and Python
objects that Arrow has no type for.

Tensors of one shape lie in Arrow's own fixed_shape_tensor. The names "ray.data.*" are registered as
well, with the storage that Ray gives them, so that files which Ray has written read as tensors.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf import cloudpickle

__all__ = [
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
    "PickledObjectArray",
    "PickledObjectType",
    "is_tensor",
    "objects_array",
    "tensor_array",
    "tensor_shape",
    "tensors_to_numpy",
    "variable_tensor_array",
]


class _ObjectScalar(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **_: Any) -> Any:
        return None if self.value is None else pickle.loads(self.value.as_buffer())


class PickledObjectType(pa.ExtensionType):  # type: ignore[misc]
    """Python objects, each pickled. Readers of files never make columns of it: who reads a file
    does not run what its writer pickled."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "sheaf.data.pickled_object")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    def __hash__(self) -> int:
        return hash("sheaf.data.pickled_object")

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Any:
        return cls()

    def __arrow_ext_class__(self) -> Any:
        return PickledObjectArray

    def __arrow_ext_scalar_class__(self) -> Any:
        return _ObjectScalar


class PickledObjectArray(pa.ExtensionArray):  # type: ignore[misc]
    """An array of pickled objects."""

    def to_numpy(self, zero_copy_only: bool = False, **_: Any) -> Any:
        """Returns the objects, in an array of dtype object."""
        result = np.empty(len(self), dtype=object)
        result[:] = [None if one is None else pickle.loads(one) for one in self.storage.to_pylist()]
        return result


def objects_array(values: Sequence[Any]) -> Any:
    """Pickles each value that is not None; raises what pickling raises."""

    def pickled(value: Any) -> bytes:
        try:
            return pickle.dumps(value, protocol=5)
        except Exception:  # Lambdas, and classes of __main__.
            return cloudpickle.dumps(value)

    data = [None if value is None else pickled(value) for value in values]
    return pa.ExtensionArray.from_storage(PickledObjectType(), pa.array(data, pa.large_binary()))


class _RayTensorType(pa.ExtensionType):  # type: ignore[misc]
    """Tensors of one shape as Ray stores them: a list per row, and the shape as JSON."""

    _NAME = ""

    def __init__(self, shape: Sequence[int], dtype: Any):
        self._shape = tuple(int(size) for size in shape)
        super().__init__(
            self._list_of(pa.from_numpy_dtype(dtype) if isinstance(dtype, np.dtype) else dtype),
            self._NAME,
        )

    @staticmethod
    def _list_of(dtype: Any) -> Any:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self._shape

    @property
    def scalar_type(self) -> Any:
        """The type of the elements."""
        return self.storage_type.value_type

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._shape).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Any:
        return cls(json.loads(serialized), storage_type.value_type)

    def __arrow_ext_class__(self) -> Any:
        return ArrowTensorArray

    def to_pandas_dtype(self) -> Any:
        return np.dtype(object)

    def __hash__(self) -> int:
        return hash((self._NAME, self._shape, self.storage_type))


class ArrowTensorType(_RayTensorType):
    """Tensors of one shape, at most 2**31 elements in one array.

    Args:
        shape: of one row.
        dtype: of the elements, an Arrow type or a NumPy dtype.
    """

    _NAME = "ray.data.arrow_tensor"

    @staticmethod
    def _list_of(dtype: Any) -> Any:
        return pa.list_(dtype)


class ArrowTensorTypeV2(_RayTensorType):
    """Tensors of one shape.

    Args:
        shape: of one row.
        dtype: of the elements, an Arrow type or a NumPy dtype.
    """

    _NAME = "ray.data.arrow_tensor_v2"

    @staticmethod
    def _list_of(dtype: Any) -> Any:
        return pa.large_list(dtype)


class ArrowTensorArray(pa.ExtensionArray):  # type: ignore[misc]
    """An array of tensors of one shape."""

    @classmethod
    def from_numpy(cls, arr: Any, column_name: str | None = None) -> Any:
        """An Arrow array whose rows are the elements of `arr` along its first axis.

        Args:
            arr: an array of any dimension, or a sequence of arrays, of one shape or of several.
            column_name: for errors.

        Returns:
            An array of fixed_shape_tensor, or of ArrowVariableShapedTensorType.
        """
        if isinstance(arr, np.ndarray) and arr.dtype != object:
            return tensor_array(arr) if arr.ndim > 1 else pa.array(arr)
        return variable_tensor_array([np.asarray(one) for one in arr])

    def to_numpy(self, zero_copy_only: bool = True, **_: Any) -> Any:
        """Returns one array with a first axis more than the tensors have."""
        return tensors_to_numpy(self)


class ArrowVariableShapedTensorType(pa.ExtensionType):  # type: ignore[misc]
    """Tensors of several shapes, each of the same number of dimensions.

    Args:
        dtype: of the elements, an Arrow type or a NumPy dtype.
        ndim: dimensions of each tensor.
    """

    def __init__(self, dtype: Any, ndim: int):
        self._ndim = int(ndim)
        if isinstance(dtype, np.dtype):
            dtype = pa.from_numpy_dtype(dtype)
        fields = [("data", pa.large_list(dtype)), ("shape", pa.list_(pa.int64()))]
        super().__init__(pa.struct(fields), "ray.data.arrow_variable_shaped_tensor")

    @property
    def ndim(self) -> int:
        """Dimensions of each tensor."""
        return self._ndim

    @property
    def scalar_type(self) -> Any:
        """The type of the elements."""
        return self.storage_type.field("data").type.value_type

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self._ndim).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Any:
        return cls(storage_type.field("data").type.value_type, json.loads(serialized))

    def __arrow_ext_class__(self) -> Any:
        return ArrowVariableShapedTensorArray

    def __hash__(self) -> int:
        return hash((self._ndim, self.storage_type))


class ArrowVariableShapedTensorArray(pa.ExtensionArray):  # type: ignore[misc]
    """An array of tensors of several shapes."""

    @classmethod
    def from_numpy(cls, arr: Any) -> Any:
        """An Arrow array of these tensors.

        Args:
            arr: a sequence of arrays.

        Returns:
            The array; of fixed_shape_tensor when all have one shape.
        """
        return variable_tensor_array([np.asarray(one) for one in arr])

    def to_numpy(self, zero_copy_only: bool = True, **_: Any) -> Any:
        """Returns an array of dtype object that holds one array per row."""
        return _variable_to_numpy(self)


def tensor_array(array: Any) -> Any:
    """A NumPy array of two or more dimensions as tensors along its first axis: without a copy where
    its elements lie in order. Elements are numbers or booleans."""
    shape = array.shape[1:]
    flat = pa.array(np.ascontiguousarray(array).reshape(-1))
    size = math.prod(shape)
    if size:
        storage = pa.FixedSizeListArray.from_arrays(flat, size)
    else:
        storage = pa.array([[]] * len(array), pa.list_(flat.type, 0))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, shape), storage)


def variable_tensor_array(arrays: Sequence[Any]) -> Any:
    """Arrays and Nones as tensors: of one shape where all have it and none is missing, else each
    with its own. Raises ValueError when their dimensions differ, or elements are no numbers."""
    there = [array for array in arrays if array is not None]
    if any(array.dtype.kind not in "biuf" for array in there):
        raise ValueError("elements of tensors are numbers or booleans")
    if len(there) == len(arrays) and len({array.shape for array in there}) == 1:
        return tensor_array(np.stack(there))
    dimensions = {array.ndim for array in there}
    dtype = np.result_type(*there)
    if len(dimensions) > 1:
        raise ValueError("tensors of several dimensions")
    flat = np.concatenate([np.zeros(0, dtype), *(array.reshape(-1) for array in there)])
    sizes = [0 if array is None else array.size for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    data = pa.LargeListArray.from_arrays(offsets, pa.array(flat.astype(dtype)))
    shapes = [None if array is None else list(array.shape) for array in arrays]
    kind = ArrowVariableShapedTensorType(data.type.value_type, dimensions.pop())
    storage = pa.StructArray.from_arrays(
        [data, pa.array(shapes, pa.list_(pa.int64()))],
        fields=list(kind.storage_type),
        mask=pa.array([array is None for array in arrays]),
    )
    return pa.ExtensionArray.from_storage(kind, storage)


def is_tensor(kind: Any) -> bool:
    """Whether an Arrow type is one of tensors, of one shape or of several."""
    return isinstance(
        kind, (pa.FixedShapeTensorType, _RayTensorType, ArrowVariableShapedTensorType)
    )


def tensor_shape(kind: Any) -> tuple[int, ...] | None:
    """The shape of one row; None: rows have several, or the type is none of tensors."""
    return (
        tuple(kind.shape) if isinstance(kind, (pa.FixedShapeTensorType, _RayTensorType)) else None
    )


def tensors_to_numpy(array: Any) -> Any:
    """An Arrow array of tensors as NumPy: one array with a first axis more, without a copy where
    Arrow keeps elements as NumPy does; of dtype object where shapes differ or rows are NULL."""
    if isinstance(array.type, ArrowVariableShapedTensorType):
        return _variable_to_numpy(array)
    if getattr(array.type, "permutation", None):
        return array.to_numpy_ndarray()
    shape = tuple(array.type.shape)
    if array.null_count == 0:
        flat = array.storage.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(array), *shape)
    result = np.empty(len(array), dtype=object)
    rows = iter(tensors_to_numpy(array.drop_null()))
    for row, there in enumerate(array.is_valid().to_pylist()):
        result[row] = next(rows) if there else None
    return result


def _variable_to_numpy(array: Any) -> Any:
    result = np.empty(len(array), dtype=object)
    data, shapes = array.storage.field("data"), array.storage.field("shape").to_pylist()
    flat = data.values.to_numpy(zero_copy_only=False)
    offsets = data.offsets.to_numpy()
    for row, there in enumerate(array.is_valid().to_pylist()):
        if there:
            result[row] = flat[offsets[row] : offsets[row + 1]].reshape(shapes[row])
    return result


def _register() -> None:
    for kind in (
        PickledObjectType(),
        ArrowTensorType((1,), pa.int64()),
        ArrowTensorTypeV2((1,), pa.int64()),
        ArrowVariableShapedTensorType(pa.int64(), 1),
    ):
        try:
            pa.register_extension_type(kind)
        except pa.ArrowKeyError:  # Ray is in this process, too, or this module was loaded twice.
            pass


_register()

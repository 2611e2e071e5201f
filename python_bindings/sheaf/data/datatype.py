# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""DataType: the type of a column, by Arrow's, NumPy's or Python's name of it."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.arrow_types import is_tensor

__all__ = ["DataType"]

_OF_PYTHON = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.timedelta: pa.duration("us"),
}
_SIMPLE = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "string", "large_string", "large_binary", "binary", "date32", "date64"),
)


class DataType:
    """The type of a column. DataType.int64() and the like make those of Arrow.

    Args:
        kind: of Arrow, of NumPy, or a class of Python.
    """

    def __init__(self, kind: Any) -> None:
        if not isinstance(kind, (pa.DataType, np.dtype, type)):
            raise TypeError(f"DataType: {kind!r}: want a type of Arrow, NumPy or Python")
        self._kind = kind

    @classmethod
    def from_arrow(cls, arrow_type: Any) -> DataType:
        """Returns that of a type of Arrow."""
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: Any) -> DataType:
        """Returns that of a dtype of NumPy, or its name."""
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def infer_dtype(cls, value: Any) -> DataType:
        """Returns that of a value."""
        return cls(value.dtype if isinstance(value, np.generic) else pa.scalar(value).type)

    @classmethod
    def bool(cls) -> DataType:
        """Returns that of truth values."""
        return cls(pa.bool_())

    @classmethod
    def timestamp(cls, unit: str = "us", tz: str | None = None) -> DataType:
        """Returns that of points of time, in units of s, ms, us or ns."""
        return cls(pa.timestamp(unit, tz))

    @classmethod
    def duration(cls, unit: str = "us") -> DataType:
        """Returns that of lengths of time."""
        return cls(pa.duration(unit))

    @classmethod
    def decimal(cls, precision: int, scale: int = 0) -> DataType:
        """Returns that of decimal numbers."""
        return cls(pa.decimal128(precision, scale))

    @classmethod
    def list(cls, value_type: Any) -> DataType:
        """Returns that of lists of a type."""
        return cls(pa.list_(_arrow(value_type)))

    @classmethod
    def large_list(cls, value_type: Any) -> DataType:
        """Returns that of lists of a type, of more than 2**31 elements together."""
        return cls(pa.large_list(_arrow(value_type)))

    @classmethod
    def fixed_size_list(cls, value_type: Any, list_size: int) -> DataType:
        """Returns that of lists of a type that all have one length."""
        return cls(pa.list_(_arrow(value_type), list_size))

    @classmethod
    def struct(cls, fields: Any) -> DataType:
        """Returns that of records, of pairs of names and types."""
        return cls(pa.struct([(name, _arrow(kind)) for name, kind in fields]))

    @classmethod
    def map(cls, key_type: Any, value_type: Any) -> DataType:
        """Returns that of mappings."""
        return cls(pa.map_(_arrow(key_type), _arrow(value_type)))

    @classmethod
    def tensor(cls, shape: tuple[int, ...], dtype: Any) -> DataType:
        """Returns that of tensors of one shape."""
        return cls(pa.fixed_shape_tensor(_arrow(dtype), shape))

    def to_arrow_dtype(self, values: Any = None) -> Any:
        """Returns the type of Arrow."""
        if isinstance(self._kind, np.dtype):
            return pa.from_numpy_dtype(self._kind)
        if isinstance(self._kind, pa.DataType):
            return self._kind
        if self._kind not in _OF_PYTHON:
            raise TypeError(f"{self._kind.__name__} has no type of Arrow")
        return _OF_PYTHON[self._kind]

    def to_numpy_dtype(self) -> Any:
        """Returns the dtype of NumPy; that of objects where it has none."""
        try:
            return np.dtype(self.to_arrow_dtype().to_pandas_dtype())
        except NotImplementedError:
            return np.dtype(object)

    def is_arrow_type(self) -> Any:
        """Returns whether it was made of a type of Arrow."""
        return isinstance(self._kind, pa.DataType)

    def is_numpy_type(self) -> Any:
        """Returns whether it was made of a dtype of NumPy."""
        return isinstance(self._kind, np.dtype)

    def is_python_type(self) -> Any:
        """Returns whether it was made of a class of Python."""
        return isinstance(self._kind, type)

    def is_list_type(self) -> Any:
        """Returns whether values are lists."""
        kind = self.to_arrow_dtype()
        return any(
            test(kind)
            for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        )

    def is_numerical_type(self) -> Any:
        """Returns whether values are numbers."""
        kind = self.to_arrow_dtype()
        return any(
            test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        )

    def is_string_type(self) -> Any:
        """Returns whether values are texts."""
        return pa.types.is_string(self._arrow) or pa.types.is_large_string(self._arrow)

    def is_binary_type(self) -> Any:
        """Returns whether values are bytes."""
        return pa.types.is_binary(self._arrow) or pa.types.is_large_binary(self._arrow)

    def is_temporal_type(self) -> Any:
        """Returns whether values are times."""
        return pa.types.is_temporal(self._arrow)

    def is_struct_type(self) -> Any:
        """Returns whether values are records."""
        return pa.types.is_struct(self._arrow)

    def is_map_type(self) -> Any:
        """Returns whether values are mappings."""
        return pa.types.is_map(self._arrow)

    def is_tensor_type(self) -> Any:
        """Returns whether values are tensors."""
        return is_tensor(self._arrow)

    @property
    def _arrow(self) -> Any:
        return self.to_arrow_dtype()

    def __eq__(self, other: object) -> Any:
        return isinstance(other, DataType) and self._kind == other._kind

    def __hash__(self) -> int:
        return hash(self._kind)

    def __repr__(self) -> str:
        where = "arrow" if self.is_arrow_type() else "numpy" if self.is_numpy_type() else "python"
        return f"DataType({where}:{getattr(self._kind, '__name__', self._kind)})"


def _arrow(kind: Any) -> Any:
    if isinstance(kind, DataType):
        return kind.to_arrow_dtype()
    return DataType(kind).to_arrow_dtype()


def _simple(name: str) -> Any:
    def made(cls: type[DataType]) -> DataType:
        return cls(pa.type_for_alias(name))

    made.__doc__ = f"Returns {name}."
    return classmethod(made)


for _name in _SIMPLE:
    setattr(DataType, _name, _simple(_name))

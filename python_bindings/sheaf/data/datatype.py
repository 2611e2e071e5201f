# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""DataType: a type of Arrow, NumPy or Python, for casts and results of expressions."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["DataType", "TypeCategory"]


class TypeCategory(str, enum.Enum):  # noqa: UP042 - Its members are words in formats, as Ray's are.
    """Kinds of types, for DataType.is_of."""

    LIST = "list"
    LARGE_LIST = "large_list"
    STRUCT = "struct"
    MAP = "map"
    TENSOR = "tensor"
    TEMPORAL = "temporal"


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_tensor(kind: Any) -> bool:
    from sheaf.data.arrow_types import is_tensor

    return bool(is_tensor(kind))


_CATEGORIES: dict[str, Callable[[Any], bool]] = {
    "list": _is_list,
    "large_list": pa.types.is_large_list,
    "struct": pa.types.is_struct,
    "map": pa.types.is_map,
    "tensor": _is_tensor,
    "temporal": pa.types.is_temporal,
}
_UNITS = {  # With the unit that is meant where none is named first.
    "timestamp": (pa.timestamp, ("us", "s", "ms", "ns")),
    "duration": (pa.duration, ("us", "s", "ms", "ns")),
    "time32": (pa.time32, ("s", "ms")),
    "time64": (pa.time64, ("us", "ns")),
}


class DataType:
    """A type. Equal are those of one library that are equal there.

    Args:
        physical_dtype: a pa.DataType, a NumPy dtype or a Python type.
    """

    def __init__(self, physical_dtype: Any) -> None:
        if not isinstance(physical_dtype, (pa.DataType, np.dtype, type)):
            raise TypeError(
                f"DataType({physical_dtype!r}): want a type of Arrow, a NumPy dtype or a class"
            )
        self._physical_dtype: Any = physical_dtype

    # Made of something else.

    @classmethod
    def from_arrow(cls, arrow_type: Any) -> DataType:
        """Returns that of an Arrow type."""
        return cls(arrow_type)

    @classmethod
    def from_numpy(cls, numpy_dtype: Any) -> DataType:
        """Returns that of a NumPy dtype, or of its name."""
        return cls(np.dtype(numpy_dtype))

    @classmethod
    def infer_dtype(cls, value: Any) -> DataType:
        """Returns the type of a value: NumPy's of arrays and scalars, else Arrow's or its class."""
        if isinstance(value, (np.ndarray, np.generic)):
            return cls.from_numpy(value.dtype)
        try:
            return cls(pa.infer_type([value]))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            return cls(type(value))

    @classmethod
    def list(cls, value_type: DataType) -> DataType:
        """Returns that of lists of values of a type."""
        return cls(pa.list_(value_type.to_arrow_dtype()))

    @classmethod
    def large_list(cls, value_type: DataType) -> DataType:
        """Returns that of lists with offsets of 64 bits."""
        return cls(pa.large_list(value_type.to_arrow_dtype()))

    @classmethod
    def fixed_size_list(cls, value_type: DataType, list_size: int) -> DataType:
        """Returns that of lists of `list_size` values each."""
        return cls(pa.list_(value_type.to_arrow_dtype(), list_size))

    @classmethod
    def struct(cls, fields: Sequence[tuple[str, DataType]]) -> DataType:
        """Returns that of structs with these names and types."""
        return cls(pa.struct([(name, kind.to_arrow_dtype()) for name, kind in fields]))

    @classmethod
    def map(cls, key_type: DataType, value_type: DataType) -> DataType:
        """Returns that of maps."""
        return cls(pa.map_(key_type.to_arrow_dtype(), value_type.to_arrow_dtype()))

    @classmethod
    def tensor(cls, shape: tuple[int, ...], dtype: DataType) -> DataType:
        """Returns that of tensors of one shape."""
        return cls(pa.fixed_shape_tensor(dtype.to_arrow_dtype(), shape))

    @classmethod
    def variable_shaped_tensor(cls, dtype: DataType, ndim: int = 2) -> DataType:
        """Returns that of tensors of several shapes of `ndim` dimensions."""
        from sheaf.data.arrow_types import ArrowVariableShapedTensorType

        return cls(ArrowVariableShapedTensorType(dtype.to_arrow_dtype(), ndim))

    @classmethod
    def temporal(
        cls, temporal_type: str, unit: str | None = None, tz: str | None = None
    ) -> DataType:
        """A type of time.

        Args:
            temporal_type: "timestamp", "duration", "time32", "time64", "date32" or "date64".
            unit: "s", "ms", "us" or "ns"; None: the usual one.
            tz: of a timestamp, a name of a time zone.

        Returns:
            It.
        """
        name = temporal_type.lower()
        if name in ("date32", "date64"):
            return cls(getattr(pa, name)())
        if name not in _UNITS:
            want = sorted([*_UNITS, "date32", "date64"])
            raise ValueError(f"temporal_type={temporal_type!r}: want one of {want}")
        make, units = _UNITS[name]
        if unit is not None and unit not in units:
            raise ValueError(f"unit={unit!r} of {name}: want one of {builtins.list(units)}")
        more = {"tz": tz} if name == "timestamp" else {}
        return cls(make(unit or units[0], **more))

    # What it is elsewhere.

    def to_arrow_dtype(self, values: Sequence[Any] | None = None) -> Any:
        """The Arrow type.

        Args:
            values: by which that of a Python type is found.

        Returns:
            It.

        Raises:
            ValueError: a Python type, and no values.
        """
        if isinstance(self._physical_dtype, pa.DataType):
            return self._physical_dtype
        if isinstance(self._physical_dtype, np.dtype):
            return pa.from_numpy_dtype(self._physical_dtype)
        if not values:
            raise ValueError(f"{self!r}: its Arrow type is not known without values")
        return pa.infer_type(values)

    def to_numpy_dtype(self) -> Any:
        """Returns the NumPy dtype: object where there is no closer one."""
        if isinstance(self._physical_dtype, np.dtype):
            return self._physical_dtype
        if isinstance(self._physical_dtype, pa.DataType):
            try:
                return np.dtype(self._physical_dtype.to_pandas_dtype())
            except (TypeError, NotImplementedError):
                pass
        return np.dtype(object)

    def to_python_type(self) -> type:
        """Returns the Python type.

        Raises:
            ValueError: it is a type of Arrow or NumPy.
        """
        if not self.is_python_type():
            raise ValueError(f"{self!r} is no Python type: use to_arrow_dtype or to_numpy_dtype")
        kind: type = self._physical_dtype
        return kind

    # Of which kind it is.

    def is_arrow_type(self) -> bool:
        """Returns whether it is a type of Arrow."""
        return isinstance(self._physical_dtype, pa.DataType)

    def is_numpy_type(self) -> bool:
        """Returns whether it is a NumPy dtype."""
        return isinstance(self._physical_dtype, np.dtype)

    def is_python_type(self) -> bool:
        """Returns whether it is a Python type."""
        return isinstance(self._physical_dtype, type)

    def is_of(self, category: TypeCategory | str) -> bool:
        """Returns whether it is of one of TypeCategory."""
        return self._is(_CATEGORIES[TypeCategory(category).value])

    def _is(self, test: Callable[[Any], bool]) -> bool:
        if self.is_python_type():
            return False
        try:
            return bool(test(self.to_arrow_dtype()))
        except pa.ArrowNotImplementedError:  # Of a NumPy dtype that Arrow does not have.
            return False

    def is_list_type(self) -> bool:
        """Returns whether it is lists of any kind."""
        return self._is(_is_list)

    def is_tensor_type(self) -> bool:
        """Returns whether it is tensors."""
        return self._is(_is_tensor)

    def is_struct_type(self) -> bool:
        """Returns whether it is structs."""
        return self._is(pa.types.is_struct)

    def is_map_type(self) -> bool:
        """Returns whether it is maps."""
        return self._is(pa.types.is_map)

    def is_nested_type(self) -> bool:
        """Returns whether it is lists, structs, maps or unions."""
        return self._is(pa.types.is_nested)

    def is_null_type(self) -> bool:
        """Returns whether it is nothing but NULL."""
        return self._is(pa.types.is_null)

    def is_boolean_type(self) -> bool:
        """Returns whether it is true and false."""
        return self._is(pa.types.is_boolean)

    def is_integer_type(self) -> bool:
        """Returns whether it is integers."""
        return self._is(pa.types.is_integer)

    def is_floating_type(self) -> bool:
        """Returns whether it is floating point numbers."""
        return self._is(pa.types.is_floating)

    def is_numerical_type(self) -> bool:
        """Returns whether it is numbers: integers, floats or decimals."""
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return any(self._is(test) for test in tests)

    def is_string_type(self) -> bool:
        """Returns whether it is text."""
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(self._is(test) for test in tests)

    def is_binary_type(self) -> bool:
        """Returns whether it is bytes."""
        tests = (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
        return any(self._is(test) for test in tests)

    def is_temporal_type(self) -> bool:
        """Returns whether it is dates, times or durations."""
        return self._is(pa.types.is_temporal)

    def __repr__(self) -> str:
        if self.is_arrow_type():
            return f"DataType(arrow:{self._physical_dtype})"
        if self.is_numpy_type():
            return f"DataType(numpy:{self._physical_dtype})"
        return f"DataType(python:{self._physical_dtype.__name__})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataType):
            return False
        one, two = self._physical_dtype, other._physical_dtype
        return type(one) is type(two) and bool(one == two)

    def __hash__(self) -> int:
        return hash((type(self._physical_dtype), self._physical_dtype))


def _of_arrow(name: str, make: Callable[[], Any]) -> Any:
    def made(cls: type[DataType]) -> DataType:
        return cls(make())

    made.__name__, made.__qualname__ = name, f"DataType.{name}"
    made.__doc__ = f"Returns that of Arrow's {name}."
    return classmethod(made)


for _name, _make in {
    **{
        name: getattr(pa, name)
        for sign in ("int", "uint")
        for name in (f"{sign}8", f"{sign}16", f"{sign}32", f"{sign}64")
    },
    "float32": pa.float32,
    "float64": pa.float64,
    "string": pa.string,
    "bool": pa.bool_,
    "binary": pa.binary,
}.items():
    setattr(DataType, _name, _of_arrow(_name, _make))

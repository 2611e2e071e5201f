# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sums, products, comparisons, division and remainders of columns as Python has them: integers are
int64 (uint64 among uint64) or an error, beside floats they are floats, and are compared exactly."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregates.keys import comparable

_ENDS = {pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1)}


def _float(value: Any) -> Any:
    return pc.cast(value, pa.float64(), safe=False) if pa.types.is_integer(value.type) else value


def _is_text(value: Any) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_large_string(value.type))


def _wide(value: Any) -> Any:
    """The widest integer or a float that kernels know; other values as they are."""
    if pa.types.is_float16(value.type):
        return pc.cast(value, pa.float32())
    if pa.types.is_integer(value.type) and not pa.types.is_uint64(value.type):
        return pc.cast(value, pa.int64())
    return value


def _both(a: Any, b: Any) -> tuple[Any, Any]:
    """Two numbers in types that one kernel takes without loss, as far as there are some."""
    a, b = _wide(a), _wide(b)
    if pa.types.is_integer(a.type) and pa.types.is_floating(b.type):
        return pc.cast(a, b.type, safe=False), b
    if pa.types.is_floating(a.type) and pa.types.is_integer(b.type):
        return a, pc.cast(b, a.type, safe=False)
    return _unsigned(a, b), _unsigned(b, a)


def _unsigned(value: Any, other: Any) -> Any:
    """A constant that is not negative as uint64 beside uint64."""
    fits = isinstance(value, pa.Scalar) and pa.types.is_int64(value.type) and value.is_valid
    if fits and pa.types.is_uint64(other.type) and value.as_py() >= 0:
        return value.cast(pa.uint64())
    return value


def _computed(kernel: str, a: Any, b: Any) -> Any:
    a, b = _both(a, b)
    if pa.types.is_integer(a.type) and pa.types.is_integer(b.type):
        kernel += "_checked"
    return getattr(pc, kernel)(a, b)


def add(a: Any, b: Any) -> Any:
    """The sum; text behind text."""
    if _is_text(a) and _is_text(b):
        return pc.binary_join_element_wise(a, b, pa.scalar("", b.type))
    return _computed("add", a, b)


def subtract(a: Any, b: Any) -> Any:
    return _computed("subtract", a, b)


def multiply(a: Any, b: Any) -> Any:
    return _computed("multiply", a, b)


def power(a: Any, b: Any) -> Any:
    return _computed("power", a, b)


def negate(a: Any) -> Any:
    a = _wide(a)
    if pa.types.is_uint64(a.type):
        a = pc.cast(a, pa.int64())
    return pc.negate_checked(a) if pa.types.is_integer(a.type) else pc.negate(a)


def absolute(a: Any) -> Any:
    a = _wide(a)
    return pc.abs_checked(a) if pa.types.is_integer(a.type) else pc.abs(a)


def compare(kernel: str, a: Any, b: Any) -> Any:
    """Whether `a` is equal to `b`, less and so on. Integers and a constant float are compared as in
    Python, exactly; a column of floats with the nearest floats."""
    a, b = _wide(a), _wide(b)
    a, b = _as_integer(a, b), _as_integer(b, a)
    if {a.type, b.type} == {pa.int64(), pa.uint64()}:
        a, b = (pc.cast(one, pa.decimal128(20, 0)) for one in (a, b))
    return getattr(pc, kernel)(*_both(a, b))


def _as_integer(value: Any, other: Any) -> Any:
    """A constant float beside integers: the integer that it is, or infinity beyond all of them."""
    is_float = isinstance(value, pa.Scalar) and pa.types.is_floating(value.type)
    if not (is_float and other.type in _ENDS and value.is_valid):
        return value
    number = value.as_py()
    if not math.isfinite(number) or number != int(number):
        return value
    least, most = _ENDS[other.type]
    if least <= number <= most and least <= int(number) <= most:
        return pa.scalar(int(number), other.type)
    return pa.scalar(math.copysign(math.inf, number))


def is_in(column: Any, values: tuple[Any, ...]) -> Any:
    """Whether each value is one of `values`; those that the column's type does not hold are equal
    to none."""
    column = comparable(column)
    kind = column.type
    if pa.types.is_null(kind):
        wanted = pa.nulls(sum(value is None for value in values))
    else:
        try:
            wanted = pa.array(values).cast(kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            wanted = pa.array([one for value in values for one in _held(value, kind)], kind)
    if pa.types.is_floating(kind):  # -0.0 is 0.0.
        column, wanted = (pc.add(one, pa.scalar(0.0, kind)) for one in (column, wanted))
    return pc.is_in(column, value_set=wanted)


def _held(value: Any, kind: Any) -> list[Any]:
    """The value as one of this type in a list; an empty one where the type does not hold it."""
    if value is None:
        return [None]
    if _is_text(pa.scalar(None, kind)) and not isinstance(value, str):
        return []
    try:
        if pa.types.is_decimal(kind):
            return [pa.scalar(decimal.Decimal(value), kind).as_py()]
        if isinstance(value, int) and value >= 2**63:
            return [pa.scalar(value, pa.uint64()).cast(kind).as_py()]
        return [pa.scalar(value).cast(kind).as_py()]
    except (pa.ArrowException, TypeError, ValueError, OverflowError, decimal.DecimalException):
        return []


def divide(a: Any, b: Any) -> Any:
    """As Python has it: of integers a float. By zero: infinity or NaN."""
    return pc.divide(_float(_wide(a)), _float(_wide(b)))


def floor_divide(a: Any, b: Any) -> Any:
    a, b = _both(a, b)
    if not (pa.types.is_integer(a.type) and pa.types.is_integer(b.type)):
        return pc.floor(divide(a, b))
    down = pc.divide_checked(a, b)
    if pa.types.is_uint64(down.type):
        return down
    rest = pc.subtract(a, pc.multiply(down, b))
    other_sign = pc.and_(pc.not_equal(rest, 0), pc.not_equal(pc.less(rest, 0), pc.less(b, 0)))
    return pc.subtract(down, pc.cast(other_sign, down.type))


def remainder(a: Any, b: Any) -> Any:
    a, b = _both(a, b)
    return pc.subtract(a, pc.multiply(floor_divide(a, b), b))

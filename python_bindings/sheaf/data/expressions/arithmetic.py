# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sums, division and remainders of columns as Python has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def _float(value: Any) -> Any:
    return value.cast(pa.float64()) if pa.types.is_integer(value.type) else value


def _is_text(value: Any) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_large_string(value.type))


def add(a: Any, b: Any) -> Any:
    """The sum; text behind text."""
    if _is_text(a) and _is_text(b):
        return pc.binary_join_element_wise(a, b, pa.scalar("", b.type))
    return pc.add(a, b)


def divide(a: Any, b: Any) -> Any:
    """As Python has it: of integers a float. By zero: infinity or NaN."""
    return pc.divide(_float(a), _float(b))


def floor_divide(a: Any, b: Any) -> Any:
    if not (pa.types.is_integer(a.type) and pa.types.is_integer(b.type)):
        return pc.floor(divide(a, b))
    down = pc.divide(a, b)
    rest = pc.subtract(a, pc.multiply(down, b))
    other_sign = pc.and_(pc.not_equal(rest, 0), pc.not_equal(pc.less(rest, 0), pc.less(b, 0)))
    return pc.subtract(down, pc.cast(other_sign, pa.int64()))


def remainder(a: Any, b: Any) -> Any:
    return pc.subtract(a, pc.multiply(floor_divide(a, b), b))

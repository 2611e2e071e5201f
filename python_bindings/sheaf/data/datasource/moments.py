# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Moments in JSON: Arrow's reader takes texts of whole seconds for moments, and leaves those with
fractions, which become moments here."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DAY_AND_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
_MOMENT = rf"{_DAY_AND_TIME}(\.\d{{1,9}})?"
_ZONE = r"(Z|[+-]\d\d:?\d\d)"


def with_moments(table: Any) -> Any:
    """The table with columns of text that holds moments alone as moments, of nanoseconds where it
    has so many digits, else of microseconds. With zones they are in UTC, without it, as Arrow's
    reader has moments of whole seconds.

    Args:
        table: a pa.Table.

    Returns:
        The pa.Table.
    """
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            made = _moments(table.column(place))
            if made is not None:
                table = table.set_column(place, field.name, made)
    return table


def _moments(texts: Any) -> Any:
    """The column as moments; None: it holds others, too."""
    there = pc.index(texts.is_valid(), True).as_py()
    if there < 0:
        return None
    first = texts[there].as_py()
    for zone, ending in (("", ""), ("UTC", _ZONE)):
        if re.fullmatch(_MOMENT + ending, first) is None:
            continue
        if pc.all(pc.match_substring_regex(texts, f"^{_MOMENT}{ending}$")).as_py() is not True:
            return None
        fine = pc.any(pc.match_substring_regex(texts, r"\.\d{7,9}")).as_py()
        unit = "ns" if fine else "us"
        try:
            made = texts.cast(pa.timestamp(unit, zone or None))
        except pa.ArrowInvalid:  # There is no such day.
            return None
        return made.cast(pa.timestamp(unit))
    return None

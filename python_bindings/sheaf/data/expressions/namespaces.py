# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What expressions of one type have besides: col("x").str.upper(), .list.len(), .struct["a"],
.dt.year(), .arr.to_list(), .map.keys()."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.errors import suggestion
from sheaf.data.expressions.expression import NAMESPACES, Computed, Expr, call

__all__ = ["NAMESPACES"]

# Method -> (kernel, names of its positional arguments, options that are always given).
_Methods = dict[str, tuple[str, Sequence[str], dict[str, Any]]]


class _Namespace:
    """Methods that are one kernel each."""

    _METHODS: _Methods = {}

    def __init__(self, expression: Expr):
        self._expression = expression

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        if name not in self._METHODS:
            near = suggestion(name, self._METHODS)
            raise AttributeError(f"expressions have no {type(self).__name__}.{name}{near}")
        kernel, parameters, fixed = self._METHODS[name]

        def method(*args: Any, **options: Any) -> Expr:
            if len(args) > len(parameters):
                raise TypeError(f"{name}() takes {len(parameters)} arguments, got {len(args)}")
            given = {**fixed, **dict(zip(parameters, args)), **options}
            return call(kernel, self._expression, **given)

        return method


_OF_STRINGS = "upper lower capitalize title swapcase reverse length"
_TESTS = "alpha alnum digit decimal numeric space lower upper title printable"
_PATTERNS = {
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "contains": "match_substring",
    "match": "match_like",
    "match_regex": "match_substring_regex",
    "find": "find_substring",
    "find_regex": "find_substring_regex",
    "count": "count_substring",
    "count_regex": "count_substring_regex",
    "split": "split_pattern",
    "split_regex": "split_pattern_regex",
    "extract": "extract_regex",
}


class str_(_Namespace):  # noqa: N801
    """Of strings."""

    _METHODS: _Methods = {
        **{name: (f"utf8_{name}", (), {}) for name in _OF_STRINGS.split()},
        "len": ("utf8_length", (), {}),
        "byte_len": ("binary_length", (), {}),
        **{f"is_{name}": (f"utf8_is_{name}", (), {}) for name in _TESTS.split()},
        "is_ascii": ("string_is_ascii", (), {}),
        **{name: (kernel, ("pattern",), {}) for name, kernel in _PATTERNS.items()},
        "split_whitespace": ("utf8_split_whitespace", (), {}),
        "slice": ("utf8_slice_codeunits", ("start", "stop", "step"), {}),
        "replace": ("replace_substring", ("pattern", "replacement"), {}),
        "replace_regex": ("replace_substring_regex", ("pattern", "replacement"), {}),
        "replace_slice": ("utf8_replace_slice", ("start", "stop", "replacement"), {}),
        "center": ("utf8_center", ("width", "padding"), {"padding": " "}),
        "lpad": ("utf8_lpad", ("width", "padding"), {"padding": " "}),
        "rpad": ("utf8_rpad", ("width", "padding"), {"padding": " "}),
    }

    def repeat(self, n: int) -> Expr:
        """Each string, so many times.

        Args:
            n: 0 or more.

        Returns:
            The expression.
        """
        return call("binary_repeat", self._expression, n)

    def _trimmed(self, kind: str, characters: str | None) -> Expr:
        if characters is None:
            return call(f"utf8_{kind}_whitespace", self._expression)
        return call(f"utf8_{kind}", self._expression, characters=characters)

    def strip(self, characters: str | None = None) -> Expr:
        """Strings without these characters at both ends.

        Args:
            characters: white space when not given.

        Returns:
            The expression.
        """
        return self._trimmed("trim", characters)

    def lstrip(self, characters: str | None = None) -> Expr:
        """As strip, at the left end.

        Args:
            characters: white space when not given.

        Returns:
            The expression.
        """
        return self._trimmed("ltrim", characters)

    def rstrip(self, characters: str | None = None) -> Expr:
        """As strip, at the right end.

        Args:
            characters: white space when not given.

        Returns:
            The expression.
        """
        return self._trimmed("rtrim", characters)

    def pad(self, width: int, fillchar: str = " ", side: str = "right") -> Expr:
        """Strings of at least this many characters.

        Args:
            width: characters.
            fillchar: what is added.
            side: "left", "right" or "both": where.

        Returns:
            The expression.
        """
        kernels = {"left": "utf8_lpad", "right": "utf8_rpad", "both": "utf8_center"}
        if side not in kernels:
            raise ValueError(f"side={side!r}: want one of {list(kernels)}")
        return call(kernels[side], self._expression, width=width, padding=fillchar)


class list_(_Namespace):  # noqa: N801
    """Of lists."""

    _METHODS: _Methods = {"len": ("list_value_length", (), {})}

    def get(self, index: int) -> Expr:
        """An element of each list; NULL where there is none.

        Args:
            index: from 0, or from the end when negative.

        Returns:
            The expression.
        """
        return Computed(_Element(index), [self._expression], f"list.get[{index}]")

    def slice(self, start: int | None = None, stop: int | None = None, step: int = 1) -> Expr:
        """A part of each list.

        Args:
            start: the first element, 0 or more.
            stop: the first that is left out; None: none is.
            step: from one to the next.

        Returns:
            The expression.
        """
        return call("list_slice", self._expression, start=start or 0, stop=stop, step=step)

    def flatten(self) -> Expr:
        """Lists of lists as lists. Returns the expression."""
        return Computed(_flat, [self._expression], "list.flatten")

    def sort(self, order: str = "ascending", null_placement: str = "at_end") -> Expr:
        """Lists in order.

        Args:
            order: "ascending" or "descending".
            null_placement: "at_start" or "at_end".

        Returns:
            The expression.
        """
        return Computed(_Sorted(order, null_placement), [self._expression], "list.sort")

    def __getitem__(self, index: Any) -> Expr:
        if hasattr(index, "indices"):  # A slice, whose name a method has here.
            return self.slice(index.start, index.stop, index.step or 1)
        return self.get(index)


class _Element:
    def __init__(self, index: int):
        self._index = index

    def __call__(self, lists: Any) -> Any:
        kind = lists.type.value_type
        made = [
            values[self._index]
            if values is not None and -len(values) <= self._index < len(values)
            else None
            for values in lists.to_pylist()
        ]
        return pa.array(made, kind)


class _Sorted:
    def __init__(self, order: str, null_placement: str):
        if order not in ("ascending", "descending"):
            raise ValueError(f"order={order!r}: want 'ascending' or 'descending'")
        self._descending, self._first = order == "descending", null_placement == "at_start"

    def __call__(self, lists: Any) -> Any:
        return pa.array([self._one(values) for values in lists.to_pylist()], lists.type)

    def _one(self, values: list[Any] | None) -> list[Any] | None:
        if values is None:
            return None
        there = sorted((v for v in values if v is not None), reverse=self._descending)
        nulls = [None] * (len(values) - len(there))
        return [*nulls, *there] if self._first else [*there, *nulls]


def _flat(lists: Any) -> Any:
    kind = lists.type.value_type.value_type
    made = [
        None if outer is None else [value for inner in outer for value in inner or ()]
        for outer in lists.to_pylist()
    ]
    return pa.array(made, pa.list_(kind))


class struct_(_Namespace):  # noqa: N801
    """Of structs."""

    def field(self, field_name: str) -> Expr:
        """One field.

        Args:
            field_name: its name.

        Returns:
            The expression.
        """
        return call("struct_field", self._expression, indices=field_name).alias(field_name)

    def field_by_index(self, index: int) -> Expr:
        """One field.

        Args:
            index: its place, from 0.

        Returns:
            The expression.
        """
        return call("struct_field", self._expression, indices=[index])

    def __getitem__(self, name: str) -> Expr:
        return self.field(name)


class dt_(_Namespace):  # noqa: N801
    """Of times and dates."""

    _METHODS: _Methods = {
        **{name: (name, (), {}) for name in ("year", "month", "day", "hour", "minute", "second")},
        **{name: (name, (), {}) for name in ("quarter", "day_of_week", "day_of_year", "iso_week")},
        "strftime": ("strftime", ("format",), {}),
        **{
            name: (f"{name}_temporal", ("multiple", "unit"), {})
            for name in ("ceil", "floor", "round")
        },
    }

    def _to_unit(self, name: str, unit: str, multiple: int) -> Expr:
        return call(f"{name}_temporal", self._expression, multiple=multiple, unit=unit)

    def ceil(self, unit: str, multiple: int = 1) -> Expr:
        """The next whole unit.

        Args:
            unit: "day", "hour" and so on.
            multiple: of the unit.

        Returns:
            The expression.
        """
        return self._to_unit("ceil", unit, multiple)

    def floor(self, unit: str, multiple: int = 1) -> Expr:
        """The last whole unit.

        Args:
            unit: "day", "hour" and so on.
            multiple: of the unit.

        Returns:
            The expression.
        """
        return self._to_unit("floor", unit, multiple)

    def round(self, unit: str, multiple: int = 1) -> Expr:
        """The nearest whole unit.

        Args:
            unit: "day", "hour" and so on.
            multiple: of the unit.

        Returns:
            The expression.
        """
        return self._to_unit("round", unit, multiple)


class arr_(_Namespace):  # noqa: N801
    """Of tensors, and lists of one length."""

    def to_list(self) -> Expr:
        """Lists instead of tensors. Returns the expression."""
        return Computed(_to_list, [self._expression], "arr.to_list")


def _to_list(column: Any) -> Any:
    from sheaf.data.columns import values_of

    values = [one.tolist() if hasattr(one, "tolist") else one for one in values_of(column)]
    return pa.array(values)


class map_(_Namespace):  # noqa: N801
    """Of maps."""

    def keys(self) -> Expr:
        """The keys of each map as a list. Returns the expression."""
        return Computed(_keys, [self._expression], "map.keys")

    def values(self) -> Expr:
        """The values of each map as a list. Returns the expression."""
        return Computed(_values, [self._expression], "map.values")


def _keys(maps: Any) -> Any:
    return _of_maps(maps, 0, maps.type.key_type)


def _values(maps: Any) -> Any:
    return _of_maps(maps, 1, maps.type.item_type)


def _of_maps(maps: Any, place: int, kind: Any) -> Any:
    made = [None if one is None else [pair[place] for pair in one] for one in maps.to_pylist()]
    return pa.array(made, pa.list_(kind))


NAMESPACES.update(
    {"str": str_, "list": list_, "struct": struct_, "dt": dt_, "arr": arr_, "map": map_}
)

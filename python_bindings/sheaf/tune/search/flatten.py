# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Nested dicts as flat ones, {"a": {"b": 1}} as {"a/b": 1}, and back."""

from __future__ import annotations

from typing import Any

DELIMITER = "/"


def flatten_dict(
    nested: dict[Any, Any],
    delimiter: str = DELIMITER,
    prevent_delimiter: bool = False,
    flatten_list: bool = False,
) -> dict[str, Any]:
    """Joins the keys of nested dicts.

    Args:
        nested: what to flatten; it stays as it is.
        delimiter: stands between keys.
        prevent_delimiter: whether a key with a delimiter in it is an error.
        flatten_list: whether elements of lists get keys of their own, too.

    Returns:
        The flat dict.

    Raises:
        ValueError: a key has the delimiter in it, and prevent_delimiter is True.
    """

    def children(value: Any) -> Any:
        if isinstance(value, dict):
            return value.items()
        return enumerate(value) if flatten_list and isinstance(value, list) else None

    flat: dict[Any, Any] = {}
    # Level by level: what lies deeper comes later. Seeded searchers draw in this order.
    level: list[tuple[Any, Any]] = [(None, nested)]
    while level:
        deeper: list[tuple[Any, Any]] = []
        for joined, value in level:
            items = children(value)
            if items is None:
                flat[joined] = value
                continue
            for key, each in items:
                if prevent_delimiter and isinstance(key, str) and delimiter in key:
                    raise ValueError(f"the key {key!r} has {delimiter!r} in it, which joins keys")
                deeper.append((key if joined is None else f"{joined}{delimiter}{key}", each))
        level = deeper
    return flat


def unflatten_dict(flat: dict[str, Any], delimiter: str = DELIMITER) -> dict[str, Any]:
    """Makes nested dicts of joined keys.

    Args:
        flat: what flatten_dict returned.
        delimiter: stands between keys.

    Returns:
        The nested dict.
    """
    nested: dict[str, Any] = {}
    for joined, value in flat.items():
        *parents, last = joined.split(delimiter)
        place = nested
        for key in parents:
            place = place.setdefault(key, {})
        place[last] = value
    return nested


def merge_dicts(below: dict[Any, Any], above: dict[Any, Any]) -> dict[Any, Any]:
    """Lays one nested dict over another.

    Args:
        below: its values stand where the other has none.
        above: its values stand first.

    Returns:
        A new dict; values are shared with both.
    """
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge_dicts(merged[key], value)
        else:
            merged[key] = value
    return merged

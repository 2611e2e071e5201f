# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows of listings, and which of them filters choose."""

from __future__ import annotations

from sheaf.util.state.exception import RayStateApiException

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Row(dict):  # type: ignore[type-arg]
    """One row; its fields are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def chosen(rows: list[Row], filters: list[tuple[str, str, Any]] | None, limit: int) -> list[Row]:
    """The rows that fit all filters. ValueError: an operator that is none. RayStateApiException: a
    field that rows do not have, or a value that is of another type."""
    if limit < 0:
        raise RayStateApiException(f"limit={limit}: want 0 or more")
    for key, operator, value in filters or ():
        if operator not in ("=", "!="):
            raise ValueError(
                f"filters: the operator {operator!r} is unknown: want '=' or '!=' (Unsupported "
                "filter predicate)"
            )
        field = key.lower()
        if rows and field not in rows[0]:
            raise RayStateApiException(
                f"The given filter column {key} is not supported: there are {', '.join(rows[0])}"
            )
        rows = [row for row in rows if _is(row[field], field, value) == (operator == "=")]
    return rows[:limit]


def _is(found: Any, field: str, wanted: Any) -> bool:
    """Whether a field has a value, which may be written as text, in any case."""
    if not isinstance(wanted, str):
        return bool(found == wanted)
    if isinstance(found, int) and not isinstance(found, bool):
        try:
            return found == int(wanted)
        except ValueError:
            raise RayStateApiException(f"filters: {field}: {wanted!r}: want a number") from None
    return str(found).lower() == wanted.lower()

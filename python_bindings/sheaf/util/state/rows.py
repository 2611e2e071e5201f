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


def worker_id(process: str) -> str:
    """Returns the id of a process as the runtime context has it: 16 hexadecimal digits.

    Args:
        process: "NODE.NUMBER"; "": none, which gives "".
    """
    node, _, number = process.partition(".")
    return f"{int(node):08x}{int(number):08x}" if number else ""


def check_filters(filters: Any) -> None:
    """ValueError: one has an operator that is none. RayStateApiException: they are no filters."""
    if isinstance(filters, (str, bytes)):
        raise RayStateApiException(
            f"filters={filters!r}: want a list of (field, '=' or '!=', value), not one text"
        )
    for each in filters or ():
        if isinstance(each, (str, bytes)) or len(each) != 3:
            raise RayStateApiException(
                f"filters: {each!r}: want (field, '=' or '!=', value), such as "
                "('state', '=', 'ALIVE')"
            )
        if each[1] not in ("=", "!="):
            raise ValueError(
                f"filters: the operator {each[1]!r} is unknown: want '=' or '!=' (Unsupported "
                "filter predicate)"
            )


def chosen(
    rows: list[Row],
    filters: list[tuple[str, str, Any]] | None,
    limit: int,
    columns: tuple[str, ...] = (),
) -> list[Row]:
    """The rows that fit all filters. ValueError: an operator that is none. RayStateApiException: a
    field that rows do not have, or a value that is of another type. `columns`: those that rows
    have, where there may be no row to say so."""
    if limit < 0:
        raise RayStateApiException(f"limit={limit}: want 0 or more")
    check_filters(filters)
    known = columns or (tuple(rows[0]) if rows else ())
    for key, operator, value in filters or ():
        field = key.lower()
        if known and field not in known:
            raise RayStateApiException(
                f"The given filter column {key} is not supported: there are {', '.join(known)}"
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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows of listings, which of them filters choose, and the session that is asked for them."""

from __future__ import annotations

import functools

from sheaf import _core, lifecycle
from sheaf.ids import node_id
from sheaf.util.state.exception import RayStateApiException

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")


def of_a_session(function: Callable[P, T]) -> Callable[P, T]:
    """In a process that has joined none, the function asks the cluster that runs here, which is
    left again; it starts none. ConnectionError: none runs."""

    @functools.wraps(function)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        if _core.is_initialized():
            return function(*args, **kwargs)
        try:
            joined = lifecycle.join_running()
        except ConnectionError as error:
            raise ConnectionError(
                f"Could not find any running Ray instance: call init() first, or start a node by "
                f"`sheaf start` ({error})"
            ) from None
        with joined:
            return function(*args, **kwargs)

    return ask


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


def node_of(process: str) -> str | None:
    """The node of the process "NODE.NUMBER", or None."""
    node, _, number = process.partition(".")
    return node_id(int(node)) if number else None


def check_filters(filters: Any) -> None:
    """ValueError: filters of another form, or an operator that is none."""
    if not isinstance(filters, list) or not all(_is_filter(one) for one in filters):
        raise ValueError(
            f"filters={filters!r}: want a list of (field, '=' or '!=', value), as "
            "[('state', '=', 'ALIVE')]"
        )
    for _, operator, _ in filters:
        if operator not in ("=", "!="):
            raise ValueError(
                f"filters: the operator {operator!r} is unknown: want '=' or '!=' (Unsupported "
                "filter predicate)"
            )


def chosen(
    rows: list[Row],
    filters: list[tuple[str, str, Any]] | None,
    limit: int,
    columns: tuple[str, ...] = (),
) -> list[Row]:
    """The rows that fit all filters. ValueError: filters of another form, or an operator that is
    none. RayStateApiException: a field that rows do not have, or a value that is of another type.
    `columns`: those that rows have, where there may be no row to say so."""
    if limit < 0:
        raise RayStateApiException(f"limit={limit}: want 0 or more")
    filters = [] if filters is None else filters
    check_filters(filters)
    known = columns or (tuple(rows[0]) if rows else ())
    for key, operator, value in filters:
        field = key.lower()
        if known and field not in known:
            raise RayStateApiException(
                f"The given filter column {key} is not supported: there are {', '.join(known)}"
            )
        rows = [row for row in rows if _is(row[field], field, value) == (operator == "=")]
    return rows[:limit]


def for_nodes(filters: Any, fields: dict[str, str]) -> list[tuple[str, str]]:
    """Those of `filters` that nodes look at themselves, so that a long list has what is wanted.
    `fields`: the keys of nodes by the names of fields. All are looked at once more by `chosen`."""
    return [
        (fields[one[0].lower()], one[2])
        for one in filters or ()
        if _is_filter(one)
        and one[1] == "="
        and one[0].lower() in fields
        and isinstance(one[2], str)
        and one[2]
    ]


def _is_filter(one: Any) -> bool:
    return isinstance(one, (tuple, list)) and len(one) == 3 and isinstance(one[0], str)


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

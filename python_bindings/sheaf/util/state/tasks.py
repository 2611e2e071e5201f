# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings of calls, running, waiting and ended, and how many ended of each function."""

from __future__ import annotations

import warnings

from sheaf import _core
from sheaf.util.state.rows import Row, check_filters, chosen, node_of, of_a_session, worker_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 100_000  # Rows of one answer.
_STATES = {
    "WAITING_FOR_ARGUMENTS": "PENDING_ARGS_AVAIL",
    "WAITING_FOR_LEASE": "PENDING_NODE_ASSIGNMENT",
    "WAITING_FOR_ACTOR": "PENDING_ACTOR_TASK_ARGS_FETCH",
    "PUSHED": "SUBMITTED_TO_WORKER",
    "CANCELLED": "FAILED",
}
# Filters that the nodes apply themselves, by the name of the column here.
_BY_NODES = {
    "name": "name",
    "func_or_class_name": "name",
    "actor_id": "actor_id",
    "type": "type",
    "error_type": "error_type",
}


@of_a_session
def list_tasks(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the calls, those of actors too: first what has not ended, then the last that ended.

    Nodes remember some 300,000 ended calls and failures apart. Of functions that take less than
    5 us one call in 16 is remembered, of 1 us one in 64; summarize_tasks() counts exactly.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect: rows are whole.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of task_id, name, func_or_class_name, state, attempt_number, job_id, actor_id,
        node_id, worker_id, worker_pid, type; waits_for, which says in words what holds the call
        up; creation_time_ms, start_time_ms and end_time_ms (since 1970, None: not known),
        error_type, error_message and weight: for how many calls an ended one stands.

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
        RayError: the cluster did not answer.
    """
    filters = [] if filters is None else filters
    check_filters(filters)
    pids = {row["worker"]: row["pid"] for row in _core.workers()}
    found, missing, lost = known_calls(
        ended=True, filters=_for_nodes(filters), limit=_asked(filters, limit)
    )
    rows = chosen([_row(call, pids) for call in found], filters, limit, columns=COLUMNS)
    if lost:
        warnings.warn(
            f"{lost} ended calls came and went before their node looked, and are in no listing; "
            "summarize_tasks() counts them",
            stacklevel=3,
        )
    if missing and len(rows) < limit:
        warnings.warn(missing, stacklevel=3)
    return rows


@of_a_session
def rows_of(id: str) -> list[Row]:
    """The attempts of one call, the last first."""
    pids = {row["worker"]: row["pid"] for row in _core.workers()}
    found, _, _ = known_calls(ended=True, filters=[], limit=_MOST, id=id)
    rows = [_row(call, pids) for call in found]
    return sorted(rows, key=lambda row: -row["attempt_number"])


def known_calls(
    ended: bool, filters: list[tuple[str, bool, str]], limit: int, before_ns: int = 0, id: str = ""
) -> tuple[list[dict[str, Any]], str, int]:
    """One row for each attempt of a call: its caller tells of it, where it runs the worker, too,
    and where it ran the node. What is missing in words, and how many nobody has seen."""
    told, missing, lost = _core.tasks(
        ended=ended, filters=filters, id=id, limit=min(limit, _MOST), ended_before_ns=before_ns
    )
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for row in told:
        other = out.setdefault((row["task_id"], row["attempt"]), row)
        if other is not row:
            newer, older = (row, other) if _rank(row) >= _rank(other) else (other, row)
            merged = {**older, **{name: value for name, value in newer.items() if value}}
            if newer["end_ns"]:
                merged["words"] = ""
            out[row["task_id"], row["attempt"]] = merged
    return list(out.values()), missing, lost


def functions() -> list[dict[str, Any]]:
    """How many calls of each function there are and have ended, and how long they took."""
    return [{**row, "name": row["name"].decode(errors="replace")} for row in _core.functions()]


def public_state(state: str) -> str:
    """A state as listings have it."""
    return _STATES.get(state, state)


def _rank(row: dict[str, Any]) -> int:
    """The last word on an attempt: a worker may die between the end of a call and its answer."""
    return row["end_ns"] or row["state"] == "RUNNING"


def _for_nodes(filters: Any) -> list[tuple[str, bool, str]]:
    out = []
    for key, operator, value in filters or ():
        if key.lower() in _BY_NODES and isinstance(value, str):
            out.append((_BY_NODES[key.lower()], operator == "!=", value))
        elif key.lower() == "state" and operator == "=" and value in ("FINISHED", "RUNNING"):
            out.append(("state", False, value))
        elif key.lower() == "state" and operator == "=" and value == "FAILED":
            out.append(("state", True, "FINISHED"))
    return out


def _asked(filters: Any, limit: int) -> int:
    """How many rows are wanted of the nodes: all, where some are left out here."""
    left_out_here = any(
        key.lower() not in _BY_NODES and (key.lower(), value) not in (("state", "FINISHED"),)
        for key, _, value in filters or ()
    )
    return _MOST if left_out_here else 2 * limit  # A running call has two rows.


def _row(call: dict[str, Any], pids: dict[str, int]) -> Row:
    return Row(
        task_id=call["task_id"],
        name=call["name"],
        func_or_class_name=call["name"],
        state=public_state(call["state"]),
        attempt_number=call["attempt"],
        job_id=f"{call['job']:08x}",
        actor_id=call["actor_id"] or None,
        node_id=node_of(call["worker"]),
        worker_id=worker_id(call["worker"]) or None,
        worker_pid=call["pid"] or pids.get(call["worker"]),
        type=call["type"],
        waits_for=call["words"],
        creation_time_ms=call["created_ms"] or None,
        start_time_ms=call["begin_ns"] // 1_000_000 or None,
        end_time_ms=call["end_ns"] // 1_000_000 or None,
        error_type=call["error_type"] or None,
        error_message=call["error"].decode(errors="replace") or None,
        weight=call["weight"],
    )


COLUMNS = tuple(
    _row(
        {
            "worker": "",
            "created_ms": 0,
            "begin_ns": 0,
            "end_ns": 0,
            "error": b"",
            "job": 0,
            **dict.fromkeys(
                ("task_id", "name", "state", "attempt", "actor_id", "pid", "type", "words"), ""
            ),
            **dict.fromkeys(("error_type", "weight"), ""),
        },
        {},
    )
)

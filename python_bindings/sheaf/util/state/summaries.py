# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings in numbers."""

from __future__ import annotations

from sheaf.util.state import tasks
from sheaf.util.state.listings import ALL, list_actors, list_objects
from sheaf.util.state.rows import Row, of_a_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _summary(rows: list[Row], name: str, state: str) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = out.setdefault(row[name], {"state_counts": {}})
        entry["state_counts"][row[state]] = entry["state_counts"].get(row[state], 0) + 1
    return out


@of_a_session
def summarize_tasks(
    address: Any = None,
    timeout: int = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Counts the calls, by function and state; exactly, those that no listing has, too.

    Args:
        address: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        {"cluster": {"summary": {function: {"state_counts": {state: number}}}, "total_tasks": ...,
        "total_actor_tasks": calls of actors, "total_actor_scheduled": constructors that run}}

    Raises:
        RayError: the cluster did not answer.
    """
    summary: dict[str, dict[str, Any]] = {}
    totals = dict.fromkeys(("NORMAL_TASK", "ACTOR_TASK", "ACTOR_CREATION_TASK"), 0)

    def count(name: str, type: str, state: str, number: int) -> None:
        if number:
            entry = summary.setdefault(
                name, {"func_or_class_name": name, "type": type, "state_counts": {}}
            )
            counts = entry["state_counts"]
            counts[state] = counts.get(state, 0) + number
            totals[type] += number

    for row in tasks.functions():
        waits = "ACTOR" if row["type"] == "ACTOR_TASK" else "LEASE"
        for state, number in (
            ("WAITING_FOR_ARGUMENTS", row["waiting_for_arguments"]),
            (f"WAITING_FOR_{waits}", row["waiting_for_place"]),
            ("PUSHED", max(0, row["pushed"] - row["running"])),
            ("RUNNING", row["running"]),
        ):
            count(row["name"], row["type"], tasks.public_state(state), number)
        count(row["name"], row["type"], "FINISHED", row["finished"])
        count(row["name"], row["type"], "FAILED", row["failed"] + row["cancelled"])
    return {
        "cluster": {
            "summary": summary,
            "total_tasks": totals["NORMAL_TASK"],
            "total_actor_tasks": totals["ACTOR_TASK"],
            "total_actor_scheduled": totals["ACTOR_CREATION_TASK"],
            "summary_by": "func_name",
        }
    }


def summarize_actors(
    address: Any = None,
    timeout: int = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Counts the actors, by class and state.

    Args:
        address: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        {"cluster": {"summary": {class: {"state_counts": {state: number}}}, "total_actors": ...}}

    Raises:
        RayError: the cluster did not answer.
    """
    rows = list_actors(limit=ALL)
    return {
        "cluster": {
            "summary": _summary(rows, "class_name", "state"),
            "total_actors": len(rows),
            "summary_by": "class",
        }
    }


def summarize_objects(
    address: Any = None,
    timeout: int = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Counts the objects and their megabytes (10^6 bytes), by the place where they are.

    Args:
        address: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        {"cluster": {"summary": {place: {"total_objects": number, "total_size_mb": megabytes}},
        ...}}

    Raises:
        RayError: the cluster did not answer.
    """
    rows = list_objects(limit=ALL)
    summary: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = summary.setdefault(row["where"], {"total_objects": 0, "total_size_mb": 0.0})
        entry["total_objects"] += 1
        entry["total_size_mb"] += row["object_size"] / 1e6
    total = sum(row["object_size"] for row in rows) / 1e6
    return {
        "cluster": {
            "summary": summary,
            "total_objects": len(rows),
            "total_size_mb": total,
            "callsite_enabled": False,
            "summary_by": "where",
        }
    }

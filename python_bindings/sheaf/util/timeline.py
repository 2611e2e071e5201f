# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.timeline: when the calls of all workers of the cluster began and ended."""

from __future__ import annotations

import json
import warnings

from sheaf import _core
from sheaf.ids import node_id
from sheaf.util.state import tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PAGE = 50_000
_MOST_EVENTS = 200_000  # More make the viewers crash.


def timeline(filename: str | None = None) -> Any:
    """Tells when the last calls of all workers began and ended, as a Chrome trace.

    chrome://tracing and Perfetto show it: a process for each node, a row for each thread of a
    worker, arrows from the call that made another to it. At most the last 200,000 calls; of quick
    functions one call in 16 or 64 (sheaf.util.state.list_tasks says which). Times are microseconds
    since 1970 by the clock of each node.

    Args:
        filename: the file that the trace is written to, as JSON; None: it is returned.

    Returns:
        None, or the events as a list of dicts, by time.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: this process has joined no cluster.
    """
    if not _core.is_initialized():
        raise RuntimeError("Ray has not been started yet: call sheaf.init() first")
    events = _trace(_ended_calls())
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _ended_calls() -> list[dict[str, Any]]:
    """The last ones that ran, the last first, by pages: one answer does not hold all."""
    calls: dict[tuple[str, int], dict[str, Any]] = {}
    before = 0
    while len(calls) < _MOST_EVENTS:
        page, missing, lost = tasks.known_calls(True, [], _PAGE, before)
        ended = [call for call in page if call["end_ns"]]
        new = {(call["task_id"], call["attempt"]): call for call in ended} | calls
        if not ended or len(new) == len(calls):
            break
        calls = new
        # Some may have ended in the same nanosecond, on other nodes; and each answer reckons the
        # time of day anew, some microseconds apart.
        before = min(call["end_ns"] for call in ended) + 1_000_000
        if not missing:
            break
    if lost:
        warnings.warn(f"timeline: {lost} calls came and went before a node looked", stacklevel=3)
    return [call for call in calls.values() if call["begin_ns"] and call["worker"]]


def _trace(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    threads: dict[tuple[int, int, int], int] = {}  # Of each node: (node, pid, thread) to a number.
    heads: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    ran: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for call in calls:
        if len(call["task_id"]) >= 32:
            ran.setdefault((call["worker"], int(call["task_id"][16:32], 16)), []).append(call)
    for call in sorted(calls, key=lambda call: call["begin_ns"]):
        node = int(call["worker"].partition(".")[0])
        place = node, call["pid"], call["thread"]
        if place not in threads:
            if not any(known[0] == node for known in threads):
                heads.append(_name("process_name", node, 0, f"Node {node_id(node)}"))
            threads[place] = len(threads) + 1
            title = f"worker {call['pid']}" + (f" thread {call['thread']}" if place[2] else "")
            heads.append(_name("thread_name", node, threads[place], title))
        events.append(_event(call, node, threads[place]))
        parents = ran.get((call["owner"], call["parent_sequence"]))
        if parents is not None:
            events += _flow(call, _parent(call, parents), threads)
    return heads + sorted(events, key=lambda event: event["ts"])


def _parent(call: dict[str, Any], ran: list[dict[str, Any]]) -> dict[str, Any]:
    """The call that made another ran in the other's owner and has the number there. Of different
    owners several may have it: then it is the one that ran when the other was made."""
    made = call["created_ms"] * 1_000_000

    def distance(other: dict[str, Any]) -> int:
        return max(other["begin_ns"] - made, made - other["end_ns"], 0)

    return min(ran, key=distance)


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _event(call: dict[str, Any], node: int, thread: int) -> dict[str, Any]:
    return {
        "cat": "task",
        "ph": "X",
        "name": call["name"],
        "pid": node,
        "tid": thread,
        "ts": call["begin_ns"] / 1e3,
        "dur": (call["end_ns"] - call["begin_ns"]) / 1e3,
        **({"cname": "terrible"} if call["state"] != "FINISHED" else {}),
        "args": {
            "task_id": call["task_id"],
            "job_id": f"{call['job']:08x}",
            "attempt_number": call["attempt"],
            "func_or_class_name": call["name"],
            "actor_id": call["actor_id"] or None,
            "worker_pid": call["pid"],
            "state": tasks.public_state(call["state"]),
            **({"stands_for_calls": call["weight"]} if call["weight"] > 1 else {}),
        },
    }


def _flow(
    call: dict[str, Any], parent: dict[str, Any], threads: dict[tuple[int, int, int], int]
) -> list[dict[str, Any]]:
    """An arrow from within the parent to where the call begins."""
    out = []
    for phase, at, time in (
        ("s", parent, max(parent["begin_ns"], 0)),
        ("f", call, call["begin_ns"]),
    ):
        node = int(at["worker"].partition(".")[0])
        thread = threads.get((node, at["pid"], at["thread"]))
        if thread is None:
            return []
        out.append(
            {
                "cat": "submit",
                "name": "submit",
                "ph": phase,
                "id": call["task_id"],
                "pid": node,
                "tid": thread,
                "ts": time / 1e3,
                **({"bp": "e"} if phase == "f" else {}),
            }
        )
    return out

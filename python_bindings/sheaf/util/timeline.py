# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.timeline: when the calls of all workers of the cluster began and ended."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

from sheaf import _core
from sheaf._internal import timeline_file
from sheaf.util import each_node

_ANSWER_S = 10.0  # How long the other nodes may take.


def timeline(filename: str | None = None) -> Any:
    """Tells when the last calls of all workers began and ended, as a Chrome trace.

    chrome://tracing and Perfetto show it. A worker remembers some 4,000 calls. Times are
    microseconds of this machine's monotonic clock, to which those of other nodes are brought by
    their wall clocks. A node that does not answer within 10 s is left out, with a warning.

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
    events = _events_of_all_nodes()
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _events_of_all_nodes() -> list[dict[str, Any]]:
    """What the workers of all nodes have recorded. Each other node is asked by a small task that
    runs there."""
    found, late = each_node.answers(_events_by_wall_time, timeout=_ANSWER_S)
    ahead = (time.time() - time.monotonic()) * 1e6
    out: list[dict[str, Any]] = []
    for index, (node, recorded) in enumerate(found.items()):
        for event in recorded:
            if "ts" in event:
                event["ts"] -= ahead
            elif index > 0:  # Of another node.
                event["args"]["name"] += f" of node {node[-8:]}"
            if index > 0:
                event["pid"] = f"{node[-8:]}:{event['pid']}"
        out += recorded
    if late:
        warnings.warn(
            f"timeline: without the nodes {', '.join(late)}, which did not answer", stacklevel=3
        )
    return sorted(out, key=lambda event: event.get("ts", 0.0))


def _events_by_wall_time() -> list[dict[str, Any]]:
    ahead = (time.time() - time.monotonic()) * 1e6
    return [
        {**event, "ts": event["ts"] + ahead} if "ts" in event else event
        for event in timeline_file.events()
    ]

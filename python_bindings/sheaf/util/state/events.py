# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What has happened in the cluster."""

from __future__ import annotations

import datetime

from sheaf import _core
from sheaf.ids import node_id
from sheaf.util.state.rows import Row, chosen, of_a_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLUMNS = ("severity", "time", "source_type", "message", "event_id", "custom_fields")
_SOURCES = {"JOB_STATE": "JOBS"}  # Of the others those of nodes are the GCS's.


@of_a_session
def list_cluster_events(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists what has happened: nodes that joined, left or died, actors that died unwanted,
    processes that were ended for want of memory, disks that spilled objects cannot be written to,
    work that no node can take, jobs that began or ended. The GCS keeps the last 10,000, as long as
    it runs.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most, the last ones.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of severity ("INFO", "WARNING", "ERROR"), time (text, local), source_type ("GCS",
        "RAYLET", "JOBS"), message, event_id and custom_fields (kind, node_id, job_id, id), the
        oldest first.

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            severity=row["severity"],
            time=str(datetime.datetime.fromtimestamp(row["time_ms"] / 1000)),
            source_type=_source(row["kind"]),
            message=row["message"],
            event_id=f"{row['number']:016x}",
            custom_fields={
                "kind": row["kind"],
                "node_id": node_id(row["node"]) if row["node"] else None,
                "job_id": f"{row['job']:08x}" if row["job"] else None,
                "id": row["id"] or None,
            },
        )
        for row in _core.events()
    ]
    found = chosen(rows, filters, len(rows), _COLUMNS)
    chosen([], None, limit)  # It says what is wrong with a limit.
    return found[max(0, len(found) - limit) :]


def _source(kind: str) -> str:
    return "GCS" if kind.startswith("NODE_") else _SOURCES.get(kind, "RAYLET")

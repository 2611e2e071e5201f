# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The state of the cluster, as dicts."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf.ids import node_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """What is not in use, by NodeID."""
    return {
        node_id(row["node"]): dict(row["available"])
        for row in _core.nodes()
        if row["state"] == "ALIVE"
    }


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """What there is, by NodeID."""
    return {row["NodeID"]: row["Resources"] for row in cluster.nodes() if row["Alive"]}


def actors(actor_id: str | None = None) -> dict[str, Any]:
    """The actors by id; of one, its entry."""
    rows = {row["actor_id"]: _actor(row) for row in cluster.actors()}
    return rows if actor_id is None else rows.get(actor_id, {})


def _actor(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "ActorID": row["actor_id"],
        "ActorClassName": row["class_name"],
        "Name": row["name"],
        "RayNamespace": row["namespace"],
        "State": row["state"],
        "NumRestarts": row["restarts"],
        "Address": {"Pid": row["pid"]},
    }

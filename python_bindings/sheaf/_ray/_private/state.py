# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The state of the cluster, as dicts."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf.cluster import available_resources, cluster_resources, nodes
from sheaf.ids import node_id
from sheaf.util.placement_group import placement_group_table
from sheaf.util.timeline import timeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "actors",
    "available_resources",
    "available_resources_per_node",
    "cluster_resources",
    "jobs",
    "nodes",
    "state",
    "timeline",
    "total_resources_per_node",
]


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


def jobs() -> list[dict[str, Any]]:
    """The jobs that run."""
    return [
        {"JobID": f"{row['job']:08x}", "DriverPid": row.get("pid"), "IsDead": False}
        for row in _core.jobs()
    ]


def actors(
    actor_id: str | None = None, job_id: Any = None, actor_state_name: str | None = None
) -> dict[str, Any]:
    """The actors by id; of one, its entry. `actor_state_name`: only those in this state."""
    rows = {
        row["actor_id"]: _actor(row)
        for row in cluster.actors()
        if actor_state_name in (None, row["state"])
    }
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


class GlobalState:
    """The same as methods, as libraries ask for it."""

    def node_table(self) -> list[dict[str, Any]]:
        """nodes()."""
        return nodes()

    def actor_table(self, actor_id: str | None = None) -> dict[str, Any]:
        """actors()."""
        return actors(actor_id)

    def job_table(self) -> list[dict[str, Any]]:
        """jobs()."""
        return jobs()

    def placement_group_table(self, placement_group_id: Any = None) -> dict[str, Any]:
        """What is known of the group that has this PlacementGroupID, or of all."""
        every = placement_group_table()
        return every if placement_group_id is None else every.get(placement_group_id.hex(), {})

    def cluster_resources(self) -> dict[str, float]:
        """cluster_resources()."""
        return cluster_resources()

    def available_resources(self) -> dict[str, float]:
        """available_resources()."""
        return available_resources()

    def total_resources_per_node(self) -> dict[str, dict[str, float]]:
        """total_resources_per_node()."""
        return total_resources_per_node()

    _available_resources_per_node = staticmethod(available_resources_per_node)


state = GlobalState()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings of what the cluster knows."""

from __future__ import annotations

from sheaf import _core, absent, cluster

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


def _chosen(rows: list[Row], filters: list[tuple[str, str, Any]] | None, limit: int) -> list[Row]:
    for key, operator, value in filters or ():
        if operator not in ("=", "!="):
            raise ValueError(f"filters: the operator {operator!r} is unknown: want '=' or '!='")
        rows = [row for row in rows if (str(row.get(key)) == str(value)) == (operator == "=")]
    return rows[:limit]


def list_actors(address: str | None = None, filters: Any = None, limit: int = 100, detail: bool = False, **others: Any) -> list[Row]:
    """The actors, dead ones included. filters: (field, "=" or "!=", value) each."""
    rows = [
        Row(
            actor_id=row["actor_id"], class_name=row["class_name"], state=row["state"], name=row["name"],
            ray_namespace=row["namespace"], pid=row["pid"], job_id=f"{row['job']:08x}", num_restarts=row["restarts"],
            death_cause=row["death"] or None, is_detached=row["detached"],
        )
        for row in _core.actors()
    ]  # fmt: skip
    return _chosen(rows, filters, limit)


def list_nodes(address: str | None = None, filters: Any = None, limit: int = 100, detail: bool = False, **others: Any) -> list[Row]:
    """The nodes, dead ones included."""
    rows = [
        Row(
            node_id=row["NodeID"], node_ip=row["NodeManagerAddress"], node_name=row["NodeName"],
            state="ALIVE" if row["Alive"] else "DEAD", resources_total=row["Resources"], labels=row["Labels"], is_head_node=True,
        )
        for row in cluster.nodes()
    ]  # fmt: skip
    return _chosen(rows, filters, limit)


def list_placement_groups(address: str | None = None, filters: Any = None, limit: int = 100, detail: bool = False, **others: Any) -> list[Row]:
    """The placement groups."""
    rows = [
        Row(placement_group_id=row["group_id"], name=row["name"], state=row["state"], bundles=row["bundles"])
        for row in _core.groups()
    ]
    return _chosen(rows, filters, limit)


def get_actor(id: str, **others: Any) -> Row | None:
    """The actor with this id, or None."""
    return next((row for row in list_actors(limit=1 << 30) if row.actor_id == id), None)


def get_node(id: str, **others: Any) -> Row | None:
    """The node with this id, or None."""
    return next((row for row in list_nodes(limit=1 << 30) if row.node_id == id), None)


_COMMAND = "the command has it: sheaf list"
list_tasks = absent.function("util.state.list_tasks", _COMMAND)
list_objects = absent.function("util.state.list_objects", _COMMAND)
list_jobs = absent.function("util.state.list_jobs", _COMMAND)
list_workers = absent.function("util.state.list_workers", _COMMAND)
summarize_tasks = absent.function("util.state.summarize_tasks")
summarize_actors = absent.function("util.state.summarize_actors")
summarize_objects = absent.function("util.state.summarize_objects")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings of nodes, processes, actors, calls and objects, and summaries of them."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf.ids import node_id
from sheaf.util import placement_group

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


def _chosen(rows: list[Row], filters: list[tuple[str, str, Any]] | None, limit: int) -> list[Row]:
    for key, operator, value in filters or ():
        if operator not in ("=", "!="):
            raise ValueError(f"filters: the operator {operator!r} is unknown: want '=' or '!='")
        rows = [row for row in rows if (str(row.get(key)) == str(value)) == (operator == "=")]
    return rows[:limit]


def list_actors(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the actors, dead ones included.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of actor_id, class_name, state, name, ray_namespace, pid, job_id, num_restarts,
        death_cause and is_detached.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            actor_id=row["actor_id"],
            class_name=row["class_name"],
            state=row["state"],
            name=row["name"],
            ray_namespace=row["namespace"],
            pid=row["pid"],
            job_id=f"{row['job']:08x}",
            num_restarts=row["restarts"],
            death_cause=row["death"] or None,
            is_detached=row["detached"],
        )
        for row in cluster.actors()
    ]
    return _chosen(rows, filters, limit)


def list_nodes(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the nodes, dead ones included.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of node_id, node_ip, node_name, state, resources_total, labels and is_head_node.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            node_id=row["NodeID"],
            node_ip=row["NodeManagerAddress"],
            node_name=row["NodeName"],
            state="ALIVE" if row["Alive"] else "DEAD",
            resources_total=row["Resources"],
            labels=row["Labels"],
            is_head_node=row["NodeID"] == node_id(cluster.HEAD),
        )
        for row in cluster.nodes()
    ]
    return _chosen(rows, filters, limit)


def list_placement_groups(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the placement groups.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of placement_group_id, name, state and bundles.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            placement_group_id=row["group_id"],
            name=row["name"],
            state=placement_group.public_state(row["state"]),
            bundles=row["bundles"],
        )
        for row in _core.groups()
    ]
    return _chosen(rows, filters, limit)


def list_tasks(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the calls that have not ended, those of actors too.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of task_id, name, func_or_class_name, state, attempt_number, job_id, actor_id,
        worker_id, type and waits_for, which says in words what holds the call up.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            task_id=row["task_id"],
            name=row["name"],
            func_or_class_name=row["name"],
            state=_TASK_STATES.get(row["state"], row["state"]),
            attempt_number=row["attempt"],
            job_id=f"{row['job']:08x}",
            actor_id=row["actor_id"] or None,
            worker_id=worker_id(row["worker"]) or None,
            type="ACTOR_TASK"
            if row["state"] == "WAITING_FOR_ACTOR" or row["actor_id"]
            else "NORMAL_TASK",
            waits_for=row["words"],
        )
        for row in _core.tasks()
    ]
    return _chosen(rows, filters, limit)


def list_objects(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the objects that processes of the cluster own.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of object_id, object_size (bytes), where, owner, local_references, task_references,
        borrowing_nodes and task_status.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            object_id=row["object_id"],
            object_size=row["size"],
            where=row["where"],
            owner=row["owner"],
            local_references=row["local_refs"],
            task_references=row["task_refs"],
            borrowing_nodes=row["borrowing_nodes"],
            task_status="PENDING" if row["where"] == "pending" else "FINISHED",
        )
        for row in _core.objects()
    ]
    return _chosen(rows, filters, limit)


def list_jobs(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the drivers, past ones included.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of job_id, status, state, entrypoint, type, ray_namespace, driver_pid and start_time.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            job_id=f"{row['job']:08x}",
            status=row["state"],
            state=row["state"],
            entrypoint=row["entrypoint"],
            type="DRIVER",
            ray_namespace=row["namespace"],
            driver_pid=row["pid"],
            start_time=row["start_time"],
        )
        for row in _core.jobs()
    ]
    return _chosen(rows, filters, limit)


def list_workers(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the processes that run tasks and actors.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of worker_id, node_id, pid, state, job_id, running, is_alive and worker_type.

    Raises:
        ValueError: a filter has another operator.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            worker_id=worker_id(row["worker"]),
            node_id=node_id(row["node"]),
            pid=row["pid"],
            state=row["state"],
            job_id=f"{row['job']:08x}",
            running=row["running"],
            is_alive=True,
            worker_type="WORKER",
        )
        for row in _core.workers()
    ]
    return _chosen(rows, filters, limit)


_TASK_STATES = {
    "WAITING_FOR_ARGUMENTS": "PENDING_ARGS_AVAIL",
    "WAITING_FOR_LEASE": "PENDING_NODE_ASSIGNMENT",
    "WAITING_FOR_ACTOR": "PENDING_ACTOR_TASK_ARGS_FETCH",
    "PUSHED": "SUBMITTED_TO_WORKER",
}
_ALL = 1 << 30


def get_actor(
    id: str, address: Any = None, timeout: int = 30, _explain: bool = False
) -> Row | None:
    """Finds an actor by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_actors, or None.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_actors(limit=_ALL), "actor_id", id)


def get_node(id: str, address: Any = None, timeout: int = 30, _explain: bool = False) -> Row | None:
    """Finds a node by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_nodes, or None.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_nodes(limit=_ALL), "node_id", id)


def get_placement_group(
    id: str, address: Any = None, timeout: int = 30, _explain: bool = False
) -> Row | None:
    """Finds a placement group by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_placement_groups, or None.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_placement_groups(limit=_ALL), "placement_group_id", id)


def get_task(id: str, address: Any = None, timeout: int = 30, _explain: bool = False) -> Row | None:
    """Finds a call by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_tasks, or None: it has ended, or there was none.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_tasks(limit=_ALL), "task_id", id)


def get_worker(
    id: str, address: Any = None, timeout: int = 30, _explain: bool = False
) -> Row | None:
    """Finds a worker by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_workers, or None.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_workers(limit=_ALL), "worker_id", id)


def get_job(id: str, address: Any = None, timeout: int = 30, _explain: bool = False) -> Row | None:
    """Finds a job by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_jobs, or None.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(list_jobs(limit=_ALL), "job_id", id)


def get_objects(
    id: str, address: Any = None, timeout: int = 30, _explain: bool = False
) -> list[Row]:
    """Finds an object by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        The rows of it in list_objects: of each process that owns or borrows it.

    Raises:
        RayError: the cluster did not answer.
    """
    return [row for row in list_objects(limit=_ALL) if row["object_id"] == id]


def _one(rows: list[Row], key: str, id: str) -> Row | None:
    return next((row for row in rows if row[key] == id), None)


def _summary(rows: list[Row], name: str, state: str) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = out.setdefault(row[name], {"state_counts": {}})
        entry["state_counts"][row[state]] = entry["state_counts"].get(row[state], 0) + 1
    return out


def summarize_tasks(
    address: Any = None,
    timeout: int = 30,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> dict[str, Any]:
    """Counts the calls that have not ended, by function and state.

    Args:
        address: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        {"cluster": {"summary": {function: {"state_counts": {state: number}}}, "total_tasks": ...}}

    Raises:
        RayError: the cluster did not answer.
    """
    rows = list_tasks(limit=_ALL)
    return {
        "cluster": {
            "summary": _summary(rows, "name", "state"),
            "total_tasks": len(rows),
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
    rows = list_actors(limit=_ALL)
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
    rows = list_objects(limit=_ALL)
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
            "summary_by": "where",
        }
    }

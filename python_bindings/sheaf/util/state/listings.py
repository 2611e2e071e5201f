# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings of nodes, processes, actors, calls and objects, and summaries of them."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf.ids import node_id
from sheaf.util import placement_group
from sheaf.util.state import tasks
from sheaf.util.state.exception import RayStateApiException
from sheaf.util.state.rows import Row, chosen, for_nodes, node_of, of_a_session, worker_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_ACTOR = (
    "actor_id",
    "class_name",
    "state",
    "name",
    "ray_namespace",
    "node_id",
    "pid",
    "job_id",
    "num_restarts",
    "death_cause",
    "is_detached",
)
_OBJECT = (
    "object_id",
    "object_size",
    "where",
    "owner",
    "local_references",
    "task_references",
    "borrowing_nodes",
    "task_status",
    "age_s",
    "may_leak",
)


@of_a_session
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
        Rows of actor_id, class_name, state, name, ray_namespace, node_id, pid, job_id,
        num_restarts, death_cause and is_detached.

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            actor_id=row["actor_id"],
            class_name=row["class_name"],
            state=row["state"],
            name=row["name"],
            ray_namespace=row["namespace"],
            node_id=node_of(row["process"]),
            pid=row["pid"],
            job_id=f"{row['job']:08x}",
            num_restarts=row["restarts"],
            death_cause=row["death"] or None,
            is_detached=row["detached"],
        )
        for row in cluster.actors(
            for_nodes(
                filters,
                {
                    "actor_id": "actor_id",
                    "class_name": "class_name",
                    "name": "name",
                    "ray_namespace": "name_space",
                },
            )
        )
    ]
    return chosen(rows, filters, limit, _ACTOR)


@of_a_session
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
        RayStateApiException: a filter names a field that there is none of.
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
            is_head_node=cluster.HEAD_RESOURCE in row["Resources"],
        )
        for row in cluster.nodes()
    ]
    return chosen(rows, filters, limit)


@of_a_session
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
        RayStateApiException: a filter names a field that there is none of.
        RayError: the cluster did not answer.
    """
    rows = [
        Row(
            placement_group_id=row["group_id"],
            name=row["name"],
            state=placement_group.public_state(row["state"]),
            bundles=row["bundles"],
        )
        for row in _core.groups(
            for_nodes(filters, {"placement_group_id": "group_id", "name": "name"})
        )
    ]
    return chosen(rows, filters, limit, ("placement_group_id", "name", "state", "bundles"))


@of_a_session
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
        borrowing_nodes, task_status, age_s (at least so long ago it was put, or its call made; 0
        for some seconds) and may_leak (it has been there for SHEAF_LEAK_AGE seconds, and nothing
        needs it but references of its owner).

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
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
            age_s=row["age_s"],
            may_leak=row["may_leak"],
        )
        for row in _core.objects(
            for_nodes(filters, {"object_id": "object_id", "where": "where", "owner": "owner"})
        )
    ]
    return chosen(rows, filters, limit, _OBJECT)


@of_a_session
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
        Rows of job_id, status, state, entrypoint, type, ray_namespace, driver_pid, driver_info
        and start_time.

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
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
            driver_info=Row(id=f"{row['job']:08x}", pid=str(row["pid"])),
            start_time=row["start_time"],
        )
        for row in _core.jobs()
    ]
    return chosen(rows, filters, limit)


@of_a_session
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
        RayStateApiException: a filter names a field that there is none of.
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
    return chosen(rows, filters, limit)


ALL = 1 << 30


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
    return _one(list_actors(filters=[("actor_id", "=", id)], limit=ALL), "actor_id", id)


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
    return _one(list_nodes(limit=ALL), "node_id", id)


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
    return _one(
        list_placement_groups(filters=[("placement_group_id", "=", id)], limit=ALL),
        "placement_group_id",
        id,
    )


def get_task(id: str, address: Any = None, timeout: int = 30, _explain: bool = False) -> Row | None:
    """Finds a call by its id.

    Args:
        id: in hexadecimal digits.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_tasks, or None: there was none, or no node remembers it.

    Raises:
        RayError: the cluster did not answer.
    """
    return _one(tasks.rows_of(id), "task_id", id)


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
    return _one(list_workers(limit=ALL), "worker_id", id)


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
    return _one(list_jobs(limit=ALL), "job_id", id)


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
    rows = list_objects(filters=[("object_id", "=", id)], limit=ALL)
    return [row for row in rows if row["object_id"] == id]


def _one(rows: list[Row], key: str, id: str) -> Row | None:
    if not isinstance(id, str):
        raise RayStateApiException(f"{key}={id!r}: want the id as text")
    return next((row for row in rows if row[key] == id), None)

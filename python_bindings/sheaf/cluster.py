# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster is made of: nodes and resources."""

from __future__ import annotations

import os

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.ids import node_id
from sheaf.object_ref import ObjectRefGenerator

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


# Of nodes of Ray; those of Sheaf have no such ports and sockets, and say nothing of a death.
_UNUSED = {
    "ObjectManagerPort": 0,
    "ObjectStoreSocketName": "",
    "RayletSocketName": "",
    "MetricsAgentPort": 0,
    "DashboardAgentListenPort": 0,
    "RuntimeEnvAgentPort": 0,
    "DeathReason": 0,
    "DeathReasonMessage": "",
}
HEAD_RESOURCE = "node:__internal_head__"


def nodes() -> list[dict[str, Any]]:
    """Lists the nodes of the cluster, dead ones included.

    Returns:
        One dict a node: NodeID (56 hexadecimal digits), Alive, NodeManagerAddress,
        NodeManagerHostname, NodeManagerPort, NodeName, MetricsExportPort, Resources (amounts by
        name; bytes for memory; empty of dead nodes) and Labels. Further ones of Ray are 0 or "".

    Raises:
        RaySystemError: this process has joined no cluster.
        RayError: this process's node does not answer, or has ended.
    """
    from urllib.parse import urlsplit

    _need_session()
    rows = []
    for row in _core.nodes():
        address = _address(row)
        alive = row["state"] != "DEAD"
        rows.append(
            {
                "NodeID": node_id(row["node"]),
                "Alive": alive,
                "alive": alive,
                "NodeManagerAddress": address,
                "NodeManagerHostname": row["host_name"],
                "NodeManagerPort": int(row["address"].rpartition(":")[2] or 0)
                if ":" in row["address"]
                else 0,
                "NodeName": address,
                "MetricsExportPort": urlsplit(row["metrics_url"]).port,
                **_UNUSED,
                "Resources": _with_node_resource(row["total"], row) if alive else {},
                "Labels": row["labels"],
            }
        )
    return rows


_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def _need_session() -> None:
    """These questions start no node."""
    if not _core.is_initialized() and not _forked:  # A child is told that it is one.
        from sheaf.exceptions import RaySystemError  # For those who ask too early.

        raise RaySystemError("Ray has not been started yet: call sheaf.init() first")


def _address(row: dict[str, Any]) -> str:
    return row["address"].rpartition(":")[0] or row["address"] or "127.0.0.1"


def _with_node_resource(amounts: dict[str, float], row: dict[str, Any]) -> dict[str, float]:
    out = {**amounts, f"node:{_address(row)}": 1.0}
    if row["is_head"]:
        out[HEAD_RESOURCE] = 1.0
    return out


def node_named(resource: str) -> int | None:
    """The number of the node that has this resource, "node:ADDRESS" or "node:__internal_head__";
    None: all nodes have it.

    Each node has such a resource, so a call that asks for some of it runs there; there is always
    enough. Of several nodes at one address one is chosen. ValueError: no node has it.
    """
    import random

    alive = [row for row in _core.nodes() if row["state"] == "ALIVE"]
    fit = [row["node"] for row in alive if resource in _with_node_resource({}, row)]
    if not fit:
        there = sorted({name for row in alive for name in _with_node_resource({}, row)})
        raise ValueError(
            f"resources={{{resource!r}: ...}}: no node has it; there are {', '.join(there)}"
        )
    return None if len(fit) == len(alive) else random.choice(fit)


def actors(wanted: list[tuple[str, str]] | None = None) -> list[dict[str, Any]]:
    """The rows of all actors, each with its process, its job, and the namespace that it is found
    in. `wanted`: (key, value) that rows must have; nodes know actor_id, class_name, name and
    name_space."""
    rows = _core.actors(wanted or [])
    if all(row["detached"] for row in rows):
        return rows
    # Of the others the GCS knows what their creators know; the nodes know their processes.
    processes = {row["worker"]: row for row in _core.workers()}
    namespaces = {row["job"]: row["namespace"] for row in _core.jobs()}
    own = _core.context()
    for row in rows:
        if row["detached"]:
            continue
        process = processes.get(row["process"])
        creator = f"{int(row['actor_id'][:8], 16)}.{int(row['actor_id'][8:16], 16)}"
        if process is not None:
            row["pid"], row["job"] = process["pid"], process["job"]
        elif creator in processes:
            row["job"] = processes[creator]["job"]
        elif creator == f"{own['node']}.{own['process']}":
            row["job"] = own["job"]
        row["namespace"] = row["namespace"] or namespaces.get(row["job"], "")
    return rows


def _sum(kind: str) -> dict[str, float]:
    _need_session()
    total: dict[str, float] = {}
    for row in _core.nodes():
        if row["state"] == "ALIVE":
            for name, amount in _with_node_resource(row[kind], row).items():
                total[name] = total.get(name, 0.0) + amount
    return total


def cluster_resources() -> dict[str, float]:
    """Adds up what the living nodes of the cluster have.

    Returns:
        Amounts by resource: CPU and GPU as numbers of devices, memory and object_store_memory in
        bytes, "node:ADDRESS" 1 a node.

    Raises:
        RaySystemError: this process has joined no cluster.
        RayError: this process's node does not answer, or has ended.
    """
    return _sum("total")


def available_resources() -> dict[str, float]:
    """Adds up what of the cluster's resources is not in use now.

    Returns:
        Amounts by resource, as cluster_resources has them; what is in use whole is not named.

    Raises:
        RaySystemError: this process has joined no cluster.
        RayError: this process's node does not answer, or has ended.
    """
    return {name: amount for name, amount in _sum("available").items() if amount > 0}


def get_gpu_ids() -> list[int]:
    """Tells which GPUs the running task or actor holds.

    Returns:
        Their numbers on this node, from 0; an empty list in a driver.
    """
    return list(_core.context()["gpu_ids"])


def cancel(
    ray_waitable: ObjectRef[Any] | ObjectRefGenerator,
    *,
    force: bool = False,
    recursive: bool = True,
) -> None:
    """Cancels the call that makes a reference.

    A call that waits never starts; a task that runs is interrupted by KeyboardInterrupt, a
    coroutine by asyncio.CancelledError. Another method of an actor runs to its end, and may ask
    get_runtime_context().is_canceled(). Getting the reference raises TaskCancelledError, unless the
    call had ended.

    Args:
        ray_waitable: what the call gave: an ObjectRef or a generator of them.
        force: ends the worker that runs the call, whatever it does; without effect on calls of
            actors.
        recursive: cancels what the call itself has called, too.

    Raises:
        TypeError: `ray_waitable` is neither.
    """
    ref = ray_waitable
    if isinstance(ref, ObjectRefGenerator):
        ref = ref._stream
    if not isinstance(ref, ObjectRef):
        raise TypeError(
            f"ray.cancel() only supported for object refs: it takes the ObjectRef of a call, got "
            f"{ref!r}; to end an actor, use kill(handle)"
        )
    _core.cancel(ref, force, recursive)

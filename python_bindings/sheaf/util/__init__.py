# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tools on top of tasks and actors, under the names that Ray has."""

from __future__ import annotations

import importlib
from typing import Any

from sheaf import _core, cluster, lifecycle
from sheaf.object_ref import wait
from sheaf.runtime_context import get_runtime_context

_WHERE = {
    "ActorPool": "sheaf.util.actor_pool",
    "PlacementGroup": "sheaf.util.placement_group",
    "placement_group_table": "sheaf.util.placement_group",
    "remove_placement_group": "sheaf.util.placement_group",
    "get_placement_group": "sheaf.util.placement_group",
    "get_current_placement_group": "sheaf.util.placement_group",
    "register_serializer": "sheaf.util.serialization",
    "deregister_serializer": "sheaf.util.serialization",
    "Queue": "sheaf.util.queue",
    "tqdm": "sheaf.experimental.tqdm_ray",
    "inspect_serializability": "sheaf.util.check_serialize",
    "log_once": "sheaf.util.debug",
    "disable_log_once_globally": "sheaf.util.debug",
    "enable_periodic_logging": "sheaf.util.debug",
    "PublicAPI": "sheaf.util.annotations",
    "DeveloperAPI": "sheaf.util.annotations",
}
_MODULES = (
    "accelerators",
    "actor_pool",
    "annotations",
    "check_serialize",
    "client",
    "client_connect",
    "collective",
    "common",
    "dask",
    "debug",
    "debugpy",
    "helpers",
    "iter",
    "joblib",
    "metrics",
    "multiprocessing",
    "placement_group",
    "progress",
    "queue",
    "rpdb",
    "scheduling_strategies",
    "serialization",
    "spark",
    "state",
    "tpu",
    "tracing",
)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"sheaf.util.{name}")
    if name in ("pdb", "ray_debugpy"):  # As Ray calls them here.
        return importlib.import_module("sheaf.util." + ("rpdb" if name == "pdb" else "debugpy"))
    raise AttributeError(f"sheaf.util has no '{name}'")


def __dir__() -> list[str]:
    own = [name for name, value in globals().items() if callable(value) and name[0] != "_"]
    return sorted([*_WHERE, *_MODULES, "pdb", "ray_debugpy", *own])


def get_node_ip_address(address: str | None = None) -> str:
    """Tells at which address the cluster knows the node of this process.

    Args:
        address: without effect.

    Returns:
        An address without a port; 127.0.0.1 where the node listens on the loopback alone, and
        where this process has joined none.
    """
    del address
    if not _core.is_initialized():
        return "127.0.0.1"
    here = get_runtime_context().get_node_id()
    return next(
        (row["NodeManagerAddress"] for row in cluster.nodes() if row["NodeID"] == here), "127.0.0.1"
    )


def get_node_instance_id() -> str:
    """Returns the id of this node, as sheaf.nodes() names it."""
    return get_runtime_context().get_node_id()


def connect(
    conn_str: str,
    secure: bool = False,
    metadata: Any = None,
    connection_retries: int = 3,
    job_config: Any = None,
    namespace: str | None = None,
    *,
    ignore_version: bool = False,
    _credentials: Any = None,
    ray_init_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Joins a cluster, as sheaf.init(address) does.

    Args:
        conn_str: the address, as init takes it.
        secure: without effect.
        metadata: without effect.
        connection_retries: without effect.
        job_config: as init takes it.
        namespace: as init takes it.
        ignore_version: without effect.
        ray_init_kwargs: further arguments of init.

    Returns:
        What init returns.

    Raises:
        ConnectionError: no node answers there.
        RuntimeError: the process has joined a cluster already.
    """
    given = {"job_config": job_config, "namespace": namespace, **(ray_init_kwargs or {})}
    return lifecycle.init(conn_str, **given)


def disconnect() -> None:
    """Leaves the cluster, as sheaf.shutdown does."""
    lifecycle.shutdown()


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """Lists the names of the actors that are alive.

    Args:
        all_namespaces: those of all namespaces, not of this job's alone.

    Returns:
        Names; with `all_namespaces` dicts of "name" and "namespace".
    """
    own = _core.context()["namespace"]
    rows = [row for row in cluster.actors() if row["name"] and row["state"] != "DEAD"]
    if all_namespaces:
        return [{"name": row["name"], "namespace": row["namespace"]} for row in rows]
    return [row["name"] for row in rows if row["namespace"] == own]


def as_completed(
    refs: list[Any], *, chunk_size: int = 10, yield_obj_refs: bool = False, **kwargs: Any
) -> Any:
    """Gives values in the order in which they become ready.

    Args:
        refs: ObjectRefs, each once.
        chunk_size: without effect.
        yield_obj_refs: gives the references instead of their values.
        kwargs: for `wait`: fetch_local.

    Yields:
        A value, or a reference, at a time.

    Raises:
        RayTaskError: a call raised; it is an instance of what was raised, too.
    """
    del chunk_size
    left = list(refs)
    while left:
        ready, left = wait(left, num_returns=1, **kwargs)
        yield from ready if yield_obj_refs else _core.get(ready)


def map_unordered(
    fn: Any,
    items: Any,
    *,
    backpressure_size: int = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls a remote function for each item, and gives the results as they become ready.

    Args:
        fn: a remote function, or a method of an actor: `fn.remote(item)` is called.
        items: an iterable, which is taken from as calls end.
        backpressure_size: how many calls are under way at once.
        chunk_size: without effect.
        yield_obj_refs: gives the references instead of the results.
        kwargs: for `wait`: fetch_local.

    Yields:
        A result, or a reference, at a time.

    Raises:
        ValueError: backpressure_size is not positive.
        RayTaskError: a call raised; it is an instance of what was raised, too.
    """
    del chunk_size
    if backpressure_size <= 0:
        raise ValueError(f"backpressure_size={backpressure_size}: want a number from 1")
    pending: list[Any] = []
    for item in items:
        if len(pending) >= backpressure_size:
            ready, pending = wait(pending, num_returns=1, **kwargs)
            yield from ready if yield_obj_refs else _core.get(ready)
        pending.append(fn.remote(item))
    yield from as_completed(pending, yield_obj_refs=yield_obj_refs, **kwargs)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A scheduler for Dask graphs: `x.compute(scheduler=ray_dask_get)`, or `enable_dask_on_ray()`.
Needs the package dask."""

from __future__ import annotations

from typing import Any

from sheaf import _core
from sheaf.decorator import remote


def ray_dask_get(dsk: Any, keys: Any, **options: Any) -> Any:
    """Computes keys of a Dask graph, each task of it as a task of Sheaf.

    Args:
        dsk: the graph.
        keys: the keys that are wanted; lists of them may be nested.
        options: ray_remote_args, a dict of options of the tasks; others are Dask's own, and without
            effect.

    Returns:
        The values of `keys`, nested as they are.

    Raises:
        RayTaskError: a task raised; it is an instance of what was raised, too.
    """
    refs = _submit_all(dsk, options.get("ray_remote_args") or {})

    def fetch(wanted: Any) -> Any:
        return [fetch(one) for one in wanted] if isinstance(wanted, list) else values[wanted]

    names = list(dict.fromkeys(_flat(keys)))
    values = dict(zip(names, _core.get([refs[name] for name in names])))
    return fetch(keys)


ray_dask_get_sync = ray_dask_get


def enable_dask_on_ray(**config: Any) -> Any:
    """Makes Sheaf Dask's scheduler, for good or as a context manager.

    Args:
        config: more of dask.config.set.

    Returns:
        What dask.config.set returns: a context manager.

    Raises:
        ImportError: dask is not installed.
    """
    import dask

    return dask.config.set(scheduler=ray_dask_get, **config)


def disable_dask_on_ray() -> Any:
    """Lets Dask choose its scheduler itself again.

    Returns:
        What dask.config.set returns: a context manager.

    Raises:
        ImportError: dask is not installed.
    """
    import dask

    return dask.config.set(scheduler=None)


def _flat(keys: Any) -> Any:
    for key in keys if isinstance(keys, list) else [keys]:
        if isinstance(key, list):
            yield from _flat(key)
        else:
            yield key


def _submit_all(dsk: Any, remote_options: dict[str, Any]) -> dict[Any, Any]:
    from dask._task_spec import convert_legacy_graph
    from dask.order import order

    graph = convert_legacy_graph(
        dict(dsk.__dask_graph__() if hasattr(dsk, "__dask_graph__") else dsk)
    )
    refs: dict[Any, Any] = {}
    run = remote(_run).options(**remote_options) if remote_options else remote(_run)
    needs = {key: list(node.dependencies) for key, node in graph.items()}
    rank = order(graph)
    # Depth first by Dask's own order; a node whose inputs are not there yet waits for them on the
    # stack.
    for start in sorted(graph, key=rank.__getitem__):
        stack = [start]
        while stack:
            key = stack[-1]
            missing = [need for need in needs[key] if need not in refs]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if key not in refs:
                refs[key] = run.remote(graph[key], needs[key], *[refs[need] for need in needs[key]])
    return refs


def _run(node: Any, names: list[Any], *values: Any) -> Any:
    return node(dict(zip(names, values)))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an execution may have of the cluster, and how its tasks ask for it."""

from __future__ import annotations

from typing import Any

import sheaf
from sheaf.data import context as settings
from sheaf.data import tasks
from sheaf.data.operators import Operator
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["amounts", "budget_bytes", "limits", "remote_task"]


def limits(options: settings.ExecutionOptions) -> dict[str, float]:
    """What of the cluster's resources an execution may use."""
    total = dict(sheaf.cluster_resources())
    names = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
    for own, name in names.items():
        limit = options.resource_limits.limit(own)
        left = total.get(name, 0.0) - getattr(options.exclude_resources, own)
        total[name] = max(0.0, left if limit is None else min(left, limit))
    return total


def budget_bytes(options: settings.ExecutionOptions, total: dict[str, float]) -> int:
    """How many bytes of blocks may lie around."""
    half = total.get("object_store_memory", float(2 << 30)) / 2
    limit = options.resource_limits.limit("object_store_memory")
    return int(half if limit is None else min(half, limit))


def amounts(needs: Any) -> dict[str, Any]:
    """Resources as options of remote functions."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    out: dict[str, Any] = {"num_cpus": 0}
    for name, amount in needs.items():
        if name in own:
            out[own[name]] = amount
        else:
            out.setdefault("resources", {})[name] = amount
    return out


def remote_task(operator: Operator, node_id: str = "") -> Any:
    """The remote function of an operator's tasks; those that have something on a node run there, if
    it has room."""
    options = {"name": operator.name, **operator.run.options.remote, **amounts(operator.needs)}
    if node_id:
        there = NodeAffinitySchedulingStrategy(node_id, soft=True)
        options.setdefault("scheduling_strategy", there)
    if operator.run.spread:
        options.setdefault("scheduling_strategy", "SPREAD")
    return sheaf.remote(tasks.run_task).options(
        **options, num_returns="streaming", _generator_backpressure_num_objects=2
    )

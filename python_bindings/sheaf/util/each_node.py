# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Asking all nodes what only a process of theirs can see, by a small task on each."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf.decorator import remote
from sheaf.ids import node_id
from sheaf.object_ref import wait
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def answers(
    function: Callable[..., Any], *args: Any, timeout: float, only: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """What function(*args) gives on each node (`only`: on that one), by NodeID, this node first;
    and the NodeIDs of those that did not answer in `timeout` seconds or failed. Nodes without CPUs
    are not asked. The function must be importable in workers.
    """
    here = node_id(_core.context()["node"])
    out = {here: function(*args)} if only in (None, here) else {}
    others = [
        row["NodeID"]
        for row in cluster.nodes()
        if row["NodeID"] != here and row["Resources"].get("CPU") and only in (None, row["NodeID"])
    ]
    if not others:
        return out, []
    ask = remote(num_cpus=0, max_retries=0)(function)
    asked = {
        ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            *args
        ): node
        for node in others
    }
    ready, late = wait(list(asked), num_returns=len(asked), timeout=timeout)
    for ref in ready:
        try:
            out[asked[ref]] = _core.get(ref)
        except Exception:
            late.append(ref)
    return out, [asked[ref] for ref in late]

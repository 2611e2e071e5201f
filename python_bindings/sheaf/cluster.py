# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster is made of: nodes and resources."""

from __future__ import annotations

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.ids import node_id
from sheaf.object_ref import ObjectRefGenerator

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


def nodes() -> list[dict[str, Any]]:
    """One dict per node, dead ones included: NodeID, Alive, NodeManagerAddress, NodeManagerHostname, Resources, Labels."""
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
                "NodeName": address,
                "Resources": _with_node_resource(row["total"], row) if alive else {},
                "Labels": row["labels"],
            }
        )
    return rows


def _address(row: dict[str, Any]) -> str:
    return row["address"].rpartition(":")[0] or row["address"] or "127.0.0.1"


def _with_node_resource(amounts: dict[str, float], row: dict[str, Any]) -> dict[str, float]:
    return {**amounts, f"node:{_address(row)}": 1.0}


def _sum(kind: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for row in _core.nodes():
        if row["state"] == "ALIVE":
            for name, amount in _with_node_resource(row[kind], row).items():
                total[name] = total.get(name, 0.0) + amount
    return total


def cluster_resources() -> dict[str, float]:
    """The amounts of all nodes that are alive, by resource."""
    return _sum("total")


def available_resources() -> dict[str, float]:
    """What of them is not in use now; a resource that is in use whole is not named."""
    return {name: amount for name, amount in _sum("available").items() if amount > 0}


def get_gpu_ids() -> list[int]:
    """The GPUs that the running task or actor holds."""
    return list(_core.context()["gpu_ids"])


def cancel(ref: ObjectRef[Any] | ObjectRefGenerator, *, force: bool = False, recursive: bool = True) -> None:
    """Cancels the call that makes `ref`: one that waits never starts, one that runs is interrupted (KeyboardInterrupt).

    Its get raises TaskCancelledError, if it was not done already. force: end its worker. recursive: also what it has called.
    TypeError: `ref` is no reference.
    """
    if isinstance(ref, ObjectRefGenerator):
        ref = ref._stream
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"cancel takes the ObjectRef of a call, got {ref!r}; to end an actor, use kill(handle)")
    _core.cancel(ref, force, recursive)


def timeline(filename: str | None = None) -> Any:
    """The last calls of each worker, as a Chrome trace (chrome://tracing, Perfetto): written to a file, or as a list.

    A worker remembers some 4,000 calls; times are microseconds of this machine's monotonic clock, to which those of other nodes are
    brought by their wall clocks. A node that does not answer within seconds is left out, with a warning.
    """
    import json

    from sheaf import timeline_file

    events = timeline_file.events_of_all_nodes()
    if filename is None:
        return events
    with open(filename, "w") as file:
        json.dump(events, file)
    return None

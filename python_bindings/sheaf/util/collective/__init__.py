# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collective communication between actors: Ray's functions by group name, and `Group` objects.

Arrays are NumPy arrays, torch tensors on the CPU, or anything else with the buffer protocol, and
are changed in place. The ranks of a group may be on any nodes: those of one node share memory,
nodes talk over TCP. So the backends "shm" and "gloo" are one.
"""

from __future__ import annotations

from sheaf.util.collective.errors import (
    CollectiveError,
    CollectiveTimeoutError,
    GroupDeadError,
    MismatchError,
    RankLostError,
)
from sheaf.util.collective.group import Group
from sheaf.util.collective.named import (
    allgather,
    allreduce,
    barrier,
    broadcast,
    create_collective_group,
    destroy_collective_group,
    get_collective_group_size,
    get_group_handle,
    get_rank,
    gloo_available,
    init_collective_group,
    is_backend_available,
    is_group_initialized,
    nccl_available,
    recv,
    reduce,
    reducescatter,
    send,
)
from sheaf.util.collective.several_gpus import (
    allgather_multigpu,
    allreduce_multigpu,
    broadcast_multigpu,
    recv_multigpu,
    reduce_multigpu,
    reducescatter_multigpu,
    register_collective_backend,
    send_multigpu,
)
from sheaf.util.collective.types import Backend, ReduceOp

__all__ = [
    "Backend",
    "CollectiveError",
    "CollectiveTimeoutError",
    "Group",
    "GroupDeadError",
    "MismatchError",
    "RankLostError",
    "ReduceOp",
    "allgather",
    "allgather_multigpu",
    "allreduce",
    "allreduce_multigpu",
    "barrier",
    "broadcast",
    "broadcast_multigpu",
    "create_collective_group",
    "destroy_collective_group",
    "empty",
    "get_collective_group_size",
    "get_group_handle",
    "get_rank",
    "gloo_available",
    "init_collective_group",
    "is_backend_available",
    "is_group_initialized",
    "nccl_available",
    "recv",
    "recv_multigpu",
    "reduce",
    "reduce_multigpu",
    "reducescatter",
    "reducescatter_multigpu",
    "register_collective_backend",
    "send",
    "send_multigpu",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy


def empty(
    shape: int | tuple[int, ...], dtype: Any = "float32", group_name: str = "default"
) -> numpy.ndarray[Any, Any]:
    """Makes a NumPy array in the memory that the ranks of a group share (`Group.empty`).

    Args:
        shape: of the array.
        dtype: of its values, as NumPy takes it.
        group_name: of the group.

    Returns:
        The array; its values are undefined.

    Raises:
        MemoryError: the group's memory is used up.
        RuntimeError: this process is not in the group.
    """
    return get_group_handle(group_name).empty(shape, dtype)

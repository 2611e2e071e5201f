# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The groups of this process by name: what Ray has in ray.util.collective, with its signatures."""

from __future__ import annotations

import json
import threading

from sheaf import _core
from sheaf.util.collective import cuda_arrays
from sheaf.util.collective.arrays import is_tensor
from sheaf.util.collective.group import DEFAULT_TIMEOUT_S, Group
from sheaf.util.collective.types import Backend, ReduceOp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMESPACE = "sheaf.collective"  # Of the GCS's key-value store.

_groups: dict[str, Group] = {}
_lock = threading.Lock()


def nccl_available() -> bool:
    """Returns whether groups of CUDA arrays can be made: NCCL, a driver and a GPU are here."""
    return not cuda_arrays.why_not()


def gloo_available() -> bool:
    """Returns whether groups of CPU arrays can be made: always, through shared memory."""
    return True


def is_backend_available(backend: str) -> bool:
    """Returns whether groups with this backend can be made here.

    Args:
        backend: its name, in any case.

    Raises:
        ValueError: there is no such backend.
    """
    return nccl_available() if Backend(backend) == Backend.NCCL else True


def is_group_initialized(group_name: str = "default") -> bool:
    """Tells whether this process is in a group.

    Args:
        group_name: of the group.

    Returns:
        False also of a group that it was declared for and has not joined.
    """
    return group_name in _groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.SHM,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Makes this process a rank of a group; returns when all ranks have called it.

    Args:
        world_size: number of ranks.
        rank: of this process, from 0.
        backend: "shm", or "gloo", which is the same; "nccl" for CUDA arrays.
        group_name: within the job; a process may be in several groups.
        gloo_timeout: milliseconds that each operation, and this call, waits for the other ranks;
            from 0 down: 30,000.

    Raises:
        CollectiveTimeoutError: a rank did not come; the message says which, and why.
        RuntimeError: this process is in a living group of this name; or NCCL cannot be used here.
        ValueError: the name is empty, or a number does not fit.
    """
    if not group_name:
        raise ValueError("group_name is empty: want a name")
    with _lock:
        old = _groups.get(group_name)
        if old is not None and old.healthy():
            raise RuntimeError(
                f"this process is in the group {group_name!r} already: call "
                "destroy_collective_group first"
            )
        if old is not None:
            old.destroy()
            del _groups[group_name]
    timeout = gloo_timeout / 1000 if gloo_timeout > 0 else DEFAULT_TIMEOUT_S
    group = Group(world_size, rank, group_name, timeout=timeout, backend=backend)
    with _lock:
        _groups[group_name] = group


def create_collective_group(
    actors: list[Any],
    world_size: int,
    ranks: list[int],
    backend: str = Backend.SHM,
    group_name: str = "default",
    gloo_timeout: int = 30000,
) -> None:
    """Declares that actors are the ranks of a group. Each joins with its first operation on it.

    Args:
        actors: their handles.
        world_size: number of ranks.
        ranks: of the actors, in their order: each of 0 to world_size - 1 once.
        backend: "shm", or "gloo", which is the same; "nccl" for CUDA arrays.
        group_name: within the job.
        gloo_timeout: milliseconds that an operation waits for the other ranks.

    Raises:
        ValueError: the ranks do not fit, or there is no such backend.
        RuntimeError: a group of this name is declared already.
    """
    Backend(backend)
    if (
        len(actors) != len(ranks)
        or len(ranks) != world_size
        or sorted(ranks) != list(range(world_size))
    ):
        raise ValueError(
            f"ranks={ranks} for {len(actors)} actors and world_size={world_size}: "
            f"want each of 0 to {world_size - 1} once"
        )
    declared = {
        "ranks": {actor._actor_id.hex(): rank for actor, rank in zip(actors, ranks)},
        "world_size": world_size,
        "backend": backend,
        "timeout": gloo_timeout,
    }
    if not _core.key_put(
        _NAMESPACE, _declaration_key(group_name), json.dumps(declared).encode(), False, of_job=True
    ):
        raise RuntimeError(
            f"the group {group_name!r} is declared already: call destroy_collective_group first"
        )


def destroy_collective_group(group_name: str = "default") -> None:
    """Leaves a group; in the process that declared it, takes back the declaration.

    Ranks that still wait for this one get RankLostError.

    Args:
        group_name: of the group; of none, nothing happens.
    """
    with _lock:
        group = _groups.pop(group_name, None)
    if group is not None:
        group.destroy()
    elif _core.is_initialized():
        _core.key_delete(_NAMESPACE, _declaration_key(group_name))


def get_group_handle(group_name: str = "default") -> Group:
    """Gives the group of a name, which an actor that was declared a rank joins by this.

    Args:
        group_name: of the group.

    Returns:
        The group, as an object whose operations have more options.

    Raises:
        RuntimeError: this process is not in the group.
        CollectiveTimeoutError: it joins, and a rank did not come.
    """
    group = _groups.get(group_name)
    return group if group is not None else _join_declared(group_name)


def get_rank(group_name: str = "default") -> int:
    """Tells which rank this process is.

    Args:
        group_name: of the group.

    Returns:
        The rank, from 0; -1: the process is not in the group.
    """
    group = _groups.get(group_name)
    return group.rank if group is not None else -1


def get_collective_group_size(group_name: str = "default") -> int:
    """Tells how many ranks a group has.

    Args:
        group_name: of the group.

    Returns:
        The number; -1: this process is not in the group.
    """
    group = _groups.get(group_name)
    return group.world_size if group is not None else -1


def allreduce(tensor: Any, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replaces ``tensor`` by the reduction of the tensors of all ranks.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        op: how values of the ranks become one.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).all_reduce(tensor, op)


def barrier(group_name: str = "default") -> None:
    """Waits until every rank is here.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).barrier()


def reduce(
    tensor: Any, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Replaces ``tensor`` of one rank by the reduction of the tensors of all ranks.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        dst_rank: the rank that gets it; the tensors of the others stay.
        op: how values of the ranks become one.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: Any, src_rank: int = 0, group_name: str = "default") -> None:
    """Replaces ``tensor`` by that of one rank.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        src_rank: the rank that it comes from.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: list[Any], tensor: Any, group_name: str = "default") -> None:
    """Fills a list with the tensors of all ranks.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        tensor_list: one tensor for each rank, of the shape and type of ``tensor``.
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    group = get_group_handle(group_name)
    _check_list(tensor_list, tensor, group.world_size)
    whole = _scratch(group, tensor)
    group.all_gather(whole, tensor)
    for target, part in zip(tensor_list, whole):
        target[...] = part


def reducescatter(
    tensor: Any, tensor_list: list[Any], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Fills ``tensor`` with the reduction of what all ranks have for this rank.

    Every rank calls it, in the same order as the other operations of the group.

    Args:
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        tensor_list: one tensor for each rank, of the shape and type of ``tensor``.
        op: how values of the ranks become one.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    group = get_group_handle(group_name)
    _check_list(tensor_list, tensor, group.world_size)
    whole = _scratch(group, tensor)
    for part, source in zip(whole, tensor_list):
        part[...] = source
    group.reduce_scatter(tensor, whole, op)


def send(tensor: Any, dst_rank: int, group_name: str = "default") -> None:
    """Sends a tensor to a rank, which calls recv.

    Args:
        tensor: any shape, contiguous; a NumPy array, a torch tensor, or another buffer.
        dst_rank: the rank that gets it.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).send(tensor, dst_rank)


def recv(tensor: Any, src_rank: int, group_name: str = "default") -> None:
    """Fills a tensor with what a rank sends.

    Args:
        tensor: of the type and size of what is sent; contiguous.
        src_rank: the rank that sends.
        group_name: of the group, which an actor that was declared a rank joins by this.

    Raises:
        CollectiveError: a rank died, was late, or called something else. The group is dead then,
            and the tensors hold undefined values.
        ValueError: a tensor is not contiguous, or has a type or size that does not fit.
        RuntimeError: this process is not in the group.
    """
    get_group_handle(group_name).recv(tensor, src_rank)


def _declaration_key(group_name: str) -> str:
    return f"{_core.context()['job']}/{group_name}/declared"


def _join_declared(group_name: str) -> Group:
    context = _core.context()
    found = _core.key_get(_NAMESPACE, _declaration_key(group_name))
    declared = json.loads(found) if found is not None else {"ranks": {}}
    rank = declared["ranks"].get(context.get("actor", ""))
    if rank is None:
        raise RuntimeError(
            f"this process is not in the group {group_name!r}: call "
            "init_collective_group here first"
        )
    init_collective_group(
        declared["world_size"], rank, declared["backend"], group_name, declared["timeout"]
    )
    return _groups[group_name]


def _check_list(tensors: list[Any], tensor: Any, world_size: int) -> None:
    if len(tensors) != world_size:
        raise ValueError(
            f"a list of {len(tensors)} tensors in a group of {world_size}: want one for each rank"
        )
    if any(
        tuple(other.shape) != tuple(tensor.shape) or other.dtype != tensor.dtype
        for other in tensors
    ):
        raise ValueError(
            "the tensors of the list differ from the tensor of shape "
            f"{tuple(tensor.shape)} and type {tensor.dtype}"
        )


def _scratch(group: Group, tensor: Any) -> Any:
    """One array for a tensor like ``tensor`` of each rank."""
    shape = (group.world_size, *tensor.shape)
    if is_tensor(tensor):
        return tensor.new_empty(shape)
    import numpy

    return numpy.empty(shape, tensor.dtype)

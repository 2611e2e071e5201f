# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A backend "sheaf" for torch.distributed, over sheaf.util.collective: importing this module
registers it.

    import sheaf.torch
    torch.distributed.init_process_group("sheaf")

DistributedDataParallel, DistributedSampler and what else is built on torch.distributed run over it
unchanged, on CPU tensors. The process belongs to a cluster of Sheaf: it is one of `sheaf run
--nproc`, a worker of sheaf.train, or has called sheaf.init. ImportError: torch is not installed.
"""

from __future__ import annotations

import datetime
import inspect
import uuid
from collections.abc import Callable
from typing import Any

try:
    import torch
    import torch.distributed as distributed
except ImportError as error:
    raise ImportError("sheaf.torch needs PyTorch: pip install torch") from error

import sheaf
from sheaf.util.collective import Group
from sheaf.util.collective.torch_buckets import SharedBuckets
from sheaf.util.collective.torch_work import Futures, Work, all_of
from sheaf.util.collective.types import ReduceOp

_Tensors = list[Any]


def _base_class() -> Any:
    """What a backend derives from. New torch (2.15) looks for backends by device inside of a
    process group, which it makes itself: DeviceMesh, FSDP2 and pipelines find no other. In old
    torch (1.13) no Backend can be made from Python, and a backend is a process group."""
    backend = getattr(torch._C._distributed_c10d, "Backend", None)
    try:
        backend(0, 1)
    except TypeError:
        return distributed.ProcessGroup
    return backend


_Base = _base_class()
_OPS = {
    "SUM": ReduceOp.SUM,
    "AVG": ReduceOp.AVERAGE,
    "PRODUCT": ReduceOp.PRODUCT,
    "MIN": ReduceOp.MIN,
    "MAX": ReduceOp.MAX,
}
_REDUCED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
)


class ProcessGroupSheaf(_Base):  # type: ignore[misc]
    """The ranks of one process group. Operations are started in the order of their calls and run
    beside the program."""

    supports_coalescing = False  # Calls that are coalesced start one by one.

    def __init__(self, group: Group):
        super().__init__(group.rank, group.world_size)
        self._group = group
        self._futures = Futures()

    def __del__(self) -> None:
        if hasattr(self, "_futures"):
            self._futures.close()
            self._group.destroy()

    def getBackendName(self) -> str:
        return "sheaf"

    def name(self) -> str:
        return "sheaf"

    _get_backend_name = getBackendName

    if _Base is distributed.ProcessGroup:  # Else a group of torch's own has the name.

        def getGroupName(self) -> str:
            return str(distributed.distributed_c10d._world.pg_names[self])

        group_name = property(getGroupName)

    def abort(self) -> None:
        """Ends the operations of all ranks with an error."""
        self._group.abort()

    def shared_buckets(self) -> SharedBuckets:
        """A communication hook for one DistributedDataParallel over this group."""
        return SharedBuckets(self._group, self._futures.of)

    # Operations as torch.distributed calls them: lists of tensors of one device each, hence of one.

    def allreduce(self, tensors: _Tensors, opts: Any = None) -> Any:
        return self._each(
            tensors,
            lambda staged: self._group.all_reduce(
                staged, _reduction(opts), async_op=True, **_timeout(opts)
            ),
            True,
        )

    def allreduce_coalesced(self, tensors: _Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: _Tensors, opts: Any) -> Any:
        root = opts.rootRank
        return self._each(
            tensors,
            lambda staged: self._group.reduce(
                staged, root, _reduction(opts), async_op=True, **_timeout(opts)
            ),
            True,
        )

    def broadcast(self, tensors: _Tensors, opts: Any) -> Any:
        root = opts.rootRank
        return self._each(
            tensors,
            lambda staged: self._group.broadcast(staged, root, async_op=True, **_timeout(opts)),
            False,
        )

    def allgather(self, output_lists: list[_Tensors], inputs: _Tensors, opts: Any = None) -> Any:
        (outputs,), (own,) = output_lists, inputs
        return self._gather_into(outputs, own, opts)

    def allgather_coalesced(
        self, output_lists: list[_Tensors], inputs: _Tensors, opts: Any = None
    ) -> Any:
        works = [
            self._gather_into([outputs[index] for outputs in output_lists], own, opts)
            for index, own in enumerate(inputs)
        ]
        return all_of(works, self._futures)

    def _allgather_base(self, output: Any, own: Any, opts: Any = None) -> Any:
        return self._gather_into(
            list(output.view(-1).chunk(self._group.world_size)) if own.numel() else [],
            own,
            opts,
            [output],
        )

    def allgather_into_tensor_coalesced(
        self, outputs: _Tensors, inputs: _Tensors, opts: Any = None
    ) -> Any:
        return all_of(
            [self._allgather_base(output, own, opts) for output, own in zip(outputs, inputs)],
            self._futures,
        )

    def reduce_scatter(
        self, outputs: _Tensors, input_lists: list[_Tensors], opts: Any = None
    ) -> Any:
        (output,), (parts,) = outputs, input_lists
        return self._scatter_sum(output, torch.cat([part.reshape(-1) for part in parts]), opts)

    def _reduce_scatter_base(self, output: Any, whole: Any, opts: Any = None) -> Any:
        return self._scatter_sum(output, whole.reshape(-1), opts)

    def reduce_scatter_tensor_coalesced(
        self, outputs: _Tensors, inputs: _Tensors, opts: Any = None
    ) -> Any:
        return all_of(
            [
                self._reduce_scatter_base(output, whole, opts)
                for output, whole in zip(outputs, inputs)
            ],
            self._futures,
        )

    def alltoall_base(
        self,
        output: Any,
        whole: Any,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        if not output_sizes and not input_sizes:
            staged, source = _staged(output, False), _staged(whole, False)
            started = self._group.all_to_all(staged, source, async_op=True, **_timeout(opts))
            return Work([started], [output], self._futures, lambda: _bring(staged, output))
        return self.alltoall(list(output.split(output_sizes)), list(whole.split(input_sizes)), opts)

    def alltoall(self, outputs: _Tensors, inputs: _Tensors, opts: Any = None) -> Any:
        return self._exchange(dict(enumerate(inputs)), dict(enumerate(outputs)), outputs, opts)

    def gather(self, output_lists: list[_Tensors], inputs: _Tensors, opts: Any) -> Any:
        outputs = output_lists[0] if self._group.rank == opts.rootRank else []
        return self._exchange({opts.rootRank: inputs[0]}, dict(enumerate(outputs)), outputs, opts)

    def scatter(self, outputs: _Tensors, input_lists: list[_Tensors], opts: Any) -> Any:
        parts = input_lists[0] if self._group.rank == opts.rootRank else []
        return self._exchange(dict(enumerate(parts)), {opts.rootRank: outputs[0]}, outputs, opts)

    def send(self, tensors: _Tensors, to: int, tag: int = 0) -> Any:
        return self._exchange({to: tensors[0]}, {}, tensors, None)

    def recv(self, tensors: _Tensors, source: int, tag: int = 0) -> Any:
        return self._exchange({}, {source: tensors[0]}, tensors, None)

    def gather_single(self, output: Any, own: Any, opts: Any) -> Any:
        parts = (
            list(output.view(-1).chunk(self._group.world_size))
            if self._group.rank == opts.rootRank and output.numel()
            else []
        )
        return self._exchange(
            {opts.rootRank: own.reshape(-1)} if own.numel() else {},
            dict(enumerate(parts)),
            [output],
            opts,
        )

    # Their names since torch 2.15.
    all_gather_single, all_gather_single_coalesced = (
        _allgather_base,
        allgather_into_tensor_coalesced,
    )
    reduce_scatter_single, reduce_scatter_single_coalesced = (
        _reduce_scatter_base,
        reduce_scatter_tensor_coalesced,
    )
    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None) -> Any:
        return Work([self._group.barrier(async_op=True, **_timeout(opts))], [], self._futures)

    def _each(self, tensors: _Tensors, start: Callable[[Any], Any], reduces: bool) -> Any:
        return self._run(tensors, [_staged(tensor, reduces) for tensor in tensors], start)

    def _run(self, tensors: _Tensors, staged: list[Any], start: Callable[[Any], Any]) -> Any:
        def finish() -> None:
            for copy, tensor in zip(staged, tensors):
                _bring(copy, tensor)

        return Work([start(copy) for copy in staged], tensors, self._futures, finish)

    def _gather_into(
        self, outputs: _Tensors, own: Any, opts: Any, result: _Tensors | None = None
    ) -> Any:
        source = _staged(own, False)
        whole = source.new_empty(source.numel() * self._group.world_size)
        started = self._group.all_gather(whole, source, async_op=True, **_timeout(opts))

        def finish() -> None:
            for output, part in zip(outputs, whole.chunk(self._group.world_size)):
                _bring(part, output)

        return Work([started], result or outputs, self._futures, finish)

    def _scatter_sum(self, output: Any, whole: Any, opts: Any) -> Any:
        source, staged = _staged(whole, True), _staged(output, True)
        started = self._group.reduce_scatter(
            staged, source, _reduction(opts), async_op=True, **_timeout(opts)
        )
        return Work([started], [output], self._futures, lambda: _bring(staged, output))

    def _exchange(
        self, parts: dict[int, Any], outputs: dict[int, Any], result: _Tensors, opts: Any
    ) -> Any:
        """Sends parts to ranks and fills outputs from ranks; what goes to this rank itself is
        copied."""
        rank = self._group.rank
        if rank in parts and rank in outputs:
            outputs[rank].copy_(parts[rank])
        staged = {peer: _staged(output, False) for peer, output in outputs.items() if peer != rank}
        started = [
            self._group.send(_staged(part, False), peer, async_op=True, **_timeout(opts))
            for peer, part in parts.items()
            if peer != rank
        ]
        started += [
            self._group.recv(copy, peer, async_op=True, **_timeout(opts))
            for peer, copy in staged.items()
        ]

        def finish() -> None:
            for peer, copy in staged.items():
                _bring(copy, outputs[peer])

        return Work(started, result, self._futures, finish)


def share_gradients(model: Any) -> None:
    """Lets the gradients of a DistributedDataParallel lie in memory that the ranks share, where
    they are reduced without copies.

    Called by each rank before the first step; with gradient_as_bucket_view=True, else copies
    remain. Results are those of DDP alone up to rounding. TypeError: the model is none of DDP over
    a process group of the backend "sheaf", or has a hook already.
    """
    group = getattr(model, "process_group", None)
    if _Base is not distributed.ProcessGroup and isinstance(group, distributed.ProcessGroup):
        group = group._get_backend(torch.device("cpu"))
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel) or not isinstance(
        group, ProcessGroupSheaf
    ):
        raise TypeError(
            f"share_gradients({type(model).__name__}): want a "
            "DistributedDataParallel over a process group of the backend 'sheaf'"
        )
    model.register_comm_hook(None, group.shared_buckets().hook)


def _staged(tensor: Any, reduces: bool) -> Any:
    """The tensor itself, or a flat copy that a group can work on: contiguous, and of a type that it
    knows."""
    if tensor.is_sparse:
        raise NotImplementedError(
            "the backend 'sheaf' has no sparse tensors: call .to_dense() first"
        )
    flat = tensor.detach().contiguous().view(-1)
    if flat.dtype in _REDUCED:
        return flat
    if reduces:
        if flat.is_complex():
            return torch.view_as_real(flat).reshape(-1)
        return flat.to(torch.int32)
    return flat.view(torch.uint8)


def _bring(staged: Any, tensor: Any) -> None:
    """Writes a staged result into the tensor, if it is a copy."""
    if (
        staged.data_ptr() == tensor.data_ptr()
        and staged.numel() * staged.element_size() == tensor.numel() * tensor.element_size()
    ):
        return
    with torch.no_grad():
        if tensor.is_complex() and staged.dtype != torch.uint8:
            staged = torch.view_as_complex(staged.view(-1, 2))
        elif staged.dtype == torch.uint8 and tensor.dtype != torch.uint8:
            staged = staged.view(tensor.dtype)
        tensor.copy_(staged.view(tensor.shape))


def _reduction(opts: Any) -> ReduceOp:
    wanted = distributed.ReduceOp.SUM if opts is None else opts.reduceOp
    for name, op in _OPS.items():
        if wanted == getattr(distributed.ReduceOp, name, None):
            return op
    raise NotImplementedError(
        f"the backend 'sheaf' has no {wanted}: want SUM, AVG, PRODUCT, MIN or MAX"
    )


def _timeout(opts: Any) -> dict[str, float]:
    """What the call names; torch's mark for none is a negative time."""
    given = getattr(opts, "timeout", None)
    return (
        {"timeout": given.total_seconds()}
        if isinstance(given, datetime.timedelta) and given.total_seconds() > 0
        else {}
    )


def _create(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> ProcessGroupSheaf:
    if not sheaf.is_initialized():
        raise RuntimeError(
            "the backend 'sheaf' needs a process of a cluster: use `sheaf run "
            "--nproc`, sheaf.train, or call sheaf.init() first"
        )
    if rank == 0:
        store.set("sheaf/group", f"torch:{uuid.uuid4().hex}")
    name = store.get("sheaf/group").decode()
    seconds = timeout.total_seconds()
    return ProcessGroupSheaf(Group(size, rank, name, timeout=seconds, formation_timeout=seconds))


def _register() -> None:
    if "SHEAF" in getattr(distributed.Backend, "_plugins", {}):
        return
    takes_devices = "devices" in inspect.signature(distributed.Backend.register_backend).parameters
    distributed.Backend.register_backend(
        "sheaf", _create, **({"devices": ["cpu"]} if takes_devices else {})
    )


_register()

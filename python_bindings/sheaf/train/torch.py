# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch: a process group around the loops, and models and loaders prepared for it.
torch is asked for when it is used.

    def loop(config):
        model = sheaf.train.torch.prepare_model(Net())
        loader = DataLoader(data, batch_size=64, shuffle=True)
        loader = sheaf.train.torch.prepare_data_loader(loader)
        ...

    TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=4)).fit()
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import sheaf
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import RunConfig, ScalingConfig
from sheaf.train.backend import BackendConfig
from sheaf.train.context import TrainContext, get_context
from sheaf.train.datasets import DataConfig
from sheaf.train.trainer import DataParallelTrainer

_INIT_METHODS = ("tcp", "env")


@dataclasses.dataclass
class TorchConfig(BackendConfig):
    """The process group of the workers.

    Args:
        backend: "sheaf", "gloo", "nccl", or another that torch.distributed knows; None: nccl if the
            workers hold GPUs, else sheaf.
        init_method: "tcp", or "env" through MASTER_ADDR and so on.
        timeout_s: seconds that its operations wait.

    Raises:
        ValueError: a value does not fit.
    """

    backend: str | None = None
    init_method: str = "tcp"
    timeout_s: float = 1800

    def __post_init__(self) -> None:
        if self.init_method not in _INIT_METHODS:
            raise ValueError(
                f"init_method={self.init_method!r}: want one of {', '.join(_INIT_METHODS)}"
            )
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s={self.timeout_s!r}: want seconds, more than 0")

    def on_start(self, context: TrainContext) -> None:
        """Joins the process group; torch's variables are set for code that reads them.

        Args:
            context: the place of the worker in its group.
        """
        import os

        torch = _torch()
        rank, size = context.get_world_rank(), context.get_world_size()
        backend = self.backend
        if backend is None:
            backend = "nccl" if _has_gpu(torch) else "sheaf"
        if backend == "sheaf":
            import sheaf.torch  # noqa: F401  # Registers it.
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(size),
            LOCAL_RANK=str(context.get_local_rank()),
            LOCAL_WORLD_SIZE=str(context.get_local_world_size()),
            NODE_RANK=str(context.get_node_rank()),
            MASTER_ADDR=context.master_address,
            MASTER_PORT=str(context.master_port),
        )
        if _has_gpu(torch):
            torch.cuda.set_device(get_device())
        torch.distributed.init_process_group(
            backend,
            init_method="env://"
            if self.init_method == "env"
            else f"tcp://{context.master_address}:{context.master_port}",
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=self.timeout_s),
        )

    def on_stop(self, context: TrainContext) -> None:
        """Ends what waits in the process group, where its backend can.

        Args:
            context: not looked at.
        """
        torch = _torch()
        if torch.distributed.is_initialized():
            abort = getattr(torch.distributed.distributed_c10d._get_default_group(), "abort", None)
            if abort is not None:
                abort()

    def on_end(self, context: TrainContext) -> None:
        """Leaves the process group.

        Args:
            context: not looked at.
        """
        torch = _torch()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


class TorchTrainer(DataParallelTrainer):
    """A DataParallelTrainer whose workers are a process group of torch.distributed.

    Args:
        train_loop_per_worker: a function that takes the configuration, or nothing. Inside it see
            get_context, get_checkpoint, get_dataset_shard and report.
        train_loop_config: the configuration; a copy of it reaches each worker.
        torch_config: of the process group.
        scaling_config: how many workers there are, and what each holds; None: one, with a CPU.
        run_config: where results go, which checkpoints stay, how often it may fail.
        datasets: arrays, lists, dicts of arrays, iterables, or functions that make one, by name;
            split by rank.
        dataset_config: which of them are not, and how those of sheaf.data run.
        resume_from_checkpoint: what get_checkpoint gives at first.
        metadata: what TrainContext.get_metadata gives.

    Raises:
        ImportError: torch is not installed.
        TypeError: an argument has the wrong type; the text has the value and what is wanted.
        ValueError: the columns of a dataset differ in length.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
    ):
        _torch()
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
        )


def get_device() -> Any:
    """Returns this worker's torch.device: its first GPU, or the CPU if it holds none
    (ScalingConfig(use_gpu=True) gives each worker one)."""
    torch = _torch()
    # It sees the GPUs that it holds, and no others, from 0 upwards.
    return torch.device("cuda:0" if _has_gpu(torch) else "cpu")


def get_devices() -> list[Any]:
    """Returns the list of all of this worker's devices."""
    torch = _torch()
    if not _has_gpu(torch):
        return [get_device()]
    return [torch.device(f"cuda:{index}") for index in range(torch.cuda.device_count())]


def prepare_model(
    model: Any,
    move_to_device: bool = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Moves a model to this worker's device and, with more than one worker, wraps it for training.

    On the CPU, over the backend "sheaf", the gradients lie in memory that the workers of a node
    share (sheaf.torch.share_gradients); parallel_strategy_kwargs={"gradient_as_bucket_view": False}
    leaves them to DistributedDataParallel, and room for a communication hook of your own.

    Args:
        model: a torch.nn.Module.
        move_to_device: False leaves it where it is.
        parallel_strategy: "ddp" (DistributedDataParallel), "fsdp" (FullyShardedDataParallel), or
            None to leave it as it is.
        parallel_strategy_kwargs: further arguments of the wrapper.

    Returns:
        The model, or the wrapper around it.

    Raises:
        ValueError: there is no such strategy.
        RuntimeError: it is called outside of a training loop.
    """
    torch = _torch()
    if parallel_strategy not in ("ddp", "fsdp", None):
        raise ValueError(f"parallel_strategy={parallel_strategy!r}: want 'ddp', 'fsdp' or None")
    device = get_device()
    if move_to_device:
        model = model.to(device)
    if parallel_strategy is None or get_context().get_world_size() == 1:
        return model
    more = dict(parallel_strategy_kwargs or {})
    if parallel_strategy == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, **more)
    if device.type == "cuda":
        more.setdefault("device_ids", [device])
        return torch.nn.parallel.DistributedDataParallel(model, **more)
    shares = torch.distributed.get_backend(
        more.get("process_group")
    ) == "sheaf" and more.setdefault("gradient_as_bucket_view", True)
    prepared = torch.nn.parallel.DistributedDataParallel(model, **more)
    if shares:
        from sheaf.torch import share_gradients  # Which imports torch.

        share_gradients(prepared)
    return prepared


def prepare_data_loader(
    data_loader: Any,
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> Any:
    """Gives each worker its part of a loader's data, with batches on the worker's device.

    Call `loader.sampler.set_epoch(n)` for another order in each epoch, as with torch alone.

    Args:
        data_loader: a torch.utils.data.DataLoader.
        add_dist_sampler: False leaves all of the data to each worker.
        move_to_device: False leaves batches on the CPU.
        auto_transfer: without effect.

    Returns:
        A loader like it, with a DistributedSampler.

    Raises:
        TypeError: its dataset is an IterableDataset, which has no sampler.
        RuntimeError: it is called outside of a training loop.
    """
    del auto_transfer
    torch = _torch()
    context = get_context()
    sampled = torch.utils.data.DistributedSampler
    if (
        add_dist_sampler
        and context.get_world_size() > 1
        and not isinstance(data_loader.sampler, sampled)
    ):
        if isinstance(data_loader.dataset, torch.utils.data.IterableDataset):
            raise TypeError(
                "an IterableDataset has no sampler: split it by "
                "get_context().get_world_rank(), and pass add_dist_sampler=False"
            )
        shuffle = not isinstance(data_loader.sampler, torch.utils.data.SequentialSampler)
        names = (
            "num_workers",
            "collate_fn",
            "pin_memory",
            "drop_last",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
        )
        sampler = sampled(
            data_loader.dataset, context.get_world_size(), context.get_world_rank(), shuffle=shuffle
        )
        kept = {name: getattr(data_loader, name) for name in names}
        data_loader = torch.utils.data.DataLoader(
            data_loader.dataset, batch_size=data_loader.batch_size, sampler=sampler, **kept
        )
    device = get_device()
    return (
        _OnDevice(data_loader, device) if move_to_device and device.type != "cpu" else data_loader
    )


class _OnDevice:
    """A loader whose batches are on a device."""

    def __init__(self, loader: Any, device: Any):
        self._loader, self._device = loader, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield self._move(batch)

    def _move(self, value: Any) -> Any:
        if hasattr(value, "to"):
            return value.to(self._device, non_blocking=True)
        if isinstance(value, dict):
            return {name: self._move(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            moved = [self._move(item) for item in value]
            return (
                moved
                if isinstance(value, list)
                else type(value)(*moved)
                if hasattr(value, "_fields")
                else tuple(moved)
            )
        return value


def _has_gpu(torch: Any) -> bool:
    """Whether this worker holds a GPU that torch can use. Those of its node that it does not hold
    are others': a worker without use_gpu trains on the CPU."""
    return bool(sheaf.get_gpu_ids()) and torch.cuda.is_available()


def _torch() -> Any:
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        raise ImportError("sheaf.train.torch needs PyTorch: pip install torch") from error
    return torch

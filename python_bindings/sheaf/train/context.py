# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a training loop asks and says: its place in the group, the checkpoint to go on from, its
part of the data, its reports.

One loop runs in a worker at a time; all functions may be called from any thread of it. Outside of
one, and of a trial of sheaf.tune, they raise RuntimeError.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from sheaf.air import session, storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.train import datasets
from sheaf.train.errors import LoopStopped

if TYPE_CHECKING:
    from sheaf.util.collective import Group

_MOST_UNREAD = 1000  # Reports that the driver has not fetched; further ones wait.
_TOGETHER_S = 0.02  # Reports that nobody waits for are fetched together.


@dataclasses.dataclass(frozen=True)
class Storage:
    """Where the run's files are."""

    filesystem: Any
    path: str  # The run's folder.


@dataclasses.dataclass(frozen=True)
class Start:
    """What a worker is told when its loop starts. `epoch` counts how often the group was formed;
    all else holds for it alone."""

    epoch: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    experiment: str
    storage: Storage
    first_report: int  # The number of the first report of this epoch.
    checkpoint: Checkpoint | None
    checkpoints: tuple[tuple[Checkpoint, dict[str, Any]], ...]
    address: str  # Of rank 0, for a rendezvous of the backend's own.
    port: int
    group: str  # The name of the group for collectives; empty: there is none.
    datasets: dict[str, Any]
    metadata: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Report:
    """One call of report. `temporary`: the folder that its checkpoint was uploaded to, or None."""

    number: int
    metrics: dict[str, Any]
    temporary: str | None
    name: str | None


class Session:
    """The loop of one epoch: reports on their way to the driver, and what the driver has
    acknowledged. Thread-safe."""

    def __init__(self, start: Start):
        self.start = start
        self.checkpoint = start.checkpoint
        self.checkpoints = list(start.checkpoints)
        self._next = start.first_report
        self._committed = start.first_report  # All reports before it are.
        self._unread: collections.deque[Report] = collections.deque()
        self._changed = threading.Condition()
        self._urgent = False  # A report waits for the driver.
        self._stopped = False
        self._ended = False
        self._group: Group | None = None
        self._group_lock = threading.Lock()

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, delete: bool
    ) -> None:
        with self._changed:
            self._raise_if_stopped()
            number = self._next
            self._next += 1
        temporary = None
        if checkpoint is not None:
            temporary = self._upload(checkpoint, number)
            if delete:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
        with self._changed:
            self._unread.append(Report(number, metrics, temporary, name))
            if len(self._unread) == 1 or checkpoint is not None:
                self._urgent = self._urgent or checkpoint is not None
                self._changed.notify_all()
            # With a checkpoint it is a barrier: when it returns, the checkpoint is durable and all
            # ranks have reported.
            while (checkpoint is not None and self._committed <= number) or len(
                self._unread
            ) > _MOST_UNREAD:
                self._raise_if_stopped()
                self._changed.wait(1.0)
            self._raise_if_stopped()

    def _upload(self, checkpoint: Checkpoint, number: int) -> str:
        files = storage.files_of(self.start.storage.filesystem)
        temporary = f"{self.start.storage.path}/.incomplete-{number:06d}-{self.start.epoch}"
        files.make_folder(temporary)
        with checkpoint.as_directory() as local:
            files.upload(local, temporary)
        return temporary

    def _raise_if_stopped(self) -> None:
        if self._stopped:
            raise LoopStopped

    def group(self) -> Group:
        """See TrainContext.group."""
        with self._group_lock:
            if self._group is None:
                from sheaf.util.collective import Group  # For loops that use it.

                self._raise_if_stopped()
                self._group = Group(self.start.world_size, self.start.rank, self.start.group)
            return self._group

    def context(self) -> TrainContext:
        """See get_context."""
        return TrainContext(self)

    def dataset_shard(self, name: str) -> Any:
        """See get_dataset_shard."""
        start = self.start
        if name not in start.datasets:
            raise KeyError(
                f"there is no dataset {name!r}; the trainer got {sorted(start.datasets) or 'none'}"
            )
        return datasets.shard(start.datasets[name], start.rank, start.world_size)

    # The driver's side.

    def take(self, timeout_s: float) -> tuple[list[Report], bool]:
        """(reports not taken yet, whether the loop has ended behind them); waits until there is
        something."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._unread and not self._ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            soon = min(deadline, time.monotonic() + _TOGETHER_S)
            while not self._ended and not self._urgent and (left := soon - time.monotonic()) > 0:
                self._changed.wait(left)
            self._urgent = False
            reports = list(self._unread)
            self._unread.clear()
            self._changed.notify_all()
            return reports, self._ended

    def commit(self, number: int, checkpoint: Checkpoint | None, metrics: dict[str, Any]) -> None:
        """All reports up to this one are recorded."""
        with self._changed:
            if checkpoint is not None:
                self.checkpoint = checkpoint
                self.checkpoints.append((checkpoint, metrics))
            self._committed = max(self._committed, number + 1)
            self._changed.notify_all()

    def stop(self) -> None:
        """The next report, or the one that waits, raises LoopStopped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        group = self._group
        if group is not None:
            group.abort("the group of workers is formed anew")

    @property
    def stopped(self) -> bool:
        """Whether stop was called."""
        return self._stopped

    def end(self) -> None:
        """The loop is over."""
        group, self._group = self._group, None
        if group is not None:
            group.destroy()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _of_trials(name: str) -> DeprecationWarning:
    return DeprecationWarning(
        f"{name}() is for trials of sheaf.tune: give the loop what it needs of its trial in "
        "train_loop_config"
    )


class TrainContext:
    """The place of this worker in its group. Any thread of the worker may ask.

    Args:
        session: the loop that runs here.
    """

    def __init__(self, session: Session):
        self._session = session
        self._start = session.start

    def get_world_size(self) -> int:
        """Returns how many workers there are."""
        return self._start.world_size

    def get_world_rank(self) -> int:
        """Returns which one this is, from 0."""
        return self._start.rank

    def get_local_rank(self) -> int:
        """Returns which one of those on this node this is, from 0."""
        return self._start.local_rank

    def get_local_world_size(self) -> int:
        """Returns how many workers are on this node."""
        return self._start.local_world_size

    def get_node_rank(self) -> int:
        """Returns which of the group's nodes this is, from 0."""
        return self._start.node_rank

    def get_experiment_name(self) -> str:
        """Returns the name of the run."""
        return self._start.experiment

    def get_storage(self) -> Storage:
        """Returns where the run's files are: `filesystem` (None: this machine's) and `path`."""
        return self._start.storage

    def get_metadata(self) -> dict[str, Any]:
        """Returns what the trainer was given as metadata."""
        return dict(self._start.metadata)

    def get_trial_name(self) -> str:
        """Returns nothing: raises DeprecationWarning, as in Ray, for a worker is no trial."""
        raise _of_trials("get_trial_name")

    def get_trial_id(self) -> str:
        """Returns nothing: see get_trial_name."""
        raise _of_trials("get_trial_id")

    def get_trial_resources(self) -> Any:
        """Returns nothing: see get_trial_name."""
        raise _of_trials("get_trial_resources")

    def get_trial_dir(self) -> str:
        """Returns nothing: see get_trial_name."""
        raise _of_trials("get_trial_dir")

    @property
    def group(self) -> Group:
        """For collectives between the workers (sheaf.util.collective.Group), by rank; formed when
        each of them first asks for it.

        When a worker is lost, operations under way end with a CollectiveError, and the loops begin
        again with a new group.
        """
        return self._session.group()

    @property
    def epoch(self) -> int:
        """How often the group has been formed anew."""
        return self._start.epoch

    @property
    def master_address(self) -> str:
        """The address of rank 0's node, for a rendezvous of one's own; master_port is free
        there."""
        return self._start.address

    @property
    def master_port(self) -> int:
        """See master_address."""
        return self._start.port

    def __repr__(self) -> str:
        return (
            f"TrainContext(rank {self._start.rank} of {self._start.world_size}, epoch "
            f"{self._start.epoch})"
        )


def get_context() -> TrainContext:
    """Returns the place of this worker in its group.

    Raises:
        RuntimeError: it is called outside of a training loop.
    """
    context: TrainContext = session.current().context()
    return context


def get_checkpoint() -> Checkpoint | None:
    """Returns the newest durable checkpoint, to go on from; None: begin from the start.

    Raises:
        RuntimeError: it is called outside of a training loop.
    """
    return session.current().checkpoint


def get_all_reported_checkpoints() -> list[tuple[Checkpoint, dict[str, Any]]]:
    """Returns the durable checkpoints of the run with their metrics, oldest first. Some may be
    deleted by now (CheckpointConfig).

    Raises:
        RuntimeError: it is called outside of a training loop.
    """
    return list(getattr(session.current(), "checkpoints", ()))


def get_dataset_shard(dataset_name: str = "train") -> Any:
    """Gives this worker its part of a dataset of the trainer.

    Args:
        dataset_name: its name among the trainer's `datasets`.

    Returns:
        Of an array or list a contiguous part; sizes differ by at most one. Of a dict of arrays a
        dict of such parts. Of a dataset of sheaf.data a DataIterator, whose iter_batches gives one
        epoch; all workers get equal numbers of rows. Of any other iterable an iterator over each
        world_size-th item.

    Raises:
        KeyError: there is no such dataset.
        RuntimeError: it is called outside of a training loop.
    """
    return session.current().dataset_shard(dataset_name)


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    *,
    delete_local_checkpoint_after_upload: bool = False,
) -> None:
    """Reports a step. Each worker calls it equally often.

    Rank 0's metrics are recorded, each step once, also over restarts. With a checkpoint, on one
    rank or several (their files are merged), it returns when all ranks have reported this step and
    the checkpoint is durable.

    Args:
        metrics: values by name; scalars of NumPy and torch become numbers.
        checkpoint: of this step, a local folder, which may be deleted afterwards.
        checkpoint_dir_name: of its folder in the run's, instead of checkpoint_NNNNNN.
        delete_local_checkpoint_after_upload: deletes the local folder when it is copied.

    Raises:
        TypeError: `metrics` is no dict with names, or `checkpoint` no Checkpoint.
        ValueError: the name of a folder does not fit.
        OSError: the storage failed.
        RuntimeError: it is called outside of a training loop.
    """
    if not isinstance(metrics, dict) or not all(isinstance(name, str) for name in metrics):
        raise TypeError(
            f"metrics={metrics!r}: want a dict from names to values, as {{'loss': 0.1}}"
        )
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint={checkpoint!r}: want Checkpoint.from_directory(folder)")
    if checkpoint_dir_name is not None and (
        not checkpoint_dir_name
        or os.sep in checkpoint_dir_name
        or checkpoint_dir_name.startswith(".")
    ):
        raise ValueError(
            f"checkpoint_dir_name={checkpoint_dir_name!r}: want the name of a "
            "folder, not beginning with '.'"
        )
    session.current().report(
        {name: session.snapshot(value) for name, value in metrics.items()},
        checkpoint,
        checkpoint_dir_name,
        delete_local_checkpoint_after_upload,
    )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a function that runs in a trial of sheaf.tune, or in a worker of sheaf.train, says and asks,
whichever of the two it is. Outside of both all functions raise RuntimeError."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from sheaf.air.checkpoint import Checkpoint


class _Session(Protocol):
    """What runs here: each library has its own."""

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, delete: bool
    ) -> None:
        """Reports a step; `name`: of the folder of its checkpoint; `delete`: the local folder goes
        when it is copied."""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What to go on from."""

    def context(self) -> Any:
        """What get_context of the library gives."""

    def dataset_shard(self, name: str) -> Any:
        """The part of a dataset that belongs here."""


def snapshot(value: Any) -> Any:
    """What is reported, as it is now: who reported it goes on to change it.

    Args:
        value: what a user reports, or a part of it.

    Returns:
        A copy. Scalars of NumPy and torch become numbers: nobody shall need these packages to read
        them.
    """
    if type(value) in (int, float, str, bool, type(None)):
        return value
    if type(value) is dict:
        return {name: snapshot(one) for name, one in value.items()}
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    try:
        return copy.deepcopy(value)
    except Exception:  # What cannot be copied is what it will be when it is sent.
        return value


_session: _Session | None = None  # Of this process, of all its threads.
_endings: list[Callable[[bool], None]] = []


def set_session(session: _Session | None) -> None:
    """Called when what runs in this process begins, or ends.

    Args:
        session: its session; None: it ends.
    """
    global _session
    _session = session


def at_end(ending: Callable[[bool], None]) -> None:
    """Has something done in this process when what runs here is over: it may be killed right
    afterwards, without what atexit knows.

    Args:
        ending: is called with whether it has failed.
    """
    _endings.append(ending)


def run_endings(failed: bool) -> None:
    """Does what at_end was told, once, the last first. Called by what runs functions.

    Args:
        failed: whether what runs here has.
    """
    while _endings:
        _endings.pop()(failed)


def find() -> _Session | None:
    """Returns the session of what runs here, or None."""
    return _session


def current() -> _Session:
    """Returns the session of what runs here.

    Raises:
        RuntimeError: nothing does.
    """
    if _session is None:
        raise RuntimeError(
            "this is for what runs in a trial of sheaf.tune or a worker of sheaf.train: call it "
            "inside the train_loop_per_worker of a trainer, or the function of a Tuner"
        )
    return _session


def report(metrics: dict[str, Any], *, checkpoint: Checkpoint | None = None) -> None:
    """Reports a step.

    Args:
        metrics: values by name.
        checkpoint: of this step, a local folder.

    Raises:
        RuntimeError: it is called outside of a trial or training loop.
    """
    current().report(metrics, checkpoint, None, False)


def get_checkpoint() -> Checkpoint | None:
    """Returns the checkpoint to go on from; None: begin from the start.

    Raises:
        RuntimeError: it is called outside of a trial or training loop.
    """
    return current().checkpoint


def get_dataset_shard(dataset_name: str = "train") -> Any:
    """Gives the part of a dataset that belongs here.

    Args:
        dataset_name: its name among the trainer's datasets.

    Returns:
        The part: see sheaf.train.get_dataset_shard.

    Raises:
        KeyError: there is no such dataset.
        RuntimeError: it is called outside of a training loop.
    """
    return current().dataset_shard(dataset_name)


def get_experiment_name() -> str:
    """Returns the name of the experiment, or of the run."""
    return str(current().context().get_experiment_name())


def get_trial_name() -> str | None:
    """Returns the name of the trial; None, with a warning, in a training loop."""
    return _of_trial("get_trial_name")


def get_trial_id() -> str | None:
    """Returns the id of the trial; None, with a warning, in a training loop."""
    return _of_trial("get_trial_id")


def get_trial_resources() -> Any:
    """Returns the PlacementGroupFactory of the trial; None, with a warning, in a training loop."""
    return _of_trial("get_trial_resources")


def get_trial_dir() -> str | None:
    """Returns the path of the trial's folder; None, with a warning, in a training loop."""
    return _of_trial("get_trial_dir")


def _of_trial(name: str) -> Any:
    """What the trial answers. A training loop has no trial, and shall not fail for a value that it
    only prints."""
    try:
        return getattr(current().context(), name)()
    except DeprecationWarning:
        warnings.warn(f"{name}(): a training loop has no trial: it is None", stacklevel=3)
        return None


def get_world_size() -> int:
    """Returns how many workers there are: 1 in a trial."""
    return int(current().context().get_world_size())


def get_world_rank() -> int:
    """Returns which of them this is: 0 in a trial."""
    return int(current().context().get_world_rank())


def get_local_rank() -> int:
    """Returns which of those on this node this is: 0 in a trial."""
    return int(current().context().get_local_rank())


def get_local_world_size() -> int:
    """Returns how many workers are on this node: 1 in a trial."""
    return int(current().context().get_local_world_size())


def get_node_rank() -> int:
    """Returns which of the group's nodes this is: 0 in a trial."""
    return int(current().context().get_node_rank())

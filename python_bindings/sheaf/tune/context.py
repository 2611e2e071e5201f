# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a function in a trial says and asks."""

from __future__ import annotations

from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.execution.placement_groups import PlacementGroupFactory
from sheaf.tune.trainable.messages import TrialSpec


class TuneContext:
    """The trial that runs here.

    Args:
        spec: what its process was told.
    """

    def __init__(self, spec: TrialSpec):
        self._spec = spec

    def get_experiment_name(self) -> str:
        """Returns the name of the experiment."""
        return self._spec.experiment

    def get_trial_name(self) -> str:
        """Returns the name of the trial."""
        return self._spec.name

    def get_trial_id(self) -> str:
        """Returns the id of the trial."""
        return self._spec.trial_id

    def get_trial_resources(self) -> PlacementGroupFactory:
        """Returns what the trial holds."""
        factory: PlacementGroupFactory = self._spec.resources
        return factory

    def get_trial_dir(self) -> str:
        """Returns the path of the trial's folder."""
        return self._spec.path

    def get_storage(self) -> Any:
        """Returns where the trial's files are: `filesystem` (None: this machine's) and `path`."""
        return self._spec

    def get_metadata(self) -> dict[str, Any]:
        """Returns nothing: a trial has no metadata."""
        return {}

    def get_world_size(self) -> int:
        """Returns 1: a trial has no workers."""
        return 1

    def get_world_rank(self) -> int:
        """Returns 0: a trial has no workers."""
        return 0

    def get_local_rank(self) -> int:
        """Returns 0: a trial has no workers."""
        return 0

    def get_local_world_size(self) -> int:
        """Returns 1: a trial has no workers."""
        return 1

    def get_node_rank(self) -> int:
        """Returns 0: a trial has no workers."""
        return 0

    def __repr__(self) -> str:
        return f"TuneContext({self._spec.name})"


def get_context() -> Any:
    """Returns the trial that runs here.

    Raises:
        RuntimeError: it is called outside of a trial.
    """
    return session.current().context()


def get_checkpoint() -> Checkpoint | None:
    """Returns the checkpoint to go on from; None: begin from the start.

    Raises:
        RuntimeError: it is called outside of a trial.
    """
    return session.current().checkpoint


def report(
    metrics: dict[str, Any] | None = None, checkpoint: Checkpoint | None = None, **more: Any
) -> None:
    """Reports a step of the trial. When a scheduler or a criterion ends the trial, it does not
    return: the function ends here.

    Args:
        metrics: values by name; scalars of NumPy and torch become numbers. With `"done": True` it
            is the last.
        checkpoint: of this step, a local folder, which may be deleted afterwards.
        **more: further values by name.

    Raises:
        TypeError: `metrics` is no dict with names, or `checkpoint` no Checkpoint.
        OSError: the storage failed.
        RuntimeError: it is called outside of a trial.
    """
    if metrics is None and not more:
        raise TypeError("report(): want a dict from names to values, as {'loss': 0.1}")
    if metrics is not None and not isinstance(metrics, dict):
        raise TypeError(f"metrics={metrics!r}: want a dict from names to values")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"checkpoint={checkpoint!r}: want Checkpoint.from_directory(folder)")
    said = {**(metrics or {}), **more}
    session.current().report(
        {name: session.snapshot(value) for name, value in said.items()}, checkpoint, None, False
    )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trainables that are classes: derive from Trainable and override what is wanted."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.tune import result as fields
from sheaf.tune.execution.placement_groups import PlacementGroupFactory

DICT_CHECKPOINT_FILE = "_dict_checkpoint.pkl"  # What save_checkpoint returns, where that is a dict.


class Trainable:
    """What a trial runs, step by step, in a process of its own: derive from it, and override
    `setup` and `step`, and `save_checkpoint` and `load_checkpoint` for trials that pause or begin
    again.

    Args:
        config: the trial's configuration.
        storage: not looked at.
    """

    _spec: Any = None  # In a trial: its TrialSpec, from before __init__.

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None):
        self.config = config or {}
        self._iteration = 0
        self._time_total = 0.0
        self.setup(dict(self.config))

    def setup(self, config: dict[str, Any]) -> None:
        """Called once, before the first step.

        Args:
            config: the trial's configuration.
        """

    def step(self) -> dict[str, Any]:
        """Does one step. Override it.

        Returns:
            The result: values by name; with {"done": True} it is the last.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step(): override it")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Writes what load_checkpoint needs. Override it.

        Args:
            checkpoint_dir: a new folder for it.

        Returns:
            None; or a dict that can be pickled, which is stored in the folder's place.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no save_checkpoint(): override it, so that trials can pause"
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Goes on from what save_checkpoint has written. Override it.

        Args:
            checkpoint: the path of the folder, or the dict.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no load_checkpoint(): override it, so that trials can go on"
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Makes this object as good as a new one, for another trial (TuneConfig.reuse_actors).

        Args:
            new_config: that trial's configuration.

        Returns:
            Whether it did; False: a new object is made.
        """
        return False

    def cleanup(self) -> None:
        """Called when the trial is over."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called with each result, in the trial's process.

        Args:
            result: what step returned.
        """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """Tells what a trial holds, where it is not told otherwise.

        Args:
            config: the trial's configuration.

        Returns:
            The factory; None: one CPU.
        """
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """Says how to change what it holds.

        Args:
            config: the trial's configuration.

        Returns:
            Words.
        """
        return ""

    def train(self) -> dict[str, Any]:
        """Does one step.

        Returns:
            The result, with `training_iteration`.

        Raises:
            TypeError: step returned no dict.
        """
        result = self.step()
        if not isinstance(result, Mapping):
            raise TypeError(f"{type(self).__name__}.step() returned {result!r}: want a dict")
        self._iteration += 1
        result = dict(result)
        self.log_result(result)
        result.setdefault(fields.TRAINING_ITERATION, self._iteration)
        return result

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Saves into a folder.

        Args:
            checkpoint_dir: the folder; None: a new temporary one.

        Returns:
            The checkpoint.
        """
        import tempfile

        folder = checkpoint_dir or tempfile.mkdtemp(prefix="sheaf-checkpoint-")
        os.makedirs(folder, exist_ok=True)
        state = self.save_checkpoint(folder)
        if isinstance(state, dict):
            with open(os.path.join(folder, DICT_CHECKPOINT_FILE), "wb") as file:
                pickle.dump(state, file)
        checkpoint = Checkpoint.from_directory(folder)
        checkpoint.set_metadata({fields.TRAINING_ITERATION: self._iteration})
        return checkpoint

    def restore(self, checkpoint_path: str | Checkpoint) -> None:
        """Goes on from what `save` has written.

        Args:
            checkpoint_path: the checkpoint, or the path of its folder.
        """
        given = checkpoint_path
        checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(given)
        with checkpoint.as_directory() as folder:
            path = os.path.join(folder, DICT_CHECKPOINT_FILE)
            if os.path.exists(path):
                with open(path, "rb") as file:
                    self.load_checkpoint(pickle.load(file))
            else:
                self.load_checkpoint(folder)
        self._iteration = checkpoint.get_metadata().get(fields.TRAINING_ITERATION, 0)

    def reset(self, new_config: dict[str, Any]) -> bool:
        """Makes it as good as a new one for another configuration.

        Args:
            new_config: the configuration.

        Returns:
            Whether reset_config did it.
        """
        if not self.reset_config(new_config):
            return False
        self.config = new_config
        self._iteration, self._time_total = 0, 0.0
        return True

    def stop(self) -> None:
        """Ends it."""
        self.cleanup()

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration."""
        return self.config

    @property
    def logdir(self) -> str:
        """The path of the trial's folder."""
        return str(self._spec.path) if self._spec else os.getcwd()

    @property
    def trial_name(self) -> str:
        """The trial's name."""
        return str(self._spec.name) if self._spec else "default"

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        return str(self._spec.trial_id) if self._spec else "default"

    @property
    def trial_resources(self) -> PlacementGroupFactory | None:
        """What the trial holds."""
        return self._spec.resources if self._spec else None

    @property
    def iteration(self) -> int:
        """How many steps have been done."""
        return self._iteration

    @property
    def training_iteration(self) -> int:
        """How many steps have been done."""
        return self._iteration

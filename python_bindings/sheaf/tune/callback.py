# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is done beside an experiment, in the process of its controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sheaf.air.checkpoint import Checkpoint
    from sheaf.tune.experiment.trial import Trial


class Callback:
    """What is done beside an experiment: derive from it and override what is wanted. Its methods
    are called by one thread; what they raise ends the experiment, whose state is kept,
    and is the __cause__ of its TuneError."""

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Called once, before all others.

        Args:
            stop: what ends trials.
            num_samples: how many samples there will be.
            total_num_samples: how many trials there will be.
            **info: more, some day.
        """

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called before the controller acts.

        Args:
            iteration: how often it has.
            trials: all so far.
            **info: more, some day.
        """

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called when the controller has acted.

        Args:
            iteration: how often it has.
            trials: all so far.
            **info: more, some day.
        """

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial begins, or begins again.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial goes on from a checkpoint.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has saved.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Called with each result.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: whose it is.
            result: it may be changed here.
            **info: more, some day.
        """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial has ended well.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial has failed and will begin again.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Called when a trial has failed for good.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """Called when a checkpoint is complete.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: whose it is.
            checkpoint: it.
            **info: more, some day.
        """

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Called when all is over.

        Args:
            trials: all.
            **info: more, some day.
        """

    def get_state(self) -> dict[str, Any] | None:
        """Returns what set_state wants when an experiment is taken up again, or None."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where another was.

        Args:
            state: what its get_state returned.
        """


_EVENTS = (
    "on_step_begin",
    "on_step_end",
    "on_trial_start",
    "on_trial_restore",
    "on_trial_save",
    "on_trial_result",
    "on_trial_complete",
    "on_trial_recover",
    "on_trial_error",
    "on_checkpoint",
    "on_experiment_end",
)


class CallbackList:
    """Several, called in order; of each only the methods that it overrides. Not thread-safe."""

    def __init__(self, callbacks: Sequence[Callback] = ()):
        self.all = list(callbacks)
        for name in _EVENTS:
            base = getattr(Callback, name)
            wanted = [
                getattr(one, name)
                for one in self.all
                if getattr(type(one), name, base) is not base or name in vars(one)
            ]
            setattr(self, name, _each(wanted))

    def setup(self, **info: Any) -> None:
        for one in self.all:
            one.setup(**info)

    def __getattr__(self, name: str) -> Any:  # For type checkers: __init__ sets them.
        raise AttributeError(name)


def _each(methods: list[Any]) -> Any:
    if len(methods) == 1:
        return methods[0]

    def call(**info: Any) -> None:
        for method in methods:
            method(**info)

    return call

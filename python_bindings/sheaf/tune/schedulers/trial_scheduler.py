# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What all schedulers have in common, and the one that stops nothing.

A scheduler is told what trials report and answers with what becomes of them. It is called by one
thread, the controller's, and may call the controller back. Its own state names trials by their ids
alone, so that it outlives the process.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

from sheaf.tune.result_keys import DEFAULT_METRIC

PENDING = "PENDING"
RUNNING = "RUNNING"
PAUSED = "PAUSED"
TERMINATED = "TERMINATED"
ERROR = "ERROR"


class TrialScheduler:
    """The interface of schedulers. Derive from it, or from FIFOScheduler."""

    CONTINUE = "CONTINUE"  # The trial goes on.
    PAUSE = "PAUSE"  # It makes room, with a checkpoint, until it is chosen again.
    STOP = "STOP"  # It is over.
    NOOP = "NOOP"  # The scheduler has seen to it itself.

    _metric: str | None = None
    _supports_buffered_results = True

    def __init__(self) -> None:
        """Nothing is known yet."""

    @property
    def metric(self) -> str | None:
        """What of a result is looked at."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether trials may go on before the scheduler has answered."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes the objective of an experiment.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            spec: more of the experiment.

        Returns:
            Whether it is taken; False: the scheduler has one of its own.
        """
        if self._metric and metric:
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        return True

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Called for each new trial, and for each old one after set_state().

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        raise NotImplementedError

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Called when a trial has failed for good.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        raise NotImplementedError

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Decides what becomes of a trial.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE, PAUSE, STOP or NOOP.
        """
        raise NotImplementedError

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Called when a trial is over by itself.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """
        raise NotImplementedError

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Called when a trial is stopped while it does not run.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        raise NotImplementedError

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Chooses who is next.

        Args:
            tune_controller: the controller.

        Returns:
            A trial that is pending or paused; None: none shall run now.
        """
        raise NotImplementedError

    def debug_string(self) -> str:
        """Returns a few lines about the state, for progress reports."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Writes the state.

        Args:
            checkpoint_path: the file.
        """
        raise NotImplementedError

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_path: what its save() wrote.
        """
        raise NotImplementedError


class FIFOScheduler(TrialScheduler):
    """Runs trials in their order, each to its end."""

    _STATE: ClassVar[tuple[str, ...]] = ()  # Fields that get_state() keeps.

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Does nothing.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Does nothing.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Lets the trial go on.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE.
        """
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Does nothing.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Does nothing.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Chooses the first that is pending, else the first that is paused.

        Args:
            tune_controller: the controller.

        Returns:
            The trial; None: there is none.
        """
        for status in (PENDING, PAUSED):
            for trial in tune_controller.get_live_trials():
                if trial.status == status:
                    return trial
        return None

    def debug_string(self) -> str:
        """Returns a line about the state."""
        return "Using FIFO scheduling algorithm."

    def get_state(self) -> dict[str, Any]:
        """Returns what set_state() wants later, picklable."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was. on_trial_add() of a trial that it knew adds nothing then.

        Args:
            state: what its get_state() returned.
        """
        vars(self).update(copy.deepcopy(state))

    def save(self, checkpoint_path: str) -> None:
        """Writes the state.

        Args:
            checkpoint_path: the file.
        """
        with open(checkpoint_path, "wb") as file:
            pickle.dump(self.get_state(), file)

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_path: what its save() wrote.
        """
        with open(checkpoint_path, "rb") as file:
            self.set_state(pickle.load(file))


class ObjectiveScheduler(FIFOScheduler):
    """The base of schedulers that compare trials.

    Args:
        metric: what of a result is looked at; None: the experiment's.
        mode: "min" or "max"; None: the experiment's.
    """

    def __init__(self, metric: str | None, mode: str | None) -> None:
        super().__init__()
        if mode:
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        self._metric = metric
        self._mode = mode

    @property
    def _metric_op(self) -> float:
        """What a metric is multiplied with so that more is better; 0: the mode is not known."""
        return {"max": 1.0, "min": -1.0}.get(self._mode or "", 0.0)

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Takes the objective of an experiment.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            spec: more of the experiment.

        Returns:
            Whether it is taken; False: the scheduler has one of its own.
        """
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        if self._mode:
            self._metric = self._metric or DEFAULT_METRIC
        return True

    def require_objective(self) -> None:
        """Checks that it can compare trials.

        Raises:
            ValueError: neither it nor the experiment has a metric and a mode.
        """
        if not self._metric or not self._metric_op:
            raise ValueError(
                f"{type(self).__name__} has been instantiated without a valid `metric` "
                f"({self._metric}) or `mode` ({self._mode}) parameter. Either pass these "
                "parameters when instantiating the scheduler, or pass them as parameters to "
                "`tune.TuneConfig()`"
            )

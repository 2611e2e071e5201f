# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""HyperBand (Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
2018): brackets of successive halving, from many trials for a short time to few for a long one."""

from __future__ import annotations

from typing import Any

from sheaf.tune.error import TuneError
from sheaf.tune.schedulers.hyperband_bracket import Bracket
from sheaf.tune.schedulers.trial_scheduler import (
    ERROR,
    PAUSED,
    PENDING,
    RUNNING,
    TERMINATED,
    ObjectiveScheduler,
)


class HyperBandScheduler(ObjectiveScheduler):
    """Pauses trials at milestones until the others of their bracket have come, then stops the
    worst.

    Args:
        time_attr: what of a result counts as time.
        metric: what of a result is looked at.
        mode: "min" or "max".
        max_t: the time when a trial is over, in units of time_attr.
        reduction_factor: 1 / reduction_factor of the trials goes on after a milestone.
        stop_last_trials: whether trials are stopped at max_t.
    """

    _supports_buffered_results = False
    _STATE = ("_bands", "_bracket_of", "_band", "_filling", "_num_stopped")

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: int = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        import numpy as np

        assert max_t > 0, f"max_t must be above 0, not {max_t}"
        super().__init__(metric, mode)
        self._time_attr = time_attr
        self._max_t = max_t
        self._eta = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._brackets_of_band = int(np.round(np.log(max_t) / np.log(reduction_factor))) + 1
        # A band has one bracket of each kind; None stands for one whose trials would run no time.
        self._bands: list[list[Bracket | None]] = [[]]
        self._bracket_of: dict[str, tuple[int, int]] = {}  # Band and bracket, by trial.
        self._band = 0
        self._filling: int | None = None  # The bracket of the band that new trials enter.
        self._num_stopped = 0
        self._trials: dict[str, Any] = {}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Puts a trial into the bracket that is being filled, or into a new one.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            ValueError: there is no metric or no mode.
        """
        self.require_objective()
        self._trials[trial.trial_id] = trial
        if trial.trial_id in self._bracket_of:
            return
        bracket = None if self._filling is None else self._bands[self._band][self._filling]
        if bracket is None or bracket.filled():
            bracket = self._open_bracket()
        bracket.add_trial(trial.trial_id)
        assert self._filling is not None
        self._bracket_of[trial.trial_id] = (self._band, self._filling)

    def _open_bracket(self) -> Bracket:
        bracket = None
        while bracket is None:
            if len(self._bands[self._band]) == self._brackets_of_band:
                self._bands.append([])
                self._band += 1
            band = self._bands[self._band]
            halvings = self._halvings_of(len(band))
            bracket = self._create_bracket(halvings)
            band.append(bracket)
        self._filling = len(self._bands[self._band]) - 1
        return bracket

    def _halvings_of(self, number: int) -> int:
        """How often the bracket of this number in its band is halved."""
        return number

    def _create_bracket(self, halvings: int) -> Bracket | None:
        import numpy as np

        size = int(np.ceil(self._brackets_of_band / (halvings + 1) * self._eta**halvings))
        first = int(self._max_t * self._eta ** (-halvings))
        if first == 0:
            return None
        return Bracket(
            self._time_attr, size, first, self._max_t, self._eta, halvings, self._stop_last_trials
        )

    def _bracket(self, trial: Any) -> Bracket:
        band, number = self._bracket_of[trial.trial_id]
        bracket = self._bands[band][number]
        assert bracket is not None
        return bracket

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Pauses a trial at its milestone; the last one to come decides over all.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE, PAUSE or STOP.
        """
        bracket = self._bracket(trial)
        if not bracket.has(trial.trial_id):
            return self.STOP  # It was out already when the experiment was interrupted.
        bracket.update(trial.trial_id, result)
        if bracket.continue_trial(trial.trial_id):
            return self.CONTINUE
        return self._process_bracket(tune_controller, bracket)

    def _process_bracket(self, tune_controller: Any, bracket: Bracket) -> str:
        """Halves the bracket if all have come to its milestone. Returns what becomes of the trial
        of the bracket that runs."""
        if not bracket.cur_iter_done():
            return self.PAUSE
        # The controller tells of each trial that it stops: nothing is processed again for that.
        bracket.is_being_processed = True
        try:
            if bracket.finished():
                return self._finish(tune_controller, bracket)
            return self._halve(tune_controller, bracket)
        finally:
            bracket.is_being_processed = False

    def _finish(self, tune_controller: Any, bracket: Bracket) -> str:
        for trial in self._trials_of(bracket):
            if trial.status == PAUSED:
                tune_controller.stop_trial(trial)
        return self.STOP

    def _halve(self, tune_controller: Any, bracket: Bracket) -> str:
        assert self._metric is not None
        good, bad = bracket.successive_halving(self._metric, self._metric_op)
        self._num_stopped += len(bad)
        action = self.PAUSE
        for trial in map(self._trials.__getitem__, bad):
            action = self._stop(tune_controller, bracket, trial, action)
        for trial in map(self._trials.__getitem__, good):
            if bracket.continue_trial(trial.trial_id):
                assert trial.status not in (ERROR, TERMINATED), (
                    f"the trial {trial.trial_id} is {trial.status}, but shall go on"
                )
                if _is_paused(trial):
                    self._unpause_trial(tune_controller, trial)
                    bracket.trials_to_unpause.add(trial.trial_id)
                elif trial.status == RUNNING:
                    action = self.CONTINUE
            elif bracket.finished() and bracket.stop_last_trials:
                if _is_paused(trial) or trial.status == RUNNING:
                    action = self._stop(tune_controller, bracket, trial, action)
        return action

    def _stop(self, tune_controller: Any, bracket: Bracket, trial: Any, action: str) -> str:
        """Stops a trial: by the controller where it waits, by what is returned where it runs."""
        if _is_paused(trial):
            tune_controller.stop_trial(trial)
            return action
        if trial.status != RUNNING:
            raise TuneError(f"the trial {trial.trial_id} shall be stopped, but is {trial.status}")
        bracket.cleanup_trial(trial.trial_id)
        return self.STOP

    def _unpause_trial(self, tune_controller: Any, trial: Any) -> None:
        """Called before a paused trial goes on."""

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Takes a trial out, for which others may have waited.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        bracket = self._bracket(trial)
        bracket.cleanup_trial(trial.trial_id)
        if bracket.current_trials() and not bracket.is_being_processed:
            # Ray lets the others wait for ever when the last round loses the trial they wait for.
            self._process_bracket(tune_controller, bracket)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Takes a trial out.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Takes a trial out.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        self.on_trial_remove(tune_controller, trial)
        del self._bracket_of[trial.trial_id]  # When it is tried again, it is a new one.

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Chooses a trial of the bracket that is least complete, of the first band that has one.

        Args:
            tune_controller: the controller.

        Returns:
            A trial that is pending, or may leave its pause; None: there is none.
        """
        for band in self._bands:
            brackets = [bracket for bracket in band if bracket is not None]
            for bracket in sorted(brackets, key=Bracket.completion_percentage):
                for trial in self._trials_of(bracket):
                    if self._may_run(bracket, trial):
                        return trial
        return None

    def _trials_of(self, bracket: Bracket) -> list[Any]:
        return [self._trials[trial_id] for trial_id in bracket.current_trials()]

    @staticmethod
    def _may_run(bracket: Bracket, trial: Any) -> bool:
        if trial.status == PAUSED:
            return trial.trial_id in bracket.trials_to_unpause
        return bool(trial.status == PENDING)

    def debug_string(self) -> str:
        """Returns the brackets and how far they are."""
        state = self.state()
        lines = [
            f"Using HyperBand: num_stopped={state['num_stopped']} "
            f"total_brackets={state['num_brackets']}"
        ]
        for number, band in enumerate(self._bands):
            lines.append(f"Round #{number}:")
            lines += [f"  {bracket}" for bracket in band if bracket]
        return "\n".join(lines)

    def state(self) -> dict[str, int]:
        """Returns the numbers of brackets and of trials that were stopped."""
        return {
            "num_brackets": sum(len(band) for band in self._bands),
            "num_stopped": self._num_stopped,
        }


def _is_paused(trial: Any) -> bool:
    # A trial that is saving is on its way into a pause.
    return trial.status == PAUSED or bool(getattr(trial, "is_saving", False))


class HyperBandForBOHB(HyperBandScheduler):
    """HyperBand that begins with its largest bracket and tells the searcher of pauses.

    Its arguments are those of HyperBandScheduler.
    """

    def _halvings_of(self, number: int) -> int:
        return self._brackets_of_band - number - 1

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Pauses a trial at its milestone, until its bracket is full and all have come.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports; it is given "hyperband_info".

        Returns:
            CONTINUE, PAUSE or STOP.
        """
        result["hyperband_info"] = {}
        bracket = self._bracket(trial)
        if not bracket.has(trial.trial_id):
            return self.STOP  # It was out already when the experiment was interrupted.
        bracket.update(trial.trial_id, result)
        if bracket.continue_trial(trial.trial_id):
            return self.CONTINUE
        result["hyperband_info"]["budget"] = bracket.milestone
        others = (t for t in self._trials_of(bracket) if t is not trial)
        action = self.PAUSE
        if bracket.filled() and all(other.status == PAUSED for other in others):
            action = self._process_bracket(tune_controller, bracket)
        if action == self.PAUSE:
            self._tell_searcher(tune_controller, "on_pause", trial)
        return action

    def _unpause_trial(self, tune_controller: Any, trial: Any) -> None:
        self._tell_searcher(tune_controller, "on_unpause", trial)

    @staticmethod
    def _tell_searcher(tune_controller: Any, what: str, trial: Any) -> None:
        searcher = tune_controller.search_alg
        hear = getattr(getattr(searcher, "searcher", searcher), what, None)
        if hear is not None:  # Only a searcher that models budgets listens.
            hear(trial.trial_id)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Chooses a trial of the first bracket that has one; halves one that is not full when
        nothing runs.

        Args:
            tune_controller: the controller.

        Returns:
            A trial that is pending, or may leave its pause; None: there is none.
        """
        chosen = self._first_that_may_run()
        if chosen is not None or any(t.status == RUNNING for t in tune_controller.get_trials()):
            return chosen
        for bracket in self._open_brackets():
            if any(trial.status == PAUSED for trial in self._trials_of(bracket)):
                self._process_bracket(tune_controller, bracket)
                chosen = self._first_that_may_run()
                if chosen is not None:
                    return chosen
        return None

    def _open_brackets(self) -> list[Bracket]:
        return [bracket for band in self._bands for bracket in band if bracket is not None]

    def _first_that_may_run(self) -> Any:
        for bracket in self._open_brackets():
            for trial in self._trials_of(bracket):
                if self._may_run(bracket, trial):
                    return trial
        return None

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ASHA: successive halving without waiting (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", 2018)."""

from __future__ import annotations

from typing import Any

from sheaf.tune.schedulers.trial_scheduler import ObjectiveScheduler


class AsyncHyperBandScheduler(ObjectiveScheduler):
    """Stops a trial at a rung when it is not among the best 1 / reduction_factor that came by
    before.

    Args:
        time_attr: what of a result counts as time.
        metric: what of a result is looked at.
        mode: "min" or "max".
        max_t: the time when a trial is over, in units of time_attr.
        grace_period: the time of the first rung: none is stopped before.
        reduction_factor: the time from rung to rung, as a factor.
        brackets: how many ladders of rungs, each beginning one rung later than the one before.
        stop_last_trials: whether trials are stopped at max_t.
    """

    _STATE = ("_brackets", "_bracket_of", "_num_stopped")

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        assert max_t > 0, f"max_t must be above 0, not {max_t}"
        assert max_t >= grace_period, f"grace_period must be <= max_t: {grace_period} > {max_t}"
        assert grace_period > 0, f"grace_period must be above 0, not {grace_period}"
        assert reduction_factor > 1, f"reduction_factor must be above 1, not {reduction_factor}"
        assert brackets > 0, f"brackets must be above 0, not {brackets}"
        super().__init__(metric, mode)
        self._time_attr = time_attr
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [
            _Bracket(grace_period, max_t, reduction_factor, number, stop_last_trials)
            for number in range(brackets)
        ]
        self._bracket_of: dict[str, int] = {}
        self._num_stopped = 0

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Puts a trial into one of the brackets, at random.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            ValueError: there is no metric or no mode.
        """
        import numpy as np

        self.require_objective()
        if trial.trial_id in self._bracket_of:
            return
        rungs = np.array([len(bracket.rungs) for bracket in self._brackets])
        weights = np.e ** (rungs - rungs.max())
        chosen = np.random.choice(len(self._brackets), p=weights / weights.sum())
        self._bracket_of[trial.trial_id] = int(chosen)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Stops a trial that is too bad at its rung, or at its end.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE or STOP.
        """
        if self._time_attr not in result or self._metric not in result:
            return self.CONTINUE
        action = self.STOP
        if result[self._time_attr] < self._max_t or not self._stop_last_trials:
            action = self._judge(trial, result)
        self._num_stopped += action == self.STOP
        return action

    def _judge(self, trial: Any, result: dict[str, Any]) -> str:
        assert self._metric is not None
        bracket = self._brackets[self._bracket_of[trial.trial_id]]
        score = self._metric_op * result[self._metric]
        good = bracket.on_result(trial.trial_id, result[self._time_attr], score)
        return self.CONTINUE if good else self.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Counts the last result at its rung.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """
        if self._time_attr in result and self._metric in result:
            self._judge(trial, result)
            del self._bracket_of[trial.trial_id]

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Forgets a trial; its results stay on the rungs.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        self._bracket_of.pop(trial.trial_id, None)

    def debug_string(self) -> str:
        """Returns the rungs and their cutoffs."""
        lines = [f"Using AsyncHyperBand: num_stopped={self._num_stopped}"]
        return "\n".join([*lines, *map(str, self._brackets)])


ASHAScheduler = AsyncHyperBandScheduler


class _Bracket:
    """A ladder of rungs: times, and the scores that trials had when they came by."""

    def __init__(
        self, min_t: float, max_t: float, factor: float, number: int, stop_last_trials: bool
    ) -> None:
        import numpy as np

        self._factor = factor
        self._stop_last_trials = stop_last_trials
        count = int(np.log(max_t / min_t) / np.log(factor) - number + 1)
        # The last first, since a trial counts at the latest rung that it has passed.
        self.rungs: list[tuple[float, dict[str, float]]] = [
            (min_t * factor ** (rung + number), {}) for rung in reversed(range(count))
        ]

    def cutoff(self, recorded: dict[str, float]) -> float | None:
        """Returns the score that a trial needs at a rung; None: nobody has been there."""
        if not recorded:
            return None
        import numpy as np

        return float(np.nanpercentile(list(recorded.values()), (1 - 1 / self._factor) * 100))

    def on_result(self, trial_id: str, time: float, score: float) -> bool:
        """Returns whether the trial is good enough at its rung, or between two rungs."""
        for milestone, recorded in self.rungs:
            if time < milestone:
                continue
            if trial_id in recorded:
                # A trial that came by already is between two rungs; but where trials are stopped at
                # max_t, one that skipped a rung below is judged there, too.
                if not self._stop_last_trials:
                    return True
                continue
            cutoff = self.cutoff(recorded)
            recorded[trial_id] = score
            return cutoff is None or not score < cutoff
        return True

    def __str__(self) -> str:
        rungs = (f"Iter {time:.3f}: {self.cutoff(recorded)}" for time, recorded in self.rungs)
        return "Bracket: " + " | ".join(rungs)

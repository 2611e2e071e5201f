# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The median stopping rule of Vizier (Golovin et al., 2017)."""

from __future__ import annotations

import bisect
import math
from typing import Any

from sheaf.tune.schedulers.trial_scheduler import PAUSED, PENDING, ObjectiveScheduler


class _Reports:
    """What one trial has reported: times, ascending, and values of the metric."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[float] = []

    def add(self, time: float, value: float) -> None:
        # A trial that was restored may report an earlier time again.
        at = bisect.bisect_right(self.times, time)
        self.times.insert(at, time)
        self.values.insert(at, value)


class MedianStoppingRule(ObjectiveScheduler):
    """Stops a trial whose best value is worse than the median of the others' running means.

    Args:
        time_attr: what of a result counts as time.
        metric: what of a result is looked at.
        mode: "min" or "max".
        grace_period: no trial is stopped before this time, in units of time_attr.
        min_samples_required: how many others a trial is compared with at least.
        min_time_slice: a trial that cannot be compared yet is paused for others after this time.
        hard_stop: whether a bad trial is stopped; False: paused, and goes on when there is room.
    """

    _STATE = ("_stopped", "_last_pause", "_reports", "_last_time")

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(metric, mode)
        self._time_attr = time_attr
        self._grace_period = grace_period
        self._min_samples_required = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = hard_stop
        self._stopped: set[str] = set()
        self._last_pause: dict[str, float] = {}
        self._reports: dict[str, _Reports] = {}
        self._last_time: dict[str, float] = {}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Checks that trials can be compared.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            ValueError: there is no metric or no mode.
        """
        self.require_objective()

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Compares a trial with the others at its time.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE, STOP, or PAUSE.
        """
        import numpy as np

        if self._time_attr not in result or self._metric not in result:
            return self.CONTINUE
        if trial.trial_id in self._stopped:
            assert not self._hard_stop, f"the trial {trial.trial_id} was stopped"
            return self.CONTINUE
        time = result[self._time_attr]
        self._record(trial, result)
        if time < self._grace_period:
            return self.CONTINUE
        means = self._means_of_others(trial.trial_id, time)
        if len(means) < self._min_samples_required:
            return self._wait_for_others(tune_controller, trial.trial_id, time)
        better = max if self._mode == "max" else min
        best = better(self._reports[trial.trial_id].values)
        # As Ray compares: a NaN on either side is no reason to go on.
        if better(np.median(means), best) == best:
            return self.CONTINUE
        self._stopped.add(trial.trial_id)
        return self.STOP if self._hard_stop else self.PAUSE

    def _record(self, trial: Any, result: dict[str, Any]) -> None:
        assert self._metric is not None
        time = result[self._time_attr]
        reports = self._reports.setdefault(trial.trial_id, _Reports())
        reports.add(time, result[self._metric])
        self._last_time[trial.trial_id] = time

    def _means_of_others(self, trial_id: str, time: float) -> list[Any]:
        """Means up to `time` of all that have come as far, without the grace period."""
        import numpy as np

        means = []
        for other, reports in self._reports.items():
            if other == trial_id or self._last_time[other] < time:
                continue
            first = bisect.bisect_left(reports.times, self._grace_period)
            values = reports.values[first : bisect.bisect_right(reports.times, time)]
            mean = np.mean(values) if values else math.nan
            if np.isfinite(mean):
                means.append(mean)
        return means

    def _wait_for_others(self, tune_controller: Any, trial_id: str, time: float) -> str:
        """Pauses a trial that cannot be compared, when others wait for room."""
        if time - self._last_pause.get(trial_id, -math.inf) <= self._min_time_slice:
            return self.CONTINUE
        if not any(t.status in (PENDING, PAUSED) for t in tune_controller.get_live_trials()):
            return self.CONTINUE
        self._last_pause[trial_id] = time
        return self.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Counts the last result.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """
        if self._time_attr in result and self._metric in result:
            self._record(trial, result)

    def debug_string(self) -> str:
        """Returns a line about the state."""
        return f"Using MedianStoppingRule: num_stopped={len(self._stopped)}."

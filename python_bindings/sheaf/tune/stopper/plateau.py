# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stoppers that end what gets no better."""

from __future__ import annotations

import collections
import math
from typing import Any

from sheaf.tune.stopper.stopper import Stopper


class TrialPlateauStopper(Stopper):
    """Ends a trial whose metric has not moved for some reports.

    Args:
        metric: what of a result is looked at.
        std: it has not moved when the standard deviation is below this.
        num_results: of so many reports.
        grace_period: no trial is ended before so many reports.
        metric_threshold: no trial is ended that is on the wrong side of it; None: all may be.
        mode: "min": above the threshold is the wrong side; "max": below.

    Raises:
        ValueError: there is a threshold, but no mode.
    """

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold and mode not in ("min", "max"):
            raise ValueError(
                "When specifying a `metric_threshold`, the `mode` argument has to be one of "
                f"[min, max]. Got: {mode}"
            )
        self._metric = metric
        self._mode = mode
        self._std = std
        self._num_results = num_results
        self._grace_period = grace_period
        self._metric_threshold = metric_threshold
        self._reports: dict[str, int] = {}
        self._last: dict[str, collections.deque[Any]] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns whether the trial gets no better."""
        value: Any = result.get(self._metric)
        last = self._last.setdefault(trial_id, collections.deque(maxlen=self._num_results))
        last.append(value)
        self._reports[trial_id] = self._reports.get(trial_id, 0) + 1
        if self._reports[trial_id] < self._grace_period or len(last) < self._num_results:
            return False
        if any(each is None for each in last):
            return False  # The trial does not always report the metric.
        if self._metric_threshold is not None:
            if self._mode == "min" and value > self._metric_threshold:
                return False
            if self._mode == "max" and value < self._metric_threshold:
                return False
        return bool(_standard_deviation(last) < self._std)

    def stop_all(self) -> bool:
        """Returns False."""
        return False

    def forget(self, trial_id: str) -> None:
        """The trial has not reported.

        Args:
            trial_id: the trial.
        """
        self._reports.pop(trial_id, None)
        self._last.pop(trial_id, None)


class ExperimentPlateauStopper(Stopper):
    """Ends the experiment when its best results have come together.

    Args:
        metric: what of a result is looked at.
        std: they have, when their standard deviation is at most this.
        top: of so many of the best.
        mode: "min" or "max".
        patience: so many reports must come after that.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"`mode` must be 'min' or 'max', not {mode!r}")
        if not isinstance(top, int) or top <= 1:
            raise ValueError(f"`top` must be an integer greater than one, not {top!r}")
        if not isinstance(patience, int) or patience < 0:
            raise ValueError(f"`patience` must be an integer of 0 or more, not {patience!r}")
        if not isinstance(std, float) or std <= 0:
            raise ValueError(f"`std` must be a float greater than 0, not {std!r}")
        self._metric = metric
        self._mode = mode
        self._patience = patience
        self._std = std
        self._top = top
        self._waited = 0
        self._best: list[Any] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns whether the experiment is over, which ends each trial that reports."""
        values = sorted([*self._best, result[self._metric]])
        self._best = values[: self._top] if self._mode == "min" else values[-self._top :]
        self._waited = self._waited + 1 if self.has_plateaued() else 0
        return self.stop_all()

    def has_plateaued(self) -> bool:
        """Returns whether the best results have come together."""
        return len(self._best) == self._top and _standard_deviation(self._best) <= self._std

    def stop_all(self) -> bool:
        """Returns whether they have for long enough."""
        return self.has_plateaued() and self._waited >= self._patience


def _standard_deviation(values: Any) -> float:
    import numpy as np

    deviation = float(np.std(list(values)))
    return deviation if not math.isnan(deviation) else math.inf

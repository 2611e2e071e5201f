# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The base of stoppers, and those that look at no metric."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any


class Stopper:
    """Ends trials or the experiment. Derive from it; a stopper is pickled with the experiment."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns whether the trial that reports this result is over."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Returns whether the experiment is over."""
        raise NotImplementedError

    def forget(self, trial_id: str) -> None:
        """A restored trial begins anew: what was counted of it counts no more.

        Args:
            trial_id: the trial.
        """


class NoopStopper(Stopper):
    """Ends nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns False."""
        return False

    def stop_all(self) -> bool:
        """Returns False."""
        return False


class CombinedStopper(Stopper):
    """Ends what one of several stoppers ends.

    Args:
        stoppers: asked in this order.
    """

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns whether one of them ends the trial."""
        return any(stopper(trial_id, result) for stopper in self._stoppers)

    def stop_all(self) -> bool:
        """Returns whether one of them ends the experiment."""
        return any(stopper.stop_all() for stopper in self._stoppers)

    def forget(self, trial_id: str) -> None:
        """Tells all of them.

        Args:
            trial_id: the trial.
        """
        for stopper in self._stoppers:
            stopper.forget(trial_id)


class FunctionStopper(Stopper):
    """Ends the trials that a function names.

    Args:
        function: takes the id of a trial and its result; returns whether it is over.
    """

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns what the function says."""
        return self._function(trial_id, result)

    def stop_all(self) -> bool:
        """Returns False."""
        return False

    @classmethod
    def is_valid_function(cls, fn: Any) -> bool:
        """Tells functions from stoppers.

        Args:
            fn: what was given as `stop`.

        Returns:
            Whether it is a function.

        Raises:
            ValueError: it looks like a stopper, but is none.
        """
        if not callable(fn) or isinstance(fn, Stopper):
            return False
        if hasattr(fn, "stop_all"):
            raise ValueError(f"{fn!r} has stop_all: derive its class from sheaf.tune.Stopper")
        return True


class MaximumIterationStopper(Stopper):
    """Ends each trial after a number of reports.

    Args:
        max_iter: so many.
    """

    def __init__(self, max_iter: int) -> None:
        self._max_iter = max_iter
        self._reports: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns whether the trial has reported so often."""
        self._reports[trial_id] = self._reports.get(trial_id, 0) + 1
        return self._reports[trial_id] >= self._max_iter

    def stop_all(self) -> bool:
        """Returns False."""
        return False

    def forget(self, trial_id: str) -> None:
        """The trial has not reported.

        Args:
            trial_id: the trial.
        """
        self._reports.pop(trial_id, None)


class TimeoutStopper(Stopper):
    """Ends the experiment after some time. What passes while it is stopped and restored is free.

    Args:
        timeout: in seconds, or a timedelta.

    Raises:
        ValueError: it is neither.
    """

    def __init__(self, timeout: float | datetime.timedelta) -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        elif not isinstance(timeout, (int, float)):
            raise ValueError(
                "`timeout` parameter has to be either a number or a `datetime.timedelta` object. "
                f"Found: {type(timeout)}"
            )
        self._budget = float(timeout)
        self._last_check: float | None = None

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns False."""
        return False

    def stop_all(self) -> bool:
        """Returns whether the time is used up; it begins with the first call."""
        now = time.monotonic()
        if self._last_check is not None:
            self._budget -= now - self._last_check
        self._last_check = now
        return self._budget <= 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_last_check": None}

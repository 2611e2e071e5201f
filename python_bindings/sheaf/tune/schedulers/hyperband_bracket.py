# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One bracket of HyperBand: trials that are halved again and again, each time for a longer run."""

from __future__ import annotations

from typing import Any


class Bracket:
    """Trials of one bracket, by id, and how far they are.

    Args:
        time_attr: what of a result counts as time.
        max_trials: how many trials begin.
        init_t: the time of the first halving.
        max_t: the time of the last one at most.
        eta: the part that goes on is 1 / eta, for eta times as long.
        halvings: how often.
        stop_last_trials: whether trials are stopped after the last halving.
    """

    def __init__(
        self,
        time_attr: str,
        max_trials: int,
        init_t: int,
        max_t: int,
        eta: float,
        halvings: int,
        stop_last_trials: bool,
    ) -> None:
        self._time_attr = time_attr
        self._size = max_trials
        self.milestone = init_t
        self._max_t = max_t
        self._eta = eta
        self._halvings = halvings
        self._total_work = _work_of(max_trials, init_t, max_t, eta, halvings)
        self._completed_progress = 0.0
        self.stop_last_trials = stop_last_trials
        # The last results of trials that are not out; None: there is none yet.
        self._live: dict[str, dict[str, Any] | None] = {}
        self.all_trials: list[str] = []
        self.is_being_processed = False
        self.trials_to_unpause: set[str] = set()

    def add_trial(self, trial_id: str) -> None:
        """Adds a trial to a bracket that is not filled."""
        assert not self.filled(), "Cannot add trial to filled bracket!"
        self._live[trial_id] = None
        self.all_trials.append(trial_id)

    def current_trials(self) -> list[str]:
        """Returns those that are not out."""
        return list(self._live)

    def has(self, trial_id: str) -> bool:
        """Returns whether a trial is among them still."""
        return trial_id in self._live

    def filled(self) -> bool:
        """Returns whether it has as many trials as it shall have now."""
        return len(self._live) == self._size

    def cur_iter_done(self) -> bool:
        """Returns whether all have come to the milestone."""
        return all(self._time(result) >= self.milestone for result in self._live.values())

    def finished(self) -> bool:
        """Returns whether all have come to the end; never where they go on after the last
        halving."""
        return self.stop_last_trials and self._halvings == 0 and self.cur_iter_done()

    def continue_trial(self, trial_id: str) -> bool:
        """Returns whether a trial need not wait for others."""
        if not self.stop_last_trials and self._halvings == 0:
            return True
        return self._time(self._live[trial_id]) < self.milestone

    def successive_halving(self, metric: str, metric_op: float) -> tuple[list[str], list[str]]:
        """Moves the milestone.

        Args:
            metric: what of a result is looked at.
            metric_op: what it is multiplied with so that more is better.

        Returns:
            Those that go on, and those that are out.
        """
        if self._halvings == 0 and not self.stop_last_trials:
            return list(self._live), []
        assert self._halvings > 0
        self._halvings -= 1
        self._size = _ceil(self._size / self._eta)
        self.milestone = int(min(int(self.milestone * self._eta), self._max_t))

        def score(trial_id: str) -> Any:
            result = self._live[trial_id]
            assert result is not None
            return metric_op * result[metric]

        ranked = sorted(self._live, key=score)
        return ranked[-self._size :], ranked[: -self._size]

    def update(self, trial_id: str, result: dict[str, Any]) -> None:
        """Notes the last result of a trial."""
        assert trial_id in self._live
        assert self._time(result) >= 0
        self._completed_progress += self._time(result) - self._time(self._live[trial_id])
        self._live[trial_id] = result
        self.trials_to_unpause.discard(trial_id)

    def cleanup_trial(self, trial_id: str) -> None:
        """Takes a trial out."""
        self._live.pop(trial_id, None)

    def completion_percentage(self) -> float:
        """Returns the part of its work that is done, of 1."""
        return 1.0 if self.finished() else min(self._completed_progress / self._total_work, 1.0)

    def _time(self, result: dict[str, Any] | None) -> float:
        return 0 if result is None else float(result[self._time_attr])

    def __str__(self) -> str:
        return (
            f"Bracket(Max Size (n)={self._size}, Milestone (r)={self.milestone}, "
            f"completed={self.completion_percentage():.1%})"
        )


def _work_of(trials: int, time: int, max_t: int, eta: float, halvings: int) -> int:
    """The time that all trials of a bracket take together."""
    work = 0
    left = max_t - time
    for _ in range(halvings + 1):
        work += trials * time
        trials = _ceil(trials / eta)
        time = int(min(time * eta, left))
    return work


def _ceil(value: float) -> int:
    import numpy as np

    return int(np.ceil(value))

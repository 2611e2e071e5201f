# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Makes of what a trial reports what loggers, schedulers and users see: with counters, times and
the place, under Ray's names."""

from __future__ import annotations

import time
from typing import Any

from sheaf.tune.experiment.trial import Trial
from sheaf.tune.trainable.messages import Place, Row


class ResultRows:
    """Of one trial since it began, or began again, in a process."""

    def __init__(self, trial: Trial, iteration: int, time_total_s: float):
        self._trial = trial
        self._iteration, self._total = iteration, time_total_s
        self._since, self._iterations_since = 0.0, 0
        self.place, self._node_ip = Place(0, "", "", ""), ""
        self._second, self._date = 0, ""

    def at(self, place: Place, node_ip: str) -> None:
        """Where it runs."""
        self.place, self._node_ip = place, node_ip
        self._trial.node_ip, self._trial.pid = node_ip, place.pid

    def result(self, row: Row) -> dict[str, Any]:
        """The result of one report."""
        self._iteration += 1
        self._iterations_since += 1
        self._total += row.spent_s
        self._since += row.spent_s
        second = int(row.timestamp)
        if second != self._second:
            self._second = second
            self._date = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(second))
        trial, place = self._trial, self.place
        result: dict[str, Any] = {
            **row.metrics,
            "timestamp": second,
            "checkpoint_dir_name": row.checkpoint[0] if row.checkpoint else None,
            "done": bool(row.metrics.get("done", False)),
            "training_iteration": self._iteration,
            "trial_id": trial.trial_id,
            "date": self._date,
            "time_this_iter_s": row.spent_s,
            "time_total_s": self._total,
            "pid": place.pid,
            "hostname": place.hostname,
            "node_ip": self._node_ip,
            "config": trial.config,
            "time_since_restore": self._since,
            "iterations_since_restore": self._iterations_since,
            "experiment_tag": trial.experiment_tag,
        }
        if row.metrics.keys() & _GIVEN:
            for name in _GIVEN & row.metrics.keys():
                result[name] = row.metrics[name]
        return result


# Where a trial reports these itself, its values count.
_GIVEN = {"training_iteration", "timestamp", "date", "time_total_s", "hostname", "node_ip", "pid"}

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Prometheus sees of a training run: metrics of the process that called fit, served by its
node. The board "Train" (deploy/grafana) shows them."""

from __future__ import annotations

import time

from sheaf.util.metrics import Counter, Gauge, Histogram

_RUN = ("run",)
_STEP_S = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]


class RunMetrics:
    """Of one run. Used by the driver's thread.

    Args:
        name: of the run, the value of the label "run". Runs of one name in one process are counted
            together.
    """

    def __init__(self, name: str):
        self._tags = {"run": name}
        self._workers = Gauge("train_workers", "Workers of the group of a training run.", _RUN)
        self._formed = Counter(
            "train_groups_formed", "Groups of workers that a training run has formed.", _RUN
        )
        self._steps = Counter("train_steps", "Steps that a training run has recorded.", _RUN)
        self._seconds = Histogram(
            "train_step_seconds",
            "From one step of a training run to the next, within one group of workers.",
            _STEP_S,
            _RUN,
        )
        self._last: float | None = None  # When the last step was recorded, of this group.

    def formed(self, workers: int) -> None:
        """A group was formed, of so many workers."""
        self._last = None
        self._workers.set(workers, self._tags)
        self._formed.inc(1, self._tags)

    def apart(self) -> None:
        """The group is no more."""
        self._workers.set(0, self._tags)

    def step(self) -> None:
        """A step was recorded."""
        now = time.monotonic()
        if self._last is not None:
            self._seconds.observe(now - self._last, self._tags)
        self._last = now
        self._steps.inc(1, self._tags)

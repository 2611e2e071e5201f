# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a training run has reached."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from sheaf.train.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to the group of workers.

    Args:
        time: when, in seconds since the epoch.
        text: what, in words.
        reports: how many steps had been reported.
    """

    time: float
    text: str
    reports: int

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"{clock}.{int(self.time % 1 * 1000):03d} {self.text}"


@dataclasses.dataclass
class Result:
    """What a training run has reached.

    Args:
        metrics: what was reported last, or None.
        checkpoint: the newest durable one, or None.
        path: of the run's folder.
        error: what ended the run, or None.
        metrics_history: all reports, in order, each step once.
        best_checkpoints: those that were kept, with their metrics.
        events: what happened to the group, in order.
        filesystem: that `path` is inside of; None: this machine's.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    path: str
    error: BaseException | None = None
    metrics_history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )
    events: list[Event] = dataclasses.field(default_factory=list)
    filesystem: Any = None

    @property
    def metrics_dataframe(self) -> Any:
        """metrics_history as a DataFrame. ImportError: pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "metrics_dataframe needs pandas (pip install pandas); "
                "metrics_history is the same as a list"
            ) from error
        return pandas.DataFrame(self.metrics_history)

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Finds the best of the kept checkpoints.

        Args:
            metric: the name of what they are compared by.
            mode: "max" or "min" is best.

        Returns:
            The checkpoint, or None: none has the metric.

        Raises:
            ValueError: another mode.
        """
        if mode not in ("max", "min"):
            raise ValueError(f"mode={mode!r}: want 'max' or 'min'")
        scored = [
            (row[metric], checkpoint) for checkpoint, row in self.best_checkpoints if metric in row
        ]
        if not scored:
            return None
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]

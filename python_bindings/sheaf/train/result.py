# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a training run has reached."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from sheaf.train.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to the group: when (seconds since the epoch), what, and the steps
    that had been reported."""

    time: float
    text: str
    reports: int

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"{clock}.{int(self.time % 1 * 1000):03d} {self.text}"


@dataclasses.dataclass
class Result:
    """metrics: what was reported last. checkpoint: the newest. path: the run's folder.
    metrics_history: all reports, in order, each once. best_checkpoints: those that were kept, with
    their metrics. events: what happened when. error: what ended it, or None.
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
        """The kept checkpoint with the largest ("max") or smallest ("min") metric. None: none has
        it. ValueError: another mode."""
        if mode not in ("max", "min"):
            raise ValueError(f"mode={mode!r}: want 'max' or 'min'")
        scored = [
            (row[metric], checkpoint) for checkpoint, row in self.best_checkpoints if metric in row
        ]
        if not scored:
            return None
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]

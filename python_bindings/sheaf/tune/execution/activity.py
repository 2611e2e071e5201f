# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the controller knows of the trials that run, and of the experiment."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.tune import result as fields
from sheaf.tune.error import TuneError
from sheaf.tune.experiment.kept_checkpoints import Kept


class SaveHandle:
    """A checkpoint that a trial was asked for. `checkpoint`: None until it is there, for ever when
    the trial has none (`settled`)."""

    def __init__(self, kept: Kept | None = None, settled: bool = False):
        self.kept = kept
        self.settled = settled or kept is not None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint, or None."""
        return self.kept.checkpoint if self.kept else None


class Phase(enum.Enum):
    """What a trial that has a process, or waits for one, does."""

    RUNNING = "its next results are awaited"
    DECIDING = "its results are looked at"
    SAVING = "it saves"
    ENDING = "its process ends"


@dataclasses.dataclass
class Activity:
    """A trial that holds resources. after: the decision that waits for the end of its saving;
    saves_behind: it shall save when its next results are here, so that both are of one step."""

    phase: Phase
    resources: dict[str, float]
    after: str | None = None
    saves_behind: bool = False

    def waits_to_save(self, after: str | None) -> bool:
        """Whether results are on their way, behind which it will save."""
        if self.phase is Phase.RUNNING:
            self.saves_behind, self.after = True, after or self.after
        return self.phase is Phase.RUNNING

    def behind(self, decision: str, go_on: str) -> tuple[str, bool]:
        """What becomes of a decision on results that are here, and whether it saves before."""
        saves, self.saves_behind = self.saves_behind, False
        return (self.after or decision) if saves and decision == go_on else decision, saves


@dataclasses.dataclass
class Settings:
    """Of an experiment. `nodes`: what each node has, by resource; `capacity`: all together."""

    metric: str | None = None
    fail_fast: bool | str = False
    max_concurrent: int = 0
    checkpoint_at_end: bool = False
    saves_on_demand: bool = False  # The trainable is a class.
    strict_metrics: bool = True  # A result without the metric ends the experiment.
    capacity: dict[str, float] = dataclasses.field(default_factory=dict)
    nodes: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def check(self, flat: dict[str, Any], *metrics: Any) -> None:
        """TuneError: a result has no value for the experiment's metric, or for one of these, each a
        name or several."""
        if not self.strict_metrics or flat.get(fields.DONE):
            return
        for name in (self.metric, *metrics):
            for one in name if isinstance(name, (list, tuple)) else [name]:
                if one not in (None, fields.DEFAULT_METRIC) and one not in flat:
                    got = sorted(set(flat) - set(fields.AUTO_RESULT_KEYS))
                    got = [each for each in got if not each.startswith("config/")]
                    raise TuneError(
                        f"metric {one!r} was not reported; got {', '.join(got) or 'nothing'} "
                        "(TUNE_DISABLE_STRICT_METRIC_CHECKING=1 goes on without)"
                    )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a Tuner is told about its search."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class TuneConfig:
    """How trials are chosen, and which of them is the best.

    Args:
        mode: "min" or "max" of the metric is best.
        metric: its name in results.
        search_alg: a Searcher, or a BasicVariantGenerator; None: the latter.
        scheduler: what ends, pauses or changes trials that run; None: nothing does.
        num_samples: how often the space is sampled, each time with all points of its grid; -1:
            without end.
        max_concurrent_trials: how many run at once; None: as many as there is room for.
        time_budget_s: seconds after which all trials end.
        reuse_actors: whether a process runs one trial after another.
        trial_name_creator: makes the name of a trial.
        trial_dirname_creator: makes the name of a trial's folder.
        chdir_to_trial_dir: not looked at: see RAY_CHDIR_TO_TRIAL_DIR.

    Raises:
        ValueError: a value does not fit.
    """

    mode: str | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | datetime.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: Any = "DEPRECATED"

    def __post_init__(self) -> None:
        if self.mode not in (None, "min", "max"):
            raise ValueError(f"mode={self.mode!r}: want 'min' or 'max'")
        count = self.num_samples
        if not isinstance(count, int) or isinstance(count, bool) or count == 0 or count < -1:
            raise ValueError(f"num_samples={count!r}: want a number from 1, or -1 for no end")
        bound = self.max_concurrent_trials
        if bound is not None and (not isinstance(bound, int) or bound < 0):
            raise ValueError(f"max_concurrent_trials={bound!r}: want a number from 1, or None")

    @property
    def budget_s(self) -> float | None:
        """The time budget in seconds, or None."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget


@dataclasses.dataclass
class ResumeConfig:
    """What becomes of the trials of an experiment that is taken up again.

    Args:
        finished: of those that have ended well.
        unfinished: of those that have not ended.
        errored: of those that have failed.
    """

    class ResumeType(enum.Enum):
        """RESUME: goes on from its checkpoint; RESTART: begins anew; SKIP: stays as it is."""

        RESUME = "resume"
        RESTART = "restart"
        SKIP = "skip"

    finished: Any = ResumeType.SKIP
    unfinished: Any = ResumeType.RESUME
    errored: Any = ResumeType.SKIP

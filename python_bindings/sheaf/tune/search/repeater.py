# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The same configuration tried several times, for objectives with noise."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

from sheaf.tune.search.searcher import Searcher
from sheaf.tune.search.wrapper import SearcherWrapper

TRIAL_INDEX = "__trial_index__"


@dataclasses.dataclass
class _Group:
    """Trials of one configuration; the searcher knows the first only."""

    config: dict[str, Any]
    scores: dict[str, float | None]


class Repeater(SearcherWrapper):
    """Tries each configuration of a searcher `repeat` times and tells it the mean.

    num_samples counts trials, so give a multiple of `repeat`: the searcher never hears of a group
    that is not full. Schedulers that stop trials early distort the mean.

    Args:
        searcher: the inner one.
        repeat: how often.
        set_index: whether a configuration has the number of its repetition as "__trial_index__", to
            seed with.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        self.repeat = repeat
        self._set_index = set_index
        self._group_of: dict[str, _Group] = {}
        self._current_group: _Group | None = None

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Gives the configuration of the current group, or asks the inner searcher for the next.

        Args:
            trial_id: the trial.

        Returns:
            The configuration, or what else the inner searcher says.
        """
        group = self._current_group
        if group is None or len(group.scores) >= self.repeat:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            group = self._current_group = _Group(copy.deepcopy(config), {})
        index = len(group.scores)
        group.scores[trial_id] = None
        self._group_of[trial_id] = group
        return {**group.config, TRIAL_INDEX: index} if self._set_index else dict(group.config)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Notes the score, NaN where there is none; the last of a group tells the inner searcher.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        import numpy as np

        group = self._group_of.pop(trial_id)
        metric = self.searcher.metric
        group.scores[trial_id] = (result or {}).get(metric, math.nan)
        scores = [score for score in group.scores.values() if score is not None]
        if len(scores) == self.repeat:
            valid = [score for score in scores if not math.isnan(score)]
            mean = np.mean(valid) if valid else math.nan
            self.searcher.on_trial_complete(
                next(iter(group.scores)), result={metric: mean}, error=error
            )

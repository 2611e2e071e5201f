# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A bound on the trials that a searcher has out at once, so that it learns before it proposes
more."""

from __future__ import annotations

from typing import Any

from sheaf.tune.search.searcher import Metric, Searcher
from sheaf.tune.search.wrapper import SearcherWrapper


class ConcurrencyLimiter(SearcherWrapper):
    """Asks a searcher only while fewer than max_concurrent of its trials are under way.

    Args:
        searcher: the inner one.
        max_concurrent: so many, at least 1.
        batch: whether the searcher hears of results only when all of max_concurrent are over.

    Raises:
        RuntimeError: `searcher` is no Searcher.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        assert isinstance(max_concurrent, int) and max_concurrent > 0, (
            f"max_concurrent is an integer above 0, not {max_concurrent!r}"
        )
        if not isinstance(searcher, Searcher):
            raise RuntimeError(
                f"ConcurrencyLimiter is for a Searcher, not for {type(searcher)}: give "
                "max_concurrent to the search algorithm itself"
            )
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self.live_trials: set[str] = set()
        self.num_unfinished_live_trials = 0
        self.cached_results: dict[str, tuple[dict[str, Any] | None, bool]] = {}
        self._limit_concurrency = True
        self._pass_on_limit()

    def _pass_on_limit(self) -> None:
        self._limit_concurrency = not self.searcher.set_max_concurrency(self.max_concurrent)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Changes the bound.

        Args:
            max_concurrent: the new one.

        Returns:
            True.
        """
        self.max_concurrent = max_concurrent
        return True

    def set_search_properties(
        self, metric: Metric, mode: Metric, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Tells the inner searcher, of the bound as well.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            config: the search space.
            spec: more of the experiment.

        Returns:
            Whether the inner searcher takes them.
        """
        self._pass_on_limit()
        return super().set_search_properties(metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Asks the inner searcher, unless too many trials are under way.

        Args:
            trial_id: the trial.

        Returns:
            What the inner searcher says; None: too many are under way.
        """
        if not self._limit_concurrency:
            return self.searcher.suggest(trial_id)
        assert trial_id not in self.live_trials, f"the trial {trial_id} was suggested before"
        if len(self.live_trials) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if suggestion not in (None, Searcher.FINISHED):
            self.live_trials.add(trial_id)
            self.num_unfinished_live_trials += 1
        return suggestion

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the inner searcher, at once or when its batch is over.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        if not self._limit_concurrency:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            return
        if trial_id not in self.live_trials or trial_id in self.cached_results:
            return
        self.cached_results[trial_id] = (result, error)
        self.num_unfinished_live_trials -= 1
        if self.batch and self.num_unfinished_live_trials > 0:
            return
        for each, (its_result, its_error) in self.cached_results.items():
            self.searcher.on_trial_complete(each, result=its_result, error=its_error)
            self.live_trials.remove(each)
        self.cached_results = {}

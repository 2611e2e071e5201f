# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A searcher around another, which is asked and told all that the outer one does not see to."""

from __future__ import annotations

import os
import pickle
from typing import Any

from sheaf.tune.search.searcher import Metric, Searcher, set_properties


class SearcherWrapper(Searcher):
    """The base of ConcurrencyLimiter and Repeater.

    Args:
        searcher: the inner one.
    """

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        super().__init__(metric=searcher.metric, mode=searcher.mode)

    @property
    def metric(self) -> Any:
        """The inner searcher's."""
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        """The inner searcher's."""
        return self.searcher.mode

    def set_search_properties(
        self, metric: Metric, mode: Metric, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Tells the inner searcher.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            config: the search space.
            spec: more of the experiment.

        Returns:
            Whether the inner searcher takes them.
        """
        return set_properties(self.searcher, metric, mode, config, spec)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tells the inner searcher.

        Args:
            trial_id: the trial.
            result: its report.
        """
        self.searcher.on_trial_result(trial_id, result)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Tells the inner searcher.

        Args:
            parameters: the configuration.
            value: of the metric.
            error: whether it failed.
            pruned: whether it was stopped early.
            intermediate_values: of the metric, before the last.
        """
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, Any]:
        """Returns what this one knows itself, without the inner searcher."""
        return {name: value for name, value in vars(self).items() if name != "searcher"}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was; the inner searcher is not touched.

        Args:
            state: what its get_state() returned.
        """
        vars(self).update(state)

    def save(self, checkpoint_path: str) -> None:
        """Writes the states of the inner searcher and of this one.

        Args:
            checkpoint_path: the file of the inner one; beside it stands one with the suffix
                .wrapper.
        """
        self.searcher.save(checkpoint_path)
        with open(f"{checkpoint_path}.wrapper", "wb") as file:
            pickle.dump(self.get_state(), file)

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_path: what its save() wrote, or that of its inner searcher alone.
        """
        self.searcher.restore(checkpoint_path)
        if os.path.exists(f"{checkpoint_path}.wrapper"):
            with open(f"{checkpoint_path}.wrapper", "rb") as file:
                self.set_state(pickle.load(file))

    def on_pause(self, trial_id: str) -> None:
        """Tells the inner searcher that HyperBandForBOHB pauses a trial.

        Args:
            trial_id: the trial.
        """
        self.searcher.on_pause(trial_id)  # type: ignore[attr-defined]

    def on_unpause(self, trial_id: str) -> None:
        """Tells the inner searcher that HyperBandForBOHB lets a trial go on.

        Args:
            trial_id: the trial.
        """
        self.searcher.on_unpause(trial_id)  # type: ignore[attr-defined]

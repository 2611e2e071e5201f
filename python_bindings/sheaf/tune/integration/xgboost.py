# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of XGBoost to the trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost

from sheaf.tune.integration.boosters import Metrics, Reporting


class TuneReportCheckpointCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Give it to xgboost.train: it reports what is evaluated, as "NAME-METRIC".

    Args:
        metrics: names; a dict from other names to these; None: all.
        filename: of the model in checkpoints.
        frequency: saves with each so many iterations; 0: never before the end.
        checkpoint_at_end: whether it saves at the end.
        results_postprocessing_fn: changes what is reported.
    """

    CHECKPOINT_NAME = "model.ubj"

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ):
        super().__init__()
        self._reporting = Reporting(
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )
        self._last = 0

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Reports an iteration.

        Args:
            model: the booster.
            epoch: its number.
            evals_log: what was evaluated.

        Returns:
            False: training goes on.
        """
        known = {
            f"{name}-{metric}": values[-1]
            for name, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        self._last = epoch
        self._reporting.after_iteration(epoch, known, model.save_model)
        return False

    def after_training(self, model: Any) -> Any:
        """Saves the last model.

        Args:
            model: the booster.

        Returns:
            It.
        """
        self._reporting.after_training(self._last, model.save_model)
        return model


TuneReportCallback = TuneReportCheckpointCallback

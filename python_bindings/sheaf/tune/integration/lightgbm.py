# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of LightGBM to the trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sheaf.tune.integration.boosters import Metrics, Reporting


class TuneReportCheckpointCallback:
    """Give it to lightgbm.train as a callback: it reports what is evaluated, as "NAME-METRIC".

    Args:
        metrics: names; a dict from other names to these; None: all.
        filename: of the model in checkpoints.
        frequency: saves with each so many iterations; 0: never before the end.
        checkpoint_at_end: whether it saves at the end.
        results_postprocessing_fn: changes what is reported.
    """

    CHECKPOINT_NAME = "model.txt"
    order = 20  # Behind LightGBM's own.

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ):
        self._reporting = Reporting(
            metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn
        )

    def __call__(self, env: Any) -> None:
        known = {f"{row[0]}-{row[1]}": row[2] for row in env.evaluation_result_list or ()}
        self._reporting.after_iteration(env.iteration, known, env.model.save_model)
        if env.iteration == env.end_iteration - 1:
            self._reporting.after_training(env.iteration, env.model.save_model)


TuneReportCallback = TuneReportCheckpointCallback

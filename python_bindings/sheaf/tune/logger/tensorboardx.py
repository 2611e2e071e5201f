# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Results for TensorBoard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.logger.logger import LoggerCallback

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial

_LEFT_OUT = {"config", "pid", "timestamp", fields.TIME_TOTAL_S, fields.TRAINING_ITERATION}


class TBXLoggerCallback(LoggerCallback):
    """Writes numbers as scalars, and at the end the chosen values as hyperparameters, into the
    trial's folder, by tensorboardX.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        from tensorboardX import SummaryWriter

        self._make: Any = SummaryWriter
        self._writers: dict[str, Any] = {}
        self._last: dict[str, dict[str, Any]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Opens the file.

        Args:
            trial: the one.
        """
        self.log_trial_end(trial)
        assert trial.local_path is not None
        os.makedirs(trial.local_path, exist_ok=True)
        self._writers[trial.trial_id] = self._make(trial.local_path, flush_secs=30)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds the numbers of a result.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """
        if trial.trial_id not in self._writers:
            self.log_trial_start(trial)
        writer = self._writers[trial.trial_id]
        step = result.get(fields.TIMESTEPS_TOTAL) or result[fields.TRAINING_ITERATION]
        shown = {name: value for name, value in result.items() if name not in _LEFT_OUT}
        for name, value in flatten(shown).items():
            value = value.item() if hasattr(value, "item") else value
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
                writer.add_scalar(f"ray/tune/{name}", value, global_step=step)
        self._last[trial.trial_id] = result

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Adds the hyperparameters, and closes the file.

        Args:
            trial: the one.
            failed: not looked at.
        """
        writer = self._writers.pop(trial.trial_id, None)
        if writer is None:
            return
        last = self._last.pop(trial.trial_id, None)
        if last is not None and trial.evaluated_params:
            chosen = {
                name: value if isinstance(value, (str, bool, int, float)) else str(value)
                for name, value in flatten(trial.evaluated_params).items()
            }
            self._add_hyperparameters(writer, chosen, last)
        writer.close()

    def _add_hyperparameters(
        self, writer: Any, chosen: dict[str, Any], last: dict[str, Any]
    ) -> None:
        from tensorboardX.summary import hparams

        numbers = {
            f"ray/tune/{name}": value
            for name, value in flatten(last).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for summary in hparams(hparam_dict=chosen, metric_dict=numbers):
            if summary is not None:
                writer.file_writer.add_summary(summary)

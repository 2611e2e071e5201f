# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Results for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.logger.logger import LoggerCallback, text_of
from sheaf.util.tensorboard import EventFile

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial

_LARGEST = 3.4e38  # Of a scalar, which is a float of 32 bits.
_LEFT_OUT = {"config", "pid", "timestamp", fields.TIME_TOTAL_S, fields.TRAINING_ITERATION}


def _scalar(value: Any) -> float | None:
    """What TensorBoard shows of a value: numbers, of NumPy and torch too, and arrays of one."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except Exception:  # An array of several values, or of none.
            return None
    if isinstance(value, (int, float)) and value == value:
        return float(max(-_LARGEST, min(value, _LARGEST)))
    return None


class TBXLoggerCallback(LoggerCallback):
    """Writes numbers as scalars, and at the end the chosen values as hyperparameters, into the
    trial's folder, by tensorboardX.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        self._summary: Any = Summary
        self._tags: dict[str, str] = {}  # Of names of numbers.
        self._files: dict[str, EventFile] = {}
        self._last: dict[str, dict[str, Any]] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Opens the file.

        Args:
            trial: the one.
        """
        self.log_trial_end(trial)
        assert trial.local_path is not None
        self._files[trial.trial_id] = EventFile(trial.local_path)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds the numbers of a result.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """
        if trial.trial_id not in self._files:
            self.log_trial_start(trial)
        step = result.get(fields.TIMESTEPS_TOTAL) or result[fields.TRAINING_ITERATION]
        shown = {name: value for name, value in result.items() if name not in _LEFT_OUT}
        # One event for a result: with one for each number this is the slowest of all loggers.
        numbers = []
        for name, given in flatten(shown).items():
            value = _scalar(given)
            if value is not None:
                numbers.append(self._summary.Value(tag=self._tag(name), simple_value=value))
        self._files[trial.trial_id].write(self._summary(value=numbers), step)
        self._last[trial.trial_id] = result

    def _tag(self, name: str) -> str:
        """As tensorboardX writes it."""
        if name not in self._tags:
            from tensorboardX.summary import scalar

            self._tags[name] = scalar(f"ray/tune/{name}", 0.0).value[0].tag
        return self._tags[name]

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Adds the hyperparameters, and closes the file.

        Args:
            trial: the one.
            failed: not looked at.
        """
        file = self._files.pop(trial.trial_id, None)
        if file is None:
            return
        last = self._last.pop(trial.trial_id, None)
        if last is not None and trial.evaluated_params:
            chosen = {
                name: value if isinstance(value, (str, bool, int, float)) else text_of(value)
                for name, value in flatten(trial.evaluated_params).items()
            }
            self._add_hyperparameters(file, chosen, last)
        file.close()

    def _add_hyperparameters(
        self, file: EventFile, chosen: dict[str, Any], last: dict[str, Any]
    ) -> None:
        from tensorboardX.summary import hparams

        numbers = {
            f"ray/tune/{name}": value
            for name, given in flatten(last).items()
            if (value := _scalar(given)) is not None
        }
        for summary in hparams(hparam_dict=chosen, metric_dict=numbers):
            if summary is not None:
                file.write(summary)

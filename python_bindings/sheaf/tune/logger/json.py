# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Results as lines of JSON."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, TextIO

from sheaf import cloudpickle
from sheaf.tune import result as fields
from sheaf.tune.logger.logger import LoggerCallback, encode

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial


class JsonLoggerCallback(LoggerCallback):
    """Writes result.json, a line for each result, and params.json and params.pkl, the
    configuration, into the trial's folder."""

    def __init__(self) -> None:
        self._files: dict[str, TextIO] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Writes the configuration, and opens the file.

        Args:
            trial: the one.
        """
        self.log_trial_end(trial)
        assert trial.local_path is not None
        self.update_config(trial, trial.config)
        path = os.path.join(trial.local_path, fields.EXPR_RESULT_FILE)
        _end_line(path)
        self._files[trial.trial_id] = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds a line.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """
        if trial.trial_id not in self._files:
            self.log_trial_start(trial)
        file = self._files[trial.trial_id]
        file.write(encode(result) + "\n")
        file.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Closes the file.

        Args:
            trial: the one.
            failed: not looked at.
        """
        file = self._files.pop(trial.trial_id, None)
        if file is not None:
            file.close()

    def update_config(self, trial: Trial, config: dict[str, Any]) -> None:
        """Writes the configuration.

        Args:
            trial: the one.
            config: its configuration.
        """
        assert trial.local_path is not None
        folder = trial.local_path
        with open(os.path.join(folder, fields.EXPR_PARAM_FILE), "w", encoding="utf-8") as file:
            file.write(encode(config, indent=2, sort_keys=True))
        with open(os.path.join(folder, fields.EXPR_PARAM_PICKLE_FILE), "wb") as binary:
            try:
                pickle.dump(config, binary)
            except Exception:
                binary.seek(0)
                binary.truncate()
                cloudpickle.dump(config, binary)


def _end_line(path: str) -> None:
    """A line that a kill has torn goes, so that the next one stands by itself."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)

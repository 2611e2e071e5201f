# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Results as a table."""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, Any, TextIO

from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.logger.logger import LoggerCallback, text_of

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial


class CSVLoggerCallback(LoggerCallback):
    """Writes progress.csv, a row for each result, into the trial's folder; its columns are those of
    the first."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[TextIO, csv.DictWriter[str]]] = {}

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Adds a row.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """
        flat = flatten({name: one for name, one in result.items() if name != "config"})
        found = self._open.get(trial.trial_id)
        if found is None:
            found = self._open[trial.trial_id] = self._start(trial, flat)
        file, writer = found
        try:
            writer.writerow(flat)
        except Exception:  # A value that has no text.
            writer.writerow({name: text_of(one) for name, one in flat.items()})
        file.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Closes the file.

        Args:
            trial: the one.
            failed: not looked at.
        """
        found = self._open.pop(trial.trial_id, None)
        if found is not None:
            found[0].close()

    def _start(self, trial: Trial, flat: dict[str, Any]) -> tuple[TextIO, csv.DictWriter[str]]:
        assert trial.local_path is not None
        os.makedirs(trial.local_path, exist_ok=True)  # A trial may have removed it.
        path = os.path.join(trial.local_path, fields.EXPR_PROGRESS_FILE)
        columns = None
        if os.path.exists(path):
            with open(path, newline="", encoding="utf-8") as before:
                columns = next(csv.reader(before), None)
        file = open(  # noqa: SIM115
            path, "a", newline="", encoding="utf-8", errors="backslashreplace"
        )
        writer = csv.DictWriter(file, columns or list(flat), extrasaction="ignore")
        if not columns:
            writer.writeheader()
        return file, writer

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of Keras to the trial."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import keras

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.integration.boosters import Metrics, chosen


class TuneReportCheckpointCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Give it to model.fit: it reports what was logged, and saves the model.

    Args:
        metrics: names; a dict from other names to these; None: all.
        filename: of the model in checkpoints.
        save: whether it saves.
    """

    def __init__(self, metrics: Metrics = None, filename: str = "model.keras", save: bool = True):
        super().__init__()
        self._metrics, self._filename, self._save = metrics, filename, save

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports an epoch.

        Args:
            epoch: its number.
            logs: what was logged.
        """
        wanted = chosen(self._metrics, {name: float(one) for name, one in (logs or {}).items()})
        if not self._save:
            session.current().report(wanted, None, None, False)
            return
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(os.path.join(folder, self._filename))
            session.current().report(wanted, Checkpoint.from_directory(folder), None, False)


TuneReportCallback = TuneReportCheckpointCallback

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of PyTorch Lightning to the trial."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.integration.boosters import Metrics, chosen

if importlib.util.find_spec("lightning") is not None:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback


class TuneReportCheckpointCallback(Callback):  # type: ignore[misc]
    """Give it to a Lightning Trainer: it reports the metrics that were logged.

    Args:
        metrics: names; a dict from other names to these; None: all.
        filename: of the model in checkpoints.
        save_checkpoints: whether it saves with each report.
        on: after which hook of Lightning, without "on_"; or several of them.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | list[str] = "validation_end",
    ):
        self._metrics, self._filename, self._saves = metrics, filename, save_checkpoints
        for hook in [on] if isinstance(on, str) else on:
            name = hook if hook.startswith("on_") else f"on_{hook}"
            if not hasattr(Callback, name):
                raise ValueError(f"on={hook!r}: Lightning has no hook {name}")
            setattr(self, name, self._handle)

    def _handle(self, trainer: Any, *arguments: Any) -> None:
        if trainer.sanity_checking:
            return
        known = {name: value.item() for name, value in trainer.callback_metrics.items()}
        wanted = chosen(self._metrics, known)
        if not self._saves:
            session.current().report(wanted, None, None, False)
            return
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(os.path.join(folder, self._filename))
            session.current().report(wanted, Checkpoint.from_directory(folder), None, False)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports without saving.

    Args:
        metrics: names; a dict from other names to these; None: all.
        on: after which hook of Lightning.
    """

    def __init__(self, metrics: Metrics = None, on: str | list[str] = "validation_end"):
        super().__init__(metrics, save_checkpoints=False, on=on)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reports of a trainer of sheaf.train that runs inside a trial's function."""

from __future__ import annotations

from typing import Any

from sheaf.air import session
from sheaf.air.callbacks import RunContext, UserCallback
from sheaf.air.checkpoint import Checkpoint

CHECKPOINT_PATH_KEY = "checkpoint_path"


class TuneReportCallback(UserCallback):
    """Give it to the trainer's RunConfig: what rank 0 reports, the trial reports, with the path of
    the checkpoint as `checkpoint_path`.

    Raises:
        RuntimeError: it is made outside of a trial.
    """

    def __init__(self) -> None:
        session.current()

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Reports.

        Args:
            run_context: the trainer's run.
            metrics: by rank.
            checkpoint: the one of this step.
        """
        said = dict(metrics[0])
        for name in ("training_iteration", "timestamp", "time_total_s"):
            said.pop(name, None)  # The trial counts itself.
        if checkpoint is not None:
            said[CHECKPOINT_PATH_KEY] = checkpoint.path
        session.current().report(said, None, None, False)

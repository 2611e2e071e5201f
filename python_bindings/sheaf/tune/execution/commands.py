# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the controller tells the driver to do."""

from __future__ import annotations

import dataclasses

from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.experiment.kept_checkpoints import Kept
from sheaf.tune.experiment.trial import Trial


@dataclasses.dataclass(frozen=True)
class Begin:
    """Start the trial in a process, which may have run another. The driver answers with `began` and
    on_batch, or on_failed. iteration and time_total_s: of the checkpoint."""

    trial: Trial
    checkpoint: Checkpoint | None
    iteration: int
    time_total_s: float


@dataclasses.dataclass(frozen=True)
class Continue:
    """Let the trial go on. Answer: on_batch or on_failed."""

    trial: Trial


@dataclasses.dataclass(frozen=True)
class Save:
    """Let the trial save now. Answer: on_saved or on_failed."""

    trial: Trial


@dataclasses.dataclass(frozen=True)
class End:
    """End what the trial runs in, or use it for another. failed: it cannot be used again. Answer:
    on_ended, when its resources are free."""

    trial: Trial
    failed: bool


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete the files of a checkpoint."""

    kept: Kept


@dataclasses.dataclass(frozen=True)
class WriteError:
    """Write what the trial has raised into its folder."""

    trial: Trial


Command = Begin | Continue | Save | End | Delete | WriteError

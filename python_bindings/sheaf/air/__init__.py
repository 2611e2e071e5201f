# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What sheaf.train and sheaf.tune have in common: checkpoints, the storage of runs, what a run is
told and what it has reached."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sheaf.air.checkpoint import Checkpoint
    from sheaf.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from sheaf.air.result import Result

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
]

_WHERE = {  # What is imported when it is first asked for: processes of trials need little of it.
    "Checkpoint": "checkpoint",
    "CheckpointConfig": "config",
    "FailureConfig": "config",
    "Result": "result",
    "RunConfig": "config",
    "ScalingConfig": "config",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"sheaf.air.{_WHERE[name]}"), name)
    if name in ("integrations", "session"):
        return importlib.import_module(f"sheaf.air.{name}")
    raise AttributeError(f"sheaf.air has no '{name}'")

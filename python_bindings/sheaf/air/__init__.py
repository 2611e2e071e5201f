# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What sheaf.train and sheaf.tune have in common: checkpoints, the storage of runs, what a run is
told and what it has reached."""

from __future__ import annotations

import importlib
from typing import Any

from sheaf.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "session",
]

_WHERE = {"Checkpoint": "checkpoint", "Result": "result"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"sheaf.air.{_WHERE[name]}"), name)
    if name in ("integrations", "session"):
        return importlib.import_module(f"sheaf.air.{name}")
    raise AttributeError(f"sheaf.air has no '{name}'")

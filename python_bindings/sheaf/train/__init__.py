# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Training by groups of workers that survive losing some of them. Works with any library, or none;
sheaf.train.torch is for PyTorch.

    def loop(config):
        for step in range(first(sheaf.train.get_checkpoint()), config["steps"]):
            ...
            checkpoint = Checkpoint.from_directory(folder)
            sheaf.train.report({"loss": loss}, checkpoint=checkpoint)

    trainer = DataParallelTrainer(
        loop, train_loop_config={"steps": 100}, scaling_config=ScalingConfig(num_workers=4)
    )
    result = trainer.fit()
"""

from __future__ import annotations

import importlib
from typing import Any

from sheaf.air.callbacks import (
    JsonLinesCallback,
    MLflowCallback,
    RunContext,
    TensorBoardCallback,
    UserCallback,
)
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from sheaf.air.result import Event, Result
from sheaf.train.backend import BackendConfig
from sheaf.train.context import (
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    report,
)
from sheaf.train.datasets import DataConfig
from sheaf.train.errors import TrainingFailedError
from sheaf.train.trainer import DataParallelTrainer

__all__ = [
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "DataConfig",
    "DataParallelTrainer",
    "Event",
    "FailureConfig",
    "JsonLinesCallback",
    "MLflowCallback",
    "Result",
    "RunConfig",
    "RunContext",
    "ScalingConfig",
    "TensorBoardCallback",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in ("torch", "collective"):
        return importlib.import_module(f"sheaf.train.{name}")
    raise AttributeError(f"sheaf.train has no '{name}'")

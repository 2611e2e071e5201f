# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Search for hyperparameters: trials of a function or class, each with a configuration of a space,
on all CPUs and GPUs of a cluster.

    def train(config):
        for step in range(10):
            sheaf.tune.report({"loss": (config["x"] - 2) ** 2 + 1 / (step + 1)})

    tuner = tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 4)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20),
    )
    best = tuner.fit().get_best_result()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sheaf.air.checkpoint import Checkpoint
    from sheaf.air.config import CheckpointConfig, FailureConfig, RunConfig
    from sheaf.air.result import Result
    from sheaf.tune.analysis.experiment_analysis import ExperimentAnalysis
    from sheaf.tune.callback import Callback
    from sheaf.tune.context import TuneContext, get_checkpoint, get_context, report
    from sheaf.tune.error import TuneError
    from sheaf.tune.execution.placement_groups import PlacementGroupFactory
    from sheaf.tune.experiment.experiment import Experiment
    from sheaf.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from sheaf.tune.registry import register_env, register_trainable
    from sheaf.tune.result_grid import ResultGrid
    from sheaf.tune.schedulers import create_scheduler
    from sheaf.tune.search import create_searcher
    from sheaf.tune.search.sample import (
        choice,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )
    from sheaf.tune.search.variant_generator import grid_search
    from sheaf.tune.stopper import Stopper
    from sheaf.tune.syncer import SyncConfig
    from sheaf.tune.trainable.trainable import Trainable
    from sheaf.tune.trainable.util import with_parameters, with_resources
    from sheaf.tune.tune import run, run_experiments
    from sheaf.tune.tune_config import ResumeConfig, TuneConfig
    from sheaf.tune.tuner import Tuner

_SAMPLE = "tune.search.sample"
_WHERE = {  # What is imported when it is first asked for.
    "CLIReporter": "tune.progress_reporter",
    "Callback": "tune.callback",
    "Checkpoint": "air.checkpoint",
    "CheckpointConfig": "air.config",
    "Experiment": "tune.experiment.experiment",
    "ExperimentAnalysis": "tune.analysis.experiment_analysis",
    "FailureConfig": "air.config",
    "JupyterNotebookReporter": "tune.progress_reporter",
    "PlacementGroupFactory": "tune.execution.placement_groups",
    "ProgressReporter": "tune.progress_reporter",
    "Result": "air.result",
    "ResultGrid": "tune.result_grid",
    "ResumeConfig": "tune.tune_config",
    "RunConfig": "air.config",
    "Stopper": "tune.stopper",
    "SyncConfig": "tune.syncer",
    "Trainable": "tune.trainable.trainable",
    "TuneConfig": "tune.tune_config",
    "TuneContext": "tune.context",
    "TuneError": "tune.error",
    "Tuner": "tune.tuner",
    "choice": _SAMPLE,
    "create_scheduler": "tune.schedulers",
    "create_searcher": "tune.search",
    "get_checkpoint": "tune.context",
    "get_context": "tune.context",
    "grid_search": "tune.search.variant_generator",
    "lograndint": _SAMPLE,
    "loguniform": _SAMPLE,
    "qlograndint": _SAMPLE,
    "qloguniform": _SAMPLE,
    "qrandint": _SAMPLE,
    "qrandn": _SAMPLE,
    "quniform": _SAMPLE,
    "randint": _SAMPLE,
    "randn": _SAMPLE,
    "register_env": "tune.registry",
    "register_trainable": "tune.registry",
    "report": "tune.context",
    "run": "tune.tune",
    "run_experiments": "tune.tune",
    "sample_from": _SAMPLE,
    "uniform": _SAMPLE,
    "with_parameters": "tune.trainable.util",
    "with_resources": "tune.trainable.util",
}
_SUBMODULES = (
    "analysis",
    "callback",
    "context",
    "error",
    "execution",
    "experiment",
    "integration",
    "logger",
    "progress_reporter",
    "registry",
    "result",
    "result_grid",
    "sample",
    "schedulers",
    "search",
    "stopper",
    "syncer",
    "trainable",
    "tune",
    "tune_config",
    "tuner",
)

__all__ = [
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "Experiment",
    "ExperimentAnalysis",
    "FailureConfig",
    "JupyterNotebookReporter",
    "PlacementGroupFactory",
    "ProgressReporter",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Stopper",
    "SyncConfig",
    "Trainable",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "uniform",
    "with_parameters",
    "with_resources",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(f"sheaf.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"sheaf.tune.{name}")
    raise AttributeError(f"sheaf.tune has no '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_SUBMODULES})

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trainers: a training loop, run by a group of workers."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import sheaf
from sheaf.air import storage
from sheaf.air.callbacks import RunContext, UserCallback
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import RunConfig, ScalingConfig
from sheaf.air.result import Result
from sheaf.train import datasets as data
from sheaf.train.backend import BackendConfig
from sheaf.train.run import Plan, Run

_HOME = "~/sheaf_results"


class DataParallelTrainer:
    """Runs a training loop in each worker of a group.

    Args:
        train_loop_per_worker: a function that takes the configuration, or nothing. Inside it see
            get_context, get_checkpoint, get_dataset_shard and report.
        train_loop_config: the configuration; a copy of it reaches each worker.
        backend_config: what is made ready around the loop.
        scaling_config: how many workers there are, and what each holds; None: one, with a CPU.
        run_config: where results go, which checkpoints stay, how often it may fail.
        datasets: arrays, lists, dicts of arrays, iterables, or functions that make one, by name;
            split by rank.
        dataset_config: which of them are not, and how those of sheaf.data run.
        resume_from_checkpoint: what get_checkpoint gives at first.
        metadata: what TrainContext.get_metadata gives.

    Raises:
        TypeError: an argument has the wrong type; the text has the value and what is wanted.
        ValueError: the columns of a dataset differ in length.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: data.DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
    ):
        for name, value, kind in (
            ("train_loop_config", train_loop_config, dict),
            ("backend_config", backend_config, BackendConfig),
            ("scaling_config", scaling_config, ScalingConfig),
            ("run_config", run_config, RunConfig),
            ("resume_from_checkpoint", resume_from_checkpoint, Checkpoint),
            ("metadata", metadata, dict),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name}={value!r}: want a {kind.__name__}")
        self._run_config = run_config or RunConfig()
        self._shown_name = ""  # Of a trial's run, which is called as the trial; else as its folder.
        for callback in self._run_config.callbacks:
            if not isinstance(callback, UserCallback):
                raise TypeError(f"callbacks: {callback!r} is no sheaf.train.UserCallback")
        self._plan = Plan(
            loop=train_loop_per_worker,
            config=_argument(train_loop_per_worker, train_loop_config),
            scaling=scaling_config or ScalingConfig(),
            run=self._run_config,
            backend=backend_config or BackendConfig(),
            datasets=data.check(datasets),
            dataset_config=data.check_config(dataset_config, datasets or {}),
            metadata=dict(metadata or {}),
            resume_from=resume_from_checkpoint,
        )

    def _with_config(
        self,
        config: dict[str, Any],
        folder: str,
        checkpoint: Checkpoint | None,
        told: Callable[[dict[str, Any], Checkpoint | None], None],
    ) -> DataParallelTrainer:
        """For trials of sheaf.tune: the same trainer with this configuration, its run in the
        trial's folder. told: is called with each report."""
        plan = self._plan
        loop_config = {**(plan.config or {}), **config.get("train_loop_config", {})}
        made = copy.copy(self)
        made._shown_name = os.path.basename(folder)
        made._run_config = dataclasses.replace(
            self._run_config,
            name="training",
            storage_path=folder,
            callbacks=(*self._run_config.callbacks, _Forwarding(told)),
            progress=False,
        )
        made._plan = dataclasses.replace(
            plan,
            config=_argument(plan.loop, loop_config or None),
            scaling=config.get("scaling_config", plan.scaling),
            datasets={**plan.datasets, **data.check(config.get("datasets"))},
            run=made._run_config,
            resume_from=checkpoint or plan.resume_from,
        )
        return made

    def _bundles(self) -> tuple[list[dict[str, float]], str]:
        """What its workers hold, and how they are placed."""
        scaling = self._plan.scaling
        return [scaling.bundle] * scaling.bounds[0], scaling.placement_strategy

    def fit(self) -> Result:
        """Trains. A run of the same RunConfig.name goes on from its newest checkpoint.

        Joins a cluster first, as sheaf.init() does, where the process has not joined one.

        Returns:
            What was reached.

        Raises:
            TrainingFailedError: workers failed more often than FailureConfig allows, or there is no
                room for them. Its `result` is what had been reached.
            OSError: the storage failed.
            Exception: what a callback raised.
        """
        if not sheaf.is_initialized():
            sheaf.init()
        run = self._run_config
        filesystem, root = storage.resolve(run.storage_path or _HOME, run.storage_filesystem)
        name = run.name or f"train-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        return Run(self._plan, self._shown_name or name, filesystem, f"{root}/{name}").go()


class _Forwarding(UserCallback):
    """Tells of each report."""

    def __init__(self, told: Callable[[dict[str, Any], Checkpoint | None], None]):
        self._told = told

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        self._told(metrics[0], checkpoint)


def _argument(loop: Any, config: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the loop is called with: its configuration, or None for no argument."""
    if not callable(loop):
        raise TypeError(f"train_loop_per_worker={loop!r}: want a function")
    wanted = [
        p
        for p in inspect.signature(loop).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    takes = [
        p
        for p in inspect.signature(loop).parameters.values()
        if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)
    ]
    if len(wanted) > 1:
        raise TypeError(
            f"train_loop_per_worker={loop!r} takes {len(wanted)} arguments: want "
            "one, the configuration, or none"
        )
    if config is not None and not takes:
        raise TypeError(
            f"train_loop_config={config!r}, but {loop!r} takes no argument: add "
            "one, or leave the configuration out"
        )
    return dict(config or {}) if wanted or config is not None else None

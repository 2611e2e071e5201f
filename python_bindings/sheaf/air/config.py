# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a run of sheaf.train or sheaf.tune is told: how many workers, where its results go, which
checkpoints stay, how often it may fail.

All classes check their values when they are made: ValueError or TypeError with the value and what
is wanted.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

_STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclasses.dataclass
class ScalingConfig:
    """How many workers there are, and what each of them holds.

    Args:
        num_workers: a number, or (min, max): as many as there is room for, more when room appears,
            fewer when a node is lost.
        use_gpu: whether each worker holds a GPU.
        resources_per_worker: amounts by resource, as {"CPU": 2}; None: one CPU.
        placement_strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD; with (min, max) only PACK.
        accelerator_type: of the GPUs (sheaf.util.accelerators); None: any.
        label_selector: the labels that the nodes of workers must have.
        placement_timeout_s: seconds that workers may wait for their resources.
        elastic_resize_monitor_interval_s: seconds that a group of (min, max) runs at least before
            it grows.

    Raises:
        ValueError: a value does not fit; the text has it and what is wanted.
    """

    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: dict[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: dict[str, str] | None = None
    placement_timeout_s: float = 60.0
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        count = self.num_workers
        if isinstance(count, (tuple, list)):
            if len(count) != 2 or not _is_count(count[0], 1) or not _is_count(count[1], count[0]):
                raise ValueError(
                    f"num_workers={count!r}: want a number from 1, or (min, max) "
                    "with 1 <= min <= max"
                )
            self.num_workers = (count[0], count[1])
        elif not _is_count(count, 1):
            raise ValueError(
                f"num_workers={count!r}: want a number from 1, or (min, max) with 1 <= min <= max"
            )
        if self.placement_strategy not in _STRATEGIES:
            raise ValueError(
                f"placement_strategy={self.placement_strategy!r}: want one of "
                f"{', '.join(_STRATEGIES)}"
            )
        if self.elastic and self.placement_strategy != "PACK":
            raise ValueError(
                f"placement_strategy={self.placement_strategy!r}: (min, max) "
                "workers are placed one by one, only PACK fits"
            )
        for name, amount in (self.resources_per_worker or {}).items():
            if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not amount >= 0:
                raise ValueError(
                    f"resources_per_worker[{name!r}]={amount!r}: want a number that is not negative"
                )
        if self.use_gpu and (self.resources_per_worker or {}).get("GPU") == 0:
            raise ValueError(
                "resources_per_worker['GPU']=0 and use_gpu=True: leave one of them out"
            )
        gpus = (self.resources_per_worker or {}).get("GPU")
        if not self.use_gpu and gpus:
            raise ValueError(f"resources_per_worker['GPU']={gpus!r}: add use_gpu=True")
        if not any(self.bundle.values()):
            raise ValueError(
                f"resources_per_worker={self.resources_per_worker!r}: a worker "
                f"needs at least one resource, as {{'CPU': 1}}"
            )

    @property
    def elastic(self) -> bool:
        """Whether the number of workers may change."""
        return isinstance(self.num_workers, tuple)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest number of workers."""
        return (
            self.num_workers
            if isinstance(self.num_workers, tuple)
            else (self.num_workers, self.num_workers)
        )

    @property
    def bundle(self) -> dict[str, float]:
        """What one worker holds, by resource."""
        amounts = (
            {"CPU": 1.0} if self.resources_per_worker is None else dict(self.resources_per_worker)
        )
        if self.use_gpu:
            amounts.setdefault("GPU", 1.0)
        if self.accelerator_type:
            amounts[f"accelerator_type:{self.accelerator_type}"] = 0.001
        return amounts


@dataclasses.dataclass
class CheckpointConfig:
    """Which checkpoints stay. The newest always does.

    Args:
        num_to_keep: how many, the best by the metric, or the newest; None: all.
        checkpoint_score_attribute: the metric; None: there is none.
        checkpoint_score_order: "max" or "min" is best.
        checkpoint_frequency: a Trainable of sheaf.tune saves each so many steps; 0: never.
        checkpoint_at_end: whether a Trainable of sheaf.tune saves when it ends; None: where it has
            save_checkpoint.

    Raises:
        ValueError: a value does not fit.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and not _is_count(self.num_to_keep, 1):
            raise ValueError(
                f"num_to_keep={self.num_to_keep!r}: want a number from 1, or None for all"
            )
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f"checkpoint_score_order={self.checkpoint_score_order!r}: want 'max' or 'min'"
            )
        self.checkpoint_frequency = self.checkpoint_frequency or 0
        if not _is_count(self.checkpoint_frequency, 0):
            raise ValueError(
                f"checkpoint_frequency={self.checkpoint_frequency!r}: want a number from 0"
            )


@dataclasses.dataclass
class FailureConfig:
    """How often a run may fail.

    Args:
        max_failures: how often a group of workers may be formed anew, or a trial begin again, after
            a failure; -1: no bound.
        fail_fast: of sheaf.tune: whether the first trial that fails ends the experiment; "raise":
            and fit() raises what the trial did.
        silence_timeout_s: a worker that does not answer for so many seconds counts as dead, and is
            ended.

    Raises:
        ValueError: a value does not fit.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    silence_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not _is_count(self.max_failures, -1):
            raise ValueError(
                f"max_failures={self.max_failures!r}: want a number from 0, or -1 for no bound"
            )
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"fail_fast={self.fail_fast!r}: want True, False or 'raise'")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"fail_fast={self.fail_fast!r} and max_failures={self.max_failures}: "
                "one that fails fast is not tried again; leave one of them out"
            )
        if not self.silence_timeout_s > 0:
            raise ValueError(
                f"silence_timeout_s={self.silence_timeout_s!r}: want seconds, more than 0"
            )


@dataclasses.dataclass
class RunConfig:
    """Where results go, and what is done beside training.

    Args:
        name: of the folder that holds the run; a run of the same name goes on from its last
            checkpoint. None: a new name.
        storage_path: the folder around it, or a URI where fsspec or pyarrow is installed; None:
            ~/sheaf_results. Workers on other nodes must see the same.
        storage_filesystem: one of pyarrow's or fsspec's, with `storage_path` inside it.
        failure_config: how often it may fail; None: never.
        checkpoint_config: which checkpoints stay; None: all.
        sync_config: of sheaf.tune: a SyncConfig; files are written where they belong, so that it
            changes nothing.
        verbose: of sheaf.tune: 0 shows nothing, 1 a table of trials, 2 and 3 their results as well;
            None: 1.
        stop: of sheaf.tune: a dict from metrics to the values at which a trial ends, a function of
            (trial_id, result) that says whether it does, or a Stopper.
        callbacks: what is done beside the run, in the driver's process: UserCallbacks of
            sheaf.train, or Callbacks of sheaf.tune.
        progress_reporter: of sheaf.tune: a ProgressReporter; None: one that fits the terminal.
        log_to_file: of sheaf.tune: whether what a trial prints goes into files `stdout` and
            `stderr` of its folder, the name of one file for both, or two names.
        worker_runtime_env: of the workers, as sheaf.init takes one.
        total_reports: how often a worker will report, for the time left; None: it is not known.
        progress: whether stderr shows how it goes: one line in its place on a terminal, else a line
            every five seconds.

    Raises:
        ValueError: a value does not fit.
        TypeError: a value has the wrong type.
    """

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig = dataclasses.field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    sync_config: Any = None
    verbose: Any = None
    stop: Any = None
    callbacks: Sequence[Any] = ()
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False
    worker_runtime_env: dict[str, Any] | None = None
    total_reports: int | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and (
            not self.name or "/" in self.name or self.name.startswith(".")
        ):
            raise ValueError(
                f"name={self.name!r}: want the name of a folder, without '/' and "
                "not beginning with '.'"
            )
        for name, kind in (
            ("failure_config", FailureConfig),
            ("checkpoint_config", CheckpointConfig),
        ):
            if getattr(self, name) is None:
                setattr(self, name, kind())
            elif not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name}={getattr(self, name)!r}: want a {kind.__name__}")
        self.callbacks = tuple(self.callbacks or ())
        for callback in self.callbacks:
            if not hasattr(callback, "after_report") and not hasattr(callback, "on_trial_result"):
                raise TypeError(
                    f"callbacks: {callback!r} is no sheaf.train.UserCallback, and no "
                    "sheaf.tune.Callback"
                )
        if self.total_reports is not None and not _is_count(self.total_reports, 1):
            raise ValueError(f"total_reports={self.total_reports!r}: want a number from 1, or None")

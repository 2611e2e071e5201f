# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One trial: a configuration, and what has become of it. The controller alone changes it."""

from __future__ import annotations

import collections
import os
import pickle
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import CheckpointConfig
from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.error import TuneError
from sheaf.tune.execution.placement_groups import PlacementGroupFactory, resource_dict_to_pg_factory
from sheaf.tune.experiment.kept_checkpoints import Kept, KeptCheckpoints

_LONGEST_NAME = 130  # Of a folder, before the date.
_MOST = 10**300  # Sums of larger integers are no floats.
_RECENT = 10  # Values that "last-10-avg" is over.


class MetricRecord:
    """What one metric has been in a trial so far."""

    __slots__ = ("count", "greatest", "least", "recent", "total")

    def __init__(self, value: float):
        self.least = self.greatest = value
        self.total, self.count = 0.0, 0
        self.recent: collections.deque[float] = collections.deque(maxlen=_RECENT)

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        if value < self.least:
            self.least = value
        if value > self.greatest:
            self.greatest = value
        self.recent.append(value)

    def summary(self) -> dict[str, float]:
        """By the names that get_best_trial knows as scopes."""
        recent = list(self.recent)
        return {
            "max": self.greatest,
            "min": self.least,
            "avg": self.total / self.count,
            "last": recent[-1],
            "last-5-avg": sum(recent[-5:]) / len(recent[-5:]),
            "last-10-avg": sum(recent) / len(recent),
        }


class Trial:
    """A configuration, and what has become of it.

    Args:
        trainable_name: of what it runs.
        config: what that is called with.
        trial_id: None: a new one.
        evaluated_params: the values that were chosen for it, by their path in the configuration.
        experiment_tag: says which trial of the experiment it is, and those values.
        placement_group_factory: what it holds; None: one CPU.
        stopping_criterion: the values of metrics at which it ends.
        checkpoint_config: which checkpoints stay.
        max_failures: how often it may fail; -1: without bound.
        experiment_path: the folder that its own lies in.
        local_experiment_path: where the driver writes of that; None: into it.
        trial_name_creator: makes its name.
        trial_dirname_creator: makes the name of its folder.
        begin_from: the checkpoint that it begins from; None: it begins anew.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    def __init__(
        self,
        trainable_name: str,
        *,
        config: dict[str, Any] | None = None,
        trial_id: str | None = None,
        evaluated_params: dict[str, Any] | None = None,
        experiment_tag: str = "",
        placement_group_factory: PlacementGroupFactory | None = None,
        stopping_criterion: Mapping[str, float] | None = None,
        checkpoint_config: CheckpointConfig | None = None,
        max_failures: int = 0,
        experiment_path: str = "",
        local_experiment_path: str | None = None,
        trial_name_creator: Any = None,
        trial_dirname_creator: Any = None,
        begin_from: Kept | None = None,
    ):
        self.trainable_name = trainable_name
        self.trial_id = trial_id or self.generate_id()
        self.config = config or {}
        self.evaluated_params = evaluated_params or {}
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory or resource_dict_to_pg_factory()
        self.stopping_criterion = dict(stopping_criterion or {})
        self.max_failures = max_failures
        self.experiment_path = experiment_path
        self.local_experiment_path = local_experiment_path or experiment_path
        self.status = self.PENDING
        self.last_result: dict[str, Any] = {}
        self.last_result_time = 0.0
        self.start_time: float | None = None
        self.num_failures = 0
        self.error: BaseException | None = None
        self.error_text: str | None = None
        self.node_ip: str | None = None
        self.pid: int | None = None
        self.kept = KeptCheckpoints(checkpoint_config)
        self.begin_from = begin_from
        self.is_saving = False
        self.metrics: dict[str, MetricRecord] = {}
        self.custom_trial_name = trial_name_creator(self) if trial_name_creator else None
        self.custom_dirname = trial_dirname_creator(self) if trial_dirname_creator else None
        if self.custom_dirname and "/" in self.custom_dirname:
            raise TuneError(
                f"trial_dirname_creator gave {self.custom_dirname!r}: want a name without '/'"
            )
        self.dirname: str | None = None

    @classmethod
    def generate_id(cls) -> str:
        """Returns an id that no other trial has."""
        return uuid.uuid4().hex[:8]

    @property
    def trial_name(self) -> str:
        """What it is called in tables, and what its folder's name begins with."""
        if self.custom_trial_name:
            return str(self.custom_trial_name)
        name = self.trainable_name
        if "env" in self.config:
            env = self.config["env"]
            name = f"{name}_{env.__name__ if isinstance(env, type) else env}"
        return f"{name}_{self.trial_id}".replace("/", "_")

    def init_local_path(self) -> None:
        """Gives it the folder that the driver writes into: a name, once, that no other trial's has,
        and the folder where it is not there."""
        root = self.local_experiment_path
        if self.dirname is None:
            name = self.custom_dirname
            if not name:
                day = time.strftime("%Y-%m-%d_%H-%M-%S")
                name = f"{self.trial_name}_{self.experiment_tag}"[:_LONGEST_NAME] + f"_{day}"
            self.dirname = re.sub(r'[/()<>:"\\|?*]', "_", name)
            if root and os.path.exists(f"{root}/{self.dirname}"):
                self.dirname = f"{self.dirname}_{self.trial_id}"
        if root:  # Else nothing is written of it.
            os.makedirs(f"{root}/{self.dirname}", exist_ok=True)

    @property
    def path(self) -> str | None:
        """The path of its folder in the storage, or None: it has none yet."""
        return None if self.dirname is None else f"{self.experiment_path}/{self.dirname}"

    @property
    def local_path(self) -> str | None:
        """The path of the folder into which the driver writes, or None: it has none yet. It is the
        other one, unless that is in a storage that is no folder of this machine."""
        return None if self.dirname is None else f"{self.local_experiment_path}/{self.dirname}"

    logdir = local_path

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's folder."""
        return os.path.basename(self.experiment_path)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest one that is there, or None."""
        newest = self.kept.newest
        return newest.checkpoint if newest else None

    def has_checkpoint(self) -> bool:
        """Returns whether there is one to go on from."""
        return self.checkpoint is not None

    @property
    def has_reported_at_least_once(self) -> bool:
        """Whether it has reported anything."""
        return bool(self.last_result)

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each metric its "max", "min", "avg", "last", "last-5-avg" and "last-10-avg"."""
        return {name: record.summary() for name, record in self.metrics.items()}

    @property
    def error_file(self) -> str | None:
        """The path of the file with what it raised, or None: it has not failed."""
        return f"{self.path}/{fields.EXPR_ERROR_FILE}" if self.error_text else None

    def get_error(self) -> BaseException | None:
        """Returns what it raised last, or None."""
        return self.error

    get_pickled_error = get_error

    def set_config(self, config: dict[str, Any]) -> None:
        """Gives it another configuration, for when it is started again.

        Args:
            config: what its function is called with then.
        """
        self.config = config

    def set_experiment_tag(self, experiment_tag: str) -> None:
        """Gives it another tag.

        Args:
            experiment_tag: says which trial of the experiment it is, and its values.
        """
        self.experiment_tag = experiment_tag

    def update_resources(self, resources: Mapping[str, Any] | PlacementGroupFactory) -> None:
        """Changes what it holds when it is started again.

        Args:
            resources: amounts by resource, or a factory.

        Raises:
            ValueError: the trial runs.
        """
        if self.status == self.RUNNING:
            raise ValueError(f"{self} runs: pause it before its resources change")
        self.placement_group_factory = resource_dict_to_pg_factory(resources)

    def set_status(self, status: str) -> None:
        """Notes what has become of it.

        Args:
            status: one of the five above.
        """
        if status == self.RUNNING and self.start_time is None:
            self.start_time = time.time()
        self.status = status

    def is_finished(self) -> bool:
        """Returns whether it has ended, in whatever way."""
        return self.status in (self.TERMINATED, self.ERROR)

    def should_stop(self, flat: Mapping[str, Any]) -> bool:
        """Tells whether a result is its last.

        Args:
            flat: the result, without dicts inside it.

        Returns:
            Whether it says so itself, or a criterion is met; one that the result has no value for
            is not.
        """
        if flat.get(fields.DONE):
            return True
        for name, bound in self.stopping_criterion.items():
            if name in flat and flat[name] >= bound:
                return True
        return False

    def should_recover(self) -> bool:
        """Returns whether it begins again after the failures that it has had."""
        return self.max_failures < 0 or self.num_failures <= self.max_failures

    def update_last_result(self, result: dict[str, Any], reported: Mapping[str, Any]) -> None:
        """Notes a result.

        Args:
            result: all of it.
            reported: what of it was reported, and is summed up.
        """
        self.last_result = result
        self.last_result_time = result.get(fields.TIMESTAMP, 0.0)
        for name, value in flatten(dict(reported)).items():
            self._note(name, value)
        for name in (fields.TRAINING_ITERATION, fields.TIME_TOTAL_S):
            self._note(name, result.get(name))

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if isinstance(value, int):
                value = max(-_MOST, min(value, _MOST))
            record = self.metrics.get(name)
            if record is None:
                record = self.metrics[name] = MetricRecord(value)
            record.add(value)

    def __str__(self) -> str:
        return self.trial_name

    def __repr__(self) -> str:
        return self.trial_name

    def __hash__(self) -> int:
        return hash(self.trial_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.trial_id == other.trial_id

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        try:
            pickle.dumps(state["error"])
        except Exception:
            state["error"] = TuneError(self.error_text or str(self.error))
        return state

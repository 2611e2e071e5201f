# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The processes of trials: actors, with what they hold. Not thread-safe."""

from __future__ import annotations

import dataclasses
from typing import Any

import sheaf
from sheaf.exceptions import RayError
from sheaf.tune.execution.placement_groups import PlacementGroupFactory
from sheaf.tune.trainable.actor import TrialActor
from sheaf.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@dataclasses.dataclass
class Process:
    """One of them. `group`: of trials with several bundles."""

    handle: Any
    factory: PlacementGroupFactory
    group: PlacementGroup | None


class Processes:
    """Makes them, keeps those that shall run another trial, ends them."""

    def __init__(self, trainable: Any, runtime_env: dict[str, Any] | None):
        self._trainable = sheaf.put(trainable)
        self._environment = runtime_env
        self._class: Any = sheaf.remote(TrialActor)
        self._idle: dict[PlacementGroupFactory, list[Process]] = {}
        self._groups: dict[PlacementGroupFactory, list[PlacementGroup]] = {}

    def get(self, factory: PlacementGroupFactory) -> Process:
        """One that holds this: idle, or new."""
        idle = self._idle.get(factory)
        if idle:
            return idle.pop()
        for processes in self._idle.values():  # They hold what this one needs.
            while processes:
                self.end(processes.pop())
        return self._make(factory)

    def keep(self, process: Process) -> None:
        """It may run another trial."""
        self._idle.setdefault(process.factory, []).append(process)

    def end(self, process: Process) -> None:
        """Kills it; its group may be used by another."""
        try:
            sheaf.kill(process.handle)
        except RayError:
            pass  # It is dead.
        if process.group is not None:
            self._groups.setdefault(process.factory, []).append(process.group)

    def close(self) -> None:
        """Ends those that are idle, and all groups."""
        for processes in self._idle.values():
            while processes:
                self.end(processes.pop())
        for groups in self._groups.values():
            while groups:
                try:
                    remove_placement_group(groups.pop())
                except RayError:
                    pass  # The cluster is gone.

    def _make(self, factory: PlacementGroupFactory) -> Process:
        bundles = factory.bundles
        elsewhere = factory.reserved_by_itself
        own = {} if factory.head_bundle_is_empty or elsewhere else dict(bundles[0])
        options: dict[str, Any] = {
            "num_cpus": own.pop("CPU", 0),
            "num_gpus": own.pop("GPU", 0) or None,
            "memory": own.pop("memory", None),
            "resources": own or None,
            "runtime_env": self._environment,
        }
        group = None
        if not elsewhere and (len(bundles) > 1 or factory.head_bundle_is_empty and bundles[0]):
            kept = self._groups.get(factory)
            group = kept.pop() if kept else placement_group(bundles, factory.strategy)
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        handle = self._class.options(**options).remote(self._trainable)
        return Process(handle, factory, group)

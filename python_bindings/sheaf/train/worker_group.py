# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The processes of a training run: where they are placed, which are alive, their ranks. Not
thread-safe; used by the driver."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import sheaf
from sheaf.air.config import RunConfig, ScalingConfig
from sheaf.exceptions import RayError
from sheaf.train.errors import TrainingFailedError
from sheaf.train.worker import CONTROL, CONTROL_THREADS, TrainWorker
from sheaf.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_MOST_REPLACEMENTS = 5  # Of one place, while the group is formed once.
_SETTLE_S = 1.0  # Beyond the least number of workers, how long more are waited for.


@dataclasses.dataclass
class Worker:
    """A process in its place. All but `handle` is known when it has answered."""

    handle: Any
    node: str = ""
    pid: int = 0
    process: str = ""  # As RuntimeContext.get_worker_id has it.

    @property
    def actor(self) -> str:
        """The id of the actor."""
        actor_id: str = self.handle._actor_id.hex()
        return actor_id


@dataclasses.dataclass
class Place:
    """Resources for one worker. `of_its_own`: the group is of this place alone."""

    group: PlacementGroup
    bundle: int
    of_its_own: bool
    worker: Worker | None = None


class WorkerGroup:
    """Workers by rank, after `form`."""

    def __init__(self, scaling: ScalingConfig, run: RunConfig):
        self._scaling = scaling
        self._environment = run.worker_runtime_env
        self._places: list[Place] = []
        self.members: list[Worker] = []

    def form(self) -> list[Worker]:
        """Fills all places with living workers, keeping those that live; ranks follow nodes. Gives
        those that are new.

        TrainingFailedError: there is no room, or workers die as soon as they start.
        """
        places = self._ready_places()
        new: list[Worker] = []
        replaced = dict.fromkeys(map(id, places), 0)
        deadline = time.monotonic() + self._scaling.placement_timeout_s
        unready = places
        while unready:
            asked = {}
            for place in unready:
                if place.worker is None:
                    place.worker = Worker(self._start(place))
                    new.append(place.worker)
                asked[place.worker.handle.describe.remote()] = place
            unready = []
            for ref, place in asked.items():
                assert place.worker is not None
                try:
                    place.worker.__dict__.update(
                        sheaf.get(ref, timeout=max(0.1, deadline - time.monotonic()))
                    )
                except TimeoutError:
                    raise TrainingFailedError(self._no_room()) from None
                except RayError as error:
                    replaced[id(place)] += 1
                    if replaced[id(place)] > _MOST_REPLACEMENTS:
                        raise TrainingFailedError(
                            f"workers end as soon as they start: {error}", cause=error
                        ) from error
                    if place.worker in new:
                        new.remove(place.worker)
                    self.end(place.worker)
                    unready.append(place)
        nodes = list(dict.fromkeys(place.worker.node for place in places if place.worker))
        self.members = sorted(
            (place.worker for place in places if place.worker),
            key=lambda worker: nodes.index(worker.node),
        )
        return new

    def ranks(self) -> list[dict[str, int]]:
        """For each rank its local_rank, local_world_size and node_rank."""
        nodes = [worker.node for worker in self.members]
        order = list(dict.fromkeys(nodes))
        return [
            {
                "local_rank": nodes[:rank].count(node),
                "local_world_size": nodes.count(node),
                "node_rank": order.index(node),
            }
            for rank, node in enumerate(nodes)
        ]

    def end(self, worker: Worker) -> None:
        """Kills it, if it lives; its place is free."""
        try:
            sheaf.kill(worker.handle)
        except RayError:
            pass  # It is dead.
        for place in self._places:
            if place.worker is worker:
                place.worker = None

    def can_grow(self) -> bool:
        """Whether there is room for more workers than there are; only with (min, max)."""
        return self._scaling.elastic and any(
            place.worker is None and place.group.wait(0) for place in self._places
        )

    def close(self) -> None:
        """Ends all workers and gives their resources back."""
        for place in self._places:
            if place.worker is not None:
                self.end(place.worker)
        for group in {place.group for place in self._places}:
            try:
                remove_placement_group(group)
            except RayError:
                pass  # The cluster is gone.
        self._places, self.members = [], []

    def _ready_places(self) -> list[Place]:
        """Places whose resources are reserved: all, or with (min, max) as many as there are."""
        least, most = self._scaling.bounds
        deadline = time.monotonic() + self._scaling.placement_timeout_s
        if not self._scaling.elastic:
            if not self._places:
                group = self._reserve(most, self._scaling.placement_strategy)
                self._places = [Place(group, index, False) for index in range(most)]
            if not self._places[0].group.wait(self._scaling.placement_timeout_s):
                raise TrainingFailedError(self._no_room())
            return self._places
        while len(self._places) < most:
            self._places.append(Place(self._reserve(1, "PACK"), 0, True))
        settled = None
        while True:
            ready = [
                place for place in self._places if place.worker is not None or place.group.wait(0)
            ]
            now = time.monotonic()
            if len(ready) >= least and settled is None:
                settled = now + _SETTLE_S
            if len(ready) == most or settled is not None and now > settled:
                return ready
            if now > deadline:
                raise TrainingFailedError(self._no_room())
            time.sleep(0.02)

    def _reserve(self, count: int, strategy: str) -> PlacementGroup:
        selector = self._scaling.label_selector
        return placement_group(
            [dict(self._scaling.bundle) for _ in range(count)],
            strategy,
            bundle_label_selector=[selector] * count if selector else None,
        )

    def _start(self, place: Place) -> Any:
        others = {
            name: amount
            for name, amount in self._scaling.bundle.items()
            if name not in ("CPU", "GPU", "memory")
        }
        bundle = self._scaling.bundle
        return (
            _actor()
            .options(
                num_cpus=bundle.get("CPU", 0),
                num_gpus=bundle.get("GPU") or None,
                memory=bundle.get("memory"),
                resources=others or None,
                runtime_env=self._environment,
                max_concurrency=1,
                concurrency_groups={CONTROL: CONTROL_THREADS},
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    place.group,
                    placement_group_bundle_index=place.bundle,
                    placement_group_capture_child_tasks=True,
                ),
            )
            .remote()
        )

    def _no_room(self) -> str:
        count = self._scaling.num_workers
        return (
            f"no room for num_workers={count} of {self._scaling.bundle} each "
            f"({self._scaling.placement_strategy}) within "
            f"{self._scaling.placement_timeout_s:g} s: free are "
            f"{sheaf.available_resources()} of {sheaf.cluster_resources()}; ask for "
            "less, add nodes, or raise ScalingConfig.placement_timeout_s"
        )


def _actor() -> Any:
    return sheaf.remote(TrainWorker)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Who gets the CPUs and GPUs that no trial uses."""

from __future__ import annotations

import math
from typing import Any

_KINDS = ("CPU", "GPU")


class DistributeResources:
    """Shares what is free evenly among the live trials, in steps.

    Args:
        add_bundles: whether a step is a bundle more; False: the only bundle grows.
        increase_by: a step; None: one CPU, one GPU where trials have GPUs, or, where bundles are
            added, the last bundle.
        increase_by_times: how many steps a trial takes at most; -1: no limit.
        reserve_resources: what is left free.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
    ) -> None:
        self.add_bundles = add_bundles
        self.increase_by = increase_by or {}
        self.increase_by_times = increase_by_times
        self.reserve_resources = reserve_resources or {}

    def __call__(
        self, tune_controller: Any, trial: Any, result: dict[str, Any], scheduler: Any
    ) -> Any:
        """Decides what a trial shall have.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.
            scheduler: the ResourceChangingScheduler.

        Returns:
            A PlacementGroupFactory; None: it stays as it is.

        Raises:
            ValueError: trials have several bundles, and add_bundles is False.
        """
        base = scheduler.base_trial_resources
        if result["training_iteration"] < 1:
            return None
        if not self.add_bundles and len(base.bundles) > 1:
            raise ValueError(
                "If `add_bundles` is False, the number of bundles in `resources_per_trial` must "
                f"be 1 (got {len(base.bundles)})."
            )
        step = self._step(base)
        live = tune_controller.get_live_trials()
        total = tune_controller.total_resources()
        free = {
            kind: total.get(kind, 0)
            - self.reserve_resources.get(kind, 0)
            - sum(other.placement_group_factory.required_resources.get(kind, 0) for other in live)
            for kind in _KINDS
        }
        taken = self._steps_taken(trial, base, step)
        steps = self._steps(trial, live, base, step, free, taken)
        if steps == taken:
            return None
        return type(base)(self._bundles(base, step, steps), strategy=base.strategy)

    def _step(self, base: Any) -> dict[str, float]:
        if self.increase_by:
            assert any(self.increase_by.get(kind, 0) > 0 for kind in _KINDS), self.increase_by
            return self.increase_by
        if self.add_bundles:
            return dict(base.bundles[-1])
        return {"GPU": 1} if base.bundles[0].get("GPU", 0) else {"CPU": 1}

    def _steps_taken(self, trial: Any, base: Any, step: dict[str, float]) -> int:
        bundles = trial.placement_group_factory.bundles
        if self.add_bundles:
            return len(bundles) - len(base.bundles)
        return min(
            round((bundles[0].get(kind, 0) - base.bundles[0].get(kind, 0)) / step[kind])
            for kind in _KINDS
            if step.get(kind, 0)
        )

    def _bundles(self, base: Any, step: dict[str, float], steps: int) -> list[dict[str, float]]:
        bundles = [dict(bundle) for bundle in base.bundles]
        if self.add_bundles:
            return bundles + [dict(step) for _ in range(steps)]
        for kind in step:
            bundles[0][kind] = bundles[0].get(kind, 0) + steps * step[kind]
        return bundles

    def _limit(self) -> float:
        return self.increase_by_times if self.increase_by_times > 0 else math.inf

    def _steps(
        self,
        trial: Any,
        live: list[Any],
        base: Any,
        step: dict[str, float],
        free: dict[str, float],
        taken: int,
    ) -> int:
        # All that trials have taken beyond the base, and what is free, in steps.
        spare = _fitting(free, step) + sum(self._steps_taken(t, base, step) for t in live)
        share = min(math.ceil(max(spare, 0) / len(live)), self._limit())
        return _clamped(taken + _fitting(free, step), share)


class DistributeResourcesToTopJob(DistributeResources):
    """Gives all that is free to the best of the live trials that may have more.

    Args:
        add_bundles: as of DistributeResources.
        increase_by: as of DistributeResources.
        increase_by_times: as of DistributeResources.
        reserve_resources: as of DistributeResources.
        metric: what of a result is looked at; None: the scheduler's.
        mode: "min" or "max"; None: the scheduler's.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: dict[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: dict[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric = metric
        self.mode = mode

    def _steps(
        self,
        trial: Any,
        live: list[Any],
        base: Any,
        step: dict[str, float],
        free: dict[str, float],
        taken: int,
    ) -> int:
        if self.metric is None or self.mode not in ("min", "max"):
            raise ValueError(
                f"DistributeResourcesToTopJob needs a metric ({self.metric}) and a mode "
                f"({self.mode}): give them to it, to the base scheduler or to tune.TuneConfig()"
            )
        sign = 1 if self.mode == "min" else -1
        ranked = sorted(live, key=lambda t: sign * t.last_result.get(self.metric, sign * math.inf))
        may_grow = (t for t in ranked if self._steps_taken(t, base, step) < self._limit())
        best = next(may_grow, ranked[0])
        more = _fitting(free, step)
        if trial.trial_id != best.trial_id and more >= 0:
            return taken
        return _clamped(taken + more, self._limit())


def _fitting(free: dict[str, float], step: dict[str, float]) -> int:
    """How many steps fit into what is free; below 0 where too much is taken."""
    return int(min(free[kind] // step[kind] for kind in _KINDS if step.get(kind, 0)))


def _clamped(steps: int, most: float) -> int:
    return int(max(0, min(steps, most)))

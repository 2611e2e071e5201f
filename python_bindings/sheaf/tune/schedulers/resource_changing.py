# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A scheduler around another that changes what trials may use while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sheaf.tune.schedulers.distribute_resources import DistributeResources
from sheaf.tune.schedulers.trial_scheduler import RUNNING, FIFOScheduler, TrialScheduler

_EVENLY = DistributeResources()


class ResourceChangingScheduler(FIFOScheduler):
    """Pauses a trial that shall have other resources; it goes on with them from a checkpoint.

    Args:
        base_scheduler: decides all else; None: FIFOScheduler.
        resources_allocation_function: takes the controller, a trial, its result and this scheduler,
            and returns a PlacementGroupFactory, or None where nothing changes; None: nothing ever
            does.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Callable[..., Any] | None = _EVENLY,
    ) -> None:
        super().__init__()
        self._base_scheduler: Any = base_scheduler or FIFOScheduler()
        self._allocate: Any = resources_allocation_function
        self._base_trial_resources: Any = None
        self._to_change: dict[str, tuple[Any, Any]] = {}  # Trials and what they shall have.
        self._changed: set[str] = set()

    @property
    def metric(self) -> str | None:
        """The inner scheduler's."""
        metric: str | None = self._base_scheduler.metric
        return metric

    @property
    def supports_buffered_results(self) -> bool:
        """The inner scheduler's."""
        return bool(self._base_scheduler.supports_buffered_results)

    @property
    def base_trial_resources(self) -> Any:
        """What each trial begins with."""
        return self._base_trial_resources

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Tells the inner scheduler, and the function where it has no objective.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            spec: more of the experiment.

        Returns:
            Whether the inner scheduler takes them.
        """
        taken = bool(self._base_scheduler.set_search_properties(metric, mode, **spec))
        base = self._base_scheduler
        for name, value in (
            ("metric", base.metric),
            ("mode", getattr(base, "_mode", mode) or mode),
        ):
            if self._allocate is not None and getattr(self._allocate, name, "") is None:
                setattr(self._allocate, name, value)
        return taken

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Notes what trials begin with.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            RuntimeError: two trials begin with different resources.
        """
        resources = trial.placement_group_factory
        if self._base_trial_resources is None:
            self._base_trial_resources = resources
        elif trial.trial_id not in self._changed and resources != self._base_trial_resources:
            raise RuntimeError(
                "ResourceChangingScheduler needs trials that begin with the same resources: one "
                f"has {self._base_trial_resources}, the trial {trial.trial_id} {resources}"
            )
        self._base_scheduler.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Tells the inner scheduler.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        self._base_scheduler.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Asks the inner scheduler, and the function where the trial goes on.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            What the inner scheduler says; PAUSE where resources change.
        """
        decision: str = self._base_scheduler.on_trial_result(tune_controller, trial, result)
        if decision != self.CONTINUE or self._allocate is None:
            return decision
        resources = self._allocate(tune_controller, trial, result, self)
        if not resources or resources == trial.placement_group_factory:
            return decision
        self._to_change[trial.trial_id] = (trial, resources)
        return self.PAUSE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Tells the inner scheduler.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reported last.
        """
        self._base_scheduler.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Tells the inner scheduler.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        self._base_scheduler.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Gives paused trials their new resources, and asks the inner scheduler.

        Args:
            tune_controller: the controller.

        Returns:
            What the inner scheduler says.
        """
        for trial_id, (trial, resources) in list(self._to_change.items()):
            if trial.status != RUNNING:
                trial.update_resources(resources)
                self._changed.add(trial_id)
                del self._to_change[trial_id]
        return self._base_scheduler.choose_trial_to_run(tune_controller)

    def debug_string(self) -> str:
        """Returns what the inner scheduler says."""
        return f"(ResourceChangingScheduler) {self._base_scheduler.debug_string()}"

    def get_state(self) -> dict[str, Any]:
        """Returns what set_state() wants later, picklable."""
        return {"base": self._base_scheduler.get_state(), "changed": set(self._changed)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was.

        Args:
            state: what its get_state() returned.
        """
        self._base_scheduler.set_state(state["base"])
        self._changed = set(state["changed"])

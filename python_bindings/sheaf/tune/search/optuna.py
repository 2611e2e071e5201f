# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Optuna as the searcher."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from sheaf.tune.result_keys import DEFAULT_METRIC, TRAINING_ITERATION
from sheaf.tune.search.domains import Categorical, Domain, Float, Integer
from sheaf.tune.search.flatten import flatten_dict
from sheaf.tune.search.pickled import PickledSearcher
from sheaf.tune.search.samplers import LogUniform, Uniform
from sheaf.tune.search.searcher import Metric
from sheaf.tune.search.space_conversion import (
    ListTemplates,
    check_warm_start,
    named_domains,
    package,
    require_objective,
    sampler_and_step,
    unsupported,
)
from sheaf.tune.search.variant_generator import parse_spec_vars

logger = logging.getLogger(__name__)

_SLOW_SPACE_S = 1.0  # A function that makes a space and takes longer does what trials should do.


class _SuggestionRecorder:
    """A trial of Optuna that remembers what it suggested."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self.values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._trial, name)
        if not (name.startswith("suggest_") and callable(attribute)):
            return attribute
        signature = inspect.signature(attribute)

        def suggest(*args: Any, **kwargs: Any) -> Any:
            parameter = signature.bind(*args, **kwargs).arguments["name"]
            self.values[parameter] = attribute(*args, **kwargs)
            return self.values[parameter]

        return suggest


class OptunaSearch(PickledSearcher):
    """Asks a study of Optuna, and tells it results.

    Args:
        space: a dict of distributions of Optuna, or a function that takes a trial of Optuna, calls
            its suggest_ methods and may return a dict of more values; None: the experiment's
            param_space.
        metric: what of a result is looked at; a list: several objectives.
        mode: "min" or "max"; a list where metric is one.
        points_to_evaluate: configurations to begin with.
        sampler: of Optuna; None: TPESampler.
        study_name: of the study.
        storage: of the study, of Optuna; None: memory.
        seed: of the default sampler.
        evaluated_rewards: values of the metric for points_to_evaluate, which are not tried then.

    Raises:
        ImportError: Optuna 3 or later is not installed.
    """

    def __init__(
        self,
        space: dict[str, Any] | Callable[[Any], dict[str, Any] | None] | None = None,
        metric: Metric = None,
        mode: Metric = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        optuna = package("optuna")
        super().__init__(metric=metric, mode=mode)
        self._lists = ListTemplates({})
        if isinstance(space, dict) and space:
            _, domains, grids = parse_spec_vars(space)
            if domains or grids:
                self._lists = ListTemplates(space)
                space = self.convert_search_space(space)
            else:
                space = flatten_dict(space)
        self._space: Any = space
        self._points_to_evaluate = points_to_evaluate or []
        self._evaluated_rewards = evaluated_rewards
        self._study_name = study_name or "optuna"
        if sampler:
            assert isinstance(sampler, optuna.samplers.BaseSampler), (
                f"`sampler` must be an instance of optuna.samplers.BaseSampler, not {sampler!r}"
            )
            if seed:
                logger.warning("`seed` is for the default sampler: give it to your sampler itself")
        self._sampler = sampler
        self._seed = seed
        assert not storage or isinstance(storage, optuna.storages.BaseStorage), (
            f"`storage` must be an instance of optuna.storages.BaseStorage, not {storage!r}"
        )
        self._storage = storage
        self._completed_trials: set[str] = set()
        self._trials: dict[str, Any] = {}  # Of Optuna, by the ids of ours.
        self._study: Any = None
        if self._space:
            self._setup_study()

    def _setup_study(self) -> None:
        import optuna

        if self._metric is None and self._mode:
            if isinstance(self._mode, list):
                raise ValueError("`metric` must be given where `mode` is a list")
            self._metric = DEFAULT_METRIC
        direction = {"min": "minimize"}
        directions: dict[str, Any]
        if isinstance(self._mode, list):
            directions = {"directions": [direction.get(m, "maximize") for m in self._mode]}
        else:
            directions = {"direction": direction.get(self._mode or "max", "maximize")}
        self._study = optuna.study.create_study(
            storage=self._storage,
            sampler=self._sampler or optuna.samplers.TPESampler(seed=self._seed),
            pruner=optuna.pruners.NopPruner(),  # Schedulers stop trials.
            study_name=self._study_name,
            load_if_exists=True,
            **directions,
        )
        points, rewards = self._points_to_evaluate, self._evaluated_rewards
        named = not callable(self._space)
        check_warm_start(self._space, points, rewards, as_many_values_as_names=named)
        for number, point in enumerate(points):
            if rewards:
                self.add_evaluated_point(point, rewards[number])
            else:
                self._study.enqueue_trial(flatten_dict(point, flatten_list=True))

    def set_search_properties(
        self, metric: Metric, mode: Metric, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Takes the search space and objective of an experiment.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            config: the search space.
            spec: more of the experiment.

        Returns:
            Whether they are taken; False: it has a space of its own.

        Raises:
            ValueError: the space has what Optuna has not.
        """
        if self._space:
            return False
        self._space = self.convert_search_space(config)
        self._lists = ListTemplates(config)
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        self._setup_study()
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Proposes a configuration.

        Args:
            trial_id: the trial that it is for.

        Returns:
            The configuration.

        Raises:
            RuntimeError: there is no space, metric or mode.
            TypeError: the function that makes the space returned no dict of names.
        """
        require_objective(self, self._space)
        if callable(self._space):
            if trial_id not in self._trials:
                self._trials[trial_id] = self._study.ask()
            return self._lists.assemble(self._call_space(self._trials[trial_id]))
        if trial_id not in self._trials:
            self._trials[trial_id] = self._study.ask(fixed_distributions=self._space)
        return self._lists.assemble(self._trials[trial_id].params)

    def _call_space(self, trial: Any) -> dict[str, Any]:
        recorder = _SuggestionRecorder(trial)
        begun = time.monotonic()
        constants = self._space(recorder)
        seconds = time.monotonic() - begun
        if seconds > _SLOW_SPACE_S:
            logger.warning(
                f"the function that defines the search space took {seconds:.1f} s: what takes time "
                "belongs into the trainable"
            )
        if constants is None:
            return recorder.values
        if not isinstance(constants, dict) or not all(isinstance(key, str) for key in constants):
            raise TypeError(
                "the function that defines the search space returns a dict with names as keys, or "
                f"None, not {constants!r}"
            )
        return {**recorder.values, **constants}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tells Optuna an intermediate value.

        Args:
            trial_id: the trial.
            result: its report.
        """
        if isinstance(self.metric, list) or self.metric not in result:
            return  # Optuna takes intermediate values of one objective only.
        if trial_id in self._completed_trials:
            logger.warning(f"a result of the trial {trial_id}, which is over: {result}")
            return
        self._trials[trial_id].report(result[self.metric], result[TRAINING_ITERATION])

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Optuna the last value.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        from optuna.trial import TrialState

        if trial_id in self._completed_trials:
            logger.warning(f"the trial {trial_id} is over for the second time: {result}")
            return
        value: Any = None
        if result and isinstance(self.metric, list):
            value = [result.get(metric) for metric in self.metric]
        elif result:
            value = result.get(self.metric)
        state = TrialState.COMPLETE
        if value is None:
            state = TrialState.FAIL if error else TrialState.PRUNED
        try:
            self._study.tell(self._trials[trial_id], value, state=state)
        except Exception as refused:  # A value that is no number: the search goes on without it.
            logger.warning(f"Optuna refuses the value {value!r} of the trial {trial_id}: {refused}")
        self._completed_trials.add(trial_id)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float | list[float] | None,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Adds a point that was tried elsewhere.

        Args:
            parameters: the configuration.
            value: of the metric.
            error: whether it failed.
            pruned: whether it was stopped early.
            intermediate_values: of the metric, before the last.

        Raises:
            RuntimeError: there is no space, metric or mode.
            TypeError: the space is a function.
        """
        import optuna

        require_objective(self, self._space)
        if callable(self._space):
            raise TypeError(
                "evaluated points need a space that is known before: a dict of distributions or a "
                "param_space, not a function"
            )
        state = optuna.trial.TrialState.COMPLETE
        if error:
            state, value = optuna.trial.TrialState.FAIL, None
        elif pruned:
            state = optuna.trial.TrialState.PRUNED
        key = "values" if isinstance(value, (list, tuple)) else "value"
        result: dict[str, Any] = {key: value}
        self._study.add_trial(
            optuna.trial.create_trial(
                state=state,
                **result,
                params=flatten_dict(parameters, flatten_list=True),
                distributions=self._space,
                intermediate_values=dict(enumerate(intermediate_values or [])) or None,
            )
        )

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> dict[str, Any]:
        """Writes a search space in Optuna's words.

        Args:
            spec: the space.

        Returns:
            Distributions by joined names.

        Raises:
            ValueError: it has a grid, or what Optuna has not.
        """
        return {name: _distribution(d) for name, d in named_domains(spec, "Optuna").items()}


def _distribution(domain: Domain) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    sampler, step = sampler_and_step(domain)
    logarithmic = isinstance(sampler, LogUniform)
    if logarithmic and step:
        logger.warning("Optuna does not round what it draws log-uniformly: the step may be ignored")
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        return CategoricalDistribution(domain.categories)
    if not isinstance(sampler, (LogUniform, Uniform)):
        raise unsupported("Optuna search", domain)
    if isinstance(domain, Float):
        if logarithmic:
            return FloatDistribution(domain.lower, domain.upper, log=True)
        return FloatDistribution(domain.lower, domain.upper, step=step)
    if isinstance(domain, Integer):
        # Bounds of Optuna are inclusive; so is the upper one of a domain with a step.
        upper = domain.upper - 1 if logarithmic or not step else domain.upper
        return IntDistribution(domain.lower, upper, step=step or 1, log=logarithmic)
    raise unsupported("Optuna search", domain)

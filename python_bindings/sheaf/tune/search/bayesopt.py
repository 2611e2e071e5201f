# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The package bayesian-optimization as the searcher."""

from __future__ import annotations

import collections
import json
import logging
import math
from typing import Any

from sheaf.tune.result_keys import DEFAULT_METRIC
from sheaf.tune.search.domains import Float
from sheaf.tune.search.flatten import flatten_dict
from sheaf.tune.search.pickled import PickledSearcher
from sheaf.tune.search.samplers import Uniform
from sheaf.tune.search.searcher import Searcher
from sheaf.tune.search.space_conversion import (
    ListTemplates,
    named_domains,
    package,
    require_objective,
    sampler_and_step,
    unsupported,
)
from sheaf.tune.search.variant_generator import parse_spec_vars

logger = logging.getLogger(__name__)


class BayesOptSearch(PickledSearcher):
    """A Gaussian process over floats.

    Args:
        space: bounds by name, or a param_space; None: the experiment's.
        metric: what of a result is looked at.
        mode: "min" or "max".
        points_to_evaluate: configurations to begin with.
        utility_kwargs: kind ("ucb", "ei" or "poi"), kappa and xi of the acquisition function.
        random_state: a seed.
        random_search_steps: so many trials are over before the process is asked with results.
        verbose: of the package.
        patience: the search ends when a configuration comes up more often than this.
        skip_duplicate: whether a configuration that came up before is not tried again.
        analysis: an ExperimentAnalysis whose trials count as tried.
        repeat_float_precision: decimals in which configurations are compared.

    Raises:
        ImportError: bayesian-optimization is not installed.
        TypeError: repeat_float_precision is no integer.
        ValueError: patience or repeat_float_precision is out of its range.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        utility_kwargs: dict[str, Any] | None = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        package("bayes_opt", "bayesian-optimization")
        if mode:
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        if isinstance(repeat_float_precision, bool) or not isinstance(repeat_float_precision, int):
            raise TypeError("repeat_float_precision must be an integer.")
        if repeat_float_precision < 0:
            raise ValueError("repeat_float_precision must be non-negative.")
        if patience <= 0:
            raise ValueError("patience must be set to a value greater than 0!")
        super().__init__(metric=metric, mode=mode)
        self.repeat_float_precision = repeat_float_precision
        self.random_search_trials = random_search_steps
        self.optimizer: Any = None
        self._patience = patience
        self._skip_duplicate = skip_duplicate
        self._points_to_evaluate = list(points_to_evaluate or [])
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        self._random_state = random_state
        self._verbose = verbose
        self._analysis = analysis
        self._seen: collections.Counter[str] = collections.Counter()
        self._live: dict[str, dict[str, Any]] = {}
        self._first_results: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._random_suggested = 0
        self._lists = ListTemplates({})
        self._space: dict[str, Any] | None = None
        if space:
            _, domains, grids = parse_spec_vars(space)
            self._space = self.convert_search_space(space) if domains or grids else space
            self._setup()

    def _setup(self) -> None:
        import bayes_opt

        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        arguments: dict[str, Any] = {"verbose": self._verbose, "random_state": self._random_state}
        if not hasattr(bayes_opt, "UtilityFunction"):  # It became an object of its own in 2.0.
            arguments["acquisition_function"] = _acquisition(self._utility)
        self.optimizer = bayes_opt.BayesianOptimization(f=None, pbounds=self._space, **arguments)
        if self._analysis is not None:
            for trial in self._analysis.trials:
                if self._metric in trial.last_result:
                    self._register(flatten_dict(trial.config), trial.last_result)

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
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
            ValueError: the space has more than floats that are drawn uniformly.
        """
        if self.optimizer:
            return False
        self._space = self.convert_search_space(config)
        self._lists = ListTemplates(config)
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        self._setup()
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Proposes a configuration.

        Args:
            trial_id: the trial that it is for.

        Returns:
            The configuration; None: there is none now; FINISHED: it comes up again and again.

        Raises:
            RuntimeError: there is no space, metric or mode.
        """
        require_objective(self, self.optimizer)
        if self._points_to_evaluate:
            config = flatten_dict(self._points_to_evaluate.pop(0), flatten_list=True)
        else:
            config = self._proposed()
        name = self._name_of(config)
        seen = name in self._seen
        self._seen[name] += 1
        if self._seen.most_common(1)[0][1] > self._patience:
            logger.info("BayesOptSearch ends: it proposes what was tried before")
            return Searcher.FINISHED
        if seen and self._skip_duplicate:
            return None
        if len(self._first_results) < self.random_search_trials:
            if self._random_suggested == self.random_search_trials:
                return None  # The process waits for all that was drawn at random.
            self._random_suggested += 1
        self._live[trial_id] = config
        return self._lists.assemble(config)

    def _proposed(self) -> dict[str, Any]:
        import bayes_opt

        if hasattr(bayes_opt, "UtilityFunction"):
            proposed = self.optimizer.suggest(bayes_opt.UtilityFunction(**self._utility))
        else:
            proposed = self.optimizer.suggest()
        return dict(proposed)

    def _name_of(self, config: dict[str, Any]) -> str:
        rounded = {
            key: f"{value:.{self.repeat_float_precision}f}" if isinstance(value, float) else value
            for key, value in config.items()
        }
        return json.dumps(rounded, sort_keys=True, default=str)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the process, of the first trials when all are over.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        config = self._live.pop(trial_id, None)
        if result is None or config is None or error:
            return
        if len(self._first_results) >= self.random_search_trials:
            self._register(config, result)
            return
        self._first_results.append((config, result))
        if len(self._first_results) == self.random_search_trials:
            for each in self._first_results:
                self._register(*each)

    def _register(self, config: dict[str, Any], result: dict[str, Any]) -> None:
        value = result[self.metric]
        if math.isfinite(value):
            self.optimizer.register(config, value if self._mode == "max" else -value)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> dict[str, tuple[float, float]]:
        """Finds the bounds of a search space.

        Args:
            spec: the space.

        Returns:
            Bounds by joined names.

        Raises:
            ValueError: it has a grid, or what is no float.
        """
        bounds = {}
        for name, domain in named_domains(spec, "BayesOpt").items():
            sampler, step = sampler_and_step(domain)
            if not isinstance(domain, Float) or math.isinf(domain.lower + domain.upper):
                raise unsupported("BayesOpt", domain)
            if step or not isinstance(sampler, Uniform):
                logger.warning(f"BayesOpt draws {name} uniformly and without steps")
            bounds[name] = (domain.lower, domain.upper)
        return bounds


def _acquisition(utility: dict[str, Any]) -> Any:
    from bayes_opt import acquisition

    if utility["kind"] == "ucb":
        return acquisition.UpperConfidenceBound(kappa=utility["kappa"])
    if utility["kind"] == "ei":
        return acquisition.ExpectedImprovement(xi=utility["xi"])
    return acquisition.ProbabilityOfImprovement(xi=utility["xi"])

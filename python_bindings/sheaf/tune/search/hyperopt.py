# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""HyperOpt as the searcher."""

from __future__ import annotations

import copy
import functools
import logging
import math
from typing import Any

from sheaf.tune.error import TuneError
from sheaf.tune.result_keys import DEFAULT_METRIC
from sheaf.tune.search.domains import Categorical, Domain, Float, Integer
from sheaf.tune.search.flatten import flatten_dict
from sheaf.tune.search.pickled import PickledSearcher
from sheaf.tune.search.samplers import LogUniform, Normal, Uniform
from sheaf.tune.search.space_conversion import (
    package,
    require_objective,
    sampler_and_step,
    unsupported,
)
from sheaf.tune.search.variant_generator import assign_value, parse_spec_vars


class HyperOptSearch(PickledSearcher):
    """Tree-structured Parzen estimators of HyperOpt.

    Args:
        space: in HyperOpt's words, or as a param_space; None: the experiment's.
        metric: what of a result is looked at.
        mode: "min" or "max".
        points_to_evaluate: configurations to begin with.
        n_initial_points: how many are drawn at random before the estimator is asked.
        random_state_seed: of the random numbers.
        gamma: the part of the trials that counts as good.

    Raises:
        ImportError: HyperOpt is not installed.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        n_initial_points: int | None = 20,
        random_state_seed: int | None = None,
        gamma: float | None = 0.25,
    ) -> None:
        hyperopt = package("hyperopt")
        import numpy as np

        # It tells of each suggestion otherwise.
        logging.getLogger("hyperopt").setLevel(logging.WARNING)
        if mode:
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        super().__init__(metric=metric, mode=mode)
        options: dict[str, Any] = {"n_startup_jobs": n_initial_points, "gamma": gamma}
        given = {name: value for name, value in options.items() if value is not None}
        self._algorithm = functools.partial(hyperopt.tpe.suggest, **given)
        self._points_to_evaluate = copy.deepcopy(points_to_evaluate)
        self._points_left = 0
        self._live: dict[str, int] = {}  # Numbers of HyperOpt, by the ids of ours.
        self._random = np.random.RandomState(random_state_seed)
        self._history: Any = None
        self.domain: Any = None
        self._space: Any = None
        if isinstance(space, dict) and space:
            _, domains, grids = parse_spec_vars(space)
            self._space = self.convert_search_space(space) if domains or grids else space
            self._setup()

    def _setup(self) -> None:
        import hyperopt
        from hyperopt.fmin import generate_trials_to_calculate  # hyperopt.fmin is a function, too.

        if not self._space:
            require_objective(self, self._space)
        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        if self._points_to_evaluate is None:
            self._history = hyperopt.Trials()
        else:
            assert isinstance(self._points_to_evaluate, (list, tuple)), (
                f"points_to_evaluate is a list of dicts, not {self._points_to_evaluate!r}"
            )
            for point in self._points_to_evaluate:
                _categories_to_indices(point, self._space)
            # HyperOpt keeps them in this order, and suggest() takes them from the end.
            points = list(reversed(self._points_to_evaluate))
            self._history = generate_trials_to_calculate(points)
            self._history.refresh()
            self._points_left = len(points)
        self.domain = hyperopt.Domain(_identity, self._space)

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
            RuntimeError: there is nothing to draw in the space.
            ValueError: the space has what HyperOpt has not.
        """
        if self.domain:
            return False
        self._space = self.convert_search_space(config)
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        self._setup()
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Proposes a configuration.

        Args:
            trial_id: the trial that it is for.

        Returns:
            The configuration.

        Raises:
            RuntimeError: there is no space, metric or mode.
            ValueError: a point to begin with lacks a value.
        """
        require_objective(self, self.domain)
        given = self._points_left > 0
        if given:
            self._points_left -= 1
            trial = self._history.trials[self._points_left]
        else:
            ids = self._history.new_trial_ids(1)
            self._history.refresh()
            seed = self._random.randint(2**31 - 1)
            documents = self._algorithm(ids, self.domain, self._history, seed)
            self._history.insert_trial_docs(documents)
            self._history.refresh()
            trial = documents[0]
        self._live[trial_id] = trial["tid"]
        return self._configuration(trial, given)

    def _configuration(self, trial: Any, given: bool) -> dict[str, Any]:
        import hyperopt

        point = flatten_dict(hyperopt.base.spec_from_misc(trial["misc"]), flatten_list=True)
        control = hyperopt.base.Ctrl(self._history, current_trial=trial)
        memo = self.domain.memo_from_config(point)
        hyperopt.utils.use_obj_for_literal_in_memo(
            self.domain.expr, control, hyperopt.base.Ctrl, memo
        )
        try:
            config = hyperopt.pyll.rec_eval(
                self.domain.expr,
                memo=memo,
                print_node_on_error=self.domain.rec_eval_print_node_on_error,
            )
        except (AssertionError, TypeError) as error:
            if given and (isinstance(error, AssertionError) or "GarbageCollected" in str(error)):
                raise ValueError(
                    f"points_to_evaluate has {point}, which lacks a value of the space "
                    f"{self._space}"
                ) from error
            raise
        return copy.deepcopy(config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Notes that a trial is alive.

        Args:
            trial_id: the trial.
            result: its report.
        """
        trial = self._trial(trial_id)
        if trial is not None:
            import hyperopt

            trial["book_time"] = trial["refresh_time"] = hyperopt.utils.coarse_utcnow()

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells HyperOpt the last value.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.

        Raises:
            RuntimeError: the result has no such metric.
        """
        trial = self._trial(trial_id)
        if trial is None:
            return
        import hyperopt

        trial["refresh_time"] = hyperopt.utils.coarse_utcnow()
        if error:
            trial["state"] = hyperopt.base.JOB_STATE_ERROR
            trial["misc"]["error"] = (str(TuneError), "the trial failed")
        elif result:
            if self.metric not in result:
                raise RuntimeError(
                    f"the metric `{self.metric}` is not in the last result of the trial, which has "
                    f"{', '.join(map(str, result))}"
                )
            loss = result[self.metric] * (-1.0 if self._mode == "max" else 1.0)
            trial["state"] = hyperopt.base.JOB_STATE_DONE
            trial["result"] = {"loss": loss, "status": "ok"}
        self._history.refresh()
        del self._live[trial_id]

    def _trial(self, trial_id: str) -> Any:
        number = self._live.get(trial_id)
        if number is None:
            return None
        # The newest are the likeliest: a search from the front costs more with each trial.
        return next(t for t in reversed(self._history.trials) if t["tid"] == number)

    @staticmethod
    def convert_search_space(spec: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        """Writes a search space in HyperOpt's words.

        Args:
            spec: the space.
            prefix: stands before all names.

        Returns:
            The space with expressions of HyperOpt in the places of domains; nothing where there are
            none.

        Raises:
            ValueError: it has a grid, or what HyperOpt has not.
        """
        spec = copy.deepcopy(spec)
        _, domains, grids = parse_spec_vars(spec)
        if grids:
            raise ValueError(
                "Grid search parameters cannot be automatically converted to a HyperOpt "
                "search space."
            )
        if not domains:
            return {}
        for path, domain in domains:
            name = "/".join(map(str, (prefix, *path) if prefix else path))
            assign_value(spec, path, _expression(name, domain))
        return spec


def _identity(point: Any) -> Any:
    return point


def _expression(name: str, domain: Domain) -> Any:
    from hyperopt import hp

    sampler, step = sampler_and_step(domain)
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        options = enumerate(domain.categories)
        return hp.choice(name, [_option(name, i, category) for i, category in options])
    if isinstance(domain, Integer):
        return _integer(name, domain, sampler, step)
    if not isinstance(domain, Float):
        raise unsupported("HyperOpt", domain)
    quantized = [] if step is None else [step]
    if isinstance(sampler, LogUniform):
        draw = hp.qloguniform if quantized else hp.loguniform
        return draw(name, math.log(domain.lower), math.log(domain.upper), *quantized)
    if isinstance(sampler, Uniform):
        draw = hp.quniform if quantized else hp.uniform
        return draw(name, domain.lower, domain.upper, *quantized)
    if isinstance(sampler, Normal):
        draw = hp.qnormal if quantized else hp.normal
        return draw(name, sampler.mean, sampler.sd, *quantized)
    raise unsupported("HyperOpt", domain)


def _integer(name: str, domain: Integer, sampler: Any, step: Any) -> Any:
    from hyperopt import hp
    from hyperopt.pyll import scope

    last = domain.upper - 1
    if isinstance(sampler, LogUniform):
        upper = domain.upper if step else last
        bounds = (math.log(domain.lower), math.log(upper))
        return scope.int(hp.qloguniform(name, *bounds, step or 1.0))
    if isinstance(sampler, Uniform):
        if step:
            return scope.int(hp.quniform(name, domain.lower, last, step))
        return hp.uniformint(name, domain.lower, high=last)
    raise unsupported("HyperOpt", domain)


def _option(name: str, index: int, category: Any) -> Any:
    """A value of a choice, which may be a space of its own."""
    if isinstance(category, dict):
        return HyperOptSearch.convert_search_space(category, prefix=name) or category
    if isinstance(category, list) and category and isinstance(category[0], Domain):
        elements: dict[Any, Any] = dict(enumerate(category))
        return HyperOptSearch.convert_search_space(elements, prefix=f"{name}/{index}")
    if isinstance(category, Domain):
        return _expression(f"{name}/{index}", category)
    return category


def _categories_to_indices(point: dict[str, Any], space: dict[str, Any]) -> None:
    """Replaces values of choices by their numbers, which is how HyperOpt knows them."""
    for key, value in point.items():
        expression: Any = space.get(key)
        if isinstance(value, dict) and isinstance(expression, dict):
            _categories_to_indices(value, expression)
        elif getattr(expression, "name", None) == "switch" and expression.pos_args:
            literals = [arg.obj for arg in expression.pos_args[1:] if arg.name == "literal"]
            if value not in literals:
                raise ValueError(
                    f"points_to_evaluate has {value!r} as `{key}`, which is none of {literals}"
                )
            point[key] = literals.index(value)

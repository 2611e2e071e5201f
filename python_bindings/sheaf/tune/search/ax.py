# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ax as the searcher."""

from __future__ import annotations

import math
import re
from typing import Any

from sheaf.tune.result_keys import DEFAULT_METRIC
from sheaf.tune.search.domains import Categorical, Domain, Float, Integer
from sheaf.tune.search.flatten import flatten_dict
from sheaf.tune.search.pickled import PickledSearcher
from sheaf.tune.search.samplers import LogUniform, Uniform
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

_TYPES = (bool, int, float, str)  # Of the values that Ax can choose among; bool before int.


class AxSearch(PickledSearcher):
    """Asks Ax: points that fill the space first, then Bayesian optimization.

    Args:
        space: a param_space, or parameters in Ax's words (ax.RangeParameterConfig and
            ax.ChoiceParameterConfig); None: the experiment's.
        metric: what of a result is looked at.
        mode: "min" or "max".
        points_to_evaluate: configurations to begin with.
        parameter_constraints: of Ax, as "x + y <= 1.5".
        outcome_constraints: of Ax, as "seconds <= 10", on what trials report.
        ax_client: an ax.Client with an experiment and an objective; None: a new one.
        ax_kwargs: of ax.Client, as random_seed.

    Raises:
        ImportError: Ax is not installed, or older than 1.0.
    """

    def __init__(
        self,
        space: dict[str, Any] | list[Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        package("ax.api.client", "ax-platform>=1")
        if mode:
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        super().__init__(metric=metric, mode=mode)
        self._points_to_evaluate = [
            flatten_dict(point, flatten_list=True) for point in points_to_evaluate or ()
        ]
        self._parameter_constraints = list(parameter_constraints or [])
        self._outcome_constraints = list(outcome_constraints or [])
        self._ax_kwargs = ax_kwargs
        self._client = ax_client
        self._lists = ListTemplates({})
        self._live: dict[str, int] = {}  # Ax's numbers of trials.
        self._space: list[Any] | None = None
        if isinstance(space, dict) and space:
            _, domains, grids = parse_spec_vars(space)
            if not domains and not grids:
                raise ValueError(f"space={space!r}: there is nothing in it to choose")
            self._lists = ListTemplates(space)
            self._space = self.convert_search_space(space)
        elif space:
            self._space = list(space)
        if self._client is None and self._space and self._mode:
            self._setup()

    def _setup(self) -> None:
        from ax.api.client import Client

        if self._metric is None:
            self._metric = DEFAULT_METRIC
        self._client = Client(**self._ax_kwargs)
        self._client.configure_experiment(
            parameters=self._space, parameter_constraints=self._parameter_constraints or None
        )
        self._client.configure_optimization(
            objective=f"-{self._metric}" if self._mode == "min" else self._metric,
            outcome_constraints=self._outcome_constraints or None,
        )

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
            ValueError: the space has what Ax has not.
        """
        if self._client is not None:
            return False
        own = self._space is not None
        if not own:
            self._space = self.convert_search_space(config)
            self._lists = ListTemplates(config)
        self._metric = metric or self._metric
        self._mode = mode or self._mode
        if self._space and self._mode:
            self._setup()
        return not own

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Proposes a configuration.

        Args:
            trial_id: the trial that it is for.

        Returns:
            The configuration; None: there is none until more results are known; FINISHED: all of
            the space has been tried.

        Raises:
            RuntimeError: there is no space, metric or mode.
        """
        require_objective(self, self._client)
        from ax.exceptions.core import DataRequiredError, OptimizationComplete, SearchSpaceExhausted
        from ax.exceptions.generation_strategy import MaxParallelismReachedException

        if self._points_to_evaluate:
            values = self._points_to_evaluate.pop(0)
            number = self._client.attach_trial(parameters=values)
        else:
            try:
                proposed = self._client.get_next_trials(max_trials=1)
            except (SearchSpaceExhausted, OptimizationComplete):
                return Searcher.FINISHED
            except (DataRequiredError, MaxParallelismReachedException):
                return None
            if not proposed:
                return None
            [(number, values)] = proposed.items()
        self._live[trial_id] = number
        return self._lists.assemble(dict(values))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Ax.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        number = self._live.pop(trial_id)
        known = {name: result[name] for name in self._metrics() if name in result} if result else {}
        value = known.get(str(self._metric))
        if error or value is None or not math.isfinite(value):
            self._client.mark_trial_failed(number)
        else:
            self._client.complete_trial(number, raw_data={k: float(v) for k, v in known.items()})

    def _metrics(self) -> list[str]:
        """What Ax looks at."""
        text = " ".join(self._outcome_constraints)
        return [self._metric, *re.findall(r"[A-Za-z_][\w./]*", text)]

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> list[Any]:
        """Writes a search space in Ax's words.

        Args:
            spec: the space.

        Returns:
            Parameters, by joined names.

        Raises:
            ValueError: it has a grid, or what Ax has not.
        """
        return [_parameter(name, domain) for name, domain in named_domains(spec, "Ax").items()]


def _parameter(name: str, domain: Domain) -> Any:
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    sampler, step = sampler_and_step(domain)
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        values = list(domain.categories)
        kind = next((one for one in _TYPES if all(type(v) is one for v in values)), None)
        if kind is None:
            raise ValueError(
                f"{name}: Ax chooses among values of one type (bool, int, float or str), not "
                f"{values!r}"
            )
        word: Any = kind.__name__
        return ChoiceParameterConfig(name=name, parameter_type=word, values=values)
    if not isinstance(domain, (Float, Integer)) or not isinstance(sampler, (LogUniform, Uniform)):
        raise unsupported("Ax", domain)
    whole = isinstance(domain, Integer)
    # Bounds of Ax are inclusive; so is the upper one of a domain with a step.
    upper = domain.upper - 1 if whole and not step else domain.upper
    logarithmic = isinstance(sampler, LogUniform)
    return RangeParameterConfig(
        name=name,
        bounds=(domain.lower, upper),
        parameter_type="int" if whole else "float",
        step_size=None if logarithmic else step,
        scaling="log" if logarithmic else None,
    )

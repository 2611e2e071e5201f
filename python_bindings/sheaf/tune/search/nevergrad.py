# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Nevergrad as the searcher."""

from __future__ import annotations

import math
from typing import Any

from sheaf.tune.result_keys import DEFAULT_METRIC
from sheaf.tune.search.domains import Categorical, Domain, Float, Integer
from sheaf.tune.search.flatten import flatten_dict
from sheaf.tune.search.pickled import PickledSearcher
from sheaf.tune.search.samplers import LogUniform, Uniform
from sheaf.tune.search.space_conversion import (
    ListTemplates,
    named_domains,
    package,
    require_objective,
    sampler_and_step,
    unsupported,
)
from sheaf.tune.search.variant_generator import parse_spec_vars


class NevergradSearch(PickledSearcher):
    """Asks an optimizer of Nevergrad without gradients, and tells it results.

    Args:
        optimizer: a class of optimizers, a configured one, or an optimizer.
        optimizer_kwargs: of the class.
        space: in Nevergrad's words, or a param_space; with an optimizer the names of its
            parameters; None: the experiment's.
        metric: what of a result is looked at.
        mode: "min" or "max".
        points_to_evaluate: configurations to begin with.

    Raises:
        ImportError: Nevergrad is not installed.
        ValueError: the optimizer is none, or does not fit the space.
    """

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
    ) -> None:
        base = package("nevergrad.optimization.base", "nevergrad")
        if mode:
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        super().__init__(metric=metric, mode=mode)
        self._optimizer_kwargs = optimizer_kwargs or {}
        if points_to_evaluate is not None and not isinstance(points_to_evaluate, (list, tuple)):
            raise ValueError(f"`points_to_evaluate` is a list of dicts, not {points_to_evaluate!r}")
        self._points_to_evaluate = list(points_to_evaluate or [])
        self._lists = ListTemplates({})
        if isinstance(space, dict) and space:
            _, domains, grids = parse_spec_vars(space)
            if domains or grids:
                self._lists = ListTemplates(space)
                space = self.convert_search_space(space)
        self._space: Any = None
        self._make: Any = None
        self._names: list[str] | None = None
        self._optimizer: Any = None
        self._live: dict[str, Any] = {}
        if isinstance(optimizer, base.Optimizer):
            if space is not None and not isinstance(space, list):
                raise ValueError(
                    "`space` must be a list of names, or None, where an optimizer is given"
                )
            if self._optimizer_kwargs:
                raise ValueError("`optimizer_kwargs` are for a class, but an optimizer is given")
            self._names, self._optimizer = space, optimizer
        elif isinstance(optimizer, base.ConfiguredOptimizer) or (
            isinstance(optimizer, type) and issubclass(optimizer, base.Optimizer)
        ):
            self._make, self._space = optimizer, space
        else:
            raise ValueError(
                "`optimizer` must be an Optimizer, a class of them or a ConfiguredOptimizer of "
                f"Nevergrad, not {optimizer!r}"
            )
        if self._optimizer is not None or self._space is not None:
            self._setup()

    def _setup(self) -> None:
        if self._make is not None:
            self._optimizer = self._make(self._space, **self._optimizer_kwargs)
        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        if self._names is not None and self._optimizer.dimension != len(self._names):
            raise ValueError(
                f"the optimizer has {self._optimizer.dimension} dimensions, but `space` has "
                f"{len(self._names)} names"
            )
        for point in reversed(self._points_to_evaluate):  # It takes the newest first.
            self._optimizer.suggest(flatten_dict(point, flatten_list=True))

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
            ValueError: the space has what Nevergrad has not.
        """
        if self._optimizer is not None or self._space is not None:
            return False
        self._space = self.convert_search_space(config)
        self._lists = ListTemplates(config)
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
        """
        require_objective(self, self._optimizer)
        point = self._live[trial_id] = self._optimizer.ask()
        if point.kwargs:
            return self._lists.assemble(point.kwargs)
        if self._names:
            return self._lists.assemble(dict(zip(self._names, point.args[0])))
        return self._lists.assemble(point.value)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the optimizer.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        point = self._live.pop(trial_id)
        if result:
            value = result[self.metric]
            self._optimizer.tell(point, -value if self._mode == "max" else value)

    @staticmethod
    def convert_search_space(spec: dict[str, Any]) -> Any:
        """Writes a search space in Nevergrad's words.

        Args:
            spec: the space.

        Returns:
            A Dict of parameters by joined names.

        Raises:
            ValueError: it has a grid, or what Nevergrad has not.
        """
        import nevergrad

        domains = named_domains(spec, "Nevergrad")
        return nevergrad.p.Dict(**{name: _parameter(domain) for name, domain in domains.items()})


def _parameter(domain: Domain) -> Any:
    import nevergrad

    sampler, _ = sampler_and_step(domain)
    if isinstance(domain, Categorical) and isinstance(sampler, Uniform):
        return nevergrad.p.Choice(choices=domain.categories)
    if not isinstance(domain, (Float, Integer)) or not isinstance(sampler, (LogUniform, Uniform)):
        raise unsupported("Nevergrad", domain)
    # Bounds of Nevergrad are inclusive.
    upper = domain.upper - 1 if isinstance(domain, Integer) else domain.upper
    if isinstance(sampler, LogUniform):
        parameter = nevergrad.p.Log(lower=domain.lower, upper=upper, exponent=math.e)
    else:
        parameter = nevergrad.p.Scalar(lower=domain.lower, upper=upper)
    return parameter.set_integer_casting() if isinstance(domain, Integer) else parameter

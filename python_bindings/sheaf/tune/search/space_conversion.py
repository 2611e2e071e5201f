# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What searchers on top of other packages share: a search space as a flat table of named domains,
flat values as a configuration again, and what they say of missing or bad arguments."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from sheaf.tune.search.domains import Domain
from sheaf.tune.search.flatten import flatten_dict, unflatten_dict
from sheaf.tune.search.samplers import Quantized
from sheaf.tune.search.searcher import Searcher
from sheaf.tune.search.variant_generator import assign_value, parse_spec_vars


def package(name: str, install: str | None = None) -> Any:
    """Imports the package below a searcher.

    Args:
        name: of its module.
        install: what pip calls it; None: the same.

    Returns:
        The module.

    Raises:
        ImportError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} must be installed for this search algorithm: `pip install {install or name}`"
        ) from error


def named_domains(spec: dict[str, Any], package_name: str) -> dict[str, Domain]:
    """Finds the domains of a space.

    Args:
        spec: the space.
        package_name: whose space is wanted, for messages.

    Returns:
        Domains by their joined paths, those of outer dicts first: seeded searchers draw in this
        order.

    Raises:
        ValueError: there is a grid, or a key with "/" in it.
    """
    _, domains, grids = parse_spec_vars(spec)
    if grids:
        raise ValueError(
            "Grid search parameters cannot be automatically converted to "
            f"{'an' if package_name[0] in 'AO' else 'a'} {package_name} search space."
        )
    if not domains:
        return {}
    _, domains, _ = parse_spec_vars(flatten_dict(spec, prevent_delimiter=True))
    return {"/".join(map(str, path)): domain for path, domain in domains}


def sampler_and_step(domain: Domain) -> tuple[Any, Any]:
    """Takes a sampler apart.

    Args:
        domain: whose sampler.

    Returns:
        The sampler that draws, and the step that values are rounded to; None: there is none.
    """
    sampler = domain.get_sampler()
    return (sampler.sampler, sampler.q) if isinstance(sampler, Quantized) else (sampler, None)


def unsupported(package_name: str, domain: Domain) -> ValueError:
    """Makes the error for a domain that a package has nothing like.

    Args:
        package_name: of the package.
        domain: the domain.

    Returns:
        The error, to be raised.
    """
    return ValueError(
        f"{package_name} does not support parameters of type `{type(domain).__name__}` with "
        f"samplers of type `{type(domain.get_sampler()).__name__}`"
    )


class ListTemplates:
    """The lists of a space that have domains in them: a flat table of values does not tell lists
    from dicts.

    Args:
        spec: the space.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self._lists: dict[tuple[Any, ...], Any] = {}  # The outermost, by path.
        self._values: list[tuple[Any, ...]] = []  # Paths of the domains within.
        for path, _ in parse_spec_vars(spec)[1]:
            place: Any = spec
            for depth, key in enumerate(path):
                if isinstance(place, (list, tuple)):
                    self._lists[path[:depth]] = place
                    self._values.append(path)
                    break
                place = place[key]

    def assemble(self, values: dict[str, Any]) -> dict[str, Any]:
        """Makes a configuration.

        Args:
            values: by joined path.

        Returns:
            The values as nested dicts, with whole lists.
        """
        if not self._lists:
            return unflatten_dict(values)
        flat = dict(values)
        within = [(path, flat.pop("/".join(map(str, path)))) for path in self._values]
        config = unflatten_dict(flat)
        for path, template in self._lists.items():
            place = config
            for key in path[:-1]:
                place = place.setdefault(key, {})
            place[path[-1]] = copy.deepcopy(template)
        for path, value in within:
            assign_value(config, path, value)
        return config


def require_objective(searcher: Searcher, space: Any, argument: str = "space") -> None:
    """Checks that a searcher can be asked.

    Args:
        searcher: which is asked.
        space: its search space.
        argument: what its constructor calls the space.

    Raises:
        RuntimeError: it has no space, no metric or no mode.
    """
    name = type(searcher).__name__
    if not space:
        raise RuntimeError(
            f"Trying to sample a configuration from {name}, but no search space has been defined. "
            f"Either pass the `{argument}` argument when instantiating the search algorithm, or "
            "pass a `param_space` with something to draw in it to `tune.Tuner()`."
        )
    if not searcher.metric or not searcher.mode:
        raise RuntimeError(
            f"Trying to sample a configuration from {name}, but the `metric` ({searcher.metric}) "
            f"or `mode` ({searcher.mode}) parameters have not been set. Pass them to the search "
            "algorithm or to `tune.TuneConfig()`."
        )


def check_warm_start(
    names: Any, points: Any, rewards: Any, as_many_values_as_names: bool = True
) -> None:
    """Checks points_to_evaluate and evaluated_rewards.

    Args:
        names: of the space.
        points: the first.
        rewards: the second.
        as_many_values_as_names: whether each point must have a value for each name.

    Raises:
        TypeError: one is of a wrong type.
        ValueError: numbers do not fit.
    """
    for argument, value in (("points_to_evaluate", points), ("evaluated_rewards", rewards)):
        if value and not isinstance(value, list):
            raise TypeError(f"{argument} expected to be a list, got {type(value)}.")
    for point in points or ():
        if not isinstance(point, (dict, list)):
            raise TypeError(f"points_to_evaluate expected to include list or dict, got {point}.")
        if as_many_values_as_names and len(point) != len(names):
            raise ValueError(
                f"Dim of point {point} and parameter_names {list(names)} do not match."
            )
    if points and rewards and len(points) != len(rewards):
        raise ValueError(
            f"Dim of evaluated_rewards {rewards} and points_to_evaluate {points} do not match."
        )

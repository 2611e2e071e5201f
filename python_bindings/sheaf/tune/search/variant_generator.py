# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Configurations of a search space: all points of its grid, each with values drawn for the rest.

A search space is nested dicts, lists and tuples with domains in them. A *path* is the tuple of keys
and indices that leads to a value. The order of configurations and of draws is Ray's: the grid
variable that comes first by path changes fastest, and the rest is drawn for each point anew.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sheaf.tune.search.random_source import RandomSource
from sheaf.tune.search.sample import Categorical, Domain, Function

Path = tuple[Any, ...]
Variables = list[tuple[Path, Any]]

# How often what depends on others is asked again. A chain of n functions that stand in the wrong
# order needs n.
_MAX_RESOLUTION_PASSES = 20


class RecursiveDependencyError(Exception):
    """A function of sample_from reads a value that is not drawn yet.

    Args:
        msg: which.
    """

    def __init__(self, msg: str) -> None:
        super().__init__(msg)


def grid_search(values: Iterable[Any]) -> dict[str, Any]:
    """Marks values of which each is tried; several grids are combined, each with each.

    Args:
        values: what to try.

    Returns:
        `{"grid_search": values}`, which may as well be written by hand.
    """
    return {"grid_search": values}


def generate_variants(
    unresolved_spec: dict[Any, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Path, Any], dict[Any, Any]]]:
    """Makes the configurations of one sample of a space.

    Args:
        unresolved_spec: the space.
        constant_grid_search: whether values are drawn once for all points of the grid.
        random_state: a seed, a generator of NumPy, or None for numpy.random.

    Yields:
        For each, what was resolved, by path, and the configuration.
    """
    return _variants(unresolved_spec, constant_grid_search, RandomSource.of(random_state))


def preset_variants(
    space: dict[Any, Any], preset: dict[Any, Any], constant_grid_search: bool, random_state: Any
) -> Iterator[tuple[dict[Path, Any], dict[Any, Any]]]:
    """Makes the configurations of one sample with some values given.

    Args:
        space: as of generate_variants.
        preset: the values, in the space's form.
        constant_grid_search: as of generate_variants.
        random_state: as of generate_variants.

    Returns:
        As generate_variants.

    Raises:
        ValueError: the space has no such key.
    """
    space = copy.deepcopy(space)
    given, _, _ = parse_spec_vars(preset)
    for path, value in given:
        name = "/".join(map(str, path))
        try:
            domain = _get_value(space, path)
        except (LookupError, TypeError):
            raise ValueError(
                f"points_to_evaluate has the key {name}, param_space has not"
            ) from None
        _check_preset(name, domain, value)
        assign_value(space, path, value)
    return _variants(space, constant_grid_search, RandomSource.of(random_state))


def _check_preset(name: str, domain: Any, value: Any) -> None:
    if isinstance(domain, dict):
        if "grid_search" not in domain:
            return  # A whole dict is replaced.
        domain = Categorical(domain["grid_search"])
    if isinstance(domain, Domain):
        if not domain.is_valid(value):
            _warn(f"Pre-set value `{value}` of `{name}` is not within {domain.domain_str}")
    elif domain and domain != value:
        _warn(f"Pre-set value `{value}` of `{name}` takes the place of {domain}")


def _warn(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning(message)


def count_variants(
    space: dict[Any, Any], num_samples: int, presets: Iterable[Mapping[Any, Any]] = ()
) -> int:
    """Counts the configurations of a space, drawing none.

    Args:
        space: as of generate_variants.
        num_samples: how many samples.
        presets: values given for the first samples, which may take variables out of the grid.

    Returns:
        Their number.
    """
    total = 0
    for preset in presets:
        total += _grid_size(_overwritten(space, preset))
        num_samples -= 1
    return total + max(num_samples, 0) * _grid_size(space)


def _overwritten(space: Any, preset: Mapping[Any, Any]) -> dict[Any, Any]:
    result = dict(space) if isinstance(space, Mapping) else {}
    for key, value in preset.items():
        result[key] = _overwritten(result.get(key), value) if isinstance(value, Mapping) else value
    return result


def _grid_size(space: dict[Any, Any]) -> int:
    size = 1
    for _, domain in parse_spec_vars(space)[2]:
        size *= len(domain.categories)
    return size


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """Writes variables so that they can be part of a file name.

    Args:
        resolved_vars: values by path.

    Returns:
        `last_key=value`, joined by commas in the order of paths.
    """
    return ",".join(
        f"{_clean(path[-1])}={_clean(value)}"
        for path, value in sorted(resolved_vars.items(), key=lambda item: _order(item[0]))
    )


def _clean(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", str(value)).strip("_")


def flatten_resolved_vars(resolved_vars: Mapping[Path, Any]) -> dict[str, Any]:
    """Joins paths.

    Args:
        resolved_vars: values by path.

    Returns:
        Values by "key/index/...".
    """
    return {"/".join(map(str, path)): value for path, value in resolved_vars.items()}


def parse_spec_vars(spec: Mapping[Any, Any]) -> tuple[Variables, Variables, Variables]:
    """Tells the values of a space apart.

    Args:
        spec: the space.

    Returns:
        With their paths: values that are given, domains to draw from, and grids by path.
    """
    given: Variables = []
    domains: Variables = []
    grids: Variables = []
    for path, value in _leaves((), spec.items()):
        if not isinstance(value, Domain):
            given.append((path, value))
        elif value.is_grid():
            grids.append((path, value))
        else:
            domains.append((path, value))
    grids.sort(key=lambda variable: _order(variable[0]))
    return given, domains, grids


def _order(path: Path) -> Any:
    # Indices and keys of other types than str stand apart, so that all can be compared.
    return [(isinstance(key, str), key) for key in path]


def _leaves(prefix: Path, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Path, Any]]:
    for key, value in items:
        path = (*prefix, key)
        domain = _as_domain(value)
        if domain is not None:
            yield path, domain
        elif isinstance(value, dict):
            yield from _leaves(path, value.items())
        elif isinstance(value, (list, tuple)):
            yield from _leaves(path, enumerate(value))
        else:
            yield path, value


def _as_domain(value: Any) -> Domain | None:
    """The domain that a value is or stands for, if any."""
    if isinstance(value, Domain):
        return value
    if isinstance(value, dict) and len(value) == 1:
        if "grid_search" in value:
            return Categorical(value["grid_search"]).grid()
        if "eval" in value:
            return _expression(value["eval"])
    return None


def _expression(text: str) -> Function:
    """A function of the text that a space in JSON or YAML has instead of one."""

    def evaluate(spec: Any) -> Any:
        import random

        import numpy as np

        return eval(text, {"random": random, "np": np}, {"spec": spec})

    return Function(evaluate)


def assign_value(spec: Any, path: Path, value: Any) -> None:
    """Sets the value at a path; a tuple on the way is replaced.

    Args:
        spec: a dict or list.
        path: where.
        value: what.

    Raises:
        ValueError: spec itself is a tuple.
    """
    key, rest = path[0], path[1:]
    if isinstance(spec, tuple):
        raise ValueError("a tuple cannot be changed: give a dict or a list")
    if not rest:
        spec[key] = value
    elif isinstance(spec[key], tuple):
        elements = list(spec[key])
        assign_value(elements, rest, value)
        # A named tuple takes its elements one by one.
        kind = type(spec[key])
        spec[key] = kind(*elements) if hasattr(kind, "_fields") else kind(elements)
    else:
        assign_value(spec[key], rest, value)


def _get_value(spec: Any, path: Path) -> Any:
    for key in path:
        spec = spec[key]
    return spec


def _variants(
    space: dict[Any, Any], constant: bool, source: RandomSource
) -> Iterator[tuple[dict[Path, Any], dict[Any, Any]]]:
    space = copy.deepcopy(space)
    _, to_draw, grids = parse_spec_vars(space)
    if not to_draw and not grids:
        yield {}, space
        return
    drawn: dict[Path, Any] = {}
    if constant:
        # What depends on the grid cannot be drawn yet.
        drawn, _ = _draw(space, to_draw, source)
        to_draw = [(path, domain) for path, domain in to_draw if path not in drawn]
    for point in _grid_points(space, grids):
        drawn_here, missing = _draw(point, to_draw, source)
        if missing:
            raise missing
        here = [*drawn, *drawn_here, *(path for path, _ in grids)]
        # A value that was drawn may be a space of its own: its values are those that come of it.
        for resolved, config in _variants(point, constant, source):
            yield {path: _get_value(config, path) for path in (*here, *resolved)}, config


def _grid_points(space: dict[Any, Any], grids: Variables) -> Iterator[dict[Any, Any]]:
    sizes = [len(domain.categories) for _, domain in grids]
    if not grids:
        yield space
        return
    if 0 in sizes:
        return
    indices = [0] * len(grids)
    while True:
        point = copy.deepcopy(space)
        for (path, domain), index in zip(grids, indices):
            assign_value(point, path, domain.categories[index])
        yield point
        for which, size in enumerate(sizes):
            indices[which] += 1
            if indices[which] < size:
                break
            indices[which] = 0
        else:
            return


def _draw(
    space: dict[Any, Any], variables: Variables, source: RandomSource
) -> tuple[dict[Path, Any], RecursiveDependencyError | None]:
    """Draws variables and assigns them, as far as they can be drawn."""
    drawn: dict[Path, Any] = {}
    missing: RecursiveDependencyError | None = None
    for _ in range(_MAX_RESOLUTION_PASSES):
        missing = None
        for path, domain in variables:
            if path in drawn:
                continue
            try:
                value = domain.sample(SpecView(space), random_state=source)
            except RecursiveDependencyError as error:
                missing = error
                continue
            except Exception as error:
                name = "/".join(map(str, path))
                raise ValueError(
                    f"{name} cannot be drawn from {domain.domain_str}: {error!r}"
                ) from error
            assign_value(space, path, value)
            drawn[path] = value
        if missing is None:
            break
    return drawn, missing


class SpecView(dict[Any, Any]):
    """What functions of sample_from are given: the configuration as far as it is resolved.

    Keys are attributes, too, and `spec.config` is the configuration itself where no key is called
    so. To read what is not resolved raises RecursiveDependencyError.
    """

    def __getitem__(self, key: Any) -> Any:
        if key not in self:
            inner = dict.get(self, "config")
            if key == "config":
                return self
            if isinstance(inner, dict) and key in inner:
                return SpecView(inner)[key]
        value = dict.__getitem__(self, key)
        if _as_domain(value) is not None:
            raise RecursiveDependencyError(f"`{key}` is not drawn yet: {value}")
        return SpecView(value) if isinstance(value, dict) else value

    def get(self, key: Any, default: Any = None) -> Any:
        """Looks a key up.

        Args:
            key: of the configuration.
            default: what stands for a key that is not there.

        Returns:
            The value of a key, or `default` where there is no such key.
        """
        try:
            return self[key]
        except KeyError:
            return default

    def __getattribute__(self, name: str) -> Any:
        # A key that is called as a method of dicts is meant, not the method.
        if name[:2] != "__" and (dict.__contains__(self, name) or name == "config"):
            return self[name]
        return super().__getattribute__(name)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How population based training makes a new configuration of a good one."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sheaf.tune.search.domains import Domain
from sheaf.tune.search.variant_generator import format_vars


def explore(
    config: dict[str, Any],
    mutations: Mapping[str, Any],
    resample_probability: float,
    perturbation_factors: Sequence[float],
    custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes a configuration a little.

    Args:
        config: of the trial that is copied.
        mutations: what may change: a list or tuple of values, a domain, a function that draws one,
            or a dict of these.
        resample_probability: how likely a value is drawn anew.
        perturbation_factors: else it is multiplied by one of these; in a list it moves by one
            place.
        custom_explore_fn: changes the result once more.

    Returns:
        The new configuration, and what was done to each value.
    """
    new_config = copy.deepcopy(config)
    operations: dict[str, Any] = {}
    for key, mutation in mutations.items():
        old = config[key]
        if isinstance(mutation, dict):
            arguments = (resample_probability, perturbation_factors, None)
            new_config[key], operations[key] = explore(old, mutation, *arguments)
        elif isinstance(mutation, (list, tuple)):
            new_config[key], operations[key] = _move(old, mutation, resample_probability)
        else:
            if random.random() < resample_probability:
                new, operations[key] = draw(mutation), "resample"
            else:
                factor = random.choice(perturbation_factors)
                new, operations[key] = old * factor, f"* {factor}"
            if isinstance(old, bool):
                new = bool(new)
            elif isinstance(old, int):
                new = int(round(new))
            new_config[key] = new
    if custom_explore_fn:
        new_config = custom_explore_fn(new_config)
        assert new_config is not None, "custom_explore_fn returned None instead of a configuration"
    return new_config, operations


def _move(old: Any, values: Sequence[Any], resample_probability: float) -> tuple[Any, str]:
    if random.random() < resample_probability or old not in values:
        return random.choice(values), "resample"
    shift = random.choice([-1, 1])
    here = values.index(old)
    there = min(max(here + shift, 0), len(values) - 1)
    direction = "left" if shift == -1 else "right"
    return values[there], f"shift {direction}{' (noop)' if here == there else ''}"


def draw(mutation: Any) -> Any:
    """Draws a value.

    Args:
        mutation: as of explore().

    Returns:
        The value; a dict of them for a dict.
    """
    if isinstance(mutation, Domain):
        return mutation.sample(None)
    if isinstance(mutation, (list, tuple)):
        return random.choice(mutation)
    if isinstance(mutation, dict):
        return {key: draw(each) for key, each in mutation.items()}
    return mutation()


def experiment_tag(original: str, config: Mapping[str, Any], mutations: Mapping[str, Any]) -> str:
    """Names a trial after its values.

    Args:
        original: the name that the trial began with.
        config: what it goes on with.
        mutations: whose keys are named.

    Returns:
        The name.
    """
    return f"{original}@perturbed[{format_vars({(key,): config[key] for key in mutations})}]"


def describe(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    mutations: Mapping[str, Any],
    operations: Mapping[str, Any],
    indent: str = "",
) -> str:
    """Writes what has changed.

    Args:
        old: the configuration before.
        new: the configuration after.
        mutations: whose keys are named.
        operations: what was done, from explore().
        indent: stands before each line.

    Returns:
        A line for each value.
    """
    lines = ""
    for key in old:
        if key not in mutations:
            continue
        operation = operations.get(key)
        if isinstance(old[key], dict):
            inner = describe(old[key], new[key], mutations[key], operation or {}, indent + "    ")
            lines += f"{indent}{key} : \n{inner}"
        else:
            arrow = f"--- ({operation}) -->" if operation else "----->"
            lines += f"{indent}{key} : {old[key]} {arrow} {new[key]}\n"
    return lines

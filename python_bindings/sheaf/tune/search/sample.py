# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a search space is written with: `uniform`, `choice` and so on, and the domains and samplers
below them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sheaf.tune.search.domains import Categorical, Domain, Float, Function, Integer
from sheaf.tune.search.samplers import (
    NOT_GIVEN,
    BaseSampler,
    Grid,
    LogUniform,
    Normal,
    Quantized,
    Sampler,
    Uniform,
)

__all__ = [
    "BaseSampler",
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "Sampler",
    "Uniform",
    "choice",
    "loguniform",
    "lograndint",
    "qloguniform",
    "qlograndint",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "sample_from",
    "uniform",
]


def sample_from(func: Callable[..., Any]) -> Function:
    """A value that a function makes, for spaces where one value depends on others.

    Args:
        func: takes the configuration (`config["lr"]`, also `spec.config.lr`), or nothing. Values
            that it reads are drawn before it is called, in whatever order they stand.

    Returns:
        The domain.
    """
    return Function(func)


def uniform(lower: float, upper: float) -> Float:
    """A float, uniformly.

    Args:
        lower: the least value.
        upper: the bound above.

    Returns:
        The domain.
    """
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Float:
    """A multiple of q, uniformly.

    Args:
        lower: the least value, a multiple of q.
        upper: the greatest value, a multiple of q.
        q: the step.

    Returns:
        The domain.
    """
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: object = NOT_GIVEN) -> Float:
    """A float whose logarithm is uniform.

    Args:
        lower: the least value, above 0.
        upper: the bound above.
        base: has no effect.

    Returns:
        The domain.
    """
    result: Float = Float(lower, upper).loguniform(base)
    return result


def qloguniform(lower: float, upper: float, q: float, base: object = NOT_GIVEN) -> Float:
    """A multiple of q whose logarithm is uniform before it is rounded.

    Args:
        lower: the least value, above 0 and a multiple of q.
        upper: the greatest value, a multiple of q.
        q: the step.
        base: has no effect.

    Returns:
        The domain.
    """
    return loguniform(lower, upper, base).quantized(q)


def choice(categories: Sequence[Any]) -> Categorical:
    """One of a few values.

    Args:
        categories: the values; domains among them are drawn from in turn.

    Returns:
        The domain.
    """
    return Categorical(categories).uniform()


def randint(lower: int, upper: int) -> Integer:
    """An integer, uniformly.

    Args:
        lower: the least value.
        upper: the first value that is too great.

    Returns:
        The domain.
    """
    return Integer(lower, upper).uniform()


def lograndint(lower: int, upper: int, base: object = NOT_GIVEN) -> Integer:
    """An integer whose logarithm is uniform before it is rounded down.

    Args:
        lower: the least value, above 0.
        upper: the first value that is too great.
        base: has no effect.

    Returns:
        The domain.
    """
    result: Integer = Integer(lower, upper).loguniform(base)
    return result


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of q, uniformly.

    Args:
        lower: the least value.
        upper: the greatest value; where q is 1, the first that is too great.
        q: the step.

    Returns:
        The domain.
    """
    return Integer(lower, upper).uniform().quantized(q)


def qlograndint(lower: int, upper: int, q: int, base: object = NOT_GIVEN) -> Integer:
    """A multiple of q whose logarithm is uniform before it is rounded.

    Args:
        lower: the least value, above 0.
        upper: the greatest value; where q is 1, the first that is too great.
        q: the step.
        base: has no effect.

    Returns:
        The domain.
    """
    return lograndint(lower, upper, base).quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Float:
    """A float of the normal distribution.

    Args:
        mean: of the distribution.
        sd: its standard deviation.

    Returns:
        The domain.
    """
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Float:
    """A float of the normal distribution, rounded to a multiple of q.

    Args:
        mean: of the distribution.
        sd: its standard deviation.
        q: the step.

    Returns:
        The domain.
    """
    return Float(None, None).normal(mean, sd).quantized(q)

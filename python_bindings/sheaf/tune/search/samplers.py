# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How a value of a domain is drawn."""

from __future__ import annotations

import copy
import math
from typing import Any

from sheaf.tune.search.random_source import RandomSource

NOT_GIVEN = object()  # No argument.


class Sampler:
    """How a value of a domain is drawn."""

    def sample(
        self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
    ) -> Any:
        """Draws values.

        Args:
            domain: what to draw from.
            config: the configuration as far as it is resolved; a list: one for each value.
            size: how many values.
            random_state: a seed, a generator of NumPy, or None for numpy.random.

        Returns:
            One value, or a sequence of them where size > 1.
        """
        raise NotImplementedError


class BaseSampler(Sampler):
    """Draws as the domain itself says."""

    def __str__(self) -> str:
        return "Base"


class Uniform(Sampler):
    """Each value is as likely as another."""

    def __str__(self) -> str:
        return "Uniform"


class LogUniform(Sampler):
    """The logarithm is uniform: each order of magnitude is as likely as another.

    Args:
        base: has no effect: the base of a logarithm does not change what is drawn.
    """

    def __init__(self, base: object = NOT_GIVEN) -> None:
        del base

    def __str__(self) -> str:
        return "LogUniform"


class Normal(Sampler):
    """Gaussian.

    Args:
        mean: of the distribution.
        sd: standard deviation, above 0.
    """

    def __init__(self, mean: float = 0.0, sd: float = 0.0) -> None:
        assert sd > 0, f"the standard deviation must be above 0, not {sd}"
        self.mean = mean
        self.sd = sd

    def __str__(self) -> str:
        return "Normal"


class Grid(Sampler):
    """Marks a Categorical of which each value is tried: nothing is drawn."""

    def __str__(self) -> str:
        return "Grid"


class Quantized(Sampler):
    """Draws with another sampler and rounds to multiples of a step.

    Args:
        sampler: what draws.
        q: the step.
    """

    def __init__(self, sampler: Sampler, q: float) -> None:
        assert sampler, "Quantized() expects a sampler"
        self.sampler = sampler
        self.q = q

    def get_sampler(self) -> Sampler:
        """Returns the sampler that draws."""
        return self.sampler

    def sample(
        self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
    ) -> Any:
        """Draws values.

        Args:
            domain: what to draw from.
            config: the configuration as far as it is resolved.
            size: how many values.
            random_state: a seed, a generator of NumPy, or None for numpy.random.

        Returns:
            One multiple of q, or a list of them where size > 1.

        Raises:
            ValueError: no multiple of q is within the bounds.
        """
        import numpy as np

        inner = copy.copy(domain)
        lower, upper = self._first_multiple(domain.lower), self._last_multiple(domain.upper)
        source = RandomSource.of(random_state)
        if domain.is_integer:
            # Multiples are drawn by their number, so that each is as likely as another.
            if upper < lower:
                raise ValueError(
                    f"no multiple of q={self.q} is between {domain.lower} and {domain.upper}"
                )
            # The bound above is not drawn itself, as in randint where q is 1.
            inner.lower, inner.upper = int(lower), int(upper) + (0 if self.q == 1 else 1)
            values = np.multiply(self.sampler.sample(inner, config, size, source), self.q)
        else:
            inner.lower, inner.upper = lower * self.q, upper * self.q
            drawn = self.sampler.sample(inner, config, size, source)
            values = np.round(np.divide(drawn, self.q)) * self.q
        if isinstance(values, np.ndarray):
            return [domain.cast(value) for value in values]
        return domain.cast(values)

    def _first_multiple(self, bound: float) -> float:
        near = self._near_multiple(bound)
        return math.ceil(bound / self.q) if near is None else near

    def _last_multiple(self, bound: float) -> float:
        near = self._near_multiple(bound)
        return math.floor(bound / self.q) if near is None else near

    def _near_multiple(self, bound: float) -> float | None:
        """The number of the multiple of q that `bound` is, but for rounding; None: it is none."""
        if math.isinf(bound):
            return bound
        nearest = round(bound / self.q)
        return nearest if math.isclose(bound / self.q, nearest) else None

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Domains of hyperparameters: which values are valid, and the sampler that draws one.

With the same random state a domain draws the values that Ray's draws, since both ask NumPy the same
questions in the same order.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sheaf.tune.search.random_source import RandomSource
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


def _one_or_all(domain: Domain, items: Any) -> Any:
    return items if len(items) > 1 else domain.cast(items[0])


def _log_uniform(domain: Any, size: int, random_state: Any) -> Any:
    import numpy as np

    assert domain.lower > 0, "LogUniform needs a lower bound greater than 0"
    assert 0 < domain.upper < math.inf, "LogUniform needs an upper bound greater than 0"
    source = RandomSource.of(random_state)
    return np.exp(source.uniform(np.log(domain.lower), np.log(domain.upper), size))


class Domain:
    """The valid values of a hyperparameter, and how one is drawn."""

    is_integer: ClassVar[bool] = False
    sampler: Sampler | None = None
    default_sampler_cls: ClassVar[type[Sampler] | None] = None

    def cast(self, value: Any) -> Any:
        """Casts.

        Args:
            value: any that can be cast.

        Returns:
            `value` in the domain's type.
        """
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """Says how values are drawn.

        Args:
            sampler: the new sampler.
            allow_override: whether it may take the place of another.

        Raises:
            ValueError: there is a sampler already.
        """
        if self.sampler and not allow_override:
            raise ValueError(
                f"a {type(self).__name__} has one sampler: it has {self.sampler}, so {sampler} "
                "cannot be set"
            )
        self.sampler = sampler

    def get_sampler(self) -> Any:
        """Returns the sampler, or a new one of the domain's default."""
        return self.sampler or self.default_sampler_cls()  # type: ignore[misc]

    def with_sampler(self, sampler: Sampler, allow_override: bool = False) -> Any:
        """Makes a copy that draws in another way.

        Args:
            sampler: the copy's.
            allow_override: whether the domain may have one already.

        Returns:
            The copy.
        """
        new = copy.copy(self)
        new.set_sampler(sampler, allow_override)
        return new

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draws values.

        Args:
            config: the configuration as far as it is resolved.
            size: how many values.
            random_state: a seed, a generator of NumPy, or None for numpy.random.

        Returns:
            One value, or a sequence of them where size > 1.
        """
        return self.get_sampler().sample(
            self, config=config, size=size, random_state=RandomSource.of(random_state)
        )

    def is_grid(self) -> bool:
        """Returns whether each value is tried."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Returns whether a function of the user makes the values."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Looks at a value.

        Args:
            value: any.

        Returns:
            Whether `value` belongs to the domain.
        """
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The bounds or values, for messages."""
        return "(unknown)"


class _Range(Domain):
    """Numbers between two bounds."""

    lower: Any
    upper: Any
    _LogUniform: ClassVar[type[LogUniform]]

    def loguniform(self, base: object = NOT_GIVEN) -> Any:
        """Makes a copy that draws log-uniformly.

        Args:
            base: has no effect.

        Returns:
            The copy.

        Raises:
            ValueError: a bound is not above 0, or infinite.
        """
        del base
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not 0 < bound < math.inf:
                raise ValueError(
                    f"LogUniform requires a finite {name} bound greater than 0, not {bound}. "
                    "Bounds are given as they are, without the logarithm"
                )
        return self.with_sampler(self._LogUniform())

    def is_valid(self, value: Any) -> bool:
        """Looks at a value.

        Args:
            value: any.

        Returns:
            Whether `value` is within the bounds.
        """
        return bool(self.lower <= value <= self.upper)

    @property
    def domain_str(self) -> str:
        """The bounds, for messages."""
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """Floats between two bounds.

    Args:
        lower: the least value; None: there is none.
        upper: the greatest value; None: there is none.
    """

    class _Uniform(Uniform):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            assert domain.lower > -math.inf, "Uniform needs a lower bound"
            assert domain.upper < math.inf, "Uniform needs an upper bound"
            source = RandomSource.of(random_state)
            return _one_or_all(domain, source.uniform(domain.lower, domain.upper, size))

    class _LogUniform(LogUniform):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            return _one_or_all(domain, _log_uniform(domain, size, random_state))

    class _Normal(Normal):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            bounds = (domain.lower, domain.upper)
            assert bounds == (-math.inf, math.inf), "a normal distribution has no bounds"
            source = RandomSource.of(random_state)
            return _one_or_all(domain, source.normal(self.mean, self.sd, size))

    default_sampler_cls = _Uniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        self.lower = -math.inf if lower is None else lower
        self.upper = math.inf if upper is None else upper

    def cast(self, value: Any) -> float:
        """Casts.

        Args:
            value: any that can be cast.

        Returns:
            `value` as a float.
        """
        return float(value)

    def uniform(self) -> Float:
        """Makes a copy that draws uniformly.

        Returns:
            The copy.

        Raises:
            ValueError: a bound is missing.
        """
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if math.isinf(bound):
                raise ValueError(f"Uniform requires a {name} bound: give Float() `{name}`")
        return self.with_sampler(self._Uniform())

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Float:
        """Makes a copy that draws from a normal distribution.

        Args:
            mean: of the distribution.
            sd: its standard deviation.

        Returns:
            The copy.
        """
        return self.with_sampler(self._Normal(mean, sd))

    def quantized(self, q: float) -> Float:
        """Makes a copy whose values are multiples of q, both bounds included.

        Args:
            q: the step.

        Returns:
            The copy.

        Raises:
            ValueError: a bound is no multiple of q.
        """
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if not math.isinf(bound) and not math.isclose(bound / q, round(bound / q)):
                raise ValueError(f"the {name} bound {bound} is no multiple of the step {q}")
        return self.with_sampler(Quantized(self.get_sampler(), q), allow_override=True)


class Integer(_Range):
    """Integers between two bounds.

    Args:
        lower: the least value.
        upper: the first value that is too great.
    """

    class _Uniform(Uniform):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            source = RandomSource.of(random_state)
            return _one_or_all(domain, source.integers(domain.lower, domain.upper, size))

    class _LogUniform(LogUniform):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            import numpy as np

            items = np.floor(_log_uniform(domain, size, random_state)).astype(int)
            return _one_or_all(domain, items)

    is_integer = True
    default_sampler_cls = _Uniform

    def __init__(self, lower: int, upper: int) -> None:
        self.lower = lower
        self.upper = upper

    def cast(self, value: Any) -> int:
        """Casts.

        Args:
            value: any that can be cast.

        Returns:
            `value` as an int.
        """
        return int(value)

    def quantized(self, q: int) -> Integer:
        """Makes a copy whose values are multiples of q; the upper bound is included where q is not
        1.

        Args:
            q: the step.

        Returns:
            The copy.
        """
        return self.with_sampler(Quantized(self.get_sampler(), q), allow_override=True)

    def uniform(self) -> Integer:
        """Returns a copy that draws uniformly."""
        return self.with_sampler(self._Uniform())


class Categorical(Domain):
    """One of a few values.

    Args:
        categories: the values.
    """

    class _Uniform(Uniform):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            # Indices are drawn, not values: NumPy would give all values one type.
            indices = RandomSource.of(random_state).indices(len(domain.categories), size)
            return _one_or_all(domain, [domain.categories[index] for index in indices])

    default_sampler_cls = _Uniform

    def __init__(self, categories: Sequence[Any]) -> None:
        self.categories = list(categories)

    def uniform(self) -> Categorical:
        """Returns a copy that draws uniformly."""
        return self.with_sampler(self._Uniform())

    def grid(self) -> Categorical:
        """Returns a copy of which each value is tried."""
        return self.with_sampler(Grid())

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Any:
        return self.categories[item]

    def is_valid(self, value: Any) -> bool:
        """Looks at a value.

        Args:
            value: any.

        Returns:
            Whether `value` is one of the categories.
        """
        return value in self.categories

    @property
    def domain_str(self) -> str:
        """The categories, for messages."""
        return f"{self.categories}"


class Function(Domain):
    """What a function of the user makes.

    Args:
        func: takes the configuration as far as it is resolved, or nothing.

    Raises:
        ValueError: func takes more than one argument.
    """

    class _CallSampler(BaseSampler):
        def sample(
            self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None
        ) -> Any:
            if not domain.pass_config:
                return _one_or_all(domain, [domain.func() for _ in range(size)])
            configs = config if isinstance(config, list) else [config] * size
            return _one_or_all(domain, [domain.func(each) for each in configs])

    default_sampler_cls = _CallSampler

    def __init__(self, func: Callable[..., Any]) -> None:
        signature = inspect.signature(func)
        self.func = func
        for self.pass_config, arguments in ((True, ({},)), (False, ())):
            try:
                signature.bind(*arguments)
                return
            except TypeError:
                continue
        raise ValueError(
            f"the function of sample_from takes one argument, the configuration, or none: {func}"
        )

    def is_function(self) -> bool:
        """Returns True."""
        return True

    def is_valid(self, value: Any) -> bool:
        """Looks at a value.

        Args:
            value: any.

        Returns:
            True: only the function knows what it may return.
        """
        return True

    @property
    def domain_str(self) -> str:
        """The function, for messages."""
        return f"{self.func}()"

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Random numbers of NumPy behind one face. NumPy is imported at the first draw."""

from __future__ import annotations

import copy
from typing import Any


class RandomSource:
    """One face for NumPy's generators, old and new, and for its global one.

    Args:
        source: a generator, a RandomState, a seed for a new generator; None: numpy.random itself.
    """

    def __init__(self, source: Any = None) -> None:
        import numpy as np

        if source is not None and not isinstance(
            source, (np.random.Generator, np.random.RandomState)
        ):
            source = np.random.default_rng(source)
        self._source = source

    @classmethod
    def of(cls, source: Any) -> RandomSource:
        """Returns `source` itself where it is a RandomSource, else one of it."""
        return source if isinstance(source, cls) else cls(source)

    def _generator(self) -> Any:
        import numpy as np

        # The global one is not kept in a field: a module cannot be pickled.
        return np.random if self._source is None else self._source

    def uniform(self, lower: float, upper: float, size: int) -> Any:
        """Returns `size` floats of [lower, upper)."""
        return self._generator().uniform(lower, upper, size=size)

    def normal(self, mean: float, sd: float, size: int) -> Any:
        """Returns `size` floats of the normal distribution."""
        return self._generator().normal(mean, sd, size=size)

    def integers(self, lower: int, upper: int, size: int) -> Any:
        """Returns `size` integers of [lower, upper)."""
        generator = self._generator()
        draw = getattr(generator, "integers", None) or generator.randint
        return draw(lower, upper, size=size)

    def indices(self, count: int, size: int) -> Any:
        """Returns `size` integers of [0, count), drawn as `choice` draws them."""
        import numpy as np

        return self._generator().choice(np.arange(0, count), size=size)

    def state(self) -> Any:
        """Returns what set_state wants later, picklable; None for numpy.random, whose state is not
        ours."""
        if self._source is None:
            return None
        if hasattr(self._source, "bit_generator"):
            return copy.deepcopy(self._source.bit_generator.state)
        return self._source.get_state()

    def set_state(self, state: Any) -> None:
        """Goes back to a state.

        Args:
            state: what state() returned.
        """
        if state is None or self._source is None:
            return
        if hasattr(self._source, "bit_generator"):
            self._source.bit_generator.state = copy.deepcopy(state)
        else:
            self._source.set_state(state)

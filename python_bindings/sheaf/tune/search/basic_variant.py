# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Grid and random search: what is used where no searcher is given."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

from sheaf.tune.search.random_source import RandomSource
from sheaf.tune.search.variant_generator import (
    Path,
    count_variants,
    generate_variants,
    preset_variants,
)


class BasicVariantGenerator:
    """Tries all points of the grid, num_samples times, with random values for the rest.

    Configurations are made when they are asked for: a million of them costs nothing before.

    Args:
        points_to_evaluate: values for the first samples, one dict each; what a dict does not have
            is drawn, or goes over its grid.
        max_concurrent: how many trials run at once; 0: as many as there is room for.
        constant_grid_search: whether values are drawn once for all points of the grid.
        random_state: a seed, a generator of NumPy, or None for numpy.random.
    """

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        self.max_concurrent = max_concurrent
        self._points_to_evaluate = points_to_evaluate or []
        self._constant_grid_search = constant_grid_search
        self._random_state = random_state
        self._source: RandomSource | None = None
        self._metric: str | None = None
        # Where the next configuration comes from: samples before it, configurations of its sample
        # before it, and the state of the generator when its sample began.
        self._sample = 0
        self._position = 0
        self._sample_state: Any = None

    @property
    def metric(self) -> str | None:
        """What set_search_properties was told."""
        return self._metric

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Takes notice of the metric.

        Args:
            metric: its name.
            mode: min or max.
            config: the search space.
            spec: more of the experiment.

        Returns:
            Whether it was not known before.
        """
        if self._metric and metric:
            return False
        self._metric = metric or self._metric
        return True

    def total(self, config: dict[str, Any], num_samples: int) -> int:
        """Counts configurations, drawing none.

        Args:
            config: the search space.
            num_samples: how many samples; -1: without end.

        Returns:
            How many variants() makes.
        """
        return count_variants(config, _samples(num_samples), self._points_to_evaluate)

    def variants(
        self, config: dict[str, Any], num_samples: int
    ) -> Iterator[tuple[dict[Path, Any], dict[Any, Any]]]:
        """Makes configurations, when asked for; after set_state() those behind the last one taken.

        Args:
            config: the search space.
            num_samples: how many samples; -1: without end.

        Yields:
            For each, what was resolved, by path, and the configuration.
        """
        source = self._random_source()
        presets = self._points_to_evaluate
        source.set_state(self._sample_state)
        while self._sample < max(_samples(num_samples), len(presets)):
            self._sample_state = source.state()
            arguments = (self._constant_grid_search, source)
            if self._sample < len(presets):
                sample = preset_variants(config, copy.deepcopy(presets[self._sample]), *arguments)
            else:
                sample = generate_variants(config, *arguments)
            taken = self._position
            for index, variant in enumerate(sample):
                if index >= taken:
                    self._position = index + 1
                    yield variant
            self._sample += 1
            self._position = 0
            self._sample_state = source.state()

    def _random_source(self) -> RandomSource:
        if self._source is None:
            self._source = RandomSource(self._random_state)
        return self._source

    def get_state(self) -> dict[str, Any]:
        """Returns where variants() is, picklable."""
        state = self._sample_state
        return {"sample": self._sample, "position": self._position, "random_state": state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was.

        Args:
            state: what its get_state() returned.
        """
        self._sample = state["sample"]
        self._position = state["position"]
        self._sample_state = state["random_state"]


def _samples(num_samples: int) -> int:
    return sys.maxsize if num_samples == -1 else num_samples

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where the trials of an experiment come from: the variants of a grid, or a searcher. They are made
when there is room for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from sheaf.tune.error import TuneError
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.search.basic_variant import BasicVariantGenerator
from sheaf.tune.search.concurrency_limiter import ConcurrencyLimiter
from sheaf.tune.search.flatten import flatten_dict, merge_dicts
from sheaf.tune.search.searcher import Searcher
from sheaf.tune.search.variant_generator import flatten_resolved_vars, format_vars

_MOST_PENDING = 200  # Of a grid: trials that are made before there is room, for schedulers to see.

MakeTrial = Callable[[str, dict[str, Any], dict[str, Any], str], Trial]


class VariantSource:
    """The variants of a space, by grid and at random. make: makes a trial of (id, configuration,
    chosen values, tag)."""

    def __init__(
        self,
        generator: BasicVariantGenerator,
        space: dict[str, Any],
        num_samples: int,
        make: MakeTrial,
    ):
        self.search_alg = generator
        self._space, self._num_samples, self._make = space, num_samples, make
        self._prefix = Trial.generate_id()[:5]
        self._count = 0
        self._variants: Iterator[tuple[dict[Any, Any], dict[str, Any]]] | None = None
        self._open = 0  # Made, and not over.
        self.finished = False

    @property
    def most_pending(self) -> int:
        """How many trials may wait for room."""
        return _MOST_PENDING

    @property
    def total(self) -> int | None:
        """How many trials there will be, or None: nobody knows."""
        if self._num_samples < 0:
            return None
        return self.search_alg.total(self._space, self._num_samples)

    def next(self) -> Trial | None:
        """One more trial; None: there is none now, or any more (`finished`)."""
        if self.finished or self._open >= (self.search_alg.max_concurrent or float("inf")):
            return None
        if self._variants is None:
            self._variants = self.search_alg.variants(self._space, self._num_samples)
        found = next(self._variants, None)
        if found is None:
            self.finished = True
            return None
        resolved, config = found
        number = self._count
        self._count += 1
        self._open += 1
        chosen = flatten_resolved_vars(resolved)
        tag = f"{number}_{format_vars(resolved)}" if resolved else str(number)
        return self._make(f"{self._prefix}_{number:05d}", config, chosen, tag)

    def on_result(self, trial: Trial, flat: dict[str, Any]) -> None:
        """A trial goes on with this result."""

    def on_complete(self, trial: Trial, flat: dict[str, Any] | None, error: bool) -> None:
        """A trial is over."""
        self._open -= 1

    def get_state(self) -> dict[str, Any]:
        """What set_state needs, in another process."""
        return {
            "prefix": self._prefix,
            "count": self._count,
            "finished": self.finished,
            "generator": self.search_alg.get_state(),
        }

    def set_state(self, state: dict[str, Any], open_trials: int) -> None:
        """Goes on where another has ended, with so many trials that are not over."""
        self._prefix, self._count = state["prefix"], state["count"]
        self.finished, self._open = state["finished"], open_trials
        self.search_alg.set_state(state["generator"])


class SearcherSource:
    """What a searcher suggests. See VariantSource."""

    def __init__(
        self, searcher: Searcher, space: dict[str, Any], num_samples: int, make: MakeTrial
    ):
        self.search_alg = searcher
        self._fixed, self._num_samples, self._make = space, num_samples, make
        self._count = 0
        self.finished = False
        self.events: list[Any] = []  # What it was asked and told, for the journal to take.

    @property
    def most_pending(self) -> int:
        """How many trials may wait for room: one, so that a searcher knows all results that it
        can."""
        searcher: Any = self.search_alg
        while searcher is not None:
            if isinstance(searcher, ConcurrencyLimiter):
                return searcher.max_concurrent
            searcher = getattr(searcher, "searcher", None)
        return 1

    @property
    def total(self) -> int | None:
        """How many trials there will be, or None: nobody knows."""
        return self._num_samples if self._num_samples >= 0 else None

    def next(self) -> Trial | None:
        """One more trial; None: there is none now, or any more (`finished`)."""
        if self.finished:
            return None
        if 0 <= self._num_samples <= self._count:
            self.finished = True
            return None
        trial_id = Trial.generate_id()
        suggested: Any = self.search_alg.suggest(trial_id)
        if suggested == Searcher.FINISHED:
            self.finished = True
            return None
        if suggested is None:
            return None
        if not isinstance(suggested, dict):
            raise TuneError(
                f"{type(self.search_alg).__name__}.suggest() gave {suggested!r}: want a dict, None "
                "or Searcher.FINISHED"
            )
        self._count += 1
        self.events.append(("suggest", trial_id))
        config = merge_dicts(copy.deepcopy(self._fixed), suggested)
        chosen = flatten_dict(suggested)
        resolved = {tuple(path.split("/")): value for path, value in chosen.items()}
        tag = f"{self._count}_{format_vars(resolved)}"
        return self._make(trial_id, config, chosen, tag)

    def on_result(self, trial: Trial, flat: dict[str, Any]) -> None:
        """A trial goes on with this result."""
        self.search_alg.on_trial_result(trial.trial_id, flat)

    def on_complete(self, trial: Trial, flat: dict[str, Any] | None, error: bool) -> None:
        """A trial is over."""
        self.search_alg.on_trial_complete(trial.trial_id, result=flat, error=error)
        known = {name: one for name, one in (flat or {}).items() if not name.startswith("config/")}
        self.events.append(("complete", trial.trial_id, known if flat else None, error))

    def get_state(self) -> dict[str, Any]:
        """What set_state needs, besides what the searcher saves itself."""
        return {"count": self._count, "finished": self.finished}

    def set_state(self, state: dict[str, Any], open_trials: int) -> None:
        """Goes on where another has ended."""
        self._count, self.finished = state["count"], state["finished"]


TrialSource = VariantSource | SearcherSource

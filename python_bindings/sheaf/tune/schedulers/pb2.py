# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Population based bandits (Parker-Holder et al., 2020): population based training whose new values
come from a model, which small populations need."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from sheaf.tune.error import TuneError
from sheaf.tune.schedulers.pbt import PopulationBasedTraining
from sheaf.tune.search.flatten import flatten_dict, merge_dicts, unflatten_dict

_NEWEST = 1000  # Observations that the model is made of.


class PB2(PopulationBasedTraining):
    """Copies good trials over bad ones; a Gaussian process chooses the copies' hyperparameters.

    Args:
        time_attr: what of a result counts as time.
        metric: what of a result is looked at.
        mode: "min" or "max".
        perturbation_interval: the time between changes of a trial, in units of time_attr.
        hyperparam_bounds: the least and greatest value by name, or a dict of these.
        quantile_fraction: the part of the trials that is copied, and that is replaced; 0.5 at most.
        log_config: whether changes are written into files of the experiment, to be replayed.
        require_attrs: whether a result without time_attr or metric is an error.
        synch: whether trials wait for each other at each interval.
        custom_explore_fn: takes a changed configuration and returns another.

    Raises:
        RuntimeError: scikit-learn is not installed.
        TuneError: there are no bounds.
        ValueError: bounds are no pair of a least and a greatest value.
    """

    _STATE = (*PopulationBasedTraining._STATE, "_rows", "_pending", "_explored")

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        if importlib.util.find_spec("sklearn") is None:
            raise RuntimeError("PB2 needs scikit-learn: `pip install scikit-learn`")
        if not hyperparam_bounds:
            raise TuneError("`hyperparam_bounds` must be specified to use PB2 scheduler.")
        self._bounds = flatten_dict(dict(hyperparam_bounds), prevent_delimiter=True)
        for name, pair in self._bounds.items():
            if not isinstance(pair, (list, tuple)) or len(pair) != 2 or pair[0] > pair[1]:
                raise ValueError(
                    f"`hyperparam_bounds` has {pair} for {name}: give a least and a greatest value"
                )
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=hyperparam_bounds,
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        # What was seen: trial, time, hyperparameters, score.
        self._rows: list[tuple[str, float, tuple[float, ...], float]] = []
        self._pending: list[tuple[float, ...]] = []  # Chosen since the last report.
        self._explored: float = 0  # The time of the last report when hyperparameters were chosen.

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Adds a trial to the population; values that its configuration lacks are drawn.

        Args:
            tune_controller: the controller.
            trial: the trial.
        """
        import numpy as np

        present = flatten_dict(trial.config)
        drawn = {
            name: np.random.uniform(*pair)
            for name, pair in self._bounds.items()
            if name not in present
        }
        merged = merge_dicts(trial.config, unflatten_dict(drawn))
        trial.config.update(merged)
        trial.evaluated_params.update(drawn)
        super().on_trial_add(tune_controller, trial)

    def _save_trial_state(
        self, state: Any, time: float, result: dict[str, Any], trial: Any
    ) -> float:
        score = super()._save_trial_state(state, time, result, trial)
        self._rows.append((trial.trial_id, time, self._values(trial.config), score))
        return score

    def _values(self, config: dict[str, Any]) -> tuple[float, ...]:
        flat = flatten_dict(config)
        return tuple(flat[name] for name in self._bounds)

    def _get_new_config(self, trial: Any, donor: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        latest = max(row[1] for row in self._rows)
        if latest > self._explored:
            self._pending = []
        old = self._values(donor.config)
        observations = self._observations()
        of_donor = [row for row in observations if row[0] == donor.trial_id]
        new = old
        if of_donor:
            new = self._proposed(observations, of_donor[-1], old)
            # The copy stands where the donor stands, until it reports itself.
            _, time, before, _, improvement, duration = of_donor[-1]
            score = before + improvement * duration
            self._rows.append((trial.trial_id, time, new, score))
        self._pending.append(new)
        self._explored = max(latest, self._explored)
        config = merge_dicts(donor.config, unflatten_dict(dict(zip(self._bounds, new))))
        if self._custom_explore_fn:
            config = self._custom_explore_fn(config)
            assert config is not None, "custom_explore_fn returned None instead of a configuration"
        return config, {}

    def _observations(self) -> list[tuple[str, float, float, tuple[float, ...], float, float]]:
        """For each report but the first of a configuration: trial, time, score before,
        hyperparameters, improvement per time, and time since that report."""
        last: dict[tuple[str, tuple[float, ...]], tuple[float, float]] = {}
        observations = []
        for trial_id, time, values, score in sorted(self._rows, key=lambda row: row[1]):
            before = last.get((trial_id, values))
            last[trial_id, values] = (time, score)
            if before is not None and time > before[0]:
                duration = time - before[0]
                improvement = (score - before[1]) / duration
                observations.append((trial_id, time, before[1], values, improvement, duration))
        return observations[-_NEWEST:]

    def _proposed(
        self, observations: list[Any], donor: Any, old: tuple[float, ...]
    ) -> tuple[float, ...]:
        import numpy as np

        from sheaf.tune.schedulers.pb2_model import propose

        values = propose(
            observed=np.array([[time, before, *v] for _, time, before, v, _, _ in observations]),
            improvements=np.array([row[4] for row in observations]),
            pending=np.array(self._pending) if self._pending else None,
            now=np.array([donor[1], donor[2]]),
            bounds=list(self._bounds.values()),
        )
        # float32 may round beyond a bound.
        clipped = (
            min(max(float(value), pair[0]), pair[1])
            for value, pair in zip(values, self._bounds.values())
        )
        return tuple(type(each)(value) for each, value in zip(old, clipped))

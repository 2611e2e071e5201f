# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Population based training (Jaderberg et al., 2017): bad trials go on from copies of good ones,
with values changed a little."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import random
import shutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sheaf.tune.error import TuneError
from sheaf.tune.result_keys import TRAINING_ITERATION
from sheaf.tune.schedulers import pbt_explore
from sheaf.tune.schedulers.trial_scheduler import PAUSED, PENDING, ObjectiveScheduler
from sheaf.tune.search.domains import Domain, Function
from sheaf.tune.search.searcher import Searcher

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class _TrialState:
    """What is known of a trial of the population."""

    orig_tag: str
    last_score: float | None = None
    # What the controller's save_now() gave; None: the trial is no donor, or has none yet.
    last_checkpoint: Any = None
    last_perturbation_time: float = 0
    last_train_time: float = 0


class PopulationBasedTraining(ObjectiveScheduler):
    """Copies the best quarter of the trials over the worst, and changes the copies' values.

    The trainable must save checkpoints, or nothing is copied. It must be able to go on from the
    checkpoint of another configuration.

    Args:
        time_attr: what of a result counts as time.
        metric: what of a result is looked at.
        mode: "min" or "max".
        perturbation_interval: the time between changes of a trial, in units of time_attr.
        burn_in_period: the time before the first change.
        hyperparam_mutations: what may change: by name a list or tuple of values, a domain, a
            function that draws a value, or a dict of these.
        quantile_fraction: the part of the trials that is copied, and that is replaced; 0.5 at most.
        resample_probability: how likely a value is drawn anew, not changed.
        perturbation_factors: what a value is multiplied with else, one of these.
        custom_explore_fn: takes a changed configuration and returns another.
        log_config: whether changes are written into files of the experiment, to be replayed.
        require_attrs: whether a result without time_attr or metric is an error.
        synch: whether trials wait for each other at each interval.

    Raises:
        TypeError: a mutation is none of these.
        ValueError: an argument is out of its range.
        TuneError: there is nothing that may change.
    """

    _STATE: ClassVar[tuple[str, ...]] = (
        "_next_perturbation_sync",
        "_num_checkpoints",
        "_num_perturbations",
    )

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        mutations = hyperparam_mutations or {}
        _check_mutations(mutations)
        if not mutations and not custom_explore_fn:
            raise TuneError("PBT needs `hyperparam_mutations`, `custom_explore_fn`, or both.")
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(
                f"`quantile_fraction` must be between 0 and 0.5, not {quantile_fraction!r}"
            )
        if perturbation_interval <= 0:
            raise ValueError(
                f"`perturbation_interval` must be greater than 0, not {perturbation_interval!r}"
            )
        super().__init__(metric, mode)
        self._time_attr = time_attr
        self._perturbation_interval = perturbation_interval
        self._burn_in_period = burn_in_period
        self._hyperparam_mutations = mutations
        self._quantile_fraction = quantile_fraction
        self._resample_probability = resample_probability
        self._perturbation_factors = perturbation_factors
        self._custom_explore_fn = custom_explore_fn
        self._log_config = log_config
        self._require_attrs = require_attrs
        self._synch = synch
        self._next_perturbation_sync = max(perturbation_interval, burn_in_period)
        self._num_checkpoints = 0
        self._num_perturbations = 0
        self._states: dict[str, _TrialState] = {}
        self._trials: dict[str, Any] = {}

    def get_state(self) -> dict[str, Any]:
        """Returns what set_state() wants later, picklable; checkpoints are asked for again then."""
        states = {
            trial_id: dataclasses.replace(state, last_checkpoint=None)
            for trial_id, state in self._states.items()
        }
        return {**super().get_state(), "_states": states}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Adds a trial to the population; values that its configuration lacks are drawn.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            ValueError: there is no metric or no mode, or there is a searcher, too.
        """
        if isinstance(tune_controller.search_alg, Searcher):
            raise ValueError(
                f"Search algorithms cannot be used with {type(self).__name__} schedulers. Please "
                f"remove {tune_controller.search_alg}."
            )
        self.require_objective()
        self._trials[trial.trial_id] = trial
        if trial.trial_id in self._states:
            return
        self._states[trial.trial_id] = _TrialState(trial.experiment_tag)
        for name, mutation in self._hyperparam_mutations.items():
            if name not in trial.config:
                trial.config[name] = pbt_explore.draw(mutation)
                trial.evaluated_params[name] = trial.config[name]

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Changes a trial of the worst, once in each interval.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            CONTINUE; PAUSE where others wait; NOOP where the controller was told already.

        Raises:
            RuntimeError: the result lacks time_attr or the metric, and require_attrs is True.
        """
        if not self._has_attributes(result):
            return self.CONTINUE
        time = result[self._time_attr]
        state = self._states[trial.trial_id]
        if time < self._burn_in_period:
            return self.CONTINUE
        if time - state.last_perturbation_time < self._perturbation_interval:
            return self.CONTINUE
        self._save_trial_state(state, time, result, trial)
        if self._synch:
            self._perturb_together(tune_controller, trial, time)
            return self.NOOP if trial.status == PAUSED else self.PAUSE
        state.last_perturbation_time = time
        lower, upper = self._quantiles()
        others = tune_controller.get_trials()
        waiting = any(other.status in (PENDING, PAUSED) for other in others)
        self._checkpoint_or_exploit(trial, tune_controller, upper, lower)
        if trial.status == PAUSED:
            return self.NOOP
        return self.PAUSE if waiting else self.CONTINUE

    def _has_attributes(self, result: dict[str, Any]) -> bool:
        missing = [name for name in (self._time_attr, self._metric) if name not in result]
        if missing and self._require_attrs:
            raise RuntimeError(
                f"Cannot find {', '.join(map(str, missing))} in the trial's result, which has "
                f"{', '.join(map(str, result))}. Report it, or set require_attrs=False."
            )
        return not missing

    def _save_trial_state(
        self, state: _TrialState, time: float, result: dict[str, Any], trial: Any
    ) -> float:
        assert self._metric is not None
        state.last_score = self._metric_op * result[self._metric]
        state.last_train_time = time
        return state.last_score

    def _perturb_together(self, tune_controller: Any, trial: Any, time: float) -> None:
        """Changes all trials when the last one has come to the interval's end."""
        for other in tune_controller.get_live_trials():
            late = self._states[other.trial_id].last_train_time < self._next_perturbation_sync
            if late and other is not trial:
                return
        lower, upper = self._quantiles()
        trials = tune_controller.get_trials()
        between = [other for other in trials if other not in lower and other not in upper]
        # Donors first: they save before they are copied.
        for other in upper + between + lower:
            self._states[other.trial_id].last_perturbation_time = time
            self._checkpoint_or_exploit(other, tune_controller, upper, lower)
        latest = max(self._states[other.trial_id].last_train_time for other in trials)
        self._next_perturbation_sync = max(
            self._next_perturbation_sync + self._perturbation_interval, latest
        )

    def _checkpoint_or_exploit(
        self, trial: Any, tune_controller: Any, upper: list[Any], lower: list[Any]
    ) -> None:
        state = self._states[trial.trial_id]
        state.last_checkpoint = None
        if trial in upper:
            state.last_checkpoint = tune_controller.save_now(trial)
            self._num_checkpoints += 1
        if trial in lower:
            donor = random.choice(upper)
            assert trial is not donor
            donor_state = self._states[donor.trial_id]
            if donor_state.last_checkpoint is None:
                # It was no donor when it reported last, or has been saving since. Ray skips here.
                donor_state.last_checkpoint = tune_controller.save_now(donor)
            if donor_state.last_checkpoint is None:
                logger.info(
                    f"[pbt]: no checkpoint for trial {donor.trial_id}. Skip exploit for trial "
                    f"{trial.trial_id}"
                )
                return
            self._exploit(tune_controller, trial, donor)

    def _exploit(self, tune_controller: Any, trial: Any, donor: Any) -> None:
        """Lets a trial go on from the donor's checkpoint with a changed configuration."""
        state, donor_state = self._states[trial.trial_id], self._states[donor.trial_id]
        new_config, operations = self._get_new_config(trial, donor)
        mutations = self._hyperparam_mutations
        changes = pbt_explore.describe(donor.config, new_config, mutations, operations)
        logger.info(
            f"[{type(self).__name__}] trial {trial.trial_id} (score {state.last_score}) goes on "
            f"from trial {donor.trial_id} (score {donor_state.last_score}):\n{changes}"
        )
        if self._log_config:
            self._log_exploit(state, donor_state, trial, donor, new_config)
        if trial.status == PAUSED and not self._synch:
            raise TuneError(f"the trial {trial.trial_id} has reported, but is paused")
        tag = pbt_explore.experiment_tag(state.orig_tag, new_config, mutations)
        tune_controller.exploit(trial, donor_state.last_checkpoint, new_config, tag)
        self._num_perturbations += 1
        state.last_perturbation_time = donor_state.last_perturbation_time
        state.last_train_time = donor_state.last_train_time

    def _get_new_config(self, trial: Any, donor: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return pbt_explore.explore(
            donor.config,
            self._hyperparam_mutations,
            self._resample_probability,
            self._perturbation_factors,
            self._custom_explore_fn,
        )

    def _log_exploit(
        self, state: _TrialState, donor_state: _TrialState, trial: Any, donor: Any, config: Any
    ) -> None:
        """Writes the change into pbt_global.txt and the trial's own history, which begins as a copy
        of the donor's: PopulationBasedTrainingReplay reads that."""
        folder = trial.local_experiment_path
        steps = [each.last_result.get(TRAINING_ITERATION, 0) for each in (trial, donor)]
        line = json.dumps(
            [state.orig_tag, donor_state.orig_tag, *steps, donor.config, config], default=str
        )
        history, donor_history = (
            os.path.join(folder, f"pbt_policy_{each.trial_id}.txt") for each in (trial, donor)
        )
        if os.path.exists(donor_history):
            shutil.copyfile(donor_history, history)
        for path in (os.path.join(folder, "pbt_global.txt"), history):
            with open(path, "a") as file:
                file.write(line + "\n")

    def _quantiles(self) -> tuple[list[Any], list[Any]]:
        """The worst and the best of the trials that have a score and are not over."""
        ranked = [
            self._trials[trial_id]
            for trial_id, state in self._states.items()
            if state.last_score is not None
            and not math.isnan(state.last_score)
            and not self._trials[trial_id].is_finished()
        ]
        ranked.sort(key=lambda trial: self._states[trial.trial_id].last_score or 0.0)
        if len(ranked) <= 1:
            return [], []
        count = math.ceil(len(ranked) * self._quantile_fraction)
        if count > len(ranked) / 2:
            count = len(ranked) // 2
        return ranked[:count], ranked[len(ranked) - count :]

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Chooses the trial that has trained least.

        Args:
            tune_controller: the controller.

        Returns:
            A trial that is pending or paused; None: there is none, or all wait for others.
        """
        candidates = [
            trial
            for trial in tune_controller.get_trials()
            if trial.status in (PENDING, PAUSED)
            and (not self._synch or self._train_time(trial) < self._next_perturbation_sync)
        ]
        return min(candidates, key=self._train_time, default=None)

    def _train_time(self, trial: Any) -> float:
        return self._states[trial.trial_id].last_train_time

    def reset_stats(self) -> None:
        """Counts checkpoints and changes from 0 again."""
        self._num_perturbations = 0
        self._num_checkpoints = 0

    def last_scores(self, trials: list[Any]) -> list[float]:
        """Looks at scores.

        Args:
            trials: whose scores are wanted.

        Returns:
            The last scores of those trials that have one and are not over.
        """
        scores = ((self._states[t.trial_id].last_score, t) for t in trials)
        return [score for score, t in scores if score is not None and not t.is_finished()]

    def debug_string(self) -> str:
        """Returns a line about the state."""
        return (
            f"PopulationBasedTraining: {self._num_checkpoints} checkpoints, "
            f"{self._num_perturbations} perturbs"
        )


def _check_mutations(mutations: Mapping[str, Any]) -> None:
    for name, value in mutations.items():
        if isinstance(value, Function):
            raise ValueError(
                f"`hyperparam_mutations` has tune.sample_from as {name}: give a plain function, or "
                "another domain"
            )
        if not isinstance(value, (dict, list, tuple, Domain)) and not callable(value):
            raise TypeError(
                "`hyperparam_mutations` values must be a list, a tuple, a dict, a domain or a "
                f"function; {name} is {value!r}"
            )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One trial that goes through the changes of a trial of population based training again."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from typing import Any

from sheaf.tune.result_keys import TRAINING_ITERATION
from sheaf.tune.schedulers.pbt_explore import experiment_tag
from sheaf.tune.schedulers.trial_scheduler import FIFOScheduler

logger = logging.getLogger(__name__)


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Changes the configuration of its only trial when the one that is replayed was changed.

    Args:
        policy_file: pbt_policy_*.txt of the trial to be replayed.

    Raises:
        ValueError: there is no such file, or it is none of these.
    """

    _STATE = ("_current_step", "_num_perturbations", "current_config")

    def __init__(self, policy_file: str) -> None:
        super().__init__()
        path = pathlib.Path(policy_file).expanduser()
        if not path.exists():
            raise ValueError(f"Policy file not found: {path.as_posix()}")
        self.policy_file = path.as_posix()
        self.experiment_tag = f"replay_{os.path.basename(self.policy_file)}"
        self.config, self._policy = _read_policy(self.policy_file)
        self.current_config = self.config
        self._trial: Any = None
        self._current_step = 0
        self._num_perturbations = 0  # So many changes of the policy are done.

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Gives the trial the configuration that the replayed one began with.

        Args:
            tune_controller: the controller.
            trial: the trial.

        Raises:
            ValueError: there are two trials, or neither policy nor configuration.
        """
        if self._trial is not None:
            raise ValueError(
                "More than one trial added to PBT replay run: all would train the same. Set "
                "num_samples=1"
            )
        self._trial = trial
        if trial.config and self._policy:
            logger.warning("the trial's config is replaced by that of the PBT policy")
        elif trial.config:
            self.config = trial.config
        elif not self._policy:
            raise ValueError(
                "No replay policy found and trial initialized without a valid config. Pass a "
                "`param_space` to `tune.Tuner()`, or do not use PBT replay for this run."
            )
        if not self._num_perturbations:
            trial.set_config(self.config)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Changes the configuration at the iteration of the policy.

        Args:
            tune_controller: the controller.
            trial: the trial.
            result: what it reports.

        Returns:
            NOOP after a change, else CONTINUE.
        """
        if TRAINING_ITERATION not in result or self._num_perturbations >= len(self._policy):
            return self.CONTINUE
        step = self._current_step = result[TRAINING_ITERATION]
        change_at, new_config = self._policy[self._num_perturbations]
        if step < change_at:
            return self.CONTINUE
        checkpoint = tune_controller.save_now(trial)
        if checkpoint is None:
            return self.CONTINUE  # It is saving: the next report changes it.
        logger.info(f"PBT replay at step {step}: the configuration is {new_config} from now on")
        tag = experiment_tag(self.experiment_tag, new_config, new_config)
        tune_controller.exploit(trial, checkpoint, new_config, tag)
        self.current_config = new_config
        self._num_perturbations += 1
        return self.NOOP

    def debug_string(self) -> str:
        """Returns a line about the state."""
        return (
            f"PopulationBasedTraining replay: Step {self._current_step}, "
            f"perturb {self._num_perturbations}"
        )


def _read_policy(path: str) -> tuple[Any, list[tuple[int, dict[str, Any]]]]:
    """The configuration that the trial began with, and its changes by iteration."""
    rows = []
    with open(path) as file:
        for line in file:
            try:
                rows.append(tuple(json.loads(line)))
            except json.JSONDecodeError:
                raise ValueError(f"Could not read PBT policy file: {path}.") from None
    policy: list[tuple[int, dict[str, Any]]] = []
    initial = donor = None
    # From the end: a change that made another trial than the one copied next has been lost by then.
    for old_tag, new_tag, _, new_step, old_config, new_config in reversed(rows):
        if donor and old_tag != donor:
            break
        donor = new_tag
        initial = old_config
        policy.append((new_step, new_config))
    policy.reverse()
    return initial, policy

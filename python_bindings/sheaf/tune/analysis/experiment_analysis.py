# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What has become of an experiment: its trials, the best of them, their results as tables."""

from __future__ import annotations

import math
import os
from typing import Any

from sheaf.air import storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.result import ReportsFile
from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.execution.experiment_log import Found
from sheaf.tune.execution.trial_records import trials_of
from sheaf.tune.experiment.trial import Trial

_SCOPES = ("all", "last", "avg", "last-5-avg", "last-10-avg")


class ExperimentAnalysis:
    """The trials of an experiment.

    Args:
        experiment_checkpoint_path: of the experiment's folder.
        storage_filesystem: one of pyarrow's or fsspec's, with the path inside it.
        trials: its trials; None: they are read from the folder.
        default_metric: by which they are compared.
        default_mode: "min" or "max" is best.

    Raises:
        FileNotFoundError: there is no experiment in the folder.
        ValueError: another mode.
    """

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: Any = None,
        trials: list[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
    ):
        self.filesystem, self.experiment_path = storage.resolve(
            experiment_checkpoint_path, storage_filesystem
        )
        self.default_metric = default_metric
        self.default_mode = self._mode_of(default_mode) if default_mode else None
        if trials is None:
            found = Found(self.experiment_path, self.filesystem)
            trials = trials_of(found, self.experiment_path, self.filesystem)
        self.trials = trials

    # The best.

    @property
    def best_trial(self) -> Trial:
        """The best trial, by the metric and mode of the experiment.

        ValueError: it has none.
        """
        best = self.get_best_trial()
        if best is None:
            raise ValueError(f"no trial has reported {self.default_metric!r}")
        return best

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of the best trial."""
        return self.best_trial.config

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return self.best_trial.last_result

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_logdir(self) -> str | None:
        """The path of the best trial's folder."""
        return self.best_trial.path

    @property
    def best_dataframe(self) -> Any:
        """The results of the best trial as a DataFrame."""
        return self._frame(self.best_trial)

    @property
    def best_result_df(self) -> Any:
        """The last result of the best trial as a DataFrame of one row."""
        return _pandas().DataFrame([flatten(self.best_result)]).set_index("trial_id")

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """Finds the best trial.

        Args:
            metric: by which they are compared; None: that of the experiment.
            mode: "min" or "max" is best; None: that of the experiment.
            scope: which of a trial's values counts: "last", "all" (the best of them), "avg",
                "last-5-avg" or "last-10-avg".
            filter_nan_and_inf: whether values that are no numbers are left out.

        Returns:
            The trial, or None: none has reported the metric.

        Raises:
            ValueError: there is no metric, no mode, or another scope.
        """
        name, best_is = self._metric_of(metric), self._mode_of(mode)
        if scope not in _SCOPES:
            raise ValueError(f"scope={scope!r}: want one of {', '.join(_SCOPES)}")
        sign = 1 if best_is == "max" else -1
        scored = []
        for trial in self.trials:
            if scope == "last":
                value = flatten(trial.last_result).get(name)
            else:
                value = trial.metric_analysis.get(name, {}).get(
                    best_is if scope == "all" else scope
                )
            if value is None or not isinstance(value, (int, float)):
                continue
            if filter_nan_and_inf and not math.isfinite(value):
                continue
            scored.append((sign * value, trial))
        return max(scored, key=lambda pair: pair[0])[1] if scored else None

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """Finds the configuration of the best trial.

        Args:
            metric: see get_best_trial.
            mode: see get_best_trial.
            scope: see get_best_trial.

        Returns:
            The configuration, or None: no trial has reported the metric.
        """
        best = self.get_best_trial(metric, mode, scope)
        return best.config if best else None

    def get_best_logdir(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> str | None:
        """Finds the folder of the best trial.

        Args:
            metric: see get_best_trial.
            mode: see get_best_trial.
            scope: see get_best_trial.

        Returns:
            Its path, or None: no trial has reported the metric.
        """
        best = self.get_best_trial(metric, mode, scope)
        return best.path if best else None

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Finds the best checkpoint of a trial.

        Args:
            trial: the one.
            metric: by which they are compared; None: that of the experiment, or else the number of
                the step.
            mode: "min" or "max" is best; None: that of the experiment.

        Returns:
            The checkpoint, or None: it has none with the metric.
        """
        name = metric or self.default_metric or fields.TRAINING_ITERATION
        best_is = mode or self.default_mode or "max"
        sign = 1 if self._mode_of(best_is) == "max" else -1
        scored = [
            (sign * value, kept.checkpoint)
            for kept in trial.kept.all
            if isinstance(value := flatten(kept.result).get(name), (int, float)) and value == value
        ]
        return max(scored, key=lambda one: one[0])[1] if scored else None  # The first of equals.

    def get_last_checkpoint(
        self, trial: Trial | None = None, metric: str = fields.TRAINING_ITERATION, mode: str = "max"
    ) -> Checkpoint | None:
        """Finds the newest checkpoint of a trial.

        Args:
            trial: the one; None: the best by `metric`.
            metric: see get_best_trial.
            mode: see get_best_trial.

        Returns:
            The checkpoint, or None: there is none.
        """
        trial = trial or self.get_best_trial(metric, mode)
        return trial.checkpoint if trial else None

    # All.

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Gives the configurations.

        Args:
            prefix: whether names begin with "config/".

        Returns:
            For each trial, by its id, its configuration.
        """
        return {
            trial.trial_id: (
                {f"config/{name}": value for name, value in trial.config.items()}
                if prefix
                else trial.config
            )
            for trial in self.trials
        }

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """For each trial, by its id, its last result."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> Any:
        """The last results as a DataFrame, by the ids of trials."""
        rows = [flatten(trial.last_result) for trial in self.trials]
        return _pandas().DataFrame(rows, index=[trial.trial_id for trial in self.trials])

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """For each trial, by its id, its results as a DataFrame."""
        return {trial.trial_id: self._frame(trial) for trial in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> Any:
        """Makes a table of results.

        Args:
            metric: takes of each trial the result that is best by it; None: the last.
            mode: "min" or "max" is best.

        Returns:
            A DataFrame, a row for each trial, with its configuration as config/NAME, and `logdir`.

        Raises:
            ImportError: pandas is not installed.
        """
        rows = []
        for trial in self.trials:
            row = trial.last_result
            if metric is not None:
                best_is = max if self._mode_of(mode) == "max" else min
                having = [
                    flat
                    for one in ReportsFile(str(trial.path), self.filesystem)
                    if metric in (flat := flatten(one))
                ]
                row = best_is(having, key=lambda one: one[metric]) if having else row
            flat = flatten({name: one for name, one in row.items() if name != "config"})
            flat.update(flatten({"config": trial.config}))
            flat["logdir"] = trial.path
            rows.append(flat)
        return _pandas().DataFrame(rows)

    def _frame(self, trial: Trial) -> Any:
        rows = ReportsFile(str(trial.path), self.filesystem)
        return _pandas().DataFrame([flatten(row) for row in rows])

    def _metric_of(self, metric: str | None) -> str:
        found = metric or self.default_metric
        if not found:
            raise ValueError("metric=None: say by which metric trials are compared")
        return found

    def _mode_of(self, mode: str | None) -> str:
        found = mode or self.default_mode
        if found not in ("min", "max"):
            raise ValueError(f"mode={found!r}: want 'min' or 'max'")
        return found


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "tables of results need pandas (pip install pandas); trials have last_result as a dict"
        ) from error
    return pandas

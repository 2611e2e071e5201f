# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the trials of an experiment have reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

from sheaf.air.result import ReportsFile, Result
from sheaf.tune.analysis.experiment_analysis import ExperimentAnalysis
from sheaf.tune.experiment.trial import Trial


class ResultGrid:
    """The results of an experiment, one for each trial, in the order in which these were made.

    Args:
        experiment_analysis: the experiment.
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis):
        self._analysis = experiment_analysis
        self._results: dict[str, Result] = {}

    @property
    def experiment_path(self) -> str:
        """The path of the experiment's folder."""
        return self._analysis.experiment_path

    @property
    def filesystem(self) -> Any:
        """What that is inside of; None: this machine's."""
        return self._analysis.filesystem

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """Finds the best result.

        Args:
            metric: by which they are compared; None: that of TuneConfig.
            mode: "min" or "max" is best; None: that of TuneConfig.
            scope: which of a trial's values counts: "last", "all" (the best of them), "avg",
                "last-5-avg" or "last-10-avg".
            filter_nan_and_inf: whether values that are no numbers are left out.

        Returns:
            The result.

        Raises:
            ValueError: there is no metric, no mode, or another scope.
            RuntimeError: no trial has reported the metric.
        """
        trials = self._analysis.trials
        if len(trials) == 1 and not metric and not self._analysis.default_metric:
            return self._result(trials[0])
        if not metric and not self._analysis.default_metric:
            raise ValueError(
                "get_best_result(): no metric is given: say metric= here, or in TuneConfig"
            )
        if not mode and not self._analysis.default_mode:
            raise ValueError(
                "get_best_result(): no mode is given: say mode= here, or in TuneConfig"
            )
        best = self._analysis.get_best_trial(metric, mode, scope, filter_nan_and_inf)
        if best is None:
            name = metric or self._analysis.default_metric
            reported = sorted({one for trial in trials for one in trial.metrics})
            raise RuntimeError(
                f"get_best_result(): no trial has reported {name!r}"
                + (" as a number" if filter_nan_and_inf else "")
                + f"; they reported {', '.join(reported) or 'nothing'}"
            )
        return self._result(best)

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> Any:
        """Makes a table of the results.

        Args:
            filter_metric: takes of each trial the result that is best by it; None: the last.
            filter_mode: "min" or "max" is best.

        Returns:
            A DataFrame, a row for each trial.

        Raises:
            ImportError: pandas is not installed.
        """
        return self._analysis.dataframe(filter_metric, filter_mode)

    @property
    def errors(self) -> list[BaseException]:
        """What trials have failed by."""
        return [
            one.error
            for one in self._analysis.trials
            if one.error and one.is_finished() and one.status == Trial.ERROR
        ]

    @property
    def num_errors(self) -> int:
        """How many trials have failed."""
        return sum(trial.status == Trial.ERROR for trial in self._analysis.trials)

    @property
    def num_terminated(self) -> int:
        """How many trials have ended well."""
        return sum(trial.status == Trial.TERMINATED for trial in self._analysis.trials)

    @overload
    def __getitem__(self, i: int) -> Result: ...

    @overload
    def __getitem__(self, i: slice) -> list[Result]: ...

    def __getitem__(self, i: int | slice) -> Result | list[Result]:
        trials = self._analysis.trials
        return [*map(self._result, trials[i])] if isinstance(i, slice) else self._result(trials[i])

    def __len__(self) -> int:
        return len(self._analysis.trials)

    def __iter__(self) -> Iterator[Result]:
        return (self._result(trial) for trial in self._analysis.trials)

    def __repr__(self) -> str:
        return f"ResultGrid<{list(self)}>"

    def _result(self, trial: Trial) -> Result:
        made = self._results.get(trial.trial_id)
        if made is None:
            path = str(trial.path)
            made = self._results[trial.trial_id] = Result(
                metrics={"config": trial.config, **trial.last_result},
                checkpoint=trial.checkpoint,
                path=path,
                error=trial.error if trial.status == Trial.ERROR else None,
                metrics_history=ReportsFile(path, self.filesystem),
                best_checkpoints=trial.kept.best(),
                filesystem=self.filesystem,
            )
        return made

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How an experiment goes, as a table: in the terminal in its place, else now and then; in notebooks
as HTML."""

from __future__ import annotations

import collections
import html
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.experiment.trial import Trial

_SHOWN_FIRST = (Trial.RUNNING, Trial.PENDING, Trial.PAUSED, Trial.ERROR, Trial.TERMINATED)
_DEFAULT_METRICS = {
    fields.MEAN_ACCURACY: "acc",
    fields.MEAN_LOSS: "loss",
    fields.TRAINING_ITERATION: "iter",
    fields.TIME_TOTAL_S: "total time (s)",
    fields.TIMESTEPS_TOTAL: "ts",
    fields.EPISODE_REWARD_MEAN: "reward",
}


class ProgressReporter:
    """Shows how an experiment goes: derive from it and override both."""

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called once, before all others.

        Args:
            start_time: of the experiment, in seconds since the epoch.
            total_samples: how many trials there will be; None: nobody knows.
            metric: by which they are compared.
            mode: "min" or "max".
            **kwargs: more, some day.
        """

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Tells whether it is time to show something.

        Args:
            trials: all so far.
            done: whether it is the last time.

        Returns:
            Whether it is.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        """Shows how it goes.

        Args:
            trials: all so far.
            done: whether it is the last time.
            *sys_info: lines of the scheduler.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError


class SilentReporter(ProgressReporter):
    """Shows nothing."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Returns False.

        Args:
            trials: not looked at.
            done: not looked at.
        """
        return False


class TableReporter(ProgressReporter):
    """A table of trials.

    Args:
        metric_columns: what of results is shown: names, or a dict from names to headings.
        parameter_columns: what of configurations is shown, likewise; None: what was chosen.
        total_samples: how many trials there will be.
        max_progress_rows: how many trials are shown.
        max_error_rows: how many errors are shown.
        max_column_length: longer values are cut.
        max_report_frequency: seconds between two tables.
        infer_limit: how many metrics are found by themselves, where `metric_columns` is None.
        print_intermediate_tables: whether tables are shown before the end; None: yes.
        metric: by which trials are compared.
        mode: "min" or "max".
        sort_by_metric: whether the best trials come first.
    """

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ):
        self._metrics = None if metric_columns is None else _headings(metric_columns)
        self._parameters = None if parameter_columns is None else _headings(parameter_columns)
        self._total = total_samples
        self._rows, self._errors, self._width = max_progress_rows, max_error_rows, max_column_length
        self._each_s, self._infer = max_report_frequency, infer_limit
        self._intermediate = print_intermediate_tables is not False
        self._metric, self._mode, self._sort = metric, mode, sort_by_metric
        self._start = self._last = time.time()

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called once, before all others.

        Args:
            start_time: of the experiment, in seconds since the epoch.
            total_samples: how many trials there will be; None: nobody knows.
            metric: by which they are compared.
            mode: "min" or "max".
            **kwargs: not looked at.
        """
        self._start = self._last = start_time or time.time()
        self._total = self._total or total_samples
        self._metric, self._mode = self._metric or metric, self._mode or mode

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Shows one more metric.

        Args:
            metric: its name.
            representation: its heading; None: the name.
        """
        self._metrics = {**(self._metrics or {}), metric: representation or metric}

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Shows one more value of configurations.

        Args:
            parameter: its name.
            representation: its heading; None: the name.
        """
        self._parameters = {**(self._parameters or {}), parameter: representation or parameter}

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Tells whether it is time for a table.

        Args:
            trials: all so far.
            done: whether it is the last time.

        Returns:
            Whether it is.
        """
        now = time.time()
        if not done and (not self._intermediate or now - self._last < self._each_s):
            return False
        self._last = now
        return True

    def heading(self, trials: list[Trial]) -> str:
        """How many trials there are, by what they do, and how long it has been.

        Args:
            trials: all so far.

        Returns:
            One line.
        """
        states = collections.Counter(trial.status for trial in trials)
        counts = ", ".join(f"{states[one]} {one}" for one in _SHOWN_FIRST if states[one])
        of = f" of {self._total}" if self._total else ""
        return f"{len(trials)}{of} trials in {time.time() - self._start:.1f} s: {counts}"

    def best(self, trials: list[Trial]) -> Trial | None:
        """The best trial so far, or None.

        Args:
            trials: all so far.

        Returns:
            The trial.
        """
        if not self._metric or not self._mode:
            return None
        scored = [trial for trial in trials if self._score(trial) is not None]
        return max(scored, key=lambda trial: self._score(trial) or 0.0, default=None)

    def _score(self, trial: Trial) -> float | None:
        value = flatten(trial.last_result).get(self._metric or "")
        if not isinstance(value, (int, float)) or value != value:
            return None
        return -value if self._mode == "min" else value

    def table(self, trials: list[Trial]) -> list[list[str]]:
        """The table.

        Args:
            trials: all so far.

        Returns:
            Rows of cells, the headings first.
        """
        by_state = sorted(trials, key=lambda trial: _SHOWN_FIRST.index(trial.status))
        if self._sort:
            worst = float("-inf")
            by_state = sorted(
                trials,
                key=lambda trial: worst if (s := self._score(trial)) is None else s,
                reverse=True,
            )
        shown = by_state[: self._rows]
        parameters = self._parameters
        if parameters is None:
            parameters = {name: name for trial in shown for name in trial.evaluated_params}
        metrics = self._metrics or self._found_metrics(shown)
        rows = [["trial", "status", "loc", *parameters.values(), *metrics.values()]]
        for trial in shown:
            config, last = flatten(trial.config), flatten(trial.last_result)
            where = f"{trial.node_ip}:{trial.pid}" if trial.pid else ""
            cells = [trial.evaluated_params.get(name, config.get(name)) for name in parameters]
            cells += [last.get(name) for name in metrics]
            rows.append([str(trial), trial.status, where, *(self._cell(one) for one in cells)])
        return rows

    def _found_metrics(self, trials: list[Trial]) -> dict[str, str]:
        known = {
            name: heading
            for name, heading in _DEFAULT_METRICS.items()
            if any(name in trial.last_result for trial in trials)
        }
        for trial in trials:
            for name in trial.metrics:
                if len(known) < len(_DEFAULT_METRICS) + self._infer:
                    known.setdefault(name, name)
        return known

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        return text if len(text) <= self._width else text[: self._width - 3] + "..."

    def errors(self, trials: list[Trial]) -> list[str]:
        """What has failed.

        Args:
            trials: all so far.

        Returns:
            A line for each trial, with the file that says more.
        """
        failed = [trial for trial in trials if trial.error_text]
        return [
            f"{trial} has failed {trial.num_failures}x: {trial.error_file}"
            for trial in failed[: self._errors]
        ]


class CLIReporter(TableReporter):
    """The table as text, on stderr."""

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        """Shows the table.

        Args:
            trials: all so far.
            done: whether it is the last time.
            *sys_info: lines of the scheduler.
        """
        lines = [self.heading(trials), *(line for line in sys_info if line)]
        best = self.best(trials)
        if best is not None and self._metric is not None:
            lines.append(f"best: {best} with {self._metric}={best.last_result.get(self._metric)}")
        rows = self.table(trials)
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines += ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        if len(trials) > self._rows:
            lines.append(f"... {len(trials) - self._rows} more")
        lines += self.errors(trials)
        sys.stderr.write("\n".join(lines) + "\n\n")
        sys.stderr.flush()


class JupyterNotebookReporter(TableReporter):
    """The table as HTML, in a notebook.

    Args:
        overwrite: whether it takes the place of the one before.
        **kwargs: those of CLIReporter.
    """

    def __init__(self, *, overwrite: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: str) -> None:
        """Shows the table.

        Args:
            trials: all so far.
            done: whether it is the last time.
            *sys_info: lines of the scheduler.
        """
        from IPython import display

        rows = self.table(trials)
        cells = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th", *["td"] * len(rows)], rows)
        ]
        text = html.escape(self.heading(trials)) + "<table><tr>" + "</tr><tr>".join(cells)
        if self._overwrite:
            display.clear_output(wait=True)
        display.display(display.HTML(text + "</tr></table>"))


def _headings(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


def reporter_for(verbose: Any) -> ProgressReporter:
    """What shows an experiment that was not told how. verbose: as of RunConfig."""
    level = getattr(verbose, "value", verbose)
    if level == 0:
        return SilentReporter()
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and "IPKernelApp" in shell.config:
        return JupyterNotebookReporter(max_report_frequency=1)
    return CLIReporter(max_report_frequency=5 if sys.stderr.isatty() else 30)

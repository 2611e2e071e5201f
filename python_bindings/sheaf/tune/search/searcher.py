# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The base of all searchers: asked for configurations, told results."""

from __future__ import annotations

import os
import uuid
from typing import Any

Metric = str | list[str] | None


class Searcher:
    """Proposes configurations and learns from results. Derive from it, and call its __init__.

    Args:
        metric: what of a result is looked at; a list: several objectives.
        mode: "min" or "max"; a list where metric is one.
    """

    FINISHED = "FINISHED"
    CKPT_FILE_TMPL = "searcher-state-{}.pkl"

    def __init__(self, metric: Metric = None, mode: Metric = None) -> None:
        self._metric = metric
        self._mode = mode
        if not mode or not metric:
            return
        assert isinstance(metric, type(mode)), (
            f"metric and mode are both strings or both lists: {metric!r}, {mode!r}"
        )
        if isinstance(mode, str):
            assert mode in ("min", "max"), f"`mode` must be 'min' or 'max', not {mode!r}"
        elif isinstance(mode, list):
            assert len(mode) == len(metric), f"as many modes as metrics: {metric!r}, {mode!r}"
            assert all(each in ("min", "max", "obs") for each in mode), (
                f"each mode is 'min', 'max' or 'obs', not {mode!r}"
            )
        else:
            raise ValueError(f"`mode` is a string or a list, not {mode!r}")

    @property
    def metric(self) -> Any:
        """What of a result is looked at."""
        return self._metric

    @property
    def mode(self) -> Any:
        """Whether the least or the greatest is the best."""
        return self._mode

    def set_search_properties(
        self, metric: Metric, mode: Metric, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Takes the search space and objective of an experiment.

        Args:
            metric: what of a result is looked at.
            mode: "min" or "max".
            config: the search space.
            spec: more of the experiment.

        Returns:
            Whether they are taken; False: the searcher has its own.
        """
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Proposes a configuration.

        Args:
            trial_id: the trial that it is for; results come under this name.

        Returns:
            The configuration; None: there is none now; FINISHED: there is none any more.
        """
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Called with what a trial reports.

        Args:
            trial_id: the trial.
            result: its report.
        """

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Called when a trial is over.

        Args:
            trial_id: the trial.
            result: its last report, if any.
            error: whether it failed.
        """
        raise NotImplementedError

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Tells the searcher of a point that was tried elsewhere.

        Args:
            parameters: the configuration.
            value: of the metric.
            error: whether it failed.
            pruned: whether it was stopped early.
            intermediate_values: of the metric, before the last.
        """
        raise NotImplementedError

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Tells the searcher of trials of another experiment.

        Args:
            trials_or_analysis: a trial, a list of them, or what has them as `trials`.
            metric: what of their results is looked at.
        """
        trials = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in trials if isinstance(trials, (list, tuple)) else [trials]:
            if metric in trial.last_result:
                terminated = trial.status == "TERMINATED"
                self.add_evaluated_point(
                    parameters=trial.config,
                    value=trial.last_result[metric],
                    error=trial.status == "ERROR",
                    pruned=terminated and not trial.last_result.get("done", False),
                )

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Tells a searcher that limits its trials itself how many may run at once.

        Args:
            max_concurrent: so many.

        Returns:
            Whether the searcher sees to it; False: ConcurrencyLimiter does.
        """
        return False

    def get_state(self) -> dict[str, Any]:
        """Returns what set_state() wants later, picklable."""
        raise NotImplementedError

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where another was.

        Args:
            state: what its get_state() returned.
        """
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Writes the state.

        Args:
            checkpoint_path: the file.
        """
        raise NotImplementedError

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_path: what its save() wrote.
        """
        raise NotImplementedError

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Writes the state into a folder, whole or not at all; nothing where save() is not there.

        Args:
            checkpoint_dir: the folder.
            session_str: a part of the file's name; of several, the last by name counts.
        """
        name = self.CKPT_FILE_TMPL.format(session_str)
        draft = os.path.join(checkpoint_dir, f".{uuid.uuid4()}-tmp-{name}")
        try:
            self.save(draft)
        except NotImplementedError:
            return
        if os.path.exists(draft):
            os.replace(draft, os.path.join(checkpoint_dir, name))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Goes on from where another was.

        Args:
            checkpoint_dir: where its save_to_dir() wrote.

        Raises:
            RuntimeError: there is no state.
        """
        prefix, suffix = self.CKPT_FILE_TMPL.split("{}")
        names = [
            name
            for name in os.listdir(checkpoint_dir)
            if name.startswith(prefix) and name.endswith(suffix)
        ]
        if not names:
            raise RuntimeError(f"{checkpoint_dir} has no state of a searcher ({prefix}*{suffix})")
        self.restore(os.path.join(checkpoint_dir, max(names)))


def set_properties(
    target: Any, metric: Metric, mode: Metric, config: dict[str, Any], spec: dict[str, Any]
) -> bool:
    """Calls set_search_properties of a searcher that may be written for Ray's early interface,
    which has no **spec.

    Args:
        target: the searcher.
        metric: as there.
        mode: as there.
        config: as there.
        spec: as there.

    Returns:
        As there.
    """
    try:
        return bool(target.set_search_properties(metric, mode, config, **spec))
    except TypeError as error:
        if "set_search_properties() got an unexpected keyword argument" not in str(error):
            raise
        return bool(target.set_search_properties(metric, mode, config))

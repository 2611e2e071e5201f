# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What loggers have in common."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sheaf.tune.callback import Callback

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial


class LoggerCallback(Callback):
    """Writes what trials report: derive from it and override what is wanted."""

    def log_trial_start(self, trial: Trial) -> None:
        """Called when a trial begins, or begins again.

        Args:
            trial: the one.
        """

    def log_trial_restore(self, trial: Trial) -> None:
        """Called when a trial goes on from a checkpoint.

        Args:
            trial: the one.
        """

    def log_trial_save(self, trial: Trial) -> None:
        """Called when a trial has saved.

        Args:
            trial: the one.
        """

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Called with each result.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Called when a trial is over.

        Args:
            trial: the one.
            failed: whether it has failed.
        """

    def on_trial_start(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """See log_trial_start.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """
        self.log_trial_start(trial)

    def on_trial_restore(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """See log_trial_restore.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """See log_trial_save.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """
        self.log_trial_save(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """See log_trial_result.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: whose it is.
            result: it.
            **info: more, some day.
        """
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """See log_trial_end.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """
        self.log_trial_end(trial, failed=False)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """See log_trial_end.

        Args:
            iteration: how often the controller has acted.
            trials: all so far.
            trial: the one.
            **info: more, some day.
        """
        self.log_trial_end(trial, failed=True)


def plain(value: Any) -> Any:
    """For JSON: arrays as lists, scalars of NumPy and torch as numbers, all else as text."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        try:
            return value.tolist()
        except Exception:  # A sparse tensor, one without values.
            return text_of(value)
    return text_of(value)


def text_of(value: Any) -> str:
    """A value as text; its type where it cannot say."""
    try:
        return str(value)
    except Exception:
        return object.__repr__(value)


def encode(value: Any, **options: Any) -> str:
    """As JSON, whatever it is: names that JSON does not know as text, too."""
    try:
        return json.dumps(value, default=plain, **options)
    except Exception:  # Names that are no text, circles: seldom, and slow.
        return json.dumps(_simple(value, ()), default=plain, **options)


def _simple(value: Any, around: tuple[int, ...]) -> Any:
    """With text as names, and text for what contains itself. around: the ids of what it is in."""
    if not isinstance(value, (dict, list, tuple)):
        return plain(value) if hasattr(value, "tolist") else value
    if id(value) in around:
        return "..."
    around = (*around, id(value))
    if isinstance(value, dict):
        return {text_of(name): _simple(one, around) for name, one in value.items()}
    return [_simple(one, around) for one in value]


def pretty_print(result: dict[str, Any], exclude: set[str] | None = None) -> str:
    """Writes a result for reading.

    Args:
        result: it.
        exclude: names that are left out.

    Returns:
        Text of several lines.
    """
    left_out = {"config", "hist_stats", *(exclude or ())}
    shown = {
        name: value for name, value in result.items() if name not in left_out and value is not None
    }
    return encode(shown, indent=2).strip("{}\n").replace('"', "") + "\n"

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the callbacks for XGBoost and LightGBM have in common: metrics chosen by name, and a model
saved now and then."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint

Metrics = str | Sequence[str] | Mapping[str, str] | None


def chosen(metrics: Metrics, known: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is known, what was asked for: all, some by name, or some by other names. KeyError:
    there is none of this name."""
    if not metrics:
        return dict(known)
    wanted = [metrics] if isinstance(metrics, str) else metrics
    names = wanted if isinstance(wanted, Mapping) else {name: name for name in wanted}
    missing = [name for name in names.values() if name not in known]
    if missing:
        raise KeyError(f"metrics: there is no {missing[0]!r}; there are {', '.join(known)}")
    return {name: known[source] for name, source in names.items()}


class Reporting:
    """Reports each iteration; saves the model with each `frequency`-th, and with the last."""

    def __init__(self, metrics: Metrics, filename: str, frequency: int, at_end: bool, change: Any):
        self._metrics, self._filename = metrics, filename
        self._frequency, self._at_end = frequency, at_end
        self._change: Callable[[dict[str, Any]], dict[str, Any]] | None = change
        self._last: dict[str, Any] = {}
        self._saved = -1

    def after_iteration(self, number: int, known: dict[str, Any], save: Any) -> None:
        """One iteration is done; `save` writes the model into a file."""
        said = chosen(self._metrics, known)
        self._last = self._change(said) if self._change else said
        if self._frequency and (number + 1) % self._frequency == 0:
            self._report(number, save)
        else:
            session.current().report(dict(self._last), None, None, False)

    def after_training(self, number: int, save: Any) -> None:
        """All are done."""
        if self._at_end and self._saved != number and self._last:
            self._report(number, save)

    def _report(self, number: int, save: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            save(os.path.join(folder, self._filename))
            checkpoint = Checkpoint.from_directory(folder)
            session.current().report(dict(self._last), checkpoint, None, False)
        self._saved = number

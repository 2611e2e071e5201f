# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One line on a terminal that says how far an execution is, and goes away at its end."""

from __future__ import annotations

import sys
import time
from typing import Any

_EACH_S = 0.2
_FIRST_S = 1.0  # What is over sooner shows nothing.


class Progress:
    """The line. Elsewhere than on a terminal there is none.

    Args:
        name: of the dataset.
        enabled: whether it is wanted.
    """

    def __init__(self, name: str, enabled: bool) -> None:
        self._name = name or "dataset"
        self._stream = sys.stderr
        self._live = enabled and bool(getattr(self._stream, "isatty", bool)())
        self._next = time.monotonic() + _FIRST_S
        self._shown = False

    def show(self, machine: Any) -> None:
        """Writes the line anew, if it is time."""
        if not self._live or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EACH_S
        self._shown = True
        self._write(line(self._name, machine))

    def close(self) -> None:
        """Takes the line away."""
        if self._shown:
            self._write("")
        self._shown = self._live = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(f"\r{text[:150]}\033[K")
            self._stream.flush()
        except (OSError, ValueError):
            self._live = False


def line(name: str, machine: Any) -> str:
    """What the line says: for each operator its rows, tasks, and what waits, and why."""
    parts = []
    for state in machine.states:
        if state.spec.kind != "map" or not (state.is_busy or state.rows_out):
            continue
        said = f"{state.spec.name}: {state.rows_out:,} rows"
        if state.running:
            said += f", {len(state.running)} run"
        if state.queue:
            full = machine.budget.is_full()
            said += f", {len(state.queue)} wait for {'room' if full else 'resources'}"
        parts.append(said)
    held = machine.budget.held / (1 << 20)
    return f"{name}: " + "; ".join(parts) + f"; {held:.0f} MiB held"

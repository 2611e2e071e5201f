# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How training goes, in one line: step, loss, throughput, time left. On a terminal in its place,
else a line now and then."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

_LIVE_EACH_S = 0.1
_PLAIN_EACH_S = 5.0
_WINDOW = 50  # Reports that the throughput is measured over.


class ProgressLine:
    """Not thread-safe. total: how many reports there will be, if known."""

    def __init__(
        self, name: str, total: int | None, wanted: bool = True, stream: TextIO | None = None
    ):
        self._name, self._total, self._wanted = name, total, wanted
        self._stream = stream or sys.stderr
        self._live = bool(getattr(self._stream, "isatty", bool)())
        self._times: list[tuple[float, float]] = []  # (when, samples) of the last reports.
        self._row: dict[str, Any] = {}
        self._done = 0
        self._shown = time.monotonic()
        self._open = False

    def step(self, done: int, row: dict[str, Any]) -> None:
        """So many reports are there now; the last one."""
        now = time.monotonic()
        samples = row.get("samples")
        self._times = [
            *self._times[-_WINDOW:],
            (now, float(samples) if isinstance(samples, (int, float)) else 0.0),
        ]
        self._done, self._row = done, row
        if now - self._shown >= (_LIVE_EACH_S if self._live else _PLAIN_EACH_S):
            self._show(now)

    def text(self) -> str:
        """The line."""
        parts = [f"{self._name}: step {self._done}" + (f"/{self._total}" if self._total else "")]
        loss = next(
            (
                value
                for name, value in self._row.items()
                if "loss" in name and isinstance(value, (int, float))
            ),
            None,
        )
        if loss is not None:
            parts.append(f"loss {loss:.4g}")
        spent = self._times[-1][0] - self._times[0][0] if self._times else 0.0
        if spent > 0:
            samples = sum(count for _, count in self._times[1:])
            rate = (len(self._times) - 1) / spent
            parts.append(f"{samples / spent:,.0f} samples/s" if samples else f"{rate:,.1f} steps/s")
            if self._total and self._total > self._done:
                parts.append(f"{(self._total - self._done) / rate:,.0f} s left")
        return ", ".join(parts)

    def note(self, words: str) -> None:
        """A line of its own, for what happens to the group; the throughput is measured anew behind
        it."""
        if self._wanted:
            self._stream.write(("\r\033[K" if self._open else "") + f"{self._name}: {words}\n")
            self._stream.flush()
        self._open = False
        self._times = []

    def close(self) -> None:
        """The last line stays."""
        if self._wanted and self._done:
            self._show(time.monotonic())
        if self._open:
            self._stream.write("\n")
            self._stream.flush()
        self._open = False

    def _show(self, now: float) -> None:
        if not self._wanted:
            return
        self._shown = now
        self._stream.write(f"\r{self.text()}\033[K" if self._live else f"{self.text()}\n")
        self._stream.flush()
        self._open = self._live

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What workers print, on the driver's terminal: each line after `(name pid=)`, and what many
workers say at the same time said once.

A line that another worker has said within the last seconds is not printed again, but counted, and
the count follows as `... [repeated 5x across workers]`. Only lines that are equal to the letter are
the same: numbers are never taken for noise. A worker that repeats itself is printed each time.
SHEAF_DEDUP_LOGS=0 (or RAY_DEDUP_LOGS=0) prints everything.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from sheaf._internal import bars

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import TextIO

_WINDOW_S = 5.0
_MOST_LINES = 1000  # Remembered; beyond, the oldest are told and forgotten.
_COLOURS = (36, 35, 34, 32, 33)  # Cyan, magenta, blue, green, yellow: by process.


class _Said:
    __slots__ = ("since", "pid", "name", "times", "error")

    def __init__(self, since: float, name: str, pid: int, error: bool):
        self.since, self.name, self.pid, self.error = since, name, pid, error
        self.times = 0  # That it was said by others and not printed.


class Deduplicator:
    """Decides which lines are printed. Thread-safe through its caller's lock."""

    def __init__(self, window_s: float = _WINDOW_S):
        self._window_s = window_s
        self._said: dict[tuple[bool, str], _Said] = {}

    def take(
        self, name: str, pid: int, error: bool, lines: list[str], now: float
    ) -> list[tuple[str, int, bool, str]]:
        """What to print now: (name, pid, error, line)."""
        out = self.flush(now)
        for line in lines:
            known = self._said.get((error, line))
            if known is not None and known.pid != pid and line:
                known.times += 1
                continue
            out.append((name, pid, error, line))
            if known is None:
                self._said[error, line] = _Said(now, name, pid, error)
        if len(self._said) > _MOST_LINES:
            out.extend(self.flush(float("inf")))
        return out

    def flush(self, now: float) -> list[tuple[str, int, bool, str]]:
        """The counts of the lines that were said longer ago than the window."""
        out = []
        for (error, line), said in list(self._said.items()):
            if now - said.since >= self._window_s:
                del self._said[error, line]
                if said.times:
                    out.append(
                        (
                            said.name,
                            said.pid,
                            error,
                            f"{line} [repeated {said.times}x across workers]",
                        )
                    )
        return out

    @property
    def counts(self) -> bool:
        """Whether a count waits to be printed."""
        return any(said.times for said in self._said.values())


_lock = threading.Lock()
_deduplicator = Deduplicator()
_timer: threading.Timer | None = None


def _wanted() -> bool:
    return os.environ.get("SHEAF_DEDUP_LOGS", os.environ.get("RAY_DEDUP_LOGS", "1")) != "0"


def print_lines(name: str, pid: int, error: bool, lines: list[str]) -> None:
    """Writes the lines of one worker to stdout or stderr; those that tell a bar of tqdm_ray draw
    it."""
    global _timer
    if any(line.startswith(bars.MARK) for line in lines):
        for line in lines:
            if line.startswith(bars.MARK):
                bars.take_line(name, pid, line)
        lines = [line for line in lines if not line.startswith(bars.MARK)]
    with _lock:
        if not _wanted():
            _write([(name, pid, error, line) for line in lines])
            return
        _write(_deduplicator.take(name, pid, error, lines, time.monotonic()))
        if _deduplicator.counts and _timer is None:
            _timer = threading.Timer(_WINDOW_S, _flush_later)
            _timer.daemon = True
            _timer.start()


def _flush_later() -> None:
    global _timer
    with _lock:
        _timer = None
        _write(_deduplicator.flush(float("inf")))


def flush() -> None:
    """Prints the counts that wait; shutdown calls it."""
    with _lock:
        _write(_deduplicator.flush(float("inf")))


def _write(rows: list[tuple[str, int, bool, str]]) -> None:
    streams: dict[bool, tuple[TextIO, bool]] = {}
    if rows:
        bars.board.hide()
    for name, pid, error, line in rows:
        if error not in streams:
            stream = sys.stderr if error else sys.stdout
            streams[error] = (
                stream,
                bool(getattr(stream, "isatty", bool)()) and "NO_COLOR" not in os.environ,
            )
        stream, coloured = streams[error]
        prefix = f"({name} pid={pid})"
        if coloured:
            prefix = f"\033[{_COLOURS[pid % len(_COLOURS)]}m{prefix}\033[0m"
        stream.write(f"{prefix} {line}\n")
    for stream, _ in streams.values():
        stream.flush()
    if rows:
        bars.board.show()

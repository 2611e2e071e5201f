# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Progress bars on the driver's terminal, below what else it prints, and how a worker tells of its
own: by lines of its output (sheaf.experimental.tqdm_ray)."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any, TextIO

MARK = "__sheaf_bar__ "  # How the line of a worker begins that tells a bar.
_MOST_BARS = 64  # Shown at once; of more, the oldest are forgotten.
_WIDTH = 30


def bar_text(words: str, done: int, total: int | None, spent: float, unit: str = "") -> str:
    """A bar as a line: `words`, a share, how many of how many, seconds. total None: it is not
    known."""
    head = f"{words}: " if words else ""
    if total is None:
        return f"{head}{done}{unit and ' ' + unit}, {spent:.1f} s"
    share = min(done / total, 1.0) if total else 1.0
    left = f", {spent / share - spent:.0f} s left" if 0 < share < 1 else ""
    filled = round(share * _WIDTH)
    return (
        f"{head}{share:4.0%} |{'#' * filled}{'.' * (_WIDTH - filled)}| "
        f"{done}/{total}{unit and ' ' + unit}, {spent:.1f} s{left}"
    )


class Board:
    """The bars of a driver, below what else it prints. Thread-safe."""

    def __init__(self, stream: TextIO | None = None):
        self._lock = threading.RLock()
        self._stream = stream
        self._bars: dict[str, dict[str, Any]] = {}
        self._drawn = 0  # Lines on the terminal now.

    def take(self, state: dict[str, Any]) -> None:
        """A bar's new state: id, desc, done, total, unit, spent (seconds), closed."""
        with self._lock:
            self.hide()
            if state["closed"]:
                self._bars.pop(state["id"], None)
                self._out.write(self._text(state) + "\n")
            else:
                self._bars[state["id"]] = state
                while len(self._bars) > _MOST_BARS:
                    del self._bars[next(iter(self._bars))]
            self.show()
            self._out.flush()

    def hide(self) -> None:
        """Takes the bars off the terminal, for other lines; show() brings them back."""
        with self._lock:
            if self._drawn:
                self._out.write(f"\r\033[{self._drawn}A\033[J")
                self._drawn = 0

    def show(self) -> None:
        """Draws the bars, where something can be drawn anew."""
        with self._lock:
            if self._live:
                self._out.writelines(self._text(state) + "\n" for state in self._bars.values())
                self._drawn = len(self._bars)
                self._out.flush()

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stderr

    @property
    def _live(self) -> bool:
        return bool(getattr(self._out, "isatty", bool)())

    @staticmethod
    def _text(state: dict[str, Any]) -> str:
        words = (
            f"({state['name']} pid={state['pid']}) {state['desc']}"
            if state.get("name")
            else state["desc"]
        )
        return bar_text(words.strip(), state["done"], state["total"], state["spent"], state["unit"])


board = Board()


def take_line(name: str, pid: int, line: str) -> None:
    """A line of a worker that begins with MARK. One that is damaged is dropped."""
    try:
        state = json.loads(line[len(MARK) :])
        board.take({**state, "name": name, "pid": pid})
    except (ValueError, KeyError, TypeError):
        pass

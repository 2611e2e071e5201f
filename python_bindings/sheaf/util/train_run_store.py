# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is known of training runs, in the GCS's key-value store: where it stands, and the thread
that puts it there. The dashboard reads the same keys (dashboard/tables/train_runs.cc).

    run/ID        what a listing shows of a run
    group/ID      its ranks
    history/ID    how often its group was formed and why, what happened, its metrics by step

An ID begins with the time of the start, so keys are in the order of time.
"""

from __future__ import annotations

import logging
import threading
import time

from sheaf import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SPACE = "sheaf-train-runs"
RUN, GROUP, HISTORY = "run/", "group/", "history/"
MOST_RUNS = 1000  # The oldest go.
_PERIOD_S = 1.0  # A driver that is killed has told its figures up to so long before.
_HISTORY_PERIOD_S = 5.0  # The same of the series, which are larger.
_LAST_S = 2.0  # How long the end of a run waits until that it has ended is written.

_logger = logging.getLogger(__name__)


class Writer:
    """Keeps the keys of one run as `pages` says, from a thread of its own: who trains never waits
    for the GCS. A store that fails costs the record, and nothing else.

    Args:
        run_id: of the run.
        pages: gives the values by what their keys begin with (RUN, GROUP, HISTORY); is called in
            that thread.
    """

    def __init__(self, run_id: str, pages: Callable[[], dict[str, bytes]]):
        self._id, self._pages = run_id, pages
        self._written: dict[str, bytes] = {}
        self._signal = threading.Condition()
        self._changed = self._closed = self._failed = False
        self._soon = True
        self._thread = threading.Thread(target=self._run, name="sheaf-train-run", daemon=True)
        self._thread.start()

    def changed(self, soon: bool = False) -> None:
        """There is something to write: soon, or within a few seconds."""
        with self._signal:
            self._changed = True
            if soon and not self._soon:
                self._soon = True
                self._signal.notify()

    def close(self) -> None:
        """Writes what is known last; waits for it, but not long."""
        with self._signal:
            self._closed = True
            self._signal.notify()
        self._thread.join(_LAST_S)

    def _run(self) -> None:
        self._try(self._make_room)
        closed, due, history_due = False, 0.0, 0.0
        while not closed:
            with self._signal:
                while not (self._closed or self._soon):
                    left = due - time.monotonic()
                    if left <= 0 and self._changed:
                        break
                    self._signal.wait(left if left > 0 else _PERIOD_S)
                closed = self._closed
                whole = closed or self._soon or time.monotonic() >= history_due
                self._changed = self._soon = False
            self._try(self._write if whole else self._write_figures)
            due = time.monotonic() + _PERIOD_S
            if whole:
                history_due = time.monotonic() + _HISTORY_PERIOD_S
            else:
                with self._signal:
                    self._changed = True  # The history is to come.
        last = time.monotonic() + _LAST_S
        while self._changed and time.monotonic() < last:  # The GCS may be back in a moment.
            time.sleep(0.1)
            self._changed = False
            self._try(self._write)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            if not self._failed:
                _logger.warning(
                    "the record of this training run is not written: %s; the run goes on", error
                )
            self._failed = True
            with self._signal:
                self._changed = True  # What was not written is tried again.

    def _write_figures(self) -> None:
        self._write((RUN,))

    def _write(self, kinds: tuple[str, ...] = (RUN, GROUP, HISTORY)) -> None:
        for kind, value in self._pages().items():
            if kind in kinds and self._written.get(kind) != value:
                _core.key_put(SPACE, kind + self._id, value, True)
                self._written[kind] = value

    def _make_room(self) -> None:
        runs = _core.key_list(SPACE, RUN)
        for key in sorted(runs)[: max(0, len(runs) + 1 - MOST_RUNS)]:
            for kind in (HISTORY, GROUP, RUN):  # One that is listed is whole, or soon gone.
                _core.key_delete(SPACE, kind + key.removeprefix(RUN))

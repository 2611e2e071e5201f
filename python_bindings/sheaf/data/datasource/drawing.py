# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is found slowly, such as the files of a store far away, in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

_MOST_AHEAD = 4  # Lists that nobody has taken.


class Drawing:
    """A thread that takes from an iterator of lists, some ahead.

    Args:
        source: gives them; only the thread touches it.
    """

    def __init__(self, source: Iterator[Sequence[Any]]) -> None:
        self._source = source
        self._found: deque[Sequence[Any]] = deque()
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._turn = threading.Condition()
        threading.Thread(target=self._run, name="sheaf-listing", daemon=True).start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for part in self._source:
                with self._turn:
                    while len(self._found) >= _MOST_AHEAD and not self._closed:
                        self._turn.wait()
                    if self._closed:
                        break
                    self._found.append(part)
                    self._turn.notify_all()
        except BaseException as caught:
            error = caught
        with self._turn:
            self._error, self._ended = error, True
            self._turn.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Waits until take() gives something, but no longer than this; whether it does."""
        with self._turn:
            return self._turn.wait_for(lambda: bool(self._found) or self._ended, timeout_s)

    def take(self) -> tuple[list[Any], bool]:
        """All that has been found and was not taken, and whether that is the end. Raises what the
        iterator raises, behind what it gave before."""
        with self._turn:
            found = [one for part in self._found for one in part]
            self._found.clear()
            self._turn.notify_all()
            if self._error is not None and not found:
                raise self._error
            return found, self._ended and self._error is None

    def close(self) -> None:
        """Nothing more is wanted. The thread ends when the iterator gives something; nobody waits
        for that."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

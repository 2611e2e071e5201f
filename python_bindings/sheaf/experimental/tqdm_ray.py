# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Progress bars that also work in tasks and actors: what a worker counts is shown by its driver.

    from sheaf.experimental.tqdm_ray import tqdm
    for item in tqdm(items, desc="load"):

A worker tells its bars as lines of its output, at most one per `flush_interval_s`; the driver takes
these lines out of what it prints and keeps the bars of all processes below it, on
terminals and in notebooks. Elsewhere a bar is one line when it ends.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from sheaf import _core
from sheaf._internal import bars

T = TypeVar("T")


def safe_print(*args: Any, **kwargs: Any) -> None:
    """print, above the bars."""
    bars.board.hide()
    try:
        print(*args, **kwargs)
    finally:
        bars.board.show()


RAY_TQDM_MAGIC = bars.MARK


def instance() -> Any:
    """Returns what shows the bars of this process, with hide_bars() and unhide_bars()."""
    return bars.board


class tqdm(Generic[T]):
    """A progress bar, which the driver shows, also of tasks and actors. Not thread-safe.

    Args:
        iterable: what is counted as it is consumed; None: update() counts.
        desc: the words in front of the bar.
        total: how many there will be; None: as many as the iterable says, or unknown.
        unit: what is counted.
        position: without effect: bars stand in the order in which they began.
        flush_interval_s: seconds between two looks of the bar at least.
    """

    DEFAULT_FLUSH_INTERVAL_SECONDS = 1.0

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ):
        self._iterable = iterable
        self._desc = desc or ""
        self._total = total
        if total is None and hasattr(iterable, "__len__"):
            self._total = len(iterable)  # type: ignore[arg-type]
        self._unit = unit or "it"
        self._each_s = (
            self.DEFAULT_FLUSH_INTERVAL_SECONDS if flush_interval_s is None else flush_interval_s
        )
        self._done = 0
        self._id = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._begin = time.monotonic()
        self._told = float("-inf")
        self._closed = False

    @property
    def total(self) -> int | None:
        """How many there will be."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total
        self._tell()

    @property
    def n(self) -> int:
        """How many are done."""
        return self._done

    def set_description(self, desc: str) -> None:
        """Changes the words in front of the bar.

        Args:
            desc: the new ones.
        """
        self._desc = desc
        self._tell()

    def update(self, n: int = 1) -> None:
        """Counts.

        Args:
            n: how many more are done.
        """
        self._done += n
        self._tell()

    def refresh(self) -> None:
        """Shows the bar as it is now."""
        self._tell(at_once=True)

    def close(self) -> None:
        """Shows the bar for the last time. Idempotent."""
        if not self._closed:
            self._closed = True
            self._tell(at_once=True)

    def __iter__(self) -> Iterator[T]:
        if self._iterable is None:
            raise ValueError(
                "tqdm: there is nothing to iterate over: pass an iterable, or call update()"
            )
        try:
            for item in self._iterable:
                yield item
                self.update()
        finally:
            self.close()

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def _tell(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._told < self._each_s:
            return
        self._told = now
        state = {
            "id": self._id,
            "desc": self._desc,
            "done": self._done,
            "total": self._total,
            "unit": self._unit,
            "spent": now - self._begin,
            "closed": self._closed,
        }
        if _core.is_worker():
            print(bars.MARK + json.dumps(state), flush=True)
        else:
            bars.board.take(state)

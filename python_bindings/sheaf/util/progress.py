# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A progress bar for many references: `for value in progress(refs):`, or `wait_all(refs)`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf._internal.bars import bar_text
from sheaf.object_ref import wait

_EACH_S = 0.1  # Between two looks of the bar.


class Bar:
    """One line of text, written anew in its place: a bar on terminals and in notebooks, elsewhere
    one line at the end. Not thread-safe.

    Args:
        total: how many there will be.
        words: in front of the bar.
        stream: where it goes; None: stderr.
    """

    def __init__(self, total: int, words: str = "", stream: Any = None):
        self.total, self.words = total, words
        self.done = 0
        self._stream = stream or sys.stderr
        self._live = bool(getattr(self._stream, "isatty", bool)()) or "ipykernel" in sys.modules
        self._begin = time.monotonic()
        self._shown = 0.0
        self._closed = False

    def text(self) -> str:
        """Returns the line."""
        return bar_text(self.words, self.done, self.total, time.monotonic() - self._begin)

    def add(self, count: int) -> None:
        """Counts.

        Args:
            count: how many more are done.
        """
        self.done += count
        if self._live and time.monotonic() - self._shown >= _EACH_S:
            self._shown = time.monotonic()
            self._stream.write(
                f"\r{self.text()}\033[K" if self._stream.isatty() else f"\r{self.text():<100}"
            )
            self._stream.flush()

    def close(self) -> None:
        """The last look."""
        if self._closed:
            return
        self._closed = True
        self._stream.write(f"\r{self.text()}\n" if self._live else f"{self.text()}\n")
        self._stream.flush()


def _ready(refs: list[ObjectRef[Any]], bar: Bar) -> Iterator[list[ObjectRef[Any]]]:
    left = refs
    while left:
        ready, _ = wait(left, num_returns=len(left), timeout=_EACH_S)
        if not ready:
            ready, _ = wait(left, num_returns=1)
        taken = set(ready)
        left = [ref for ref in left if ref not in taken]
        bar.add(len(ready))
        yield ready


def progress(
    refs: Iterable[ObjectRef[Any]], words: str = "", ordered: bool = True, stream: Any = None
) -> Iterator[Any]:
    """Gives the values of references, while a bar shows how many are ready.

    Args:
        refs: ObjectRefs, each once.
        words: in front of the bar.
        ordered: gives the values in the order of `refs`; False: as they are ready.
        stream: where the bar goes; None: stderr.

    Yields:
        A value at a time.

    Raises:
        RayTaskError: a call raised; it is an instance of what was raised, too.
    """
    listed = list(refs)
    bar = Bar(len(listed), words, stream)
    try:
        arrived: set[ObjectRef[Any]] = set()
        at = 0
        for ready in _ready(listed, bar):
            if not ordered:
                yield from (_core.get(ref) for ref in ready)
                continue
            arrived.update(ready)
            while at < len(listed) and listed[at] in arrived:
                yield _core.get(listed[at])
                at += 1
    finally:
        bar.close()


def wait_all(
    refs: Iterable[ObjectRef[Any]], words: str = "", stream: Any = None
) -> list[ObjectRef[Any]]:
    """Waits until all references are ready, with a bar. What has failed counts as ready.

    Args:
        refs: ObjectRefs, each once.
        words: in front of the bar.
        stream: where the bar goes; None: stderr.

    Returns:
        The references, in their order.
    """
    listed = list(refs)
    bar = Bar(len(listed), words, stream)
    try:
        for _ in _ready(listed, bar):
            pass
    finally:
        bar.close()
    return listed

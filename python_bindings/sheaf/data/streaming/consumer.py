# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A consumer of streaming_split, as the coordinator knows it."""

from __future__ import annotations

import dataclasses
import time
from collections import deque

from sheaf.data.errors import DataError
from sheaf.data.operators import Bundle


class ConsumerLost(DataError):
    """Others wait for a consumer of streaming_split that does not come."""


@dataclasses.dataclass
class Consumer:
    """A consumer, and its part of the epoch.

    Attributes:
        word: of the iterator that is it now; "": nobody has come.
        worker: the process of that.
        is_listed: whether that is a worker, of which the cluster says whether it lives.
        wanted: the epoch that it wants, or is in.
        asked: how often it has come to begin().
        heard: when it was heard of, or waited here, by time.monotonic().
        spoke: when it has called last.
        queue: what is for it.
        given: what it was given and has not acknowledged, with numbers from 1.
        count: how many that were, in all.
        takes_part: the iterator that has asked for blocks of the epoch; "": none has.
        has_left: it takes no more, of its own will or as it is lost.
        is_lost: it died, and others have got its part.
        has_ended: it was told that there is no more.
    """

    word: str = ""
    worker: str = ""
    is_listed: bool = False
    wanted: int = -1
    asked: int = 0
    heard: float = dataclasses.field(default_factory=time.monotonic)
    spoke: float = 0.0
    queue: deque[Bundle] = dataclasses.field(default_factory=deque)
    given: deque[tuple[int, Bundle]] = dataclasses.field(default_factory=deque)
    count: int = 0
    takes_part: str = ""
    has_left: bool = False
    is_lost: bool = False
    has_ended: bool = False

    def lives(self, living: set[str] | None) -> bool:
        """Whether who began the epoch is there still, as far as these running workers tell."""
        if self.takes_part != self.word or not self.word:
            return False
        return living is None or not self.is_listed or self.worker in living

    def start(self) -> None:
        """Another epoch begins."""
        self.queue, self.given, self.count = deque(), deque(), 0
        self.takes_part = ""
        self.has_left = self.is_lost = self.has_ended = False

    def take(self) -> Bundle:
        """The next block, which is not acknowledged."""
        bundle = self.queue.popleft()
        self.count += 1
        self.given.append((self.count, bundle))
        return bundle

    def acknowledge(self, count: float) -> None:
        """The first blocks that it was given are done."""
        while self.given and self.given[0][0] <= count:
            self.given.popleft()

    def take_back(self) -> None:
        """What it was given and has not acknowledged is given again."""
        self.queue.extendleft(bundle for _, bundle in reversed(self.given))
        self.given.clear()
        self.count = 0

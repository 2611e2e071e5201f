# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a consumer of streaming_split iterates over, in whatever process."""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import sheaf
from sheaf.data.iterator import DataIterator
from sheaf.data.operators import Bundle
from sheaf.data.streaming.coordinator import Coordinator
from sheaf.exceptions import RayError


class _Epoch:
    """The blocks that one consumer gets in one epoch. close() may be called by another thread."""

    def __init__(self, coordinator: Any, number: int, word: str) -> None:
        self._coordinator, self._number, self._word = coordinator, number, word
        self._epoch: int | None = None
        self._ahead: Any = None
        self._closed = False
        self._seen = self._rows = 0
        self._ends: deque[int] = deque()  # Rows up to the end of each block that is not done.

    def __iter__(self) -> Iterator[Bundle]:
        return self

    def __next__(self) -> Bundle:
        if self._epoch is None:
            worker = sheaf.get_runtime_context().get_worker_id()
            begun = self._coordinator.begin.remote(self._number, self._word, worker)
            self._epoch = self._wait_for(begun)
        ahead, self._ahead = self._ahead, None
        found = self._wait_for(ahead or self._asked())
        if found is None:
            self._closed = True
            raise StopIteration
        self._ahead = self._asked()
        bundle = Bundle(*found)
        self._rows += bundle.num_rows
        self._seen += 1
        self._ends.append(self._rows)
        return bundle

    def _asked(self) -> Any:
        return self._coordinator.next.remote(self._number, self._word, self._epoch)

    def _wait_for(self, ref: Any) -> Any:
        while not self._closed:
            try:
                return sheaf.get(ref, timeout=0.2)
            except sheaf.exceptions.GetTimeoutError:
                continue
        raise StopIteration

    def finish(self, rows: float) -> None:
        """The consumer is done with the first rows: whole blocks of them are acknowledged. With
        `inf` it is done with all, and this returns when that has been heard, as nobody knows what
        becomes of this process then."""
        before = len(self._ends)
        while self._ends and self._ends[0] <= rows:
            self._ends.popleft()
        if len(self._ends) == before or not sheaf.is_initialized():
            return
        done = self._seen - len(self._ends)
        heard = self._coordinator.acknowledge.remote(self._number, self._word, self._epoch, done)
        if rows == math.inf:
            try:
                sheaf.get(heard)
            except RayError:  # There is no coordinator any more, and nobody else asks.
                pass

    def close(self) -> None:
        """Nothing more comes, and nothing more needs to be made."""
        if not self._closed and self._epoch is not None and sheaf.is_initialized():
            self._coordinator.leave.remote(self._number, self._word, self._epoch, self._seen)
        self._closed = True


class SplitIterator(DataIterator):
    """One consumer's part. It pickles; one process at a time uses it.

    Args:
        coordinator: the actor.
        number: of this consumer, from 0.
        count: of consumers.
    """

    _repeats = False

    def __init__(self, coordinator: Any, number: int, count: int) -> None:
        self._coordinator, self._number, self._count = coordinator, number, count
        self._word = uuid.uuid4().hex

    def __reduce__(self) -> Any:
        """What another process unpickles is another iterator, which may take the place of this."""
        return SplitIterator, (self._coordinator, self._number, self._count)

    def _bundles(self) -> Any:
        return _Epoch(self._coordinator, self._number, self._word)

    def _is_done_with(self, bundles: Any, rows: float) -> None:
        bundles.finish(rows)

    def schema(self) -> Any:
        """Returns the Schema; None where there is no row."""
        from sheaf.data.schema import Schema

        found = sheaf.get(self._coordinator.schema.remote())
        return None if found is None else Schema(found)

    def stats(self) -> str:
        """Returns what the last epoch took, as text."""
        return str(sheaf.get(self._coordinator.stats.remote()))

    def world_size(self) -> int:
        """Returns how many consumers there are."""
        return self._count

    def __repr__(self) -> str:
        return f"SplitIterator({self._number} of {self._count})"


def split_streaming(dataset: Any, count: int, equal: bool) -> list[DataIterator]:
    """The iterators of streaming_split."""
    silence_s = dataset.context.split_silence_s
    if not isinstance(silence_s, (int, float)) or silence_s <= 0:
        raise ValueError(f"DataContext.split_silence_s={silence_s!r}: want seconds, above 0")
    cls = sheaf.remote(Coordinator).options(num_cpus=0, max_concurrency=3 * count + 2)
    coordinator = cls.remote(dataset, count, equal, float(silence_s))
    return [SplitIterator(coordinator, number, count) for number in range(count)]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""streaming_split: one actor runs the dataset, and gives each block to one of n consumers.

An epoch begins when all consumers have asked for it. A consumer that does not ask within a time, or
leaves an epoch that others go on with, is named in the error that those get; nobody waits for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import sheaf
from sheaf.data.errors import DataError
from sheaf.data.iterator import DataIterator
from sheaf.data.operators import Bundle
from sheaf.data.slices import cut_at, rows_of

SILENCE_S = 30.0  # Of a consumer that others wait for.
_LOOK_S = 0.05


class ConsumerLost(DataError):
    """Others wait for a consumer of streaming_split that does not come."""


class Coordinator:
    """The actor. Its methods run in threads, one for each consumer.

    Args:
        dataset: what is split.
        count: consumers.
        equal: whether all get equal numbers of rows.
        silence_s: how long others wait for a consumer.
    """

    def __init__(self, dataset: Any, count: int, equal: bool, silence_s: float) -> None:
        self._dataset, self._count, self._equal = dataset, count, equal
        self._silence_s = silence_s
        self._turn = threading.Condition()
        self._epoch = -1
        self._arrived: dict[int, int] = {}  # Consumer -> the epoch it wants, or is in.
        self._asked = [0] * count  # How often a consumer has come to begin().
        self._used: set[int] = set()  # Consumers that have taken part in the epoch.
        self._heard = [time.monotonic()] * count
        self._bundles: Any = None
        self._queues: list[deque[Bundle]] = []
        self._gone: set[int] = set()  # Consumers that have left the epoch.
        self._left: list[Bundle] = []  # Of equal parts, what does not go round yet.
        self._done = False
        self._error: BaseException | None = None
        self._pulling = False

    def begin(self, consumer: int) -> int:
        """The number of the consumer's next epoch, when all want it. Raises ConsumerLost."""
        deadline = time.monotonic() + self._silence_s
        with self._turn:
            epoch = self._arrived.get(consumer, -1)
            begun = epoch == self._epoch and (epoch < 0 or consumer in self._used)
            if begun:
                epoch += 1  # Else whoever came before for this consumer is gone, and took nothing.
            self._arrived[consumer] = epoch
            self._asked[consumer] += 1
            asked = self._asked[consumer]
            self._heard[consumer] = time.monotonic()
            while self._epoch < epoch:
                if len(self._arrived) == self._count and min(self._arrived.values()) >= epoch:
                    self._start(epoch)
                    break
                if time.monotonic() > deadline:
                    late = [i for i in range(self._count) if self._arrived.get(i, -1) < epoch]
                    self._arrived[consumer] = epoch - 1  # Who comes again wants this one still.
                    raise ConsumerLost(
                        f"streaming_split: consumers {late} of {self._count} did not begin epoch "
                        f"{epoch} within {self._silence_s:g} s: all are to be consumed at once"
                    )
                self._turn.wait(_LOOK_S)
                if asked != self._asked[consumer]:
                    raise ConsumerLost(f"streaming_split: consumer {consumer} has come anew")
                self._heard[consumer] = time.monotonic()
            return epoch

    def _start(self, epoch: int) -> None:
        self._close()
        self._epoch = epoch
        self._queues = [deque() for _ in range(self._count)]
        self._left = []
        self._gone, self._used = set(), set()
        self._done, self._error = False, None
        self._bundles = self._dataset._bundles()
        self._turn.notify_all()

    def _close(self) -> None:
        if self._bundles is not None:
            self._bundles.close()
            self._bundles = None

    def next(self, consumer: int, epoch: int) -> Any:
        """(block, start, stop) of the next bundle; None at the end."""
        with self._turn:
            self._heard[consumer] = time.monotonic()
            if epoch == self._epoch:
                self._used.add(consumer)
            while True:
                if epoch != self._epoch or consumer in self._gone:
                    return None  # The others have begun another, or it has left this one.
                if self._queues[consumer]:
                    bundle = self._queues[consumer].popleft()
                    self._turn.notify_all()
                    return (bundle.block, bundle.start, bundle.stop, bundle.size_bytes)
                if self._error is not None:
                    raise self._error
                if self._done:
                    return None
                if self._pulling or self._others_are_full(consumer):
                    self._turn.wait(_LOOK_S)
                    self._heard[consumer] = time.monotonic()
                    continue
                self._pulling = True
                bundles = self._bundles
                self._turn.release()
                try:
                    found = next(bundles, None)
                    error = None
                except BaseException as caught:
                    found, error = None, caught
                finally:
                    self._turn.acquire()
                    self._pulling = False
                if epoch == self._epoch and not self._done:
                    self._hand_out(found, error, consumer)
                self._turn.notify_all()

    def leave(self, consumer: int, epoch: int) -> None:
        """The consumer takes no more of an epoch. Its part goes to others, but where parts are
        equal; when all have left nothing more is made."""
        with self._turn:
            if epoch != self._epoch:
                return
            self._gone.add(consumer)
            self._used.add(consumer)
            queue, self._queues[consumer] = self._queues[consumer], deque()
            for bundle in queue:
                self._give(consumer, bundle)
            if len(self._gone) == self._count:
                self._done = True
                self._close()
            self._turn.notify_all()

    def _others_are_full(self, consumer: int) -> bool:
        """Whether, of equal parts, another's waits to be taken; a silent one does not hold up."""
        if not self._equal:
            return False
        now = time.monotonic()
        for other, queue in enumerate(self._queues):
            if other != consumer and len(queue) > 8:
                if now - self._heard[other] > self._silence_s:
                    self._error = ConsumerLost(
                        f"streaming_split: consumer {other} of {self._count} has not been heard of "
                        f"for {self._silence_s:g} s, and equal=True gives nobody more than it"
                    )
                    raise self._error
                return True
        return False

    def _hand_out(self, bundle: Bundle | None, error: BaseException | None, consumer: int) -> None:
        if error is not None:
            self._error = error
        elif bundle is None:
            self._done = True
        elif bundle.num_rows == 0:
            return
        elif not self._equal:
            self._give(consumer, bundle)
        else:
            self._share(bundle)

    def _give(self, consumer: int, bundle: Bundle) -> None:
        if consumer in self._gone:
            others = [other for other in range(self._count) if other not in self._gone]
            if self._equal or not others:
                return
            consumer = min(others, key=lambda other: len(self._queues[other]))
        self._queues[consumer].append(bundle)

    def _share(self, bundle: Bundle) -> None:
        """An equal slice for each; what does not go round waits for the next block, and at the end
        is left out."""
        there = [*self._left, bundle]
        rows = rows_of(there)
        each = rows // self._count
        ends = [each * (part + 1) for part in range(self._count)]
        *parts, self._left = cut_at(there, [*ends, rows])
        for consumer, part in enumerate(parts):
            for piece in part:
                self._give(consumer, piece)

    def schema(self) -> Any:
        """The pa.Schema; None: unknown."""
        found = self._dataset.schema()
        return None if found is None else found.base_schema

    def stats(self) -> str:
        """Of the last epoch."""
        return self._dataset.stats()


class _Epoch:
    """The blocks that one consumer gets in one epoch. close() may be called by another thread.

    Args:
        coordinator: the actor.
        number: of the consumer.
    """

    def __init__(self, coordinator: Any, number: int) -> None:
        self._coordinator, self._number = coordinator, number
        self._epoch: int | None = None
        self._ahead: Any = None
        self._closed = False

    def __iter__(self) -> Iterator[Bundle]:
        return self

    def __next__(self) -> Bundle:
        if self._epoch is None:
            self._epoch = self._wait_for(self._coordinator.begin.remote(self._number))
        ahead, self._ahead = self._ahead, None
        found = self._wait_for(ahead or self._coordinator.next.remote(self._number, self._epoch))
        if found is None:
            self._closed = True
            raise StopIteration
        self._ahead = self._coordinator.next.remote(self._number, self._epoch)
        return Bundle(*found)

    def _wait_for(self, ref: Any) -> Any:
        while not self._closed:
            try:
                return sheaf.get(ref, timeout=0.2)
            except sheaf.exceptions.GetTimeoutError:
                continue
        raise StopIteration

    def close(self) -> None:
        """Nothing more comes, and nothing more needs to be made."""
        if not self._closed and self._epoch is not None and sheaf.is_initialized():
            self._coordinator.leave.remote(self._number, self._epoch)
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

    def _bundles(self) -> Any:
        return _Epoch(self._coordinator, self._number)

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


def split_streaming(
    dataset: Any, count: int, equal: bool, silence_s: float = SILENCE_S
) -> list[DataIterator]:
    """The iterators of streaming_split."""
    cls = sheaf.remote(Coordinator).options(num_cpus=0, max_concurrency=2 * count + 2)
    coordinator = cls.remote(dataset, count, equal, silence_s)
    return [SplitIterator(coordinator, number, count) for number in range(count)]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""streaming_split: one actor runs the dataset, and gives each block to one of n consumers.

An epoch begins when all consumers have asked for it. A consumer that does not ask within a time, or
leaves an epoch that others go on with, is named in the error that those get; nobody waits for ever.

A block is acknowledged when its consumer's loop asks for what lies behind it. What a consumer that
dies has not acknowledged goes to its replacement, another iterator of the same number, which joins
the epoch if some other consumer of it lives; else all begin a new one. Where parts need not be
equal, others that come to their end first take it.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import sheaf
from sheaf.data.errors import DataError
from sheaf.data.iterator import DataIterator
from sheaf.data.operators import Bundle
from sheaf.data.slices import cut_at, rows_of
from sheaf.exceptions import RayError
from sheaf.util import state

_LOOK_S = 0.05
_DYING_S = 5.0  # In which the cluster should say that a process has ended.


class ConsumerLost(DataError):
    """Others wait for a consumer of streaming_split that does not come."""


@dataclasses.dataclass
class _Consumer:
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


class Coordinator:
    """The actor. Its methods run in threads, one for each consumer. Arguments as of
    streaming_split; others wait `silence_s` for a consumer."""

    def __init__(self, dataset: Any, count: int, equal: bool, silence_s: float) -> None:
        self._dataset, self._equal = dataset, equal
        self._silence_s = silence_s
        self._turn = threading.Condition()
        self._epoch = -1
        self._consumers = [_Consumer() for _ in range(count)]
        self._bundles: Any = None
        self._left: list[Bundle] = []  # Of equal parts, what does not go round yet.
        self._done = False
        self._error: BaseException | None = None
        self._pulling = False

    def begin(self, number: int, word: str, worker: str) -> int:
        """The number of the consumer's next epoch, when all want it, or of the one that it joins.
        Raises ConsumerLost."""
        deadline = time.monotonic() + self._silence_s
        own = self._consumers[number]
        with self._turn:
            is_other, before = own.word not in ("", word), own.wanted
            own.word, own.worker = word, worker
            own.heard = own.spoke = time.monotonic()
            own.asked += 1
            asked = own.asked
        if is_other and self._joins(own):
            return self._epoch
        with self._turn:
            if asked != own.asked:
                raise ConsumerLost(f"streaming_split: consumer {number} has come anew")
            begun = before == self._epoch and (before < 0 or own.takes_part != "")
            # Else whoever came before for this consumer is gone, and took nothing.
            epoch = own.wanted = before + 1 if begun else before
            own.acknowledge(math.inf)
            while self._epoch < epoch:
                if all(one.wanted >= epoch for one in self._consumers):
                    self._start(epoch)
                    break
                if time.monotonic() > deadline:
                    error = self._late(epoch)
                    own.wanted = epoch - 1  # Who comes again wants this one still.
                    raise error
                self._turn.wait(_LOOK_S)
                if asked != own.asked:
                    raise ConsumerLost(f"streaming_split: consumer {number} has come anew")
                own.heard = time.monotonic()
            return epoch

    def _late(self, epoch: int) -> ConsumerLost:
        count = len(self._consumers)
        late = [i for i, one in enumerate(self._consumers) if one.wanted < epoch]
        return ConsumerLost(
            f"streaming_split: consumers {late} of {count} did not begin epoch {epoch} within "
            f"{self._silence_s:g} s (DataContext.split_silence_s): all are to be consumed at once"
        )

    def _living(self) -> set[str] | None:
        """The workers that run; None where the cluster does not say."""
        try:
            return {row["worker_id"] for row in state.list_workers(limit=1 << 30)}
        except RayError:
            return None

    def _joins(self, own: _Consumer) -> bool:
        """Whether the replacement of a consumer goes on with its part, as it does then: that one
        had not come to its end, and somebody who has another part of this epoch lives. Whoever does
        calls, or the cluster has time to notice its death: all may have died together."""
        since, asked = time.monotonic(), own.asked
        while True:
            living = self._living()
            is_over = time.monotonic() > since + _DYING_S
            with self._turn:
                own.is_listed = living is not None and own.worker in living
                others = [one for one in self._consumers if one is not own and one.lives(living)]
                if asked != own.asked or not self._may_be_joined(own) or not others:
                    return False
                if is_over or any(one.spoke > since for one in others):
                    own.take_back()
                    own.takes_part = own.word
                    own.has_left = own.is_lost = own.has_ended = False
                    self._turn.notify_all()
                    return True
                self._turn.wait(_LOOK_S)

    def _may_be_joined(self, own: _Consumer) -> bool:
        """Whether the consumer that another replaces has something to do in this epoch."""
        if own.wanted != self._epoch or not own.takes_part or self._error is not None:
            return False
        return own.is_lost or not (own.has_left or (own.has_ended and not own.given))

    def _start(self, epoch: int) -> None:
        self._close()
        self._epoch = epoch
        living = self._living()
        for one in self._consumers:
            one.start()
            one.is_listed = living is not None and one.worker in living
        self._left = []
        self._done, self._error = False, None
        self._bundles = self._dataset._bundles()
        self._turn.notify_all()

    def _close(self) -> None:
        if self._bundles is not None:
            self._bundles.close()
            self._bundles = None

    def acknowledge(self, number: int, word: str, epoch: int, count: float) -> None:
        """The consumer has done with the first blocks that it was given."""
        with self._turn:
            own = self._consumers[number]
            if epoch == self._epoch and word == own.word:
                own.acknowledge(count)
                own.heard = own.spoke = time.monotonic()

    def next(self, number: int, word: str, epoch: int) -> Any:
        """(block, start, stop, bytes) of the next bundle; None at the end."""
        with self._turn:
            own = self._consumers[number]
            if word == own.word:
                own.heard = own.spoke = time.monotonic()
            at_end = math.inf
            if word == own.word and epoch == self._epoch:
                own.takes_part = word
            while True:
                if word != own.word:
                    raise ConsumerLost(f"streaming_split: consumer {number} has come anew")
                if epoch != self._epoch or own.has_left:
                    return None  # The others have begun another, or it has left this one.
                if own.queue:
                    bundle = own.take()
                    self._turn.notify_all()
                    return (bundle.block, bundle.start, bundle.stop, bundle.size_bytes)
                if self._error is not None:
                    raise self._error
                if self._done:
                    at_end = min(at_end, time.monotonic())
                    if self._inherits(number, at_end):
                        continue  # Another epoch may have begun meanwhile.
                    own.has_ended = word == own.word
                    return None
                if self._pulling or self._others_are_full(number):
                    self._turn.wait(_LOOK_S)
                    own.heard = time.monotonic()
                    continue
                self._pull(number, epoch)

    def _pull(self, number: int, epoch: int) -> None:
        """Waits for the next block of the dataset, without the lock."""
        self._pulling = True
        bundles = self._bundles
        self._turn.release()
        found, error = None, None
        try:
            found = next(bundles, None)
        except BaseException as caught:
            error = caught
        finally:
            self._turn.acquire()
            self._pulling = False
        if epoch == self._epoch and not self._done:
            self._hand_out(found, error, number)
        self._turn.notify_all()

    def _inherits(self, number: int, since: float) -> bool:
        """Whether blocks that others have not acknowledged come to a consumer, or may yet: of those
        that are dead, where parts need not be equal. Of one that has said nothing since this one
        has come to its end the cluster may not know yet that it is dead."""
        own, epoch = self._consumers[number], self._epoch
        holders = [
            (one, one.word)
            for one in self._consumers
            if one is not own and one.is_listed and (one.given or one.queue) and not one.has_left
        ]
        if self._equal or not holders:
            return False
        self._turn.release()
        try:
            living = self._living()
        finally:
            self._turn.acquire()
        if epoch != self._epoch or living is None:
            return epoch != self._epoch
        for one, word in holders:
            if one.word == word and one.worker not in living:
                one.take_back()
                one.has_left = one.is_lost = True
                own.queue.extend(one.queue)
                one.queue.clear()
        silent = any(one.spoke < since and not one.has_left for one, _ in holders)
        if own.queue or not silent or time.monotonic() > since + _DYING_S:
            return bool(own.queue)
        self._turn.wait(4 * _LOOK_S)
        return True

    def leave(self, number: int, word: str, epoch: int, seen: int) -> None:
        """The consumer takes no more of an epoch, and has seen so many blocks. Its part goes to
        others, but where parts are equal; when all have left nothing more is made."""
        with self._turn:
            own = self._consumers[number]
            if epoch != self._epoch or word != own.word:
                return
            own.acknowledge(seen)
            own.take_back()
            own.has_left, own.takes_part = True, word
            queue, own.queue = own.queue, deque()
            for bundle in queue:
                self._give(number, bundle)
            if all(one.has_left for one in self._consumers):
                self._done = True
                self._close()
            self._turn.notify_all()

    def _others_are_full(self, number: int) -> bool:
        """Whether, of equal parts, another's waits to be taken; a silent one does not hold up."""
        if not self._equal:
            return False
        now = time.monotonic()
        for other, one in enumerate(self._consumers):
            if other != number and len(one.queue) > 8:
                if now - one.heard > self._silence_s:
                    self._error = ConsumerLost(
                        f"streaming_split: consumer {other} of {len(self._consumers)} has not been "
                        f"heard of for {self._silence_s:g} s (DataContext.split_silence_s), and "
                        "equal=True gives nobody more than it"
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

    def _give(self, number: int, bundle: Bundle) -> None:
        to = self._consumers[number]
        if to.has_left:
            others = [one for one in self._consumers if not one.has_left]
            if self._equal or not others:
                return
            to = min(others, key=lambda other: len(other.queue))
        to.queue.append(bundle)

    def _share(self, bundle: Bundle) -> None:
        """An equal slice for each; what does not go round waits for the next block, and at the end
        is left out."""
        there = [*self._left, bundle]
        rows = rows_of(there)
        count = len(self._consumers)
        each = rows // count
        ends = [each * (part + 1) for part in range(count)]
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

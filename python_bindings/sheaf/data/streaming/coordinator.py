# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The actor of streaming_split, which runs the dataset and gives each consumer its part."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Any

from sheaf.data.operators import Bundle
from sheaf.data.slices import cut_at, rows_of
from sheaf.data.streaming.consumer import Consumer, ConsumerLost
from sheaf.exceptions import RayError
from sheaf.util import state

_LOOK_S = 0.05
_DYING_S = 5.0  # In which the cluster should say that a process has ended.


class Coordinator:
    """The actor. Its methods run in threads, one for each consumer. Arguments as of
    streaming_split; others wait `silence_s` for a consumer."""

    def __init__(self, dataset: Any, count: int, equal: bool, silence_s: float) -> None:
        self._dataset, self._equal = dataset, equal
        self._silence_s = silence_s
        self._turn = threading.Condition()
        self._epoch = -1
        self._consumers = [Consumer() for _ in range(count)]
        self._bundles: Any = None
        self._left: list[Bundle] = []  # Of equal parts, what does not go round yet.
        self._done = False
        self._error: BaseException | None = None
        self._pulling = False

    def begin(self, number: int, word: str, worker: str) -> int:
        """The number of the consumer's next epoch, when all want it, or of the one that it joins.
        Raises ConsumerLost."""
        own, since = self._consumers[number], time.monotonic()
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
                if silent := self._silent(epoch, since):
                    own.wanted = epoch - 1  # Who comes again wants this one still.
                    raise self._late(silent, epoch)
                self._turn.wait(_LOOK_S)
                if asked != own.asked:
                    raise ConsumerLost(f"streaming_split: consumer {number} has come anew")
                own.heard = time.monotonic()
            return epoch

    def _silent(self, epoch: int, since: float) -> list[int]:
        """Which consumers do not want an epoch, and have not been heard of for too long: not those
        that go on with the one before."""
        latest = time.monotonic() - self._silence_s
        return [
            number
            for number, one in enumerate(self._consumers)
            if one.wanted < epoch and max(since, one.heard) < latest
        ]

    def _late(self, silent: list[int], epoch: int) -> ConsumerLost:
        count = len(self._consumers)
        return ConsumerLost(
            f"streaming_split: consumers {silent} of {count} did not begin epoch {epoch} within "
            f"{self._silence_s:g} s (DataContext.split_silence_s): all are to be consumed at once"
        )

    def _living(self) -> set[str] | None:
        """The workers that run; None where the cluster does not say."""
        try:
            return {row["worker_id"] for row in state.list_workers(limit=1 << 30)}
        except RayError:
            return None

    def _joins(self, own: Consumer) -> bool:
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

    def _may_be_joined(self, own: Consumer) -> bool:
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
        try:
            self._bundles = self._dataset._bundles()
        except Exception as error:  # It could not even begin: all are told why.
            self._error = error
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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which cached blocks of this process have bytes in the object store.

A cache holds references to all its blocks. What there is no room for is given up: its bytes go,
the reference stays, and the runtime makes it again for whoever reads it, in whatever process
(GiveUp in worker/owner/task_table.h). Nobody says so when it has done that, so a thread looks now
and then, and so does whoever runs a plan over a cache.

The cache that was used least recently gives its blocks first. Of one cache those go first that were
made again, then its last ones, not those used least recently: who reads all blocks in order again
and again would find none of them otherwise, as each would go just before it is read.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import sheaf
from sheaf import exceptions
from sheaf.data import plan
from sheaf.experimental import locations

_PERIOD_S = 0.1  # Of looks while there is a cache.
_SOON_S = 0.02  # No more often does a plan that runs look.
_PATIENCE_S = 3.0  # For so long what is in use stays.
_YOUTH_S = 0.5  # For so long what was made again stays,
_ROOM_FOR_YOUNG = 0.25  # as far as that is no more than this share of the bound.


@dataclasses.dataclass(slots=True, eq=False)
class Kept:
    """A block of a cache.

    Attributes:
        ref: it.
        size_bytes: in the store.
        since: when it was seen to come there.
        is_there: whether the store has it, as far as is known.
        came_back: it was made again, and what becomes of it is not settled.
        stays: why it cannot be given up.
    """

    ref: Any
    size_bytes: int
    since: float = dataclasses.field(default_factory=time.monotonic)
    is_there: bool = True
    came_back: bool = False
    stays: str = ""

    def is_young(self, now: float) -> bool:
        """Whether it was made again just now, and somebody may be about to read it: its task makes
        all of its blocks again for one."""
        return self.came_back and now - self.since < _YOUTH_S

    @property
    def may_go(self) -> bool:
        """Whether it has bytes, which could be made again."""
        return self.is_there and not self.stays


class Cache:
    """The blocks of a dataset in the process that cached it. Elsewhere it is known by name only.

    Args:
        source: the plan that made them, which holds what they are made from.
    """

    level = ""
    has_files = False  # Whether some blocks are read from files.

    def __init__(self, source: Any) -> None:
        self.source = source
        self._of_others = {
            bundle.block
            for node in plan.walk(source)
            if isinstance(node, plan.Blocks)
            for bundle in node.bundles
            if isinstance(bundle.block, sheaf.ObjectRef)
        }
        self.blocks: list[Kept] = []
        self.recomputed = 0  # Blocks, each time.
        self.has_ended = False  # It was unpersisted: nothing of it stays.

    def __reduce__(self) -> Any:
        return Elsewhere, (self.level,)

    def text(self, before: int = 0) -> str:
        """As explain() and stats() show it.

        Args:
            before: how many blocks had been recomputed before what is told about.
        """
        raise NotImplementedError

    def is_own(self, block: Any) -> bool:
        """Whether a block is a reference, and no other dataset has it: a limit or a union hands on
        what materialize() or another cache keeps, which stays as those want it."""
        return isinstance(block, sheaf.ObjectRef) and block not in self._of_others

    def is_over(self) -> bool:
        """Whether its blocks are of a session that has ended."""
        try:
            locations.get_local_object_locations([block.ref for block in self.blocks[:1]])
        except ValueError:
            return True
        return False

    def see(self) -> None:
        """Finds out what has been made again."""
        watched = [block for block in self.blocks if not block.stays]
        now = time.monotonic()
        places = locations.get_local_object_locations([block.ref for block in watched])
        for block in watched:
            is_there = bool(places[block.ref]["node_ids"])
            if is_there and not block.is_there:
                self.recomputed += 1
                block.since, block.came_back = now, True
            if is_there:
                block.size_bytes = places[block.ref]["object_size"] or 0
            block.is_there = is_there

    def settle(self) -> None:
        """Does with what has been made again what this kind of cache does. Does not wait."""

    def forget_return(self) -> None:
        """No block was made again just now."""
        for block in self.blocks:
            block.came_back = False

    @property
    def held_bytes(self) -> int:
        """Bytes in the store."""
        return sum(block.size_bytes for block in self.blocks if block.is_there)


class Elsewhere:
    """A cache of another process.

    Args:
        level: of it.
    """

    def __init__(self, level: str) -> None:
        self.level = level

    def end(self) -> None:
        """Only the process that cached it gives its blocks back."""

    def is_here(self) -> bool:
        """Whether this process can map all files of it: that is not known."""
        return False

    def text(self, before: int = 0) -> str:
        """As explain() and stats() show it."""
        return f"cached ({self.level}, by another process)"


def give_up(blocks: list[Kept]) -> None:
    """The bytes of blocks go, but for those that are in use, and those that could not be made
    again."""
    late = _give_up(blocks, False)
    if late:
        _give_up(late, True)


def _give_up(blocks: list[Kept], though_used: bool) -> list[Kept]:
    """Returns those that have been in use for long."""
    late, now = [], time.monotonic()
    refusals = locations.give_up([block.ref for block in blocks], though_used)
    for block, refusal in zip(blocks, refusals, strict=True):
        if refusal is None:
            block.is_there = False
        elif not refusal[0]:
            block.stays = refusal[1]
        elif now - block.since > _PATIENCE_S:
            late.append(block)
    return late


class Keeper:
    """All caches of this process, and the thread that looks after them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._caches: list[weakref.ref[Cache]] = []  # The least recently used first.
        self._chores: list[Callable[[], None]] = []
        self._pins: collections.Counter[Any] = collections.Counter()
        self._limit_bytes = 0
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def add(self, cache: Cache) -> None:
        """Looks after a cache for as long as somebody else holds it.

        Args:
            cache: it.
        """
        with self._lock:
            self._caches.append(weakref.ref(cache))
            self._start()

    def limit(self, limit_bytes: int) -> None:
        """All caches in memory may have so many bytes together from now on."""
        with self._lock:
            self._limit_bytes = limit_bytes

    def later(self, chore: Callable[[], None]) -> None:
        """Does something on the keeper's thread: for finalizers, which may run anywhere, even while
        this thread holds the lock."""
        self._chores.append(chore)
        self._wake.set()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sheaf-caches", daemon=True)
            self._thread.start()

    def used(self, node: plan.Node) -> list[Cache]:
        """A plan is run: the caches that it reads give their blocks last.

        Args:
            node: the plan.

        Returns:
            Those caches, but for what other processes have cached.
        """
        left, nodes = [node], {node: None}  # Without recursion, and each once.
        while left:
            fresh = [one for one in left.pop().inputs if one not in nodes]
            nodes.update(dict.fromkeys(fresh))
            left += fresh
        cached = [one.cache for one in nodes if isinstance(one, plan.CachedBlocks)]
        caches = [cache for cache in dict.fromkeys(cached) if isinstance(cache, Cache)]
        if caches:
            with self._lock:
                self._caches.sort(key=lambda known: known() in caches)
        return caches

    def look_soon(self) -> None:
        """Looks, if nobody has done so just now."""
        if time.monotonic() - self._looked_at >= _SOON_S:
            self.look()

    def look(self) -> None:
        """Gives up what there is no room for, if anything is."""
        with self._lock:
            caches = [cache for known in self._caches if (cache := known()) is not None]
            # References of a session that has ended mean nothing any more.
            is_in = sheaf.is_initialized()
            caches = [cache for cache in caches if is_in and not cache.is_over()]
            self._caches = [weakref.ref(cache) for cache in caches]
            try:
                self._look_at(caches)
            except exceptions.RayError:
                pass  # The node ends: whoever reads something hears of it.
            self._looked_at = time.monotonic()

    def _look_at(self, caches: list[Cache]) -> None:
        now = time.monotonic()
        for cache in caches:
            cache.see()
            if cache.has_ended:
                gone = [block for block in cache.blocks if block.may_go and not block.is_young(now)]
                give_up(gone)
            else:
                cache.settle()
        self._make_room([cache for cache in caches if cache.level == "memory"], now)

    def _make_room(self, caches: list[Cache], now: float) -> None:
        surplus = sum(cache.held_bytes for cache in caches) - self._limit_bytes
        if surplus <= 0:  # What came back has found room.
            for block in itertools.chain.from_iterable(cache.blocks for cache in caches):
                block.came_back = False
        room = self._limit_bytes * _ROOM_FOR_YOUNG
        for cache in caches:
            back = [block for block in cache.blocks if block.may_go and block.came_back]
            rest = [block for block in cache.blocks if block.may_go and not block.came_back]
            back.sort(key=lambda block: block.since)
            staying = set(self._pins)
            for block in reversed(back):
                room -= block.size_bytes
                if room >= 0 and block.is_young(now):
                    staying.add(block.ref)
            chosen = []
            # What stays for now counts as gone: it goes a little later, and nothing else for it.
            for block in back + rest[::-1]:
                if surplus <= 0:
                    break
                surplus -= block.size_bytes
                if block.ref not in staying:
                    chosen.append(block)
            give_up(chosen)
            surplus += sum(block.size_bytes for block in chosen if block.stays)

    def pin(self, ref: Any) -> None:
        """A block is about to be read here: it stays until unpin."""
        with self._lock:
            self._pins[ref] += 1

    def unpin(self, ref: Any) -> None:
        """It has been read."""
        with self._lock:
            self._pins[ref] -= 1
            if not self._pins[ref]:
                del self._pins[ref]

    def _run(self) -> None:
        while True:
            self._wake.wait(_PERIOD_S)
            self._wake.clear()
            try:
                while self._chores and sheaf.is_initialized():
                    self._chores.pop(0)()
                self.look()
            except Exception:
                if sheaf.is_initialized():
                    continue  # A node or the session ends: the next look says.
            with self._lock:
                self._chores = self._chores if sheaf.is_initialized() else []
                if not self._caches and not self._chores:
                    self._thread = None
                    return


KEEPER = Keeper()

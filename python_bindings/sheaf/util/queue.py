# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A queue between tasks and actors, held by an actor."""

from __future__ import annotations

import asyncio
import queue
from typing import Any

from sheaf import _core
from sheaf.actor import kill
from sheaf.decorator import remote


class Empty(queue.Empty):
    """There is no item."""


class Full(queue.Full):
    """There is no room."""


class Queue:
    """A queue between tasks and actors, first in, first out. It may be passed to them. Thread-safe.

    An actor holds it. It ends with the last copy of the queue, or with shutdown().

    Args:
        maxsize: how many items it holds at most; 0: no bound.
        actor_options: options of its actor, as {"num_cpus": 1}; it takes no CPU otherwise.
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None):
        self.maxsize = maxsize
        self.actor = (
            remote(_QueueActor).options(**{"num_cpus": 0, **(actor_options or {})}).remote(maxsize)
        )

    def __len__(self) -> int:
        return self.size()

    def qsize(self) -> int:
        """Returns how many items there are."""
        count: int = _core.get(self.actor.qsize.remote())
        return count

    size = qsize

    def empty(self) -> bool:
        """Returns whether there is none."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Returns whether there is no room."""
        return 0 < self.maxsize <= self.qsize()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item.

        Args:
            item: what can be pickled.
            block: waits for room; False: fails at once where there is none.
            timeout: seconds to wait for room at most; None: for ever.

        Raises:
            Full: there was no room.
            ValueError: the timeout is negative.
            RayActorError: the queue has ended.
        """
        _check(timeout)
        if not _core.get(self.actor.put.remote(item, timeout if block else 0)):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item.

        Args:
            block: waits for an item; False: fails at once where there is none.
            timeout: seconds to wait for an item at most; None: for ever.

        Returns:
            The item.

        Raises:
            Empty: there was no item.
            ValueError: the timeout is negative.
            RayActorError: the queue has ended.
        """
        _check(timeout)
        return _found(_core.get(self.actor.get.remote(timeout if block else 0)))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item, as put does, for coroutines.

        Args:
            item: what can be pickled.
            block: waits for room; False: fails at once where there is none.
            timeout: seconds to wait for room at most; None: for ever.

        Raises:
            Full: there was no room.
            ValueError: the timeout is negative.
            RayActorError: the queue has ended.
        """
        _check(timeout)
        if not await self.actor.put.remote(item, timeout if block else 0):
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item, as get does, for coroutines.

        Args:
            block: waits for an item; False: fails at once where there is none.
            timeout: seconds to wait for an item at most; None: for ever.

        Returns:
            The item.

        Raises:
            Empty: there was no item.
            ValueError: the timeout is negative.
            RayActorError: the queue has ended.
        """
        _check(timeout)
        return _found(await self.actor.get.remote(timeout if block else 0))

    def put_nowait(self, item: Any) -> None:
        """Adds an item without waiting for room.

        Args:
            item: what can be pickled.

        Raises:
            Full: there is no room.
        """
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Returns the oldest item, and takes it, without waiting for one.

        Raises:
            Empty: there is none.
        """
        return self.get(block=False)

    def put_nowait_batch(self, items: list[Any]) -> None:
        """Adds all items or none, without waiting for room.

        Args:
            items: in their order.

        Raises:
            Full: there is no room for all.
        """
        if not _core.get(self.actor.put_batch.remote(list(items))):
            raise Full(f"there is no room for {len(items)} items")

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes the oldest items, without waiting for them.

        Args:
            num_items: how many.

        Returns:
            The items, oldest first.

        Raises:
            Empty: there are fewer; none is taken.
            ValueError: the number is negative.
        """
        if num_items < 0:
            raise ValueError(f"num_items={num_items}: want a number that is not negative")
        items: list[Any] | None = _core.get(self.actor.get_batch.remote(num_items))
        if items is None:
            raise Empty(f"there are fewer than {num_items} items")
        return items

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Ends the queue with what it holds. Calls that wait fail with RayActorError.

        Args:
            force: without effect: it ends at once in any case.
            grace_period_s: without effect.
        """
        del force, grace_period_s
        kill(self.actor)


def _check(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"timeout={timeout}: want a number of seconds that is not negative, or None"
        )


def _found(item: tuple[Any] | None) -> Any:
    if item is None:
        raise Empty
    return item[0]


class _QueueActor:
    def __init__(self, maxsize: int):
        self.queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self.queue.qsize()

    async def put(self, item: Any, timeout: float | None) -> bool:
        try:
            if timeout == 0:
                self.queue.put_nowait(item)
            else:
                await asyncio.wait_for(self.queue.put(item), timeout)
        except (TimeoutError, asyncio.QueueFull):
            return False
        return True

    async def get(self, timeout: float | None) -> tuple[Any] | None:
        try:
            return (
                self.queue.get_nowait()
                if timeout == 0
                else await asyncio.wait_for(self.queue.get(), timeout),
            )
        except (TimeoutError, asyncio.QueueEmpty):
            return None

    async def put_batch(self, items: list[Any]) -> bool:
        if 0 < self.queue.maxsize < self.queue.qsize() + len(items):
            return False
        for item in items:
            self.queue.put_nowait(item)
        return True

    async def get_batch(self, count: int) -> list[Any] | None:
        if self.queue.qsize() < count:
            return None
        return [self.queue.get_nowait() for _ in range(count)]

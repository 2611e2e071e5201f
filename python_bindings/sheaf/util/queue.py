# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A queue between tasks and actors, held by an actor."""

from __future__ import annotations

import asyncio
import queue
from typing import Any

from sheaf import _core
from sheaf.actor import kill
from sheaf.decorator import remote

Empty, Full = queue.Empty, queue.Full


class Queue:
    """First in, first out; at most maxsize items (0: no bound). It may be passed to tasks and
    actors."""

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None):
        self.maxsize = maxsize
        self.actor = (
            remote(_QueueActor).options(**{"num_cpus": 0, **(actor_options or {})}).remote(maxsize)
        )

    def __len__(self) -> int:
        return self.size()

    def qsize(self) -> int:
        """How many items there are."""
        count: int = _core.get(self.actor.qsize.remote())
        return count

    size = qsize

    def empty(self) -> bool:
        """Whether there is none."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there is no room."""
        return 0 < self.maxsize <= self.qsize()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item; Full: there was no room, in `timeout` seconds or at once."""
        _check(timeout)
        if not _core.get(self.actor.put.remote(item, timeout if block else 0)):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item; Empty: there was none, in `timeout` seconds or at once."""
        _check(timeout)
        return _found(_core.get(self.actor.get.remote(timeout if block else 0)))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """put, for coroutines."""
        _check(timeout)
        if not await self.actor.put.remote(item, timeout if block else 0):
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """get, for coroutines."""
        _check(timeout)
        return _found(await self.actor.get.remote(timeout if block else 0))

    def put_nowait(self, item: Any) -> None:
        """put without waiting."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """get without waiting."""
        return self.get(block=False)

    def put_nowait_batch(self, items: list[Any]) -> None:
        """Adds all items or none; Full: there is no room for all."""
        if not _core.get(self.actor.put_batch.remote(list(items))):
            raise Full(f"there is no room for {len(items)} items")

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes that many items; Empty: there are fewer."""
        if num_items < 0:
            raise ValueError(f"num_items={num_items}: want a number that is not negative")
        items: list[Any] | None = _core.get(self.actor.get_batch.remote(num_items))
        if items is None:
            raise Empty(f"there are fewer than {num_items} items")
        return items

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Ends the queue; waiting calls fail with RayActorError."""
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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What tests of other projects take from `ray._common.test_utils`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from sheaf.decorator import remote

__all__ = ["Semaphore", "SignalActor", "wait_for_condition"]


def wait_for_condition(
    condition_predictor: Callable[..., bool],
    timeout: float = 10,
    retry_interval_ms: float = 100,
    raise_exceptions: bool = False,
    **kwargs: Any,
) -> None:
    """Waits until a function returns something true.

    Args:
        condition_predictor: the function.
        timeout: seconds that it has.
        retry_interval_ms: between two calls.
        raise_exceptions: whether what it raises ends the wait; else it counts as False.
        kwargs: what it is called with.

    Raises:
        RuntimeError: it did not in time.
    """
    end = time.monotonic() + timeout
    last: Exception | None = None
    while time.monotonic() <= end:
        try:
            if condition_predictor(**kwargs):
                return
        except Exception as error:
            if raise_exceptions:
                raise
            last = error
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError(
        "The condition wasn't met before the timeout expired."
        + (f" Last exception: {last!r}" if last else "")
    )


@remote(num_cpus=0)
class SignalActor:
    """Calls of wait() return when send() was called."""

    def __init__(self) -> None:
        self.ready_event = asyncio.Event()
        self.num_waiters = 0

    async def send(self, clear: bool = False) -> None:
        """Lets the waiting go; `clear`: those that come later wait again."""
        self.ready_event.set()
        if clear:
            self.ready_event.clear()

    async def wait(self, should_wait: bool = True) -> None:
        """Returns when send() was called; at once where `should_wait` is False."""
        if should_wait:
            self.num_waiters += 1
            await self.ready_event.wait()
            self.num_waiters -= 1

    async def cur_num_waiters(self) -> int:
        """Returns how many wait."""
        return self.num_waiters


@remote(num_cpus=0)
class Semaphore:
    """A semaphore of asyncio that several processes share."""

    def __init__(self, value: int = 1) -> None:
        self._sema = asyncio.Semaphore(value=value)

    async def acquire(self) -> bool:
        """Returns when there is room."""
        return await self._sema.acquire()

    async def release(self) -> None:
        """Makes room."""
        self._sema.release()

    async def locked(self) -> bool:
        """Returns whether there is none."""
        return self._sema.locked()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors of a pool that have nothing to do lend their CPUs, as a task does that waits for its
consumer: what is read in between, by whoever it is, may need them.

Such an actor runs a call whose only item nobody takes, and the runtime lets others use the CPUs of
a call that waits for that. Before the actor gets work the item is taken. So it keeps what its
constructor has made, and nobody has to know who else wants CPUs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sheaf import exceptions

_IDLE_S = 0.1  # After so long without work an actor lends.


class Resting:
    """The actors of one execution that lend. Actors are known by their numbers."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._calls: dict[int, Any] = {}

    def look(self, idle: Mapping[int, Any]) -> None:
        """Lets actors lend that have been idle long enough.

        Args:
            idle: the handles of all that have no work now.
        """
        now = time.monotonic()
        self._since = {number: self._since.get(number, now) for number in idle}
        for number, since in self._since.items():
            if now - since >= _IDLE_S:
                self.lend(number, idle[number])

    def lend(self, number: int, actor: Any) -> None:
        """Lets an actor lend now.

        Args:
            number: of it; it has no work.
            actor: its handle.
        """
        if number not in self._calls:
            resting = actor.rest.options(
                num_returns="streaming", _generator_backpressure_num_objects=1
            )
            self._calls[number] = resting.remote()

    def wake(self, number: int) -> None:
        """Gives an actor its CPUs back. One that is dead shows so when it gets work."""
        call = self._calls.pop(number, None)
        self._since.pop(number, None)
        if call is not None:
            try:
                next(call, None)
            except exceptions.RayError:
                pass

    def forget(self, number: int) -> None:
        """An actor is no more."""
        self._calls.pop(number, None)
        self._since.pop(number, None)

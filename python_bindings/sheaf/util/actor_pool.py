# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A pool of actors that share work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.exceptions import ActorDiedError, RayTaskError
from sheaf.object_ref import wait

Submit = Callable[[Any, Any], "ObjectRef[Any]"]


class ActorPool:
    """Gives calls to idle actors; results come in order, or as they are ready. Not thread-safe.

    Args:
        actors: handles of the actors that share the work.
    """

    def __init__(self, actors: Iterable[Any]):
        self._idle = list(actors)
        self._running: dict[ObjectRef[Any], tuple[int, Any]] = {}
        self._by_index: dict[int, ObjectRef[Any]] = {}
        self._waiting: list[tuple[Submit, Any]] = []
        self._next_task = 0
        self._next_return = 0

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Calls fn(actor, value) for each value, and gives the results in order.

        Results of earlier calls that nobody has taken are dropped.

        Args:
            fn: submits one call to an actor: `lambda actor, value: actor.double.remote(value)`.
            values: an iterable, which is read at once.

        Returns:
            An iterator over the results. It raises what a call raised.
        """
        self._drop_results()
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next()

        return results()

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """Calls fn(actor, value) for each value, and gives the results as they become ready.

        Results of earlier calls that nobody has taken are dropped.

        Args:
            fn: as for map.
            values: an iterable, which is read at once.

        Returns:
            An iterator over the results. It raises what a call raised.
        """
        self._drop_results()
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next_unordered()

        return results()

    def submit(self, fn: Submit, value: Any) -> None:
        """Calls fn(actor, value) with an idle actor, or when one becomes idle.

        Args:
            fn: as for map.
            value: what it is given.
        """
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        ref = fn(actor, value)
        self._running[ref] = (self._next_task, actor)
        self._by_index[self._next_task] = ref
        self._next_task += 1

    def has_next(self) -> bool:
        """Returns whether results are pending. Calls that wait for the first actor are none."""
        return bool(self._running)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Waits for the next result in the order of the calls, and takes it.

        Args:
            timeout: seconds; None waits for ever.
            ignore_if_timedout: skips the result when it is late.

        Returns:
            The result.

        Raises:
            StopIteration: no result is pending.
            TimeoutError: the result was late; it stays the next one, unless it is skipped.
            ValueError: get_next_unordered has taken the later ones.
            RayTaskError: a call raised; it is an instance of what was raised, too.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._next_return >= self._next_task:
            raise ValueError("It is not allowed to call get_next() after get_next_unordered()")
        ref = self._by_index[self._next_return]
        ready, _ = wait([ref], timeout=timeout)
        late = TimeoutError(f"Timed out waiting for result: it was not ready in {timeout} s")
        if not ready and not ignore_if_timedout:
            raise late
        del self._by_index[self._next_return]
        self._next_return += 1
        _, actor = self._running.pop(ref)
        if not ready:
            self._give_back(actor)
            raise late
        return self._result(ref, actor)

    def get_next_unordered(
        self, timeout: float | None = None, ignore_if_timedout: bool = False
    ) -> Any:
        """Waits for the result that is ready first, and takes it.

        Args:
            timeout: seconds; None waits for ever.
            ignore_if_timedout: gives None when none is ready in time.

        Returns:
            The result.

        Raises:
            StopIteration: no result is pending.
            TimeoutError: none was ready in time.
            RayTaskError: a call raised; it is an instance of what was raised, too.
        """
        if not self.has_next():
            raise StopIteration("No more results to get")
        ready, _ = wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready:
            if ignore_if_timedout:
                return None
            raise TimeoutError(f"Timed out waiting for result: none was ready in {timeout} s")
        index, actor = self._running.pop(ready[0])
        del self._by_index[index]
        self._next_return = max(self._next_return, index + 1)
        return self._result(ready[0], actor)

    def has_free(self) -> bool:
        """Returns whether an actor is idle and no call waits for one."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any:
        """Returns an idle actor, which leaves the pool; None: there is none."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor to the pool.

        Args:
            actor: its handle.

        Raises:
            ValueError: it is in the pool already.
        """
        if actor in self._idle or any(actor == busy for _, busy in self._running.values()):
            raise ValueError("Actor already belongs to current ActorPool")
        self._give_back(actor)

    def _result(self, ref: ObjectRef[Any], actor: Any) -> Any:
        """The value; an actor that died leaves the pool."""
        try:
            value = _core.get(ref)
        except ActorDiedError as error:
            if isinstance(error, RayTaskError):  # Of another actor, which the call asked.
                self._give_back(actor)
                raise
            if self._waiting and self._idle:
                self.submit(*self._waiting.pop(0))
            raise
        except BaseException:
            self._give_back(actor)
            raise
        self._give_back(actor)
        return value

    def _give_back(self, actor: Any) -> None:
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.pop(0))

    def _drop_results(self) -> None:
        while self.has_next():
            self.get_next_unordered()

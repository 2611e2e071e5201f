# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A pool of actors that share work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.object_ref import wait

Submit = Callable[[Any, Any], "ObjectRef[Any]"]


class ActorPool:
    """Gives calls to idle actors; results come in order, or as they are ready."""

    def __init__(self, actors: Iterable[Any]):
        self._idle = list(actors)
        self._running: dict[ObjectRef[Any], tuple[int, Any]] = {}
        self._by_index: dict[int, ObjectRef[Any]] = {}
        self._waiting: list[tuple[Submit, Any]] = []
        self._next_task = 0
        self._next_return = 0

    def map(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """The results of fn(actor, value) for each value, in order."""
        self._drop_results()
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next()

        return results()

    def map_unordered(self, fn: Submit, values: Iterable[Any]) -> Iterator[Any]:
        """The same, as the results become ready."""
        self._drop_results()
        for value in values:
            self.submit(fn, value)

        def results() -> Iterator[Any]:
            while self.has_next():
                yield self.get_next_unordered()

        return results()

    def submit(self, fn: Submit, value: Any) -> None:
        """Calls fn(actor, value) with the next idle actor."""
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        ref = fn(actor, value)
        self._running[ref] = (self._next_task, actor)
        self._by_index[self._next_task] = ref
        self._next_task += 1

    def has_next(self) -> bool:
        """Whether results are pending."""
        return bool(self._running) or bool(self._waiting)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in order. StopIteration: there is none. TimeoutError: not in time."""
        if not self.has_next():
            raise StopIteration("no more results to get")
        ref = self._by_index[self._next_return]
        ready, _ = wait([ref], timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError(f"the next result was not ready in {timeout} s")
        del self._by_index[self._next_return]
        self._next_return += 1
        _, actor = self._running.pop(ref)
        self._give_back(actor)
        return _core.get(ref) if ready else None

    def get_next_unordered(
        self, timeout: float | None = None, ignore_if_timedout: bool = False
    ) -> Any:
        """The result that is ready first. StopIteration: there is none. TimeoutError: not in
        time."""
        if not self.has_next():
            raise StopIteration("no more results to get")
        ready, _ = wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready:
            if ignore_if_timedout:
                return None
            raise TimeoutError(f"no result was ready in {timeout} s")
        index, actor = self._running.pop(ready[0])
        del self._by_index[index]
        self._next_return = max(self._next_return, index + 1)
        self._give_back(actor)
        return _core.get(ready[0])

    def has_free(self) -> bool:
        """Whether an actor is idle and no call waits."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any:
        """Takes an idle actor out of the pool, or None."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Adds an actor. ValueError: it is in the pool."""
        if actor in self._idle or any(actor == busy for _, busy in self._running.values()):
            raise ValueError("the actor is in the pool already")
        self._give_back(actor)

    def _give_back(self, actor: Any) -> None:
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.pop(0))

    def _drop_results(self) -> None:
        while self.has_next():
            self.get_next_unordered()

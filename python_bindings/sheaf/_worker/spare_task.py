# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Begins coroutines at once, in an asyncio task that they keep only if they wait.

Most coroutines that are calls of an actor never wait, and making a task for one costs more than
running it. So each begins in a task that is there already, the spare one: asyncio.current_task() is
a task as it would be otherwise. A coroutine that waits keeps it, as its task from then on, and
another spare one is made; so does a coroutine after whose end somebody still knows the task.

The functions of asyncio by which this is done are those that it has for tasks of other packages
("Extending" in its documentation).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

try:
    from asyncio import _enter_task, _leave_task, _register_task, _unregister_task
except ImportError:
    LENDS = False  # Every coroutine gets a task of its own, as asyncio makes it.
else:
    LENDS = True


# Of a call: gives a coroutine that waits and what for, or None: all has ended.
FirstStep = Callable[[Any], "tuple[Coroutine[Any, Any, None], Any] | None"]


def first_step_of(
    coroutine: Coroutine[Any, Any, None],
) -> tuple[Coroutine[Any, Any, None], Any] | None:
    """The first step that is the coroutine's own."""
    try:
        return coroutine, coroutine.send(None)
    except StopIteration:
        return None


def task_of(
    coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None]:
    """A task of its own; raises what a task factory of the user's raises."""
    try:
        return loop.create_task(coroutine)
    except BaseException:
        coroutine.close()  # Nobody else will await it.
        raise


@types.coroutine
def rest_of(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """What a coroutine does that waits for `awaited`, for another one that awaits this."""
    while True:
        step: Any = coroutine.send
        try:
            value = yield awaited
        except BaseException as error:
            step, value = coroutine.throw, error
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value
        finally:
            value = None  # Its traceback knows this frame.


class Beginner:
    """Begins calls of one event loop, on its thread, outside of any task; only if LENDS. The spare
    task is the running one from the first `begin` to `pause`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spare: _SpareTask | None = None
        self._runs = False  # The spare one is the running one.
        self._known = 0
        self.begins = False  # Inside of `begin`.
        self.scheduled = False  # The loop has got something to do; the caller may reset it.

    def begin(self, first_step: FirstStep, call: Any) -> asyncio.Task[None] | None:
        """Runs the first step of a call in a context of its own. The task in which the call goes
        on, or None: it has ended."""
        if not self._runs:
            self._resume()
        task = self._spare.task  # type: ignore[union-attr]
        context = copy_context()
        begun = None
        self.begins = True
        try:
            begun = context.run(first_step, call)
        except BaseException as error:  # As it would be of a task that nobody asks for its result.
            self._loop.call_exception_handler(
                {"message": "a coroutine that waited for nothing", "exception": error, "task": task}
            )
        self.begins = False
        if begun is None and getrefcount(task) + getweakrefcount(task) == self._known:
            if self._spare.is_as_it_was():  # type: ignore[union-attr]
                return None
        self.pause()
        spare, self._spare = self._spare, None
        spare.leave(None if begun is None else _Rest(context, *begun))  # type: ignore[union-attr]
        self.scheduled = True
        return task if begun is not None else None

    def _resume(self) -> None:
        spare = self._spare
        if spare is None or not spare.is_as_it_was():
            spare = self._spare = _SpareTask(self._loop)
            self.scheduled = True
        task = spare.task
        _enter_task(self._loop, task)
        self._runs = True
        # Changes when somebody gets to know the task, or loses it.
        self._known = getrefcount(task) + getweakrefcount(task)

    def pause(self) -> None:
        """No call is begun for now: no task runs."""
        if self._runs:
            self._runs = False
            spare: _SpareTask = self._spare  # type: ignore[assignment]
            _leave_task(self._loop, spare.task)
            spare.keep()

    def begin_later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Gives it a task of its own, which begins behind all that the loop has to do already."""
        self.scheduled = True
        task_of(coroutine, self._loop)

    def begin_anew(self) -> None:
        """After something that `begin` raised: the next call gets another task."""
        self.begins = False
        self.pause()
        spare, self._spare = self._spare, None
        if spare is not None:
            self.scheduled = True
            spare.leave(None)


@types.coroutine
def _primed() -> Generator[None, None, None]:
    yield


class _SpareTask:
    """A task that waits for a coroutine to go on with; asyncio.all_tasks() has it until calls have
    ended in it."""

    __slots__ = ("task", "_listed", "_name", "_taken", "_rest")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken: asyncio.Future[None] = loop.create_future()
        self._rest: _Rest | None = None
        self._listed = True
        carry = self._carry()
        carry.send(None)  # It is begun, or a task that is cancelled at once would never begin it.
        self.task: Any = loop.create_task(carry)
        self._name = self.task.get_name()

    async def _carry(self) -> None:
        cancelled: tuple[Any, ...] | None = None
        try:
            await _primed()
            await self._taken
        except asyncio.CancelledError as error:
            cancelled = error.args
        if self._rest is not None:
            await self._rest.wait(cancelled)

    def is_as_it_was(self) -> bool:
        """Whether no call has left anything behind in the task: a callback for its end, another
        name, or that it is cancelled, though that was taken back."""
        task = self.task
        return not (
            task._callbacks
            or task._must_cancel
            or self._taken.done()
            or task.cancelling()
            or task.get_name() is not self._name
        )

    def keep(self) -> None:
        """Calls have ended in it; further ones may have it."""
        if self._listed:
            self._listed = False
            _unregister_task(self.task)

    def leave(self, rest: _Rest | None) -> None:
        """The task is that of this coroutine from here on, or, if its coroutine has ended, ends
        too."""
        self._rest = rest
        if not self._listed:
            _register_task(self.task)
        if not self._taken.done():
            self._taken.set_result(None)


class _Rest:
    """What a coroutine does from where it first waits, in the context in which it began."""

    __slots__ = ("_coroutine", "_context", "_awaited")

    def __init__(
        self, context: Context, coroutine: Coroutine[Any, Any, None], awaited: Any
    ) -> None:
        self._coroutine, self._context, self._awaited = coroutine, context, awaited

    @types.coroutine
    def wait(self, cancelled: tuple[Any, ...] | None) -> Generator[Any, Any, None]:
        """`cancelled`: the task was, with these words, before it could wait for what the coroutine
        waits for."""
        awaited = self._awaited
        if cancelled is not None and hasattr(awaited, "cancel") and awaited.cancel(*cancelled):
            cancelled = None  # By that.
        while True:
            step: Any = self._coroutine.send
            value: Any = None
            if cancelled is not None:
                step, value = self._coroutine.throw, asyncio.CancelledError(*cancelled)
                cancelled = None
            else:
                try:
                    value = yield awaited
                except BaseException as error:
                    step, value = self._coroutine.throw, error
            try:
                awaited = self._context.run(step, value)
            except StopIteration:
                return
            finally:
                value = None  # Its traceback knows this frame.

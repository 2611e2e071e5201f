# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: actors with async methods. All their methods, and the constructor, run on the thread of one event loop.

A call is started where the loop looks for events (_start), up to where it first waits for something; most end before that, and so need no
task of their own, whose making costs more than such a call. asyncio.current_task() is a task all the same, the spare one (_Spare). A call
that waits keeps it, as its task from then on, and another spare one is made; so does a call after which somebody still knows the task. A
method that has waited once is given a task at once from then on.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import selectors
import sys
import threading
import types
import weakref
from asyncio.tasks import _enter_task, _leave_task, _register_task, _unregister_task
from typing import Any, Coroutine, Generator

from sheaf import _core, worker_main
from sheaf.worker_errors import ActorExit

current_execution: contextvars.ContextVar[Any] = contextvars.ContextVar("sheaf_execution", default=None)
_loop: asyncio.AbstractEventLoop | None = None
_running: dict[bytes, asyncio.Task[Any]] = {}
_STEPS_WITHOUT_FILES = 16  # While calls come, the loop looks at descriptors in each so manieth step.


class _Selector(selectors.EpollSelector):
    """Takes the calls where an event loop looks for events. A loop that waits for a call looks at the rings a while before it sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        while True:
            calls = _core.take_calls(timeout is None or timeout > 0)
            if calls is None:
                return super().select(timeout)
            if not calls:
                break
            works = _start(calls)
            self._steps += 1
            if self._steps >= _STEPS_WITHOUT_FILES:
                break
            if works or timeout == 0:  # The loop has something to do.
                return []
        self._steps = 0
        return super().select(0)


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        _loop = asyncio.SelectorEventLoop(_Selector())
        _loop.add_reader(_core.call_event(), _woken)
        threading.Thread(target=_run_loop, args=(_loop,), name="sheaf-asyncio", daemon=True).start()
    return _loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _split(args: tuple[Any, ...], names: tuple[str, ...] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not names:
        return args, {}
    count = len(args) - len(names)
    return args[:count], dict(zip(names, args[count:]))


def construct(cls: Any, args: tuple[Any, ...], names: tuple[str, ...] | None) -> Any:
    """Makes the actor on the loop's thread; raises what its constructor raises."""
    positional, keywords = _split(args, names)

    async def make() -> tuple[Any, BaseException | None]:
        try:
            return cls(*positional, **keywords), None
        except BaseException as error:  # A future's result() would add its own lines to the traceback.
            return None, error

    actor, error = asyncio.run_coroutine_threadsafe(make(), _the_loop()).result()
    if error is not None:
        raise error
    return actor


def _woken() -> None:
    """The next look for events takes the calls."""


@types.coroutine
def _primed() -> Generator[None, None, None]:
    yield


class _Spare:
    """The task that the next calls run in up to where they wait; asyncio.all_tasks() has it until one has ended in it."""

    __slots__ = ("task", "_taken", "_rest", "_listed")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._taken: asyncio.Future[None] = loop.create_future()
        self._rest: _Rest | None = None
        self._listed = True
        carry = self._carry()
        carry.send(None)  # It is begun, or a task that is cancelled at once would never begin it.
        self.task = loop.create_task(carry)

    async def _carry(self) -> None:
        cancelled = False
        try:
            await _primed()
            await self._taken
        except asyncio.CancelledError:
            cancelled = True
        if self._rest is not None:
            await self._rest.wait(cancelled)

    def known(self) -> int:
        """Changes when somebody gets to know the task, or loses it."""
        return sys.getrefcount(self.task) + weakref.getweakrefcount(self.task)

    def keep(self) -> None:
        """A call has ended in it; the next one may have it."""
        if self._listed:
            self._listed = False
            _unregister_task(self.task)

    def leave(self, rest: _Rest | None) -> None:
        """The task is that of this call from here on, or, if its call has ended, ends too."""
        self._rest = rest
        if not self._listed:
            _register_task(self.task)
        if not self._taken.done():
            self._taken.set_result(None)


class _Rest:
    """What a coroutine does from where it first waits, in the context in which it began."""

    __slots__ = ("_coroutine", "_context", "_awaited")

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context, awaited: Any) -> None:
        self._coroutine, self._context, self._awaited = coroutine, context, awaited

    @types.coroutine
    def wait(self, cancelled: bool) -> Generator[Any, Any, None]:
        """`cancelled`: the task was, before it could wait for what the coroutine waits for."""
        awaited = self._awaited
        if cancelled and hasattr(awaited, "cancel") and awaited.cancel():
            cancelled = False  # By that.
        while True:
            step: Any = self._coroutine.send
            value: Any = None
            if cancelled:
                step, value, cancelled = self._coroutine.throw, asyncio.CancelledError(), False
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


_spare: _Spare | None = None
_waits: set[Any] = set()  # The methods that have waited in a call.


def _start(calls: list[tuple[Any, ...]]) -> bool:
    """Starts them in their order; whether the loop has something to do for them."""
    global _spare
    loop = _the_loop()
    works = queued = False
    for index, call in enumerate(calls):
        calls[index] = ()  # Its arguments go with the call.
        if queued or call[2] in _waits:  # Those behind it start behind it.
            loop.create_task(_run(True, *call))
            works = queued = True
            continue
        if _spare is None or _spare.task.cancelling():
            _spare = _Spare(loop)
            works = True
        spare, task = _spare, _spare.task
        known = spare.known()
        context = contextvars.copy_context()
        coroutine = _run(False, *call)
        rest = None
        _enter_task(loop, task)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration:
            pass
        except BaseException as error:  # Of exit functions; what the call itself raised is its answer.
            loop.call_exception_handler({"message": "a call of an async actor", "exception": error, "task": task})
        else:
            rest = _Rest(coroutine, context, awaited)
            _running[call[1]] = task
            _waits.add(call[2])
        finally:
            _leave_task(loop, task)
        if rest is None and spare.known() == known and not task.cancelling():
            spare.keep()
            continue
        spare.leave(rest)
        _spare = None
        works = True
    return works


async def _run(
    has_task: bool, execution: Any, task: bytes, function: Any, actor: Any, args: tuple[Any, ...], names: tuple[str, ...] | None, streaming: bool
) -> None:
    if execution.cancelled():  # Before its first step.
        execution.fail(asyncio.CancelledError())
        return
    current_execution.set(execution)
    try:
        if has_task:
            _running[task] = asyncio.current_task()  # type: ignore[assignment]
        if names is not None:
            positional, keywords = _split(args, names)
            result = getattr(actor, function)(*positional, **keywords) if type(function) is str else function(actor, *positional, **keywords)
        elif type(function) is str:
            result = getattr(actor, function)(*args)
        else:
            result = function(actor, *args)
        if type(result) is types.CoroutineType or inspect.isawaitable(result):
            result = await result
        if streaming:
            await _send_items(execution, result)
        else:
            execution.finish(result)
    except ActorExit as error:
        execution.fail(error)
        worker_main.run_exit_functions()
        _core.exit_actor()
    except BaseException as error:
        execution.fail(error)
    finally:
        _running.pop(task, None)


async def _send_items(execution: Any, result: Any) -> None:
    loop = asyncio.get_running_loop()
    if inspect.isasyncgen(result):
        async for item in result:
            # In a thread, since it waits while too many items are not consumed.
            if not await loop.run_in_executor(None, execution.item, item):
                break
    else:
        for item in result:
            if not await loop.run_in_executor(None, execution.item, item):
                break
    execution.end()


def cancel_call(task: bytes) -> None:
    """Cancels the coroutine of a call, if it runs and was not cancelled before."""
    running = _running.pop(task, None)
    if running is not None and _loop is not None:
        _loop.call_soon_threadsafe(running.cancel)

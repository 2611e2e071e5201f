# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: actors with async methods. All their methods, and the constructor, run on the thread of one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import selectors
import threading
import types
from typing import Any

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
        calls = _core.take_calls(timeout is None or timeout > 0)
        if calls is None:
            return super().select(timeout)
        if calls:
            _start(calls)
            self._steps += 1
            if self._steps < _STEPS_WITHOUT_FILES:
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


def _start(calls: list[tuple[Any, ...]]) -> None:
    create_task = _the_loop().create_task
    for call in calls:
        create_task(_run(*call))


async def _run(
    execution: Any, task: bytes, function: Any, actor: Any, args: tuple[Any, ...], names: tuple[str, ...] | None, streaming: bool
) -> None:
    if execution.cancelled():  # Before its first step.
        execution.fail(asyncio.CancelledError())
        return
    running = asyncio.current_task()
    assert running is not None
    _running[task] = running
    current_execution.set(execution)
    try:
        positional, keywords = _split(args, names)
        if isinstance(function, str):
            result = getattr(actor, function)(*positional, **keywords)
        else:
            result = function(actor, *positional, **keywords)
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

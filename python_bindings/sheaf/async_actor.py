# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: actors with async methods. All their methods, and the constructor, run on the thread of one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from typing import Any

from sheaf import _core
from sheaf.worker_errors import ActorExit

current_execution: contextvars.ContextVar[Any] = contextvars.ContextVar("sheaf_execution", default=None)
_loop: asyncio.AbstractEventLoop | None = None
_running: dict[bytes, asyncio.Task[None]] = {}


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        _loop.add_reader(_core.call_event(), _start_waiting)
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

    async def make() -> Any:
        return cls(*positional, **keywords)

    return asyncio.run_coroutine_threadsafe(make(), _the_loop()).result()


def _start_waiting() -> None:
    """Starts the calls that have come; the loop calls it when the event says that there are some."""
    loop = _the_loop()
    for execution, task, *call in _core.take_calls():
        running = loop.create_task(_run(execution, *call))
        _running[task] = running
        running.add_done_callback(functools.partial(_ended, execution, task))


def _ended(execution: Any, task: bytes, running: asyncio.Task[None]) -> None:
    _running.pop(task, None)
    if running.cancelled():  # Before its first step.
        execution.fail(asyncio.CancelledError())


async def _run(
    execution: Any, function: Any, actor: Any, args: tuple[Any, ...], names: tuple[str, ...] | None, streaming: bool
) -> None:
    current_execution.set(execution)
    positional, keywords = _split(args, names)
    try:
        if isinstance(function, str):
            result = getattr(actor, function)(*positional, **keywords)
        else:
            result = function(actor, *positional, **keywords)
        if inspect.isawaitable(result):
            result = await result
        if streaming:
            await _send_items(execution, result)
        else:
            execution.finish(result)
    except ActorExit as error:
        execution.fail(error)
        _core.exit_actor()
    except BaseException as error:
        execution.fail(error)


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
    """Cancels the coroutine of a call, if it runs."""
    running = _running.get(task)
    if running is not None and _loop is not None:
        _loop.call_soon_threadsafe(running.cancel)

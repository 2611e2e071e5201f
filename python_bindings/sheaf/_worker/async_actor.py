# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: actors with async methods. All their methods, and the constructor, run on the thread
of one event loop; in an actor with concurrency groups each group, and the default one, has a loop
and a thread of its own, and the first loop only hands their calls out.

A call is started where the loop looks for events (_Selector), up to where it first waits for
something; most end before that, and so need no task of their own (spare_task.py). A method that has
waited once is given one at once from then on.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import selectors
import threading
import traceback
import types
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sheaf import _core
from sheaf._internal import tracing
from sheaf._worker import functions, main, spare_task
from sheaf._worker.spare_task import Beginner
from sheaf.exceptions import ActorExit

_current_execution: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "sheaf_execution", default=None
)
_set_execution = _current_execution.set
execution_here = _current_execution.get  # Of the call whose coroutine runs; _core asks for it.
_loop: asyncio.AbstractEventLoop | None = None
_items: ThreadPoolExecutor | None = None  # Of _send_items.
_running: dict[bytes, asyncio.Task[Any]] = {}
_cancelled: set[bytes] = set()  # Those that were in _running.
_OF_THE_RUNTIME = functions.RUNS_BESIDE_GROUPS
_MOST_STREAMS = 1000  # At one time; more wait for each other.
_STEPS_WITHOUT_FILES = (
    16  # While calls come without a pause, the loop looks at its descriptors once in so many steps.
)


class _Selector(selectors.EpollSelector):
    """Takes the calls where an event loop looks for events. A loop that has nothing to do waits for
    calls, and no longer than for events."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: Any = None
        self._steps = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        while True:
            calls = _core.take_calls(timeout)
            if calls is None:
                return super().select(timeout)
            if not calls:
                break
            works = _start(calls)
            self._steps += 1
            if self._steps >= _STEPS_WITHOUT_FILES:
                break
            # The loop has something to do, or will have: it looks at its timers. So it is, too,
            # where a call that has ended began a task, or a timer.
            if works or timeout is not None or self.loop._ready or self.loop._scheduled:
                return []
        self._steps = 0
        return super().select(0)


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        selector = _Selector()
        _core.watch_loop(selector.fileno())
        _loop = selector.loop = asyncio.SelectorEventLoop(selector)
        threading.Thread(target=_run_loop, args=(_loop,), name="sheaf-asyncio", daemon=True).start()
    return _loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Until the process ends: callers wait for what the loop runs, though user code stops it, or
    raises out of it what asyncio lets through."""
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
        except BaseException as error:
            _leave_by(error)
        if loop.is_closed():
            main.leave_process(RuntimeError("the event loop of the actor was closed: let it run"))


def _leave_by(error: BaseException) -> None:
    """What SystemExit does in a call it does in a task, or callback, of the user's, too. Other
    exceptions are told; the actor goes on without what raised them."""
    if not _ends_actor(error):
        traceback.print_exception(error)


_group_loops: dict[
    str, asyncio.AbstractEventLoop
] = {}  # By name; "" is the default group. Empty: the actor has no groups.


def _make_group_loops(groups: tuple[str, ...]) -> None:
    for name in ("", *groups):
        loop = _group_loops[name] = asyncio.new_event_loop()
        threading.Thread(
            target=_run_loop, args=(loop,), name=f"sheaf-{name or 'default'}", daemon=True
        ).start()


def _split(
    args: tuple[Any, ...], names: tuple[str, ...] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not names:
        return args, {}
    count = len(args) - len(names)
    return args[:count], dict(zip(names, args[count:]))


def construct(
    cls: Any, args: tuple[Any, ...], names: tuple[str, ...] | None, groups: tuple[str, ...]
) -> Any:
    """Makes the actor on the loop's thread, or its default group's; raises what its constructor
    raises."""
    positional, keywords = _split(args, names)
    loop = _the_loop()
    if groups:
        _make_group_loops(groups)
        loop = _group_loops[""]

    async def make() -> tuple[Any, BaseException | None]:
        try:
            return cls(*positional, **keywords), None
        except (
            BaseException
        ) as error:  # A future's result() would add its own lines to the traceback.
            return None, error

    actor, error = asyncio.run_coroutine_threadsafe(make(), loop).result()
    if error is not None:
        raise error
    return actor


_beginner: Beginner | None = None
_waits: set[Any] = set()  # The methods that have waited in a call.


# What a call comes with: (execution, function or name of a method, actor, arguments, special).
# `special`: (names of keywords or None, streaming, concurrency group, trace or None), or None: none
# of that, and a function.
_Call = tuple[Any, Any, Any, tuple[Any, ...], "tuple[Any, bool, str, Any] | None"]


def _start(calls: list[_Call]) -> bool:
    """Starts them in their order; whether the loop has something to do for them."""
    global _beginner
    if _beginner is None:
        _beginner = Beginner(_the_loop())
    beginner = _beginner
    beginner.scheduled = False
    # A method runs the loop itself (nest_asyncio): what comes meanwhile is no part of its task.
    later = inside = beginner.begins
    try:
        for index, call in enumerate(calls):
            calls[index] = ()  # type: ignore[call-overload]  # Its arguments go with the call.
            function = call[1]
            try:
                if _group_loops and function not in _OF_THE_RUNTIME:
                    loop = _group_loops.get(call[4][2] if call[4] else "") or _group_loops[""]
                    loop.call_soon_threadsafe(_begin_in, loop, call)
                    continue
                if later or function in _waits or not spare_task.LENDS:
                    beginner.begin_later(_run(True, *call))
                    later = True  # Those behind it begin behind it.
                    continue
                task = beginner.begin(_first_step, call)
                if task is not None:
                    _running[call[0].task()] = task
                    _waits.add(function)
            except BaseException as error:  # Of a hook of the user's, or a task factory.
                if not inside:
                    beginner.begin_anew()
                _fail(call[0], error)
    finally:
        if not inside:
            beginner.pause()
    return beginner.scheduled


def _begin_in(loop: asyncio.AbstractEventLoop, call: _Call) -> None:
    try:
        _running[call[0].task()] = spare_task.task_of(_run(True, *call), loop)
    except BaseException as error:
        _fail(call[0], error)


def _first_step(call: _Call) -> tuple[Coroutine[Any, Any, None], Any] | None:
    """What _run does up to where the call first waits. Most calls end before that, and need no
    coroutine but their own."""
    execution, function, actor, args, special = call
    if special is not None or _leaving or execution.cancelled():
        return spare_task.first_step_of(_run(False, *call))
    _set_execution(execution)
    try:
        begun = execution.begin(function, actor, args)
        if begun is not None:
            return spare_task.first_step_of(_rest(execution, *begun))
    except BaseException as error:
        _fail(execution, error)
    return None


async def _rest(execution: Any, begun: Any, *awaited: Any) -> None:
    """The rest of a call whose coroutine waits for what follows it, or that gave something else to
    be awaited."""
    task = execution.task()
    try:
        result = await (spare_task.rest_of(begun, *awaited) if awaited else begun)
        if _cancelled and task in _cancelled:  # Though it has caught that.
            raise asyncio.CancelledError
        execution.finish(result)
    except BaseException as error:
        _fail(execution, error)
    finally:
        _forget(task)


async def _run(
    has_task: bool,
    execution: Any,
    function: Any,
    actor: Any,
    args: tuple[Any, ...],
    special: tuple[Any, bool, str, Any] | None,
) -> None:
    names, streaming, _, traced = special or (None, False, "", None)
    task = execution.task()
    _set_execution(execution)
    span = tracing.begin(traced) if traced is not None else None
    raised: BaseException | None = None
    try:
        if has_task:  # Who cancels it finds it here, or is seen by what follows.
            _running[task] = asyncio.current_task()  # type: ignore[assignment]
        if execution.cancelled():  # Before its first step.
            raise asyncio.CancelledError
        if _leaving:
            raise ActorExit
        if names is not None:
            positional, keywords = _split(args, names)
            result = (
                getattr(actor, function)(*positional, **keywords)
                if type(function) is str
                else function(actor, *positional, **keywords)
            )
            del positional, keywords
        elif type(function) is str:
            result = getattr(actor, function)(*args)
        else:
            result = function(actor, *args)
        del args  # What the method has let go of is free, however long it waits.
        if type(result) is types.CoroutineType or (
            type(result) is not _core.ObjectRef and inspect.isawaitable(result)
        ):
            result = await result
            if _cancelled and task in _cancelled:  # Though it has caught that.
                raise asyncio.CancelledError
        if streaming:
            await _send_items(execution, result)
        else:
            execution.finish(result)
    except BaseException as error:
        if not _fail(execution, error):
            raised = error
    finally:
        if span is not None:
            tracing.end(span, raised)
        raised = None
        _forget(task)


def _fail(execution: Any, error: BaseException) -> bool:
    """Ends a call by what it has raised; whether that is the end of the actor."""
    leaves = _ends_actor(error)
    if leaves and _dying:
        _held.append(execution)
    else:
        execution.fail(ActorExit() if isinstance(error, SystemExit) else error)
    return leaves


def _ends_actor(error: BaseException) -> bool:
    """Whether what was raised is the end of the actor. It begins then."""
    if isinstance(error, SystemExit) and error.code != 0:
        _begin_to_die(error)
    leaves = isinstance(error, (ActorExit, SystemExit))
    if leaves:
        _begin_to_leave()
    return leaves


def _forget(task: bytes) -> None:
    """The call has ended."""
    _running.pop(task, None)
    _cancelled.discard(task)


_LEAVING_S = 300.0  # For the calls that it has made.
_held: list[Any] = []  # Calls that the end of the process answers.
_leaving = False
_dying = False


def _begin_to_die(error: BaseException) -> None:
    """As _begin_to_leave, for an end that counts as a death."""
    global _dying, _leaving
    if _dying:
        return
    _dying = _leaving = True
    try:
        threading.Thread(
            target=main.leave_process, args=(error,), name="sheaf-leave", daemon=True
        ).start()
    except RuntimeError:
        main.leave_process(error)


def _begin_to_leave() -> None:
    """The actor asked for its end: it takes no more calls, and those that run may end before it."""
    global _leaving
    if _leaving:
        return
    _leaving = True
    try:
        threading.Thread(target=_leave, name="sheaf-leave", daemon=True).start()
    except RuntimeError:  # There are too many. Its coroutines stand still meanwhile.
        _leave()


def _leave() -> None:
    # Beside the loop: what they start on it, and wait for, comes to its end.
    _core.exit_actor(_LEAVING_S, main.run_exit_functions)


async def _send_items(execution: Any, result: Any) -> None:
    global _items
    if _items is None:
        # It waits while too many items are not consumed. Each stream has a thread if it needs one:
        # a consumer that is stopped holds up neither the others nor what the user runs in the
        # loop's own executor.
        _items = ThreadPoolExecutor(max_workers=_MOST_STREAMS, thread_name_prefix="sheaf-items")
    if inspect.isasyncgen(result):
        async for item in result:
            if not await _done(_items.submit(execution.item, item)):
                break
    else:
        for item in result:
            if not await _done(_items.submit(execution.item, item)):
                break
    if execution.cancelled():
        raise asyncio.CancelledError
    execution.end()


async def _done(sending: Future[bool]) -> bool:
    """What `sending` gives. A coroutine that is cancelled meanwhile stays until its thread has left
    the call, which the runtime uses for another one as soon as it has ended. A thread of a call
    that was cancelled leaves at once."""
    try:
        return await asyncio.wrap_future(sending)
    except asyncio.CancelledError:
        while not sending.done():
            left = asyncio.wrap_future(sending)
            try:
                await asyncio.wait([left])
            except asyncio.CancelledError:
                continue
            left.exception()  # Looked at: asyncio need not report it.
        raise


def cancel_call(task: bytes) -> None:
    """Cancels the coroutine of a call, if it runs and was not cancelled before."""
    if task in _cancelled:  # Else this one would take out the mark of the one before it.
        return
    _cancelled.add(task)  # First: the call's own end takes it out.
    running = _running.pop(task, None)
    if running is None:
        _cancelled.discard(task)
    else:
        running.get_loop().call_soon_threadsafe(running.cancel)

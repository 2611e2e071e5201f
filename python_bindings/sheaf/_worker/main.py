# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A worker process from its start to its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from sheaf import _core, runtime_env
from sheaf._internal import actor_class, preloading, tracing
from sheaf._worker import functions

_IMPORT = "<frozen importlib._bootstrap>"  # The file of the frames of an import.
_LONGEST_IMPORT_S = 30.0  # One that takes longer may be a program that runs: it is broken off.
# Of an actor that ends by sys.exit(1): for its exit functions, then for the calls that it has made.
_LAST_STEPS_S = 35.0
_LAST_CALLS_S = 30.0
_exit_lock = threading.RLock()
_import_waits = 0.0, -_LONGEST_IMPORT_S  # When an import was first and last let go on.


def main(start: dict[str, Any]) -> None:
    """Becomes the worker that the node asked for; ends the process. `start`: what
    lifecycle.worker_command wrote."""
    functions.show_threads(1)
    import cloudpickle  # noqa: F401

    import sheaf._internal.serialization  # noqa: F401
    import sheaf._internal.stacks  # noqa: F401
    import sheaf._worker.errors  # noqa: F401

    # An environment may have packages of its own, which must not find others imported.
    if runtime_env.VARIABLE in os.environ:
        preloading.preload([])
    elif functions.shows_one_thread():
        preloading.preload_for_forks(start["preload"])
    else:  # An import starts threads, which no fork would have: _core must see them first.
        preloading.preload(start["preload"])
    if start.get("logging"):
        from sheaf.logging_config import LoggingConfig  # For jobs that have one.

        LoggingConfig.from_dict(start["logging"]).apply()
    if start.get("cpp_library"):
        from sheaf import cross_language  # For jobs that use it.

        cross_language.load_as_driver(start["cpp_library"])
    if not _core.enter_worker():
        sys.exit("this program is started by a node of Sheaf, not by hand")
    _take_variables()
    _fresh_randomness()
    tracing.watch()
    if start.get("tracing_hook"):
        tracing.run_hook_of_job(start["tracing_hook"])
    # A child that multiprocessing spawns would run it again: it is no program of the user's.
    sys.modules["__main__"].__dict__.pop("__file__", None)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # The driver shows lines as they come.
    signal.signal(signal.SIGINT, _on_interrupt)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 1
    try:
        status = _core.run_worker()
    except ConnectionError as error:
        print(f"sheaf: this worker cannot join its node: {error}", file=sys.stderr)
    finally:
        _leave(status)


def _take_variables() -> None:
    """os.environ as the process has it now: a fork got variables of its own, and marks are gone."""
    now = dict(entry.partition(b"=")[::2] for entry in _core.variables())
    for name in set(os.environb) - set(now):
        del os.environb[name]
    for name, value in now.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def _fresh_randomness() -> None:
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _on_interrupt(signum: int, frame: Any) -> None:
    """SIGINT comes when a call is cancelled, again and again while it runs; one that came too late
    means nothing. What is being imported comes to its end first: torch, for one, refuses a second
    import in a process whose first was broken off, and later calls run in this one."""
    global _import_waits
    began, last = _import_waits
    now = time.monotonic()
    if _imports(frame):
        if now - last > _LONGEST_IMPORT_S:  # That was for another call.
            began = now
        _import_waits = began, now
        if now - began < _LONGEST_IMPORT_S:
            return
    if _core.take_interrupt():
        raise KeyboardInterrupt


def _imports(frame: Any) -> bool:
    """Whether what is interrupted is an import."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def leave_process(error: BaseException | None) -> None:
    """Ends a process that user code has forked in a call and let return from it, or that called
    sys.exit in an actor; `error` is what it raised."""
    status = 0
    try:
        if isinstance(error, SystemExit):
            if error.code is not None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
            status = 1
    finally:
        if os.getpid() == actor_class.runs_in:  # A child that user code has forked has no calls.
            _core.end_calls(_LAST_CALLS_S, lambda: run_exit_functions(_LAST_STEPS_S))
        _leave(status)


def _leave(status: int) -> None:
    """Ends the process without waiting for threads of user code, after its exit functions."""
    try:
        run_exit_functions()
    finally:
        os._exit(status)


def run_exit_functions(limit_s: float = 300.0) -> None:
    """The actor's own __ray_shutdown__, and what user code registered with atexit, once; an actor
    that asks for its end is killed afterwards. One that has not ended after `limit_s` is given up,
    and the process ends."""
    if os.getpid() != actor_class.runs_in:  # A child that user code has forked is not the actor.
        _run_exit_functions(None)
        return
    with _exit_lock:  # Another thread, which ends the process as well, waits for them.
        bound = threading.Timer(limit_s, _give_up, (limit_s,))
        bound.daemon = True
        with contextlib.suppress(RuntimeError):  # There are too many threads.
            bound.start()
        actor, actor_class.running = actor_class.running, None
        try:
            _run_exit_functions(actor)
        finally:
            bound.cancel()


def _run_exit_functions(actor: Any) -> None:
    if hasattr(type(actor), "__ray_shutdown__"):
        try:
            actor.__ray_shutdown__()
        except BaseException:  # Of the user's, sys.exit too: the others run all the same.
            sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def _give_up(limit_s: float) -> None:
    print(f"sheaf: exit functions did not end within {limit_s:g} s", file=sys.stderr, flush=True)
    os._exit(1)

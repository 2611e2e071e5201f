# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the threads of this process do, for `sheaf stack`; the extension asks."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

# Frames are (function, file, line), the innermost first; a stack is (name, number of the thread for
# the system or 0, whether it is a coroutine that waits, frames).
Frame = tuple[str, str, int]
Stack = tuple[str, int, bool, list[Frame]]

_MOST_FRAMES = 200  # Of a stack, and
_MOST_STACKS = 500  # these of a process, coroutines included.
_SIGNAL = signal.SIGRTMIN + 11
_file = -1


def prepare() -> tuple[int, int]:
    """Lets faulthandler, which needs no GIL, write all stacks into a file without a name: (the
    file, the number of a signal). Nobody sends that signal: the extension calls its handler, when
    native code holds the GIL. (-1, 0): user code has that signal."""
    global _file
    if _file < 0:
        if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return -1, 0
        try:
            _file = os.memfd_create("sheaf-stacks")
        except OSError:  # No descriptor is left: the GIL will have to do.
            return -1, 0
        faulthandler.register(_SIGNAL, _file, all_threads=True)
    return _file, _SIGNAL


def dump() -> list[Stack]:
    """The stacks of all threads of Python but the caller's, and of the coroutines that are calls of
    an async actor and wait."""
    # Not threading.enumerate(), whose lock some thread may hold for ever.
    known = dict(threading._active)  # type: ignore[attr-defined]
    here = threading.get_ident()
    found: list[Stack] = []
    for ident, frame in sys._current_frames().items():
        if ident == here:
            continue
        thread = known.get(ident)
        if thread is None:
            name, number = f"thread {ident:#x}", 0
        elif thread is threading.main_thread():
            name, number = thread.name, os.getpid()  # In a fork native_id is its parent's.
        else:
            name, number = thread.name, thread.native_id or 0
        found.append((name, number, False, _frames(frame)))
    found.sort(key=lambda stack: (stack[0] != "MainThread", stack[1]))
    return (found + _coroutines())[:_MOST_STACKS]


def _frames(frame: FrameType | None) -> list[Frame]:
    found = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(_line(frame))
        frame = frame.f_back
    return found


def _line(frame: FrameType) -> Frame:
    code = frame.f_code
    return code.co_qualname, code.co_filename, frame.f_lineno or 0


def _coroutines() -> list[Stack]:
    actor: Any = sys.modules.get("sheaf._worker.async_actor")  # There if this process is one.
    if actor is None or actor._loop is None:
        return []
    import asyncio

    found: list[Stack] = []
    for loop in [actor._loop, *actor._group_loops.values()]:
        try:
            tasks = asyncio.all_tasks(loop)
        except RuntimeError:  # They come and go too fast.
            continue
        for task in tasks:
            frames = _frames_of_coroutine(task.get_coro())
            if frames:
                found.append((task.get_name(), 0, True, frames))
    found.sort(key=lambda stack: stack[0])
    return found


def _frames_of_coroutine(awaited: Any) -> list[Frame]:
    """From a coroutine that waits to the innermost one that it waits for. Nothing: it runs."""
    found: list[Frame] = []
    for _ in range(_MOST_FRAMES):
        frame = inner = None
        for kind, wait in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = frame or getattr(awaited, f"{kind}_frame", None)
            inner = inner or getattr(awaited, wait, None)
            if getattr(awaited, f"{kind}_running", False):
                return []
        if frame is None:
            break
        if frame.f_code.co_filename.endswith("/sheaf/_worker/spare_task.py"):
            # It carries another one, by which it is not awaited.
            known = frame.f_locals
            awaited = inner or known.get("coroutine")
            awaited = awaited or getattr(known.get("self"), "_coroutine", None)
        else:
            found.append(_line(frame))
            awaited = inner
    return found[::-1]

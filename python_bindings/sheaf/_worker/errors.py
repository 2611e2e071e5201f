# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: exceptions of user code on their way to the caller."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Any

from sheaf import _core
from sheaf._internal import exported, serialization
from sheaf._worker import functions
from sheaf.exceptions import ActorExit, Kind, RayTaskError, RuntimeEnvSetupError

_LARGEST_CAUSE = 32 << 20  # Bytes of a pickled exception.
_LARGEST_TEXT = 256 << 10  # Characters of a traceback, and of an exception's own words in it.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def describe_failure(
    error: BaseException, name: str, key: str, cancelled: bool, retries: bool
) -> tuple[int, str, bytes, bool]:
    """(kind, words for people, payload for exceptions.from_error, whether the call may be tried
    again)."""
    if cancelled and _is_interrupt(error):
        return Kind.TASK_CANCELLED, f"{name} was cancelled while it ran", b"", False
    if isinstance(error, ActorExit):
        return Kind.ACTOR_DIED, f"{name}: exit_actor() or sys.exit(0) was called", b"", False
    if isinstance(error, RuntimeEnvSetupError):
        return Kind.ENVIRONMENT_FAILED, str(error), b"", False
    text = format_traceback(error, name)
    if isinstance(error, SystemExit):
        return Kind.WORKER_CRASHED, cut(f"{name} called sys.exit({error.code!r})"), b"", False
    cause = error
    if isinstance(error, RayTaskError) and error.cause is not None:
        cause = error.cause
    if key.startswith(exported.NAMED):  # The caller is C++: api/failures.cc reads this.
        payload = _core.encode_plain(
            ["python", name, type(cause).__qualname__, cut(_words_of(cause))]
        )
        return Kind.TASK_FAILED, text, payload, retries and isinstance(error, Exception)
    words = cut(f"{type(cause).__name__}: {_words_of(cause)}")
    try:
        data: bytes | None = _pickled(cause)
    except Exception as reason:
        why = _words_of(reason).splitlines() or [type(reason).__name__]
        data, words = None, cut(f"{words} (it cannot be sent: {why[0]})")
    payload = pickle.dumps((name, text, data, words, os.getpid()), 5)
    return Kind.TASK_FAILED, text, payload, retries and functions.is_retriable(key, error)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<its words cannot be had: __str__ of {type(error).__name__} fails>"


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, KeyboardInterrupt):
        return True
    return type(error).__name__ in ("CancelledError", "TaskCancelledError")


def _pickled(error: BaseException) -> bytes:
    data, references = serialization.dumps(error)
    if references:
        raise TypeError("it holds ObjectRefs")
    if len(data) > _LARGEST_CAUSE:
        raise ValueError(
            f"it has {len(data)} bytes, at most {_LARGEST_CAUSE}: put large values "
            "into the object store instead"
        )
    pickle.loads(data)  # Some exceptions are pickled but not unpickled.
    return data


def format_traceback(error: BaseException, name: str) -> str:
    """The traceback with the user's frames only, under a line that says where it ran."""
    shown = traceback.TracebackException.from_exception(error)
    _drop_own_frames(shown)
    where = f"{name} (pid={os.getpid()})"
    return cut(f"in {where}:\n" + "".join(shown.format()).rstrip("\n"))


def cut(text: str) -> str:
    """`text`, without its middle if it is very long: the beginning says what failed, the end of a
    traceback how. It can be encoded: what is no character, as in the name of a file, is written
    out."""
    text = text.encode("utf-8", "backslashreplace").decode()
    part = _LARGEST_TEXT // 2
    return (
        text
        if len(text) <= _LARGEST_TEXT
        else f"{text[:part]}\n... ({len(text) - 2 * part} characters are left out here) "
        f"...\n{text[-part:]}"
    )


def _drop_own_frames(shown: traceback.TracebackException | None) -> None:
    while shown is not None:
        own = [f for f in shown.stack if not os.path.abspath(f.filename).startswith(_PACKAGE)]
        shown.stack = traceback.StackSummary.from_list(own)
        _drop_own_frames(shown.__context__)
        shown = shown.__cause__


def wrong_count(result: Any, items: list[Any] | None, count: int) -> None:
    """Raises what a function meets that gives another number of results than num_returns says;
    `items` are what it gave."""
    if items is not None and hasattr(result, "__next__"):
        raise ValueError(
            f"num_returns={count}, and the generator yielded {len(items)} items: it "
            f"must yield {count}"
        )
    words = f"a {type(result).__name__}" if items is None else f"{len(items)} values"
    raise ValueError(
        f"num_returns={count}, and the function returned {words}: return a tuple or list of {count}"
    )

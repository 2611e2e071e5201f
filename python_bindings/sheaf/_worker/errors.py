# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: exceptions of user code on their way to the caller."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Any

import cloudpickle

from sheaf import _core, cluster
from sheaf._internal import actor_class, exported, serialization
from sheaf._worker import functions
from sheaf.exceptions import ActorExit, Kind, RayTaskError, RuntimeEnvSetupError, TaskCancelledError
from sheaf.ids import node_number

_LARGEST_CAUSE = 32 << 20  # Bytes of a pickled exception.
_LARGEST_TEXT = 256 << 10  # Characters of a traceback, and of an exception's own words in it.
_LONGEST_REPR = 200  # Characters of an actor's repr.
_HEADER = "Traceback (most recent call last):\n"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def describe_failure(
    error: BaseException, name: str, key: str, cancelled: bool, retries: bool
) -> tuple[int, str, bytes, bool]:
    """(kind, words for people, payload for exceptions.from_error, whether the call may be tried
    again)."""
    if cancelled and _is_interrupt(error):
        return _cancelled_while_it_ran(name, key)
    if isinstance(error, ActorExit):
        return Kind.ACTOR_DIED, _asked_for_its_end(name), b"", False
    if isinstance(error, RuntimeEnvSetupError):
        return Kind.ENVIRONMENT_FAILED, error.error_message or "", b"", False
    place = f"{name}.__init__" if key.startswith(exported.CLASS) else name
    text = format_traceback(error, place)
    if isinstance(error, SystemExit):
        # An actor that asks for its end is not asked again; a task counts as a crash of its worker.
        again = not _core.context().get("actor")
        return Kind.WORKER_CRASHED, cut(f"{name} called sys.exit({error.code!r})"), b"", again
    cause = error
    if isinstance(error, KeyboardInterrupt):  # At the caller it would look like Ctrl-C there.
        cause = TaskCancelledError(None, f"{name} raised KeyboardInterrupt")
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
        kind = f"{type(cause).__module__}.{type(cause).__qualname__}"
        data, words = None, cut(f"Exception {kind} isn't serializable: {why[0]}\n{words}")
    payload = pickle.dumps((name, text, data, words, os.getpid()), 5)
    return Kind.TASK_FAILED, text, payload, retries and functions.is_retriable(key, error)


def _asked_for_its_end(name: str) -> str:
    """As the owner of the actor says it of its other calls."""
    actor = _core.context().get("actor", "")
    return f"the actor {name.partition('.')[0]} ({actor}) was ended: it asked for its end"


def _cancelled_while_it_ran(name: str, key: str) -> tuple[int, str, bytes, bool]:
    text = f"{name} was cancelled while it ran"
    payload = b""
    if not key.startswith(exported.NAMED):  # To Python, it is an error of the task, too.
        cause = pickle.dumps(TaskCancelledError(None, text), 5)
        payload = pickle.dumps((name, text, cause, text, os.getpid()), 5)
    return Kind.TASK_CANCELLED, text, payload, False


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<its words cannot be had: __str__ of {type(error).__name__} fails>"


def _is_interrupt(error: BaseException) -> bool:
    if isinstance(error, (KeyboardInterrupt, TaskCancelledError)):
        return True
    return type(error).__name__ == "CancelledError"


def _pickled(error: BaseException) -> bytes:
    data, references = serialization.dumps(error)
    if references:  # Nobody sees who reads them: this process keeps their objects for the session.
        data = cloudpickle.dumps(error)
    if len(data) > _LARGEST_CAUSE:
        raise ValueError(
            f"it has {len(data)} bytes, at most {_LARGEST_CAUSE}: put large values "
            "into the object store instead"
        )
    pickle.loads(data)  # Some exceptions are pickled but not unpickled.
    return data


def format_traceback(error: BaseException, name: str) -> str:
    """The traceback with the user's frames only; a line that says where it ran is the head of each
    part, as programs that were written for Ray look for it."""
    shown = traceback.TracebackException.from_exception(error)
    _drop_own_frames(shown)
    head = _where(name) + "\n"
    text = "".join(head if part == _HEADER else part for part in shown.format()).rstrip("\n")
    return cut(text if text.startswith(head) else head + text)


def _where(name: str) -> str:
    actor = _core.context().get("actor")
    of_actor = f", actor_id={actor}, repr={_repr_of_actor(name)}" if actor else ""
    return f"ray::{name}() (pid={os.getpid()}, ip={_own_address()}{of_actor})"


def _repr_of_actor(name: str) -> str:
    actor = actor_class.running
    if actor is None:
        return f"<{name.partition('.')[0]}>"
    try:
        text = repr(actor)
    except BaseException:
        text = f"<{type(actor).__name__}, whose __repr__ fails>"
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REPR else line[:_LONGEST_REPR] + "..."


_address = ""


def _own_address() -> str:
    """Of this node; asked for once."""
    global _address
    if not _address:
        own = _core.context().get("node")
        try:
            rows = [row for row in cluster.nodes() if node_number(row["NodeID"]) == own]
            _address = rows[0]["NodeManagerAddress"]
        except Exception:  # The node cannot say it now; nor will each failure ask anew.
            _address = "127.0.0.1"
    return _address


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
    if items is None:
        raise TypeError(
            f"num_returns={count}, and the function returned a {type(result).__name__}: return a "
            f"tuple or list of {count}"
        )
    raise ValueError(
        f"Task returned {len(items)} objects, but num_returns={count}: return a tuple or list of "
        f"{count}"
    )


def too_few_items(given: int, count: int) -> None:
    """Raises what the results are that a generator has not yielded."""
    raise ValueError(
        f"Task returned {given} objects, but num_returns={count}: the generator must yield {count}"
    )

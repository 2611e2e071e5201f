# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The user's spans, as the package opentelemetry has them, which programs may have or not: calls
that are made below one are in its trace, and so is what user code does in them, on any node. _core
calls span_of_caller, begin and end; a span travels as W3C's traceparent: trace, span, flags."""

from __future__ import annotations

import os
import struct
import sys

from sheaf import _core

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PACKAGE = "opentelemetry.trace"
_WORDS = struct.Struct("<QQQQ")  # TraceContext of base/trace/trace_context.h.
_LOW = (1 << 64) - 1
_hooked = False  # A hook has run: calls have spans of their own, with the names that Ray's have.


class _Watch:
    """In sys.meta_path: it finds nothing, but sees that the package is about to be imported. So a
    program that does not is asked nothing at each call."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == _PACKAGE:
            _core.follow_spans()


_watch = _Watch()


def watch() -> None:
    """From the import of the package on, calls look for a span that they are below."""
    if _PACKAGE in sys.modules:
        _core.follow_spans()
    elif _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)  # type: ignore[arg-type]


def load_hook(hook: Any) -> Callable[[], Any]:
    """Finds what `hook` names.

    Raises:
        TypeError: it is no str, or names nothing that can be called.
        ValueError: it is not "module:function".
        ImportError, AttributeError: there is no such module, or function.
    """
    if not isinstance(hook, str):
        raise TypeError(f'_tracing_startup_hook={hook!r}: want "module:function"')
    module, colon, path = hook.partition(":")
    if not module or not colon or not path:
        raise ValueError(f'_tracing_startup_hook={hook!r}: want "module:function"')
    import importlib

    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"_tracing_startup_hook={hook!r} names {found!r}: want a function")
    return found  # type: ignore[no-any-return]


def run_hook(function: Callable[[], Any]) -> None:
    """Runs it, which tells opentelemetry where spans go; from here on calls have spans."""
    global _hooked
    function()
    _hooked = True
    _core.follow_spans()


def end_hook() -> None:
    """The session is over."""
    global _hooked
    _hooked = False


def run_hook_of_job(hook: str) -> None:
    """In a worker: as its driver did. What fails there is said, and no reason for calls to fail."""
    try:
        run_hook(load_hook(hook))
    except (Exception, SystemExit):
        print(f"sheaf: _tracing_startup_hook={hook!r} failed in this worker:", file=sys.stderr)
        sys.excepthook(*sys.exc_info())


def _attributes(name: str, of_actor: bool) -> dict[str, str]:
    context = _core.context()
    attributes = {
        "ray.remote": "actor" if of_actor else "function",
        "ray.function": name,
        "ray.pid": str(os.getpid()),
        "ray.job_id": f"{context['job']:08x}",
        "ray.node_id": f"{context['node']:056x}",
        "ray.worker_id": f"{context['node']:08x}{context['process']:08x}",
    }
    if of_actor:
        attributes["ray.actor_class"], _, attributes["ray.actor_method"] = name.rpartition(".")
    for key in ("task", "actor"):
        if context.get(key):
            attributes[f"ray.{key}_id"] = context[key]
    return attributes


def span_of_caller(name: str, of_actor: bool) -> bytes | None:
    """The span that a call of that name, made here, is below; None: none is recorded, or what makes
    spans failed, which is no reason for a call to fail."""
    try:
        return _span_of_caller(name, of_actor)
    except Exception:
        return None


def _span_of_caller(name: str, of_actor: bool) -> bytes | None:
    from opentelemetry import trace  # The program has it, or its hook.

    if _hooked:
        span = trace.get_tracer("sheaf").start_span(
            f"{name} ray.remote",
            kind=trace.SpanKind.PRODUCER,
            attributes=_attributes(name, of_actor),
        )
        span.end()
    else:
        span = trace.get_current_span()
        if not span.is_recording():
            return None
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return _WORDS.pack(
        context.trace_id >> 64, context.trace_id & _LOW, context.span_id, int(context.trace_flags)
    )


def begin(traced: tuple[bytes, str, bool]) -> tuple[Any, Any] | None:
    """What this thread, or coroutine, does from here on is below that span: its context, and the
    name and kind of the call. Gives what `end` takes; None: the package is not installed, or what
    makes spans failed."""
    try:
        return _begin(*traced)
    except Exception:
        return None


def _begin(words: bytes, name: str, of_actor: bool) -> tuple[Any, Any]:
    from opentelemetry import context, trace

    high, low, parent, flags = _WORDS.unpack(words)
    caller = trace.SpanContext(
        high << 64 | low, parent, is_remote=True, trace_flags=trace.TraceFlags(flags & 0xFF)
    )
    inside = trace.set_span_in_context(trace.NonRecordingSpan(caller))
    span = None
    if _hooked:
        span = trace.get_tracer("sheaf").start_span(
            f"{name} ray.remote_worker",
            inside,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes(name, of_actor),
        )
        inside = trace.set_span_in_context(span)
    return context.attach(inside), span


def end(begun: tuple[Any, Any], error: BaseException | None) -> None:
    """The call has ended; `error` is what it raised, if it did."""
    try:
        _end(*begun, error)
    except Exception:
        return  # Of what makes spans, or of the error's own __str__.


def _end(token: Any, span: Any, error: BaseException | None) -> None:
    from opentelemetry import context

    context.detach(token)
    if span is None:
        return
    if error is not None:
        from opentelemetry.trace import Status, StatusCode

        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    span.end()

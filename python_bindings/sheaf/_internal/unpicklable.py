# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Why a value cannot be pickled: finds the part of it that is to blame."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

Problem = Callable[[Any], Exception | None]  # Why a value cannot be pickled; None: it can.

_MAX_DEPTH = 12
_MAX_LOOKS = 2_000
_MAX_WORDS = 120


def explain(value: Any, error: Exception, problem_of: Problem) -> TypeError:
    """A TypeError of at most six lines: the path to the part that cannot be pickled, its type, and
    what to do."""
    path, culprit, reason = find(value, error, problem_of)
    if _is_nested_too_deeply(culprit, reason, problem_of):
        return TypeError(
            f"cannot send this {type(value).__name__} to another process: it is nested too deeply "
            "for pickle, which calls itself at each level\n"
            f"  {type(error).__name__}: {_shorten(str(error))}\n"
            "Keep its parts in one list and let them name each other by their places in it, or put "
            "some of them\nby themselves (sheaf.put) and send references; "
            "sys.setrecursionlimit gives a little more room"
        )
    where = "value" + path
    text = (
        f"cannot send this {type(value).__name__} to another process: {where} is a "
        f"{_type_name(culprit)}\n"
        f"  {where} = {_shorten(repr_of(culprit))}\n"
        f"  {type(reason).__name__}: {_shorten(str(reason))}\n"
        "Make it where it is used (inside the task or in the actor's constructor), "
        "leave it out (__getstate__), or\n"
        "teach Sheaf to send it: "
        f"sheaf.util.register_serializer({type(culprit).__name__}, serializer=..., "
        "deserializer=...)"
    )
    made = TypeError(text)
    made.__cause__ = None
    return made


def _is_nested_too_deeply(culprit: Any, reason: Exception, problem_of: Problem) -> bool:
    """Whether no part is to blame but how many lie in each other. A part whose own code calls
    itself without end meets the same error, but what it consists of can be pickled."""
    # What cloudpickle makes of a RecursionError is a PicklingError of these words.
    recursion = isinstance(reason, (RecursionError, pickle.PicklingError)) and (
        "recursion" in str(reason)
    )
    return recursion and (
        type(culprit) in (list, tuple, dict, set, frozenset)
        or any(part is not culprit and problem_of(part) for _, part in _parts(culprit))
    )


def repr_of(value: Any) -> str:
    """repr(value), or a stand-in where that fails."""
    try:
        return repr(value)
    except Exception:
        return f"<{_type_name(value)}>"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_WORDS else line[: _MAX_WORDS - 3] + "..."


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def find(value: Any, error: Exception, problem_of: Problem) -> tuple[str, Any, Exception]:
    """The path to the part of `value` that cannot be pickled, that part, and why; ("", value,
    error): there is no such part."""
    path, looks, seen = "", 0, {id(value)}
    for _ in range(_MAX_DEPTH):
        for step, part in _parts(value):
            looks += 1
            if looks > _MAX_LOOKS:
                return path, value, error
            if id(part) in seen:
                continue
            problem = problem_of(part)
            if problem is not None:
                seen.add(id(part))
                path, value, error = path + step, part, problem
                break
        else:
            return path, value, error
    return path, value, error


def _refuses(value: Any) -> bool:
    """Whether its class itself says that it cannot be pickled, whatever it is made of."""
    kind = type(value)
    if kind.__reduce__ is object.__reduce__ and kind.__reduce_ex__ is object.__reduce_ex__:
        return False
    try:
        value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:
        return True
    return False


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What `value` is made of, with the step that leads there."""
    if isinstance(value, dict):
        for key, item in list(value.items()):
            yield f"[{_shorten(repr_of(key))}]", item
        for key in list(value):
            yield f".key({_shorten(repr_of(key))})", key
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, (set, frozenset)):
        for item in value:
            yield "{...}", item
    elif isinstance(value, types.FunctionType):
        if value.__closure__:
            for name, cell in zip(value.__code__.co_freevars, value.__closure__):
                try:
                    yield f".<closure {name}>", cell.cell_contents
                except ValueError:
                    pass  # Not bound yet.
        for name in value.__code__.co_names:
            if name in value.__globals__ and not isinstance(
                value.__globals__[name], types.ModuleType
            ):
                yield f".<global {name}>", value.__globals__[name]
    elif isinstance(value, type):
        for name, item in list(vars(value).items()):
            if isinstance(
                item, (types.FunctionType, staticmethod, classmethod)
            ) or not name.startswith("__"):
                yield f".{name}", getattr(item, "__func__", item)
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif not _refuses(value):
        for name, item in list(getattr(value, "__dict__", {}).items()):
            yield f".{name}", item
        for kind in type(value).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if hasattr(value, name):
                    yield f".{name}", getattr(value, name)

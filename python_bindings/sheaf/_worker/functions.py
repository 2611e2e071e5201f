# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: the functions and classes that calls name."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

from sheaf import _core, runtime_env
from sheaf._internal import actor_class, exported
from sheaf.exceptions import ActorExit, RaySystemError

_MOST_RULES = 10_000
_rules: dict[str, tuple[type[BaseException], ...]] = {}


def load_function(key: str, name: str, extra: bytes) -> tuple[Callable[..., Any] | str, int]:
    """What the calls of a template run, a callable or the name of a method of the actor; and the
    bytes of its pickle. Raises what importing it raises."""
    if not key.startswith((exported.FUNCTION, exported.CLASS, exported.METHOD, exported.NAMED)):
        raise RuntimeError(
            f"'{name}' is a function of another language, which this worker cannot run"
        )
    if runtime_env.VARIABLE in os.environ:
        from sheaf._worker import environment  # Archives, locks, pip: for those workers alone.

        environment.ensure()
    if key.startswith(exported.NAMED):
        return _named(key[len(exported.NAMED) :]), 0
    body, carried, rule, about, size = pickle.loads(extra) if extra else (None, 0, None, None, 0)
    if key.startswith(exported.CLASS):
        actor_class.own = about
        actor_class.restarted = _core.context().get("attempt", 0) > 0
    if rule is not None:
        _rules[key] = pickle.loads(rule)
        if len(_rules) > _MOST_RULES:
            del _rules[next(iter(_rules))]
    if key.startswith(exported.METHOD):
        method = key.split(":")[1]
        built_in = _BUILT_IN.get(method)
        return built_in or sys.intern(method), 0
    if carried:
        called = _call_carried if carried == exported.VALUE else _Pickled()
        return _MakesActor(called) if key.startswith(exported.CLASS) else called, size
    if body is None:
        body = _core.key_get(exported.KEY_SPACE, key.split(":")[1])
        if body is None:
            raise RaySystemError(
                f"the code of '{name}' is not in the cluster's key-value store: its "
                f"key, {key.split(':')[1]} in '{exported.KEY_SPACE}', "
                "was deleted; start its job again"
            )
    function: Callable[..., Any] = pickle.loads(body)
    exported.note_name(key, function)
    return _MakesActor(function) if key.startswith(exported.CLASS) else function, size


def _named(path: str) -> Callable[..., Any] | str:
    """What a call of another language names: "module:function", "module:Class", or ":method" of the
    actor."""
    if path.startswith(":"):
        return _BUILT_IN.get(path[1:]) or sys.intern(path[1:])
    function: Callable[..., Any] = exported.named(path)
    return function


def is_retriable(key: str, error: BaseException) -> bool:
    """Whether retry_exceptions of the call's template covers this error."""
    rule = _rules.get(key)
    return not isinstance(error, KeyboardInterrupt) if rule is None else isinstance(error, rule)


def _call_carried(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return target(*args, **kwargs)


class _Pickled:
    """A large function: its calls begin with a buffer that holds its pickle, which is read once."""

    def __init__(self) -> None:
        self._target: Callable[..., Any] | None = None

    def __call__(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if self._target is None:
            self._target = pickle.loads(data)
        return self._target(*args, **kwargs)


class _MakesActor:
    """The class of this process's actor."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        actor_class.running = actor = self._make(*args, **kwargs)
        actor_class.runs_in = os.getpid()
        return actor


def method_of(actor: Any, name: str) -> Callable[..., Any]:
    """The method `name` of the actor's class, to be called with the actor first: attributes of the
    instance do not hide it."""
    cls = type(actor)
    plain = inspect.getattr_static(cls, name)
    if isinstance(plain, types.FunctionType):
        return plain
    if hasattr(plain, "__get__"):  # A static method, one of a compiled class, ...
        return lambda actor, *args, **kwargs: plain.__get__(actor, cls)(*args, **kwargs)
    return lambda actor, *args, **kwargs: plain(*args, **kwargs)


def _ready(actor: Any) -> bool:
    return True


def _terminate(actor: Any) -> None:
    raise ActorExit


def _call(actor: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(actor, *args, **kwargs)


RUNS_BESIDE_GROUPS = (_ready, _terminate)  # Of an async actor: answered whatever its groups do.
_BUILT_IN: dict[str, Callable[..., Any]] = {
    "__ray_ready__": _ready,
    "__ray_terminate__": _terminate,
    "__ray_call__": _call,
}


_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_shown_threads: dict[str, str] = {}  # What was set here; the rest is the user's.


def show_threads(number: int) -> None:
    """Lets libraries start as many threads as the call has CPUs, unless the user says how many."""
    for variable in _THREADS:
        if os.environ.get(variable) == _shown_threads.get(variable):
            os.environ[variable] = _shown_threads[variable] = str(number)


def shows_one_thread() -> bool:
    """Whether libraries that are imported now start no threads: the user has not said otherwise."""
    return all(os.environ.get(variable) == "1" for variable in _THREADS)


def show_gpus(ids: list[int]) -> None:
    """Lets libraries see the GPUs of the lease, and no others."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ids))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: the functions and classes that calls name."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from typing import Any, Callable

from sheaf import _core, exported, runtime_env_setup
from sheaf.actor import ActorClass
from sheaf.remote_function import RemoteFunction

_rules: dict[str, tuple[type[BaseException], ...]] = {}
own_class: Any = None  # In an actor: the ActorInfo of its handles.


def load_function(key: str, name: str, extra: bytes) -> Callable[..., Any] | str:
    """What the calls of a template run: a callable, or the name of a method of the actor. Raises what importing it raises."""
    if not key.startswith((exported.FUNCTION, exported.CLASS, exported.METHOD, exported.NAMED)):
        raise RuntimeError(f"'{name}' is a function of another language, which this worker cannot run")
    if runtime_env_setup.VARIABLE in os.environ:
        runtime_env_setup.ensure()
    if key.startswith(exported.NAMED):
        return named(key[len(exported.NAMED):])
    body, carried, rule, about = pickle.loads(extra) if extra else (None, False, None, None)
    if key.startswith(exported.CLASS):
        global own_class
        own_class = about
    if rule is not None:
        _rules[key] = pickle.loads(rule)
    if key.startswith(exported.METHOD):
        method = key.split(":")[1]
        built_in = _BUILT_IN.get(method)
        return built_in or sys.intern(method)
    if carried:
        return _call_carried
    if body is None:
        body = _core.key_get(exported.KEY_SPACE, key.split(":")[1])
        if body is None:
            raise RuntimeError(f"the code of '{name}' is no longer in the cluster's key-value store")
    function: Callable[..., Any] = pickle.loads(body)
    return function


def named(path: str) -> Callable[..., Any] | str:
    """What a call of another language names: "module:function", "module:Class", or ":method" of the actor."""
    module, _, name = path.partition(":")
    if not module:
        return _BUILT_IN.get(name) or sys.intern(name)
    target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    if isinstance(target, RemoteFunction):
        target = target._function
    elif isinstance(target, ActorClass):
        target = target._class
    function: Callable[..., Any] = target
    return function


def is_retriable(key: str, error: BaseException) -> bool:
    """Whether retry_exceptions of the call's template covers this error."""
    rule = _rules.get(key)
    return isinstance(error, Exception) if rule is None else isinstance(error, rule)


def _call_carried(target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return target(*args, **kwargs)


def _ready(actor: Any) -> bool:
    return True


def _terminate(actor: Any) -> None:
    from sheaf.actor import exit_actor

    exit_actor()


def _call(actor: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(actor, *args, **kwargs)


_BUILT_IN: dict[str, Callable[..., Any]] = {"__ray_ready__": _ready, "__ray_terminate__": _terminate, "__ray_call__": _call}


def show_gpus(ids: list[int]) -> None:
    """Lets libraries see the GPUs of the lease, and no others."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, ids))

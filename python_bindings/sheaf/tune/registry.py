# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trainables and environments by name, in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sheaf.tune.error import TuneError
from sheaf.tune.trainable.trainable import Trainable

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def check_trainable(trainable: Any) -> None:
    """TypeError: it is no function and no class derived from Trainable."""
    if inspect.isclass(trainable) and not issubclass(trainable, Trainable):
        raise TypeError(
            f"{trainable!r}: want a class derived from sheaf.tune.Trainable, or a function"
        )
    if not callable(trainable):
        raise TypeError(f"{trainable!r}: want a function, or a class derived from Trainable")


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Gives a trainable a name, by which Tuner and run find it.

    Args:
        name: the name.
        trainable: a function, or a class derived from Trainable.
        warn: not looked at.

    Raises:
        TypeError: it is neither.
    """
    check_trainable(trainable)
    _trainables[name] = trainable


def get_trainable_cls(trainable_name: str) -> Any:
    """Finds a trainable.

    Args:
        trainable_name: the name that it was given.

    Returns:
        The trainable.

    Raises:
        TuneError: there is none of this name.
    """
    if trainable_name not in _trainables:
        known = ", ".join(sorted(_trainables)) or "none"
        raise TuneError(
            f"trainable {trainable_name!r}: there is none of this name; there are {known}; "
            "see register_trainable"
        )
    return _trainables[trainable_name]


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Gives a function that makes environments a name.

    Args:
        name: the name.
        env_creator: the function.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(env_creator):
        raise TypeError(f"env_creator={env_creator!r}: want a function")
    _environments[name] = env_creator


def get_env_creator(name: str) -> Callable[..., Any]:
    """Finds a function that makes environments.

    Args:
        name: the name that it was given.

    Returns:
        The function.

    Raises:
        KeyError: there is none of this name.
    """
    return _environments[name]

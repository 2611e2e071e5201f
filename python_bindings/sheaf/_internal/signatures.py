# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What arguments a function takes, so that a wrong call fails where it is made."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Bounds = tuple[int, int]
FORCE_CHECK: Bounds = (0, -1)


def short_name(target: Any) -> str:
    """Its qualified name, without the functions around it."""
    name: str = getattr(target, "__qualname__", None) or type(target).__name__
    return name.rpartition("<locals>.")[2]


def is_generator(function: Any) -> bool:
    """Whether its calls give items, by `yield` in its own body."""
    import inspect

    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


class Signature:
    """The parameters of a function or method, without `self` where `skip` is 1."""

    __slots__ = ("_signature", "bounds", "_passed")

    def __init__(self, function: Callable[..., Any], skip: int = 0):
        import inspect

        self._passed: set[Any] = set()
        self.bounds: Bounds = (0, sys.maxsize)
        self._signature = None
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # Builtins may have none.
            return
        parameters = list(signature.parameters.values())
        if (
            skip
            and parameters
            and parameters[0].kind
            in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        ):
            parameters = parameters[skip:]
        self._signature = signature.replace(parameters=parameters)
        self.bounds = bounds_of(self._signature)

    @classmethod
    def of_shape(cls, shape: str) -> Signature:
        """What `shape` of another process's signature was: without defaults and annotations."""
        import inspect

        made = cls.__new__(cls)
        made._passed = set()
        made._signature = inspect.Signature(
            [
                inspect.Parameter(
                    word[2:],
                    inspect._ParameterKind(int(word[0])),
                    default=None if word[1] == "=" else inspect.Parameter.empty,
                )
                for word in shape.split()
            ]
        )
        made.bounds = bounds_of(made._signature)
        return made

    @property
    def shape(self) -> str | None:
        """Its parameters, as they travel with handles: "1:a 1=b 3:c" is (a, b=..., *, c)."""
        if self._signature is None:
            return None
        return " ".join(
            f"{int(p.kind)}{':' if p.default is p.empty else '='}{p.name}"
            for p in self._signature.parameters.values()
        )

    @property
    def full(self) -> Any:
        """An inspect.Signature, or None: of a builtin."""
        return self._signature

    def check(self, name: str, count: int, names: tuple[str, ...] | None) -> None:
        """TypeError when `count` positional arguments and these keywords do not fit."""
        key = (count, names)
        if self._signature is None or key in self._passed:
            return
        try:
            self._signature.bind(*(None,) * count, **dict.fromkeys(names or ()))
        except TypeError as error:
            raise TypeError(f"{name}{self._signature}: {error}") from None
        if len(self._passed) < 256:
            self._passed.add(key)


def bounds_of(signature: Any) -> Bounds:
    """The least and most positional arguments with which a call needs no look at the signature."""
    least = most = 0
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            most += 1
            least += parameter.default is parameter.empty
        elif parameter.kind is parameter.VAR_POSITIONAL:
            most = sys.maxsize
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            return FORCE_CHECK
    return least, most

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is known about a class of actors: told to whoever holds a handle, also in another
process."""

from __future__ import annotations

import sys
import weakref

from sheaf._internal.signatures import Signature, is_generator

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class MethodInfo:
    """A method as its callers need it."""

    __slots__ = (
        *("name", "options", "is_generator", "least", "most", "doc", "shape"),
        *("_signature", "_checked_by"),
    )

    def __init__(
        self,
        name: str,
        given: dict[str, Any],
        is_generator: bool,
        least: int,
        most: int,
        doc: str | None,
        shape: str | None = None,
    ):
        self.name = name
        self.options = given
        self.is_generator = is_generator
        self.least = least
        self.most = most
        self.doc = doc
        self.shape = shape  # Of its signature, which other processes do not get; None: unknown.
        self._signature: Signature | None = None  # Only where the class is.
        self._checked_by: Signature | None = None

    @property
    def signature(self) -> Any:
        """An inspect.Signature, where the class is; elsewhere None."""
        return None if self._signature is None else self._signature.full

    def check(self, owner: str, count: int, names: tuple[str, ...] | None) -> None:
        """TypeError when the arguments do not fit."""
        if self._checked_by is None:
            if self.shape is None:
                return
            self._checked_by = self._signature or Signature.of_shape(self.shape)
        self._checked_by.check(f"{owner}.{self.name}", count, names)

    def __reduce__(self) -> Any:
        return MethodInfo, (
            self.name,
            self.options,
            self.is_generator,
            self.least,
            self.most,
            self.doc,
            self.shape,
        )


class ActorInfo:
    """A class as handles know it."""

    __slots__ = ("name", "methods", "is_async", "groups", "_constructor", "__weakref__")

    def __init__(
        self, name: str, methods: dict[str, MethodInfo], is_async: bool, groups: dict[str, int]
    ):
        self.name = name
        self.methods = methods
        self.is_async = is_async
        self.groups = groups
        self._constructor: Signature | None = None

    def constructor_signature(self) -> Signature:
        """Of the class's constructor; only where the class is."""
        assert self._constructor is not None
        return self._constructor

    def __reduce__(self) -> Any:
        return ActorInfo, (self.name, self.methods, self.is_async, self.groups)

    def check_groups(self, groups: dict[str, int]) -> None:
        """ValueError: a method wants to run in none of `groups`."""
        for method in self.methods.values():
            wanted = method.options.get("concurrency_group")
            if wanted and wanted not in groups:
                raise ValueError(
                    f"{self.name}.{method.name} wants the concurrency group {wanted!r}, which the "
                    f"actor does not have; it has {sorted(groups) or 'none'}: name it in "
                    f"concurrency_groups={{{wanted!r}: 1}} of the class or its options()"
                )


BUILT_IN = {
    name: MethodInfo(name, {}, False, 0, sys.maxsize, None)
    for name in ("__ray_ready__", "__ray_terminate__", "__ray_call__")
}

own: Any = None  # The ActorInfo of the actor that this process is.
running: Any = None  # Its instance.
runs_in = 0  # The process that made it.
restarted = False  # Whether the actor ran in another process before.
_known: weakref.WeakKeyDictionary[type, ActorInfo] = weakref.WeakKeyDictionary()


def info_of(cls: type) -> ActorInfo:
    """What handles of actors of this class know."""
    info = _known.get(cls)
    if info is None:
        info = _known[cls] = _inspect(cls)
    return info


def _inspect(cls: Any) -> ActorInfo:
    import inspect

    methods: dict[str, MethodInfo] = {}
    is_async = False
    for name, function in inspect.getmembers(cls, callable):
        is_function = inspect.isfunction(function) or inspect.ismethod(function)
        # What every object has is that of the handle. Of other special names, what is no function
        # is of the class itself.
        is_special = name.startswith("__") and name.endswith("__")
        if isinstance(function, type) or (is_special and (name in vars(object) or not is_function)):
            continue
        plain = inspect.getattr_static(cls, name)
        bound = isinstance(plain, (staticmethod, classmethod))
        signature = Signature(function, skip=0 if bound else 1)
        given = dict(getattr(function, "__ray_method_options__", {}))
        is_async = (
            is_async
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        )
        info = MethodInfo(
            name,
            given,
            is_generator(function),
            *signature.bounds,
            function.__doc__,
            signature.shape,
        )
        info._signature = signature
        methods[name] = info
    made = ActorInfo(cls.__name__, methods, is_async, {})
    constructor = cls.__init__
    made._constructor = (
        Signature(lambda: None)
        if constructor is object.__init__
        else Signature(constructor, skip=1)
    )
    return made

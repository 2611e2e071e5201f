# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Functions and actors of C++, called by name.

    sheaf.cross_language.load("/path/libapp.so")
    square = sheaf.cross_language.cpp_function("app::Square")
    counter = sheaf.cross_language.cpp_actor_class("app::Counter").remote(10)
    sheaf.get([square.remote(3), counter.Add.remote(1)])

What is loaded is a shared library, linked with libsheaf.so, or a program of Sheaf whose main calls
sheaf::Init; its workers lie on every node at the same path. Names are those that SHEAF_REMOTE and
SHEAF_ACTOR registered, with their namespaces. Arguments are positional. docs/cross_language.md says
which values travel and what errors come.
"""

from __future__ import annotations

import os
import sys

from sheaf import _core, lifecycle, options
from sheaf._internal import absent, exported
from sheaf._internal.actor_class import info_of
from sheaf._internal.language import Language as Language
from sheaf.actor import ActorHandle, Handle
from sheaf.remote_function import MOST_BOUND

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

java_function = absent.function("cross_language.java_function", "Sheaf has no Java")
java_actor_class = absent.function("cross_language.java_actor_class", "Sheaf has no Java")

_CPP, _PYTHON = "@cpp", "@python"  # api/python_worker.h.
_library = ""


def load(path: str | os.PathLike[str]) -> str:
    """Names the library or program whose functions cpp_function and cpp_actor_class mean from now
    on.

    If it is called before init, they mean it in workers, too. A process that is a worker of a C++
    program needs no library: the program has them.

    Args:
        path: of a shared library that is linked with libsheaf.so, or of a program of Sheaf; its
            workers find it at the same path on every node.

    Returns:
        The whole path.

    Raises:
        ValueError: there is no such file.
    """
    global _library
    whole = os.path.abspath(os.fspath(path))
    if not os.path.isfile(whole):
        raise ValueError(
            f"load({os.fspath(path)!r}): there is no such file; build the library "
            "first, and give its path"
        )
    _library = whole
    return whole


def load_as_driver(path: str) -> None:
    """In a worker: takes the library that the driver had loaded before init.

    Args:
        path: the whole path of the library.
    """
    global _library
    _library = path


def cpp_function(function_name: str) -> CppFunction:
    """Gives a function of C++.

    Args:
        function_name: what SHEAF_REMOTE registered, with its namespaces: "app::Square".

    Returns:
        `.remote(...)` calls it, `.options(...)` is that of remote functions.

    Raises:
        TypeError: the name is empty, or no str.
    """
    return CppFunction(_named("cpp_function", function_name), _library, {})


def cpp_actor_class(class_name: str, _ray_class_name: str | None = None) -> CppActorClass:
    """Gives a class of C++ whose instances are actors.

    Args:
        class_name: what SHEAF_ACTOR registered, with its namespaces: "app::Counter". Ray's form,
            with the name of a factory function in front of the class's, is accepted too.

    Returns:
        `.remote(...)` starts an actor, `.options(...)` is that of remote classes.

    Raises:
        TypeError: the name is empty, or no str.
    """
    constructor = _named("cpp_actor_class", class_name)
    return CppActorClass(constructor, _ray_class_name or class_name, _library, {})


def _named(what: str, name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(f"{what}({name!r}): want the name of what C++ registered, as 'app::Square'")
    if name.startswith("RAY_FUNC(") and name.endswith(")"):
        name = name[len("RAY_FUNC(") : -1]
    return name.lstrip("&")


def _environment(entries: dict[str, str], library: str) -> dict[str, str]:
    """The runtime environment of a call of C++ from this process."""
    if _PYTHON in entries and not library:  # This job is a C++ program's.
        return {name: value for name, value in entries.items() if name != _PYTHON}
    if not library:
        raise ValueError(
            "no C++ library is loaded: call sheaf.cross_language.load(path) before cpp_function"
        )
    return {**entries, _CPP: library}


def _extra(class_name: str) -> bytes:
    """TemplateExtra of api/templates.h."""
    return _core.encode_plain(["", _type_name(class_name) if class_name else ""])


def _type_name(class_name: str) -> str:
    """typeid(Class).name() of a class that is no template."""
    parts = class_name.split("::")
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    return f"N{mangled}E" if len(parts) > 1 else mangled


def _no_keywords(name: str, names: tuple[str, ...] | None) -> None:
    if names:
        raise TypeError(
            f"{name}: functions of C++ take arguments by position, got {', '.join(names)}"
        )


class CppFunction(_core.Caller):
    """A function of C++: `f.remote(...)` gives an ObjectRef of its result at once. Thread-safe.

    Args:
        name: as C++ registered it.
        library: that has it.
        given: its options.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> CppFunction:
        return super().__new__(cls)

    def __init__(self, name: str, library: str, given: dict[str, Any]):
        self._name = name
        self._library = library
        self._options = given
        self._generation = 0
        self._bound: dict[int, tuple[Any, ...]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"a remote function is not called directly: use .remote() of {self!r}")

    def options(self, **given: Any) -> CppFunction:
        """Returns the same function with other options.

        Args:
            given: those of remote functions; num_returns="streaming" is for generators.

        Raises:
            ValueError: there is no such option, or its value is wrong.
            TypeError: the value of an option has the wrong type.
        """
        options.check("task", given)
        return CppFunction(self._name, self._library, {**self._options, **given})

    def __repr__(self) -> str:
        return f"CppFunction({self._name})"

    def __reduce__(self) -> Any:
        return CppFunction, (self._name, self._library, self._options)

    def _prepare(self, count: int, names: tuple[str, ...] | None) -> None:
        _no_keywords(self._name, names)
        current = _core.call_generation()
        if self._generation == current:
            return
        bound = self._bound.get(current)
        if bound is None:
            bound = self._template()
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            self._bound[current] = bound
        self._bind(*bound)
        self._generation = current

    def _template(self) -> tuple[Any, ...]:
        streaming = options.is_streaming(self._options, False)
        spec = options.for_task(self._options, streaming)
        spec["environment"] = _environment(spec["environment"], self._library)
        spec.update(
            cpp=True,
            function=exported.NAMED + self._name,
            extra=_extra(""),
            name=self._options.get("name") or self._name,
        )
        return (
            _core.make_template(spec),
            None,
            spec["num_returns"],
            streaming,
            0,
            sys.maxsize,
            None,
            True,
            True,
        )


class CppMethod(_core.Caller):
    """A method of a C++ actor: `handle.Method.remote(...)` gives an ObjectRef of its result at
    once.

    Args:
        ref: the reference of the actor.
        class_name: as C++ registered it.
        method: the name of the method.
        given: its options.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> CppMethod:
        return super().__new__(cls)

    def __init__(
        self, ref: _core.ObjectRef[Any], class_name: str, method: str, given: dict[str, Any]
    ):
        self._ref = ref
        self._class_name = class_name
        self._method = method
        self._given = given
        self._generation = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"a method of an actor is not called directly: use .{self._method}.remote()"
        )

    def options(self, **given: Any) -> CppMethod:
        """Returns the same method with other options.

        Args:
            given: those of an actor's method; num_returns="streaming" is for generators.

        Raises:
            ValueError: there is no such option, or its value is wrong.
            TypeError: the value of an option has the wrong type.
        """
        options.check("method", given)
        return CppMethod(self._ref, self._class_name, self._method, {**self._given, **given})

    def __repr__(self) -> str:
        return f"CppMethod({self._class_name}::{self._method})"

    def __reduce__(self) -> Any:
        return CppMethod, (self._ref, self._class_name, self._method, self._given)

    def _prepare(self, count: int, names: tuple[str, ...] | None) -> None:
        name = f"{self._class_name}::{self._method}"
        _no_keywords(name, names)
        generation = _core.generation()
        if self._generation == generation:
            return
        streaming = options.is_streaming(self._given, False)
        spec = options.for_method(self._given, streaming)
        spec.update(
            cpp=True,
            function=exported.NAMED + name,
            extra=_extra(""),
            name=self._given.get("name") or name,
        )
        self._bind(
            _core.make_template(spec),
            self._ref,
            spec["num_returns"],
            streaming,
            0,
            sys.maxsize,
            None,
            True,
        )
        self._generation = generation


class CppActorHandle(Handle):
    """A running actor of C++; its methods are those that SHEAF_ACTOR names. It ends when its last
    handle is gone.

    Args:
        ref: the reference that keeps the actor alive.
        class_name: as C++ registered it.
    """

    def __init__(self, ref: _core.ObjectRef[Any], class_name: str):
        self._ref = ref
        self._class_name = class_name

    def __getattr__(self, name: str) -> CppMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        made = CppMethod(self._ref, self._class_name, name, {})
        self.__dict__[name] = made
        return made

    def __repr__(self) -> str:
        return f"Actor({self._class_name}, {self._ref._task_hex()})"

    def __reduce__(self) -> Any:
        return CppActorHandle, (self._ref, self._class_name)


class CppActorClass:
    """A class of C++ whose instances are actors: `C.remote(...)` starts one and gives its handle at
    once.

    Args:
        constructor: the constructor or factory, as C++ registered it.
        class_name: as C++ registered it.
        library: that has them.
        given: its options.
    """

    def __init__(self, constructor: str, class_name: str, library: str, given: dict[str, Any]):
        self._constructor = constructor
        self._class_name = class_name
        self._library = library
        self._options = given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"an actor is not made directly: use .remote() of {self!r}")

    def options(self, **given: Any) -> CppActorClass:
        """Returns the same class with other options.

        Args:
            given: those of remote classes.

        Raises:
            ValueError: there is no such option, or its value is wrong.
            TypeError: the value of an option has the wrong type.
        """
        options.check("actor", given)
        return CppActorClass(
            self._constructor, self._class_name, self._library, {**self._options, **given}
        )

    def remote(self, *args: Any, **kwargs: Any) -> CppActorHandle:
        """Starts an actor by the constructor or factory with so many parameters.

        What the constructor throws comes from calls, as ActorDiedError.

        Args:
            args: what it is given; values that C++ can read (docs/cross_language.md).
            kwargs: none: C++ takes arguments by position.

        Returns:
            Its handle, at once.

        Raises:
            TypeError: an argument cannot be sent to C++, or one was given by name.
            ValueError: no library is loaded.
            ActorAlreadyExistsError: the name of the actor is taken.
        """
        _no_keywords(self._class_name, tuple(kwargs))
        if not _core.generation():
            lifecycle.init_by_default()
        spec = options.for_actor(self._options, False, {})
        spec["environment"] = _environment(spec["environment"], self._library)
        spec.update(
            cpp=True,
            function=exported.NAMED + self._constructor,
            extra=_extra(self._class_name),
            name=self._class_name,
        )
        ref = _core.create_actor(_core.make_template(spec), args, None, None, True)
        return CppActorHandle(ref, self._class_name)

    def __repr__(self) -> str:
        return f"CppActorClass({self._class_name})"

    def __reduce__(self) -> Any:
        return CppActorClass, (self._constructor, self._class_name, self._library, self._options)


def handle_of(ref: _core.ObjectRef[Any], class_name: str, key: str) -> Any:
    """Makes the handle of an actor that C++ made, or that is one of C++: for get_actor.

    Args:
        ref: the reference of the actor.
        class_name: as its language names it.
        key: names its constructor.

    Returns:
        An ActorHandle of a class of Python, else a CppActorHandle.

    Raises:
        ImportError: the class of Python cannot be imported here.
    """
    module, _, name = key.removeprefix(exported.NAMED).partition(":")
    if (
        not key.startswith(exported.NAMED)
        or not module.replace(".", "").isidentifier()
        or not name
        or name[0] == ":"
    ):
        return CppActorHandle(ref, class_name)
    target = exported.named(f"{module}:{name}")
    assert isinstance(target, type)
    return ActorHandle(ref, info_of(target))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors: what @sheaf.remote makes of a class, handles of running actors, and their methods."""

from __future__ import annotations

from sheaf import _core, lifecycle, options
from sheaf._internal import exported, option_values, ray_attributes
from sheaf._internal.actor_class import BUILT_IN, ActorInfo, MethodInfo, info_of
from sheaf._internal.signatures import is_generator, short_name
from sheaf.ids import ActorClassID, ActorID

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


DEFAULT_MAX_CONCURRENCY_ASYNC = 1000


class ActorMethod(_core.Caller, ray_attributes.OfMethod):
    """A method of a running actor: `handle.method.remote(...)` gives an ObjectRef of its result at
    once; of a generator method an ObjectRefGenerator. Thread-safe: the calls of one process run in
    the order in which it makes them.

    Args:
        ref: the reference of the actor.
        info: what is known of its class.
        method: what is known of the method.
        given: its options.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> ActorMethod:
        return super().__new__(cls)

    def __init__(
        self, ref: _core.ObjectRef, info: ActorInfo, method: MethodInfo, given: dict[str, Any]
    ):
        self._ref = ref
        self._info = info
        self._method = method
        self._given = given
        self._generation = 0
        self.__doc__ = method.doc
        self.__name__ = method.name
        self.__qualname__ = f"{info.name}.{method.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "Actor methods cannot be called directly: use "
            f".{self._method.name}.remote() instead of .{self._method.name}()"
        )

    def _remote(self, args: Any = None, kwargs: dict[str, Any] | None = None, **given: Any) -> Any:
        """As Ray has it: options and arguments in one call."""
        method = self.options(**given) if given else self
        return method.remote(*(args or ()), **(kwargs or {}))

    def options(self, **given: Any) -> ActorMethod:
        """Returns the same method with other options.

        Args:
            given: num_returns, max_task_retries, retry_exceptions, concurrency_group, name, ...;
                those that are not named stay.

        Raises:
            ValueError: the value of an option is wrong; the text names it.
            TypeError: there is no such option, or its value has the wrong type.
        """
        _check_method(given, TypeError)
        if "_num_objects_per_yield" in given:
            raise ValueError(
                "_num_objects_per_yield cannot be overridden per call: it is for @sheaf.method"
            )
        option_values.check_items(self._method.is_generator, given)
        return ActorMethod(self._ref, self._info, self._method, {**self._given, **given})

    @property
    def _signature_of_call(self) -> Any:
        """For `.remote.__signature__`: that of the method, where its class is known;
        AttributeError: elsewhere."""
        signature = self._method.signature
        if signature is None:
            raise AttributeError("__signature__")
        return signature

    @property
    def _actor(self) -> ActorHandle:
        return ActorHandle(self._ref, self._info)

    def __repr__(self) -> str:
        return f"ActorMethod({self._info.name}.{self._method.name})"

    def __reduce__(self) -> Any:
        return ActorMethod, (self._ref, self._info, self._method, self._given)

    def _prepare(self, count: int, names: tuple[str, ...] | None) -> None:
        """Makes the template of this runtime if need be; TypeError when the arguments do not
        fit."""
        method = self._method
        method.check(self._info.name, count, names)
        generation = _core.generation()
        if self._generation == generation:
            return
        given = {**method.options, **self._given}
        if (
            given.get("num_returns") == "dynamic"
        ):  # Of functions only; in Ray itself replaced by streaming.
            given["num_returns"] = "streaming"
        streaming = options.is_streaming(given, method.is_generator)
        spec = options.for_method(given, streaming)
        key, extra = exported.method_key(method.name, given.get("retry_exceptions"))
        spec.update(
            function=key,
            extra=extra,
            name=f"{self._info.name}.{method.name}",
            call_name=given.get("name") or "",
        )
        self._bind(
            _core.make_template(spec),
            self._ref,
            spec["num_returns"],
            streaming,
            method.least,
            method.most,
            None,
        )
        self._generation = generation


def _check_method(given: dict[str, Any], if_unknown: type[Exception]) -> None:
    """Checks options of a method; of names that are none, `if_unknown` is raised."""
    try:
        options.check("method", given)
    except ValueError as error:
        if given.keys() <= options.METHOD:
            raise
        raise if_unknown(f"Unexpected keyword argument: {error}") from None


class Handle:
    """A handle of an actor of any language: it keeps the actor alive, and equals the other handles
    of it."""

    _ref: _core.ObjectRef

    @property
    def _actor_id(self) -> ActorID:
        return ActorID(self._ref._task_hex())

    def __hash__(self) -> int:
        return hash(self._ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._ref == other._ref


class ActorHandle(Handle, ray_attributes.OfHandle):
    """A running actor: `handle.method.remote(...)` calls it.

    A handle may be passed to tasks and other actors. The actor ends when the last handle of it is
    gone, unless it is detached. Handles of one actor are equal. Thread-safe.

    Args:
        ref: the reference that keeps the actor alive.
        info: its methods, as the class has them.
    """

    _info: ActorInfo

    def __init__(self, ref: _core.ObjectRef, info: ActorInfo):
        self.__dict__["_ref"] = ref
        self.__dict__["_info"] = info

    def __getattr__(self, name: str) -> ActorMethod:
        method = self._info.methods.get(name) or BUILT_IN.get(name)
        if method is None:
            if name.startswith("__"):
                raise AttributeError(name)
            import difflib

            near = difflib.get_close_matches(name, self._info.methods, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '{name}': the actor class "
                f"{self._info.name} has no such method{hint}"
            )
        made = ActorMethod(self._ref, self._info, method, {})
        self.__dict__[name] = made
        return made

    @property
    def _ray_actor_id(self) -> ActorID:
        return self._actor_id

    def __dir__(self) -> list[str]:
        return ["__init__", *self._info.methods, *BUILT_IN]

    def __repr__(self) -> str:
        return f"Actor({self._info.name}, {self._ref._task_hex()})"

    def _repr_html_(self) -> str:
        from sheaf._internal import notebook  # For notebooks alone.

        return notebook.actor(self._info.name, self._actor_id.hex())

    def __class_getitem__(cls, item: Any) -> type[ActorHandle]:
        return cls

    def __reduce__(self) -> Any:
        return ActorHandle, (self._ref, self._info)


class ActorClassInheritanceException(TypeError):
    """A class was derived from an actor class: derive it from the plain class, and decorate it."""


class ActorClass(ray_attributes.OfActorClass):
    """A class whose instances are actors: `C.remote(...)` starts one and gives its handle at once.
    @sheaf.remote makes it.

    Args:
        cls: the class.
        given: its options.
        root: the one whose options() made this one, or None.

    Raises:
        TypeError: the class is abstract.
    """

    _class: type
    _options: dict[str, Any]

    def __init__(self, cls: type, given: dict[str, Any], root: ActorClass | None = None):
        if missing := getattr(cls, "__abstractmethods__", None):
            raise TypeError(
                f"Can't instantiate abstract class {cls.__name__}: it lacks "
                f"{', '.join(sorted(missing))}"
            )
        self._set(cls, given, root)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise ActorClassInheritanceException(
            "Inheriting from actor classes is not currently supported: derive the class from the "
            f"plain {self._class.__name__}, and decorate both"
        )

    def _set(self, cls: type, given: dict[str, Any], root: ActorClass | None) -> None:
        self._class = cls
        self._options = given
        self._root = root  # Of one made by options(): it exports the class once for all.
        self._exports: dict[int, exported.Exported] = {}
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__
        self.__ray_metadata__ = ray_attributes.ActorClassMetadata(cls, given, ActorClassID)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self._class.__name__
        raise TypeError(
            f"Actors cannot be instantiated directly: use {name}.remote() instead of {name}()"
        )

    def options(self, **given: Any) -> ActorClass:
        """Returns the same class with other options, for the actors made by what this returns.

        Args:
            given: what @sheaf.remote takes for classes; options that are not named stay.

        Raises:
            ValueError: there is no such option, or its value is wrong; the text names it.
            TypeError: the value of an option has the wrong type.
        """
        options.check("actor", given)
        return ActorClass(self._class, options.merged(self._options, given), self._root or self)

    @property
    def remote(self) -> Callable[..., ActorHandle]:
        """`C.remote(...)` starts an actor, and gives its handle at once.

        What the constructor raises comes from calls, as ActorDiedError.

        Raises:
            TypeError: the arguments do not fit the constructor, or one cannot be pickled.
            ActorAlreadyExistsError: the name of the actor is taken. It is a ValueError, too.
            ValueError: the class is too large to be sent, a resource "node:ADDRESS" names no
                node, or a method wants a concurrency group that the actor does not have.
        """

        def remote(*args: Any, **kwargs: Any) -> ActorHandle:
            return self._create(args, kwargs)

        remote.__doc__ = self.__doc__
        remote.__wrapped__ = self._class  # type: ignore[attr-defined]  # Its signature.
        return remote

    def _remote(
        self, args: Any = None, kwargs: dict[str, Any] | None = None, **given: Any
    ) -> ActorHandle:
        """As Ray has it: options and arguments in one call."""
        made = self.options(**given) if given else self
        return made._create(tuple(args or ()), kwargs or {})

    def _create(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ActorHandle:
        options.check_actor_name(self._options)
        info = info_of(self._class)
        info.constructor_signature().check(self._class.__name__, len(args), tuple(kwargs))
        generation = _core.generation() or _start()
        export = (self._root or self)._export(generation)
        spec = options.for_actor(self._options, info.is_async, info.groups)
        info.check_groups(spec["concurrency_groups"])
        spec.update(function=export.key, extra=export.extra, name=short_name(self._class))
        ref = _core.create_actor(
            _core.make_template(spec),
            args + tuple(kwargs.values()),
            tuple(kwargs) or None,
            export.carrier,
        )
        return ActorHandle(ref, info)

    @property
    def _undecorated(self) -> type:
        return self._class

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._class, name)

    def __repr__(self) -> str:
        return f"ActorClass({self._class.__module__}.{self._class.__qualname__})"

    def __reduce__(self) -> Any:
        return _blank, (), (self._class, self._options)

    def __setstate__(self, state: tuple[type, dict[str, Any]]) -> None:
        self._set(state[0], state[1], None)

    def _export(self, generation: int) -> exported.Exported:
        known = self._exports.get(generation)
        if known is None:
            info = info_of(self._class)
            known = self._exports[generation] = exported.export(
                exported.CLASS, self._class, None, info
            )
        return known


ActorProxy = ActorHandle  # As annotations of Ray programs have it.


def _blank() -> ActorClass:
    return ActorClass.__new__(ActorClass)


def _start() -> int:
    lifecycle.init_by_default()
    return _core.generation()


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Ends an actor at once, without its exit functions. Its pending calls fail with RayActorError.

    Args:
        actor: its handle.
        no_restart: False lets it restart, if it has restarts left (max_restarts).

    Raises:
        ValueError: `actor` is no handle.
        RayError: this process's node has ended.
    """
    if not isinstance(actor, Handle):
        raise ValueError(
            f"ray.kill() only supported for actors: it takes a handle, got {actor!r}; to end a "
            "task, use cancel(ref)"
        )
    _core.kill(actor._ref, no_restart)


def exit_actor() -> None:
    """Ends the actor that this is called in, behind the running call. It does not restart.

    The other calls that run in it, and the calls that it has made, have 30 s to end. Exit functions
    (atexit) run. Does not return: it raises what no `except Exception` catches.

    Raises:
        TypeError: the caller is no actor.
    """
    if not _core.is_worker() or not _core.context().get("actor"):
        raise TypeError(
            "exit_actor API is called on a non-actor worker: call it in a method of an actor"
        )
    from sheaf.exceptions import ActorExit  # Which not every program needs.

    raise ActorExit


def method(*args: Any, **given: Any) -> Any:
    """Gives a method of an actor class options of its own, as a decorator.

    `@sheaf.method(num_returns=2)`; without options, as `@sheaf.method`, it only tells type checkers
    the signature (sheaf.types.typed).

    Args:
        args: the method, where there are no options.
        given: num_returns, concurrency_group, max_task_retries, retry_exceptions, ...

    Returns:
        The method, or a decorator.

    Raises:
        ValueError: the value of an option is wrong; the text names it.
        TypeError: the value of an option has the wrong type.
        AssertionError: there is no such option, or options are not given by name.
    """
    if len(args) == 1 and not given and callable(args[0]):
        return args[0]  # Without options it is for type checkers alone (sheaf.types.typed).
    if args:
        raise AssertionError(
            "The @ray.method decorator must be applied using no arguments, or options by name, as "
            f"@method(num_returns=2); got {args!r}"
        )
    if "name" in given:
        raise AssertionError("method has no option name: give it to a call, by .options(name=...)")
    _check_method(given, AssertionError)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        option_values.check_items(is_generator(function), given)
        function.__ray_method_options__ = given  # type: ignore[attr-defined]
        return function

    return mark

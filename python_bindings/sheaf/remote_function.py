# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Remote functions: what @sheaf.remote makes of a function."""

from __future__ import annotations

from sheaf import _core, options
from sheaf._internal import exported, ray_attributes
from sheaf._internal.signatures import Signature, short_name
from sheaf.object_ref import DynamicObjectRefGenerator

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MOST_BOUND = (
    64  # Templates of one function, for as many placement groups that its callers hand down.
)


class RemoteFunction(_core.Caller, ray_attributes.OfFunction):
    """A function that runs in another process: `f.remote(...)` gives an ObjectRef of its result at
    once; of a generator function an ObjectRefGenerator. @sheaf.remote makes it. Thread-safe.

    Args:
        function: the function.
        given: its options.
        root: the one whose options() made this one, or None.

    Raises:
        ValueError: the function is async, which is for methods of actors.
    """

    _function: Callable[..., Any]
    _options: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> RemoteFunction:
        return super().__new__(cls)

    def __init__(
        self,
        function: Callable[..., Any],
        given: dict[str, Any],
        root: RemoteFunction | None = None,
    ):
        import inspect

        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ValueError(
                f"{function.__qualname__} is async, which is for methods of actors: "
                "write asyncio.run(...) inside it"
            )
        self._set(function, given, root)

    def _set(
        self, function: Callable[..., Any], given: dict[str, Any], root: RemoteFunction | None
    ) -> None:
        import functools

        functools.update_wrapper(self, function)
        self._function = function
        self._options = given
        self._root = root  # Of one made by options(): it exports the function once for all.
        self._exports: dict[Any, exported.Exported] = {}
        self._signature: Signature | None = None
        self._generation = 0
        self._bound: dict[int, tuple[Any, ...]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = short_name(self._function)
        raise TypeError(
            f"a remote function is not called directly: use {name}.remote() instead of {name}()"
        )

    def options(self, **given: Any) -> RemoteFunction:
        """Returns the same function with other options, for the calls made by what this returns.

        Args:
            given: what @sheaf.remote takes for functions; options that are not named stay.

        Raises:
            ValueError: there is no such option, or its value is wrong; the text names it.
            TypeError: the value of an option has the wrong type.
        """
        options.check("task", given)
        made = type(self).__new__(type(self))
        made._set(self._function, {**self._options, **given}, self._root or self)
        return made

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """Compiled graphs are not in Sheaf.

        Args:
            args: ignored.
            kwargs: ignored.

        Returns:
            Never.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("compiled graphs (bind) are not in Sheaf")

    @property
    def _undecorated(self) -> Callable[..., Any]:
        return self._function

    def __repr__(self) -> str:
        module = getattr(self._function, "__module__", "")
        return f"RemoteFunction({module}.{short_name(self._function)})"

    def __reduce__(self) -> Any:
        return _blank, (type(self),), (self._function, self._options)

    def __setstate__(self, state: tuple[Callable[..., Any], dict[str, Any]]) -> None:
        self._set(state[0], state[1], None)

    def _prepare(self, count: int, names: tuple[str, ...] | None) -> None:
        """Makes the template of this runtime if need be; TypeError when the arguments do not
        fit."""
        if self._signature is None:
            self._signature = Signature(self._function)
        name = short_name(self._function)
        self._signature.check(name, count, names)
        # A call inherits the placement group of the task that makes it, and this process may run
        # tasks of several.
        current = _core.call_generation()
        if self._generation == current:
            return
        bound = self._bound.get(current)
        if bound is None:
            bound = self._template(name)
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            self._bound[current] = bound
        self._bind(*bound)
        self._generation = current

    def _template(self, name: str) -> tuple[Any, ...]:
        import inspect

        generation = _core.generation()

        streaming = options.is_streaming(self._options, inspect.isgeneratorfunction(self._function))
        rule = self._options.get("retry_exceptions")
        dynamic = self._options.get("num_returns") == "dynamic"
        export = (self._root or self)._export(generation, rule, dynamic)
        spec = options.for_task(self._options, streaming)
        spec.update(
            function=export.key,
            extra=export.extra,
            name=name,
            call_name=self._options.get("name") or "",
        )
        least, most = self._signature.bounds
        return (
            _core.make_template(spec),
            None,
            spec["num_returns"],
            streaming,
            least,
            most,
            export.carrier,
            False,
            True,
        )

    def _export(self, generation: int, rule: Any, dynamic: bool) -> exported.Exported:
        key = (generation, tuple(rule) if isinstance(rule, (list, tuple)) else None, dynamic)
        known = self._exports.get(key)
        if known is None:
            target: Any = _Collected(self._function) if dynamic else self._function
            known = self._exports[key] = exported.export(exported.FUNCTION, target, rule, None)
        return known


class _Collected:
    """A generator function with num_returns="dynamic": one result, which holds the references of
    all items."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return DynamicObjectRefGenerator(
            [_core.put(item) for item in self._function(*args, **kwargs)]
        )


def _blank(cls: type[RemoteFunction]) -> RemoteFunction:
    return cls.__new__(cls)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Remote functions: what @sheaf.remote makes of a function."""

from __future__ import annotations

from sheaf import _core, options
from sheaf._internal import exported, ray_attributes
from sheaf._internal.signatures import Signature, is_generator, short_name
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
                f"'async def' should not be used for remote tasks: {function.__qualname__} is "
                "async, which is for methods of actors: write asyncio.run(...) inside it"
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
            f"Remote functions cannot be called directly: use {name}.remote() instead of {name}()"
        )

    def options(self, **given: Any) -> RemoteFunction:
        """Returns the same function with other options, for the calls made by what this returns.

        Args:
            given: what @sheaf.remote takes for functions; options that are not named stay.

        Raises:
            ValueError: there is no such option, or its value is wrong; the text names it.
            TypeError: the value of an option has the wrong type.
        """
        options.check_task_override(given, self._options, is_generator(self._function))
        made = type(self).__new__(type(self))
        made._set(self._function, options.merged(self._options, given), self._root or self)
        return made

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
        returns, form = self._options.get("num_returns"), None
        if returns == "dynamic":
            form = _Collected if rule else _CollectedToTheEnd
        elif returns == 1 and is_generator(self._function):
            form = _First
        export = (self._root or self)._export(generation, rule, form)
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

    def _export(self, generation: int, rule: Any, form: Any) -> exported.Exported:
        key = (generation, tuple(rule) if isinstance(rule, (list, tuple)) else None, form)
        known = self._exports.get(key)
        if known is None:
            target: Any = form(self._function) if form else self._function
            known = self._exports[key] = exported.export(exported.FUNCTION, target, rule, None)
        return known


class _Form:
    """A generator function as a call with one result runs it."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.__module__ = function.__module__
        self.__name__ = function.__name__


class _First(_Form):
    """With num_returns=1: the first item."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        items = iter(self._function(*args, **kwargs))
        for item in items:
            try:
                next(items, None)  # So that what stands behind the yield runs.
            except Exception:
                pass
            return item
        raise ValueError("Task returned 0 objects, but num_returns=1: the generator must yield one")


class _Collected(_Form):
    """With num_returns="dynamic": what holds the references of all items. It fails as a whole, and
    is retried."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return DynamicObjectRefGenerator(
            [_core.put(item) for item in self._function(*args, **kwargs)]
        )


class _CollectedToTheEnd(_Form):
    """The same, where it is not retried: the last reference is of its error, if it fails."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refs = []
        try:
            for item in self._function(*args, **kwargs):
                refs.append(_core.put(item))
        except Exception as error:
            options = {"max_retries": 0, "num_cpus": 0, "name": self.__name__}
            refs.append(RemoteFunction(_raise, options).remote(error))
        return DynamicObjectRefGenerator(refs)


def _raise(error: Exception) -> None:
    raise error


def _blank(cls: type[RemoteFunction]) -> RemoteFunction:
    return cls.__new__(cls)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries that know Ray's inside read at remote functions, actor classes, handles and their
methods. Nothing of Sheaf's own uses it."""

from __future__ import annotations

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


def _python() -> Any:
    from sheaf._internal.language import Language  # For those who ask.

    return Language.PYTHON


def _hash(text: str) -> str:
    import hashlib

    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _long_hash(text: str) -> str:
    """28 bytes, as ids of classes have."""
    import hashlib

    return hashlib.sha224(text.encode(), usedforsecurity=False).hexdigest()


def _parameters(function: Any) -> list[Any]:
    import inspect

    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


class PythonFunctionDescriptor:
    """Which function or constructor a call runs.

    Args:
        module_name: where it is defined.
        function_name: its name, or "__init__".
        class_name: of its class; "": it has none.
    """

    def __init__(self, module_name: str, function_name: str, class_name: str = ""):
        self.module_name = module_name
        self.class_name = class_name
        self.function_name = function_name
        self.function_hash = _hash(f"{module_name}.{class_name}.{function_name}")
        self.repr = f"{module_name}.{class_name + '.' if class_name else ''}{function_name}"

    def __repr__(self) -> str:
        return (
            f"{{type=PythonFunctionDescriptor, module_name={self.module_name}, "
            f"class_name={self.class_name}, function_name={self.function_name}, "
            f"function_hash={self.function_hash}}}"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PythonFunctionDescriptor) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class _Unbound:
    """What would be a node of a compiled graph."""

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


class _OfOptions(_Unbound):
    """Options as attributes."""

    _options: dict[str, Any]
    _is_cross_language = False
    _decorator = None

    @property
    def _default_options(self) -> dict[str, Any]:
        return self._options

    @property
    def _language(self) -> Any:
        return _python()

    @property
    def _num_gpus(self) -> Any:
        return self._options.get("num_gpus")

    @property
    def _resources(self) -> Any:
        return self._options.get("resources")

    @property
    def _runtime_env(self) -> Any:
        return self._options.get("runtime_env")


class OfFunction(_OfOptions):
    """Of a remote function."""

    _function: Any

    def _remote(
        self,
        args: Any = None,
        kwargs: dict[str, Any] | None = None,
        serialized_runtime_env_info: Any = None,
        **task_options: Any,
    ) -> Any:
        """Options and arguments in one call."""
        function: Any = self.options(**task_options) if task_options else self  # type: ignore[attr-defined]
        return function.remote(*(args or ()), **(kwargs or {}))

    @property
    def _function_name(self) -> str:
        return f"{self._function.__module__}.{self._function.__name__}"

    @property
    def _function_descriptor(self) -> PythonFunctionDescriptor:
        return PythonFunctionDescriptor(self._function.__module__, self._function.__name__)

    @property
    def _function_signature(self) -> list[Any]:
        return _parameters(self._function)

    @property
    def _num_cpus(self) -> Any:
        cpus = self._options.get("num_cpus")
        return 1 if cpus is None else cpus

    @property
    def _num_returns(self) -> Any:
        return self._options.get("num_returns")

    @property
    def _max_calls(self) -> int:
        return self._options.get("max_calls") or 0

    @property
    def _max_retries(self) -> int:
        retries = self._options.get("max_retries")
        return 3 if retries is None else retries

    @property
    def _uuid(self) -> Any:
        import uuid

        return uuid.uuid5(uuid.NAMESPACE_OID, self._function_name)


class _Methods:
    """What is known of the methods of a class.

    Args:
        cls: the class.
    """

    def __init__(self, cls: type):
        from sheaf._internal.actor_class import info_of  # Which imports nothing of this.

        known = info_of(cls).methods
        self.methods = {name: getattr(cls, name) for name in ("__init__", *known)}
        self.signatures = {name: _parameters(method) for name, method in self.methods.items()}
        self.num_returns = {name: info.options.get("num_returns") for name, info in known.items()}
        self.decorators: dict[str, Any] = {}


class OfActorClass(_OfOptions):
    """Of a remote class."""

    _class: type

    def _remote(
        self, args: Any = None, kwargs: dict[str, Any] | None = None, **actor_options: Any
    ) -> Any:
        """Options and arguments in one call."""
        made: Any = self.options(**actor_options) if actor_options else self  # type: ignore[attr-defined]
        return made.remote(*(args or ()), **(kwargs or {}))

    @property
    def __ray_actor_class__(self) -> type:
        return self._class

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *dir(self._class)]


class ActorClassMetadata:
    """The attribute `__ray_metadata__` of a remote class.

    Args:
        cls: the class.
        given: its options.
        id_class: of its id.
    """

    def __init__(self, cls: type, given: dict[str, Any], id_class: Any):
        self._id_class = id_class
        self.modified_class = cls
        self.class_name = cls.__name__
        self._options = given

    @property
    def language(self) -> Any:
        """Language.PYTHON."""
        return _python()

    @property
    def class_id(self) -> Any:
        """The same for the same name in the same module."""
        cls = self.modified_class
        return self._id_class(_long_hash(f"{cls.__module__}.{cls.__qualname__}"))

    @property
    def method_meta(self) -> _Methods:
        """Its methods: methods, signatures, num_returns and decorators."""
        return _Methods(self.modified_class)

    @property
    def actor_creation_function_descriptor(self) -> PythonFunctionDescriptor:
        """Its constructor."""
        return PythonFunctionDescriptor(self.modified_class.__module__, "__init__", self.class_name)

    def __getattr__(self, name: str) -> Any:
        counts = {"max_restarts": 0, "max_task_retries": 0}
        others = ("num_cpus", "num_gpus", "memory", "resources", "runtime_env", "accelerator_type")
        if name in counts:
            return self._options.get(name) or 0
        if name in others or name == "concurrency_groups":
            return self._options.get(name)
        raise AttributeError(name)


class OfHandle:
    """Of the handle of an actor."""

    _info: Any
    _ray_is_cross_language = False
    _ray_weak_ref = False
    _ray_enable_task_events = True

    @property
    def _ray_actor_language(self) -> Any:
        return _python()

    @property
    def _ray_method_signatures(self) -> dict[str, Any]:
        """The parameters of methods, where the class is; elsewhere nothing of them."""
        signatures = {name: method.signature for name, method in self._info.methods.items()}
        return {
            name: list(signature.parameters.values()) if signature else []
            for name, signature in signatures.items()
        }

    @property
    def _ray_method_num_returns(self) -> dict[str, Any]:
        return {
            name: method.options.get("num_returns") for name, method in self._info.methods.items()
        }

    @property
    def _ray_method_is_generator(self) -> dict[str, bool]:
        return {name: method.is_generator for name, method in self._info.methods.items()}

    @property
    def _ray_method_decorators(self) -> dict[str, Any]:
        return {}

    @property
    def _ray_function_descriptor(self) -> dict[str, PythonFunctionDescriptor]:
        return {
            name: PythonFunctionDescriptor("", name, self._info.name) for name in self._info.methods
        }

    @property
    def _ray_actor_creation_function_descriptor(self) -> PythonFunctionDescriptor:
        return PythonFunctionDescriptor("", "__init__", self._info.name)


class OfMethod(_Unbound):
    """Of a method of a running actor."""

    _method: Any
    _given: dict[str, Any]

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Options and arguments in one call."""
        method: Any = self.options(**options) if options else self  # type: ignore[attr-defined]
        return method.remote(*(args or ()), **(kwargs or {}))

    @property
    def _method_name(self) -> str:
        return self._method.name

    @property
    def _num_returns(self) -> Any:
        given = {**self._method.options, **self._given}.get("num_returns")
        return 1 if given is None else given


class OfGenerator:
    """Of what a call of a generator gives: the parts of Python's generators that send something to
    the other side, which neither Ray nor Sheaf have."""

    def send(self, value: Any) -> Any:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.send` is not supported.")

    def throw(self, value: Any) -> Any:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.throw` is not supported.")

    def close(self) -> None:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.close` is not supported.")

    async def asend(self, value: Any) -> Any:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.asend` is not supported.")

    async def athrow(self, value: Any) -> Any:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.athrow` is not supported.")

    async def aclose(self) -> None:
        """Not in Sheaf: raises NotImplementedError."""
        raise NotImplementedError("`gen.aclose` is not supported.")

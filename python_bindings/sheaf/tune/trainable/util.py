# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trainables with more arguments, or with resources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import sheaf
from sheaf.tune.execution.placement_groups import PlacementGroupFactory, resource_dict_to_pg_factory
from sheaf.tune.trainable.trainable import Trainable


class BoundFunction:
    """A function with further arguments, which lie in the store once for all trials. Trials call it
    with their configuration alone; one around it with arguments of its own, which count first."""

    def __init__(self, function: Callable[..., Any], references: dict[str, Any]):
        self.function, self.references = function, references
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.__mixins__ = getattr(function, "__mixins__", ())  # Some libraries look for it.

    def __call__(self, config: dict[str, Any], **more: Any) -> Any:
        references = self.references.items()
        values = {name: sheaf.get(ref) for name, ref in references if name not in more}
        return self.function(config, **values, **more)


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """Gives a trainable further arguments, which may be large: they are stored once.

    Args:
        trainable: a function that takes the configuration and these; or a class, whose `setup`
            takes them.
        **kwargs: the arguments.

    Returns:
        What a Tuner takes.

    Raises:
        ValueError: it is no function and no class derived from Trainable.
    """
    if isinstance(trainable, str) or not callable(trainable):
        raise ValueError(
            f"with_parameters({trainable!r}): want a function, or a class derived from Trainable"
        )
    references = {name: sheaf.put(value) for name, value in kwargs.items()}
    if inspect.isclass(trainable):
        if not issubclass(trainable, Trainable):
            raise ValueError(f"with_parameters({trainable!r}): want a class derived from Trainable")
        made = _bound_class(trainable, references)
    else:
        made = BoundFunction(trainable, references)
    if hasattr(trainable, "_resources"):
        made._resources = trainable._resources
    return made


def _bound_class(kind: type[Trainable], references: dict[str, Any]) -> Any:
    class Bound(kind):  # type: ignore[misc, valid-type]
        def setup(self, config: dict[str, Any], **more: Any) -> None:
            values = {name: sheaf.get(ref) for name, ref in references.items() if name not in more}
            super().setup(config, **values, **more)

    Bound.__name__ = Bound.__qualname__ = kind.__name__
    return Bound


def with_resources(
    trainable: Any,
    resources: Mapping[str, Any] | PlacementGroupFactory | Callable[[dict[str, Any]], Any],
) -> Any:
    """Says what a trial of a trainable holds.

    Args:
        trainable: a function, or a class derived from Trainable.
        resources: amounts by resource, as {"cpu": 2, "gpu": 0.5}; a PlacementGroupFactory; or a
            function that makes one of a configuration.

    Returns:
        What a Tuner takes.

    Raises:
        ValueError: it is no function and no class, or the resources are none.
        TypeError: the resources are no dict.
    """
    if isinstance(trainable, str) or not callable(trainable):
        raise ValueError(
            f"with_resources({trainable!r}): want a function, or a class derived from Trainable"
        )
    wanted: Any = resources
    if not callable(resources) or isinstance(resources, PlacementGroupFactory):
        wanted = resource_dict_to_pg_factory(resources)
    made: Any
    if inspect.isclass(trainable):
        made = type(trainable.__name__, (trainable,), {"__module__": trainable.__module__})
        made.__qualname__ = trainable.__qualname__
    elif isinstance(trainable, BoundFunction):
        made = BoundFunction(trainable.function, trainable.references)
    else:
        made = BoundFunction(trainable, {})
    made._resources = wanted
    return made


def resources_of(trainable: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """What a trial of this configuration holds, as the trainable says; one CPU where it says
    nothing."""
    wanted = getattr(trainable, "_resources", None)
    if wanted is None and isinstance(trainable, type) and issubclass(trainable, Trainable):
        wanted = trainable.default_resource_request(config)
    if callable(wanted) and not isinstance(wanted, PlacementGroupFactory):
        wanted = wanted(config)
    return resource_dict_to_pg_factory(wanted)

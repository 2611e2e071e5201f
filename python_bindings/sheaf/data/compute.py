# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where an operator's tasks run: in any worker, or in actors of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from sheaf.data.operators import Pool
from sheaf.data.user_code import ClassUdf

_REMOTE_OPTIONS = {
    "accelerator_type",
    "fallback_strategy",
    "label_selector",
    "max_calls",
    "max_retries",
    "retry_exceptions",
    "resources",
    "runtime_env",
    "scheduling_strategy",
    "max_restarts",
    "max_task_retries",
    "max_concurrency",
    "name",
}


class ComputeStrategy:
    """The base of TaskPoolStrategy and ActorPoolStrategy."""


class TaskPoolStrategy(ComputeStrategy):
    """Tasks in any worker.

    Args:
        size: tasks at a time; None: as many as fit.
    """

    def __init__(self, size: int | None = None):
        if size is not None and size < 1:
            raise ValueError(f"size={size}: want 1 or more tasks at a time")
        self.size = size

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, TaskPoolStrategy) and self.size == other.size

    def __hash__(self) -> int:
        return hash(("tasks", self.size))


class ActorPoolStrategy(ComputeStrategy):
    """Actors that keep what their function needs, such as a model.

    Args:
        size: how many; instead of the two below.
        min_size: how many start at once, as far as they fit.
        max_size: how many there may be; None: as many as fit.
        initial_size: as min_size, which counts when both are given and it is larger.
        max_tasks_in_flight_per_actor: blocks that one actor has at a time; 2 when not given.
        max_concurrent_calls_per_actor, enable_true_multi_threading: have no effect: an actor runs
            one block at a time, and asynchronous functions overlap within it.
    """

    def __init__(
        self,
        *,
        size: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        initial_size: int | None = None,
        max_tasks_in_flight_per_actor: int | None = None,
        max_concurrent_calls_per_actor: int | None = None,
        enable_true_multi_threading: bool | None = None,
    ):
        if size is not None:
            if min_size is not None or max_size is not None or initial_size is not None:
                raise ValueError("size: want it alone, or min_size and max_size")
            min_size = max_size = size
        self.min_size = 1 if min_size is None else min_size
        self.max_size = max_size
        self.initial_size = self.min_size if initial_size is None else initial_size
        self.max_tasks_in_flight_per_actor = max_tasks_in_flight_per_actor
        if self.min_size < 1:
            raise ValueError(f"min_size={self.min_size}: want 1 or more actors")
        if max_size is not None and max_size < max(self.min_size, self.initial_size):
            raise ValueError(
                f"max_size={max_size}: want at least min_size={self.min_size} and "
                f"initial_size={self.initial_size}"
            )
        if max_tasks_in_flight_per_actor is not None and max_tasks_in_flight_per_actor < 1:
            raise ValueError(
                f"max_tasks_in_flight_per_actor={max_tasks_in_flight_per_actor}: want 1 or more"
            )

    def pool(self) -> Pool:
        """Returns what the executor wants to know."""
        return Pool(
            max(self.min_size, self.initial_size),
            self.max_size or 1 << 30,
            self.max_tasks_in_flight_per_actor or 2,
        )

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ActorPoolStrategy) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(("actors", self.min_size, self.max_size))


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """What one operator's tasks need, and where they run.

    Attributes:
        needs: resources by name.
        remote: further options of remote functions and classes.
        pool: actors; None: tasks.
        cap: tasks at a time; None: as many as fit.
    """

    needs: Mapping[str, float] = dataclasses.field(default_factory=lambda: {"CPU": 1.0})
    remote: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pool: Pool | None = None
    cap: int | None = None


def task_options(
    what: str,
    fn: Any,
    compute: Any,
    concurrency: Any,
    given: Mapping[str, Any],
    isolated: bool = False,
) -> TaskOptions:
    """The options of one operator from the keywords of a call.

    Args:
        what: the method, for errors.
        fn: the user's function; None: there is none.
        compute: a strategy, or "tasks" or "actors".
        concurrency: a number, or (min, max) or (min, max, initial) of actors.
        given: num_cpus, num_gpus, memory, resources and further remote options.

    Raises:
        TypeError: a keyword is unknown, with a suggestion.
        ValueError: a value does not fit.
    """
    options = {name: value for name, value in given.items() if value is not None}
    options.pop("ray_remote_args_fn", None)
    amounts = {"CPU": options.pop("num_cpus", None), "GPU": options.pop("num_gpus", None)}
    amounts["memory"] = options.pop("memory", None)
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            raise ValueError(f"{what}: {name} of {amount}: want 0 or more")
    if amounts["CPU"] is None:
        amounts["CPU"] = 0.0 if amounts["GPU"] else 1.0
    unknown = sorted(set(options) - _REMOTE_OPTIONS)
    if unknown:
        from sheaf.data.errors import suggestion

        near = suggestion(unknown[0], [*_REMOTE_OPTIONS, *_NAMED])
        raise TypeError(f"{what}() got an unexpected keyword argument '{unknown[0]}'{near}")
    needs = {name: float(amount) for name, amount in amounts.items() if amount}
    needs.update(options.get("resources") or {})
    strategy = _strategy(what, fn, compute, concurrency)
    if isinstance(strategy, ActorPoolStrategy):
        return TaskOptions(needs, options, strategy.pool())
    return TaskOptions(needs, options, None, strategy.size)


_NAMED = [
    "batch_size",
    "batch_format",
    "zero_copy_batch",
    "compute",
    "fn_args",
    "fn_kwargs",
    "fn_constructor_args",
    "fn_constructor_kwargs",
    "num_cpus",
    "num_gpus",
    "memory",
    "concurrency",
]


def _strategy(
    what: str, fn: Any, compute: Any, concurrency: Any
) -> TaskPoolStrategy | ActorPoolStrategy:
    is_class = isinstance(fn, (type, ClassUdf))
    if isinstance(compute, str):
        named = {"tasks": TaskPoolStrategy, "actors": ActorPoolStrategy}
        if compute not in named:
            raise ValueError(
                f"{what}: compute={compute!r}: want TaskPoolStrategy() or ActorPoolStrategy()"
            )
        compute = named[compute]()
    if compute is not None and not isinstance(compute, ComputeStrategy):
        raise ValueError(
            f"{what}: compute={compute!r}: want TaskPoolStrategy() or ActorPoolStrategy()"
        )
    if concurrency is not None and compute is not None:
        raise ValueError(
            f"{what}: concurrency={concurrency!r} and compute={compute!r}: want one of them"
        )
    if isinstance(compute, TaskPoolStrategy) and is_class:
        raise ValueError(f"{what}: the class {fn.__name__} runs in actors: want ActorPoolStrategy")
    if isinstance(compute, (TaskPoolStrategy, ActorPoolStrategy)):
        return compute
    sizes = _sizes(what, concurrency)
    if not is_class:
        if sizes is not None and len(sizes) > 1:
            raise ValueError(f"{what}: concurrency={concurrency!r}: a function takes one number")
        return TaskPoolStrategy(sizes[0] if sizes else None)
    if sizes is None:
        return ActorPoolStrategy()
    if len(sizes) == 1:
        return ActorPoolStrategy(size=sizes[0])
    initial = sizes[2] if len(sizes) == 3 else None
    return ActorPoolStrategy(min_size=sizes[0], max_size=sizes[1], initial_size=initial)


def _sizes(what: str, concurrency: Any) -> tuple[int, ...] | None:
    if concurrency is None:
        return None
    sizes = concurrency if isinstance(concurrency, tuple) else (concurrency,)
    whole = all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes)
    if not whole or len(sizes) > 3:
        raise ValueError(
            f"{what}: concurrency={concurrency!r}: want a number of 1 or more, (min, max) or "
            "(min, max, initial)"
        )
    return sizes


def udf_of(
    what: str, fn: Any, constructor_args: Iterable[Any] | None, constructor_kwargs: Any
) -> Any:
    """The user's function, a class with what its constructor takes.

    Raises:
        TypeError: it cannot be called.
        ValueError: constructor arguments for what is no class.
    """
    if isinstance(fn, type):
        if not callable(getattr(fn, "__call__", None)):  # noqa: B004
            raise TypeError(
                f"{what}: the class {fn.__name__} has no __call__ that takes a batch or row"
            )
        return ClassUdf(fn, tuple(constructor_args or ()), dict(constructor_kwargs or {}))
    if not callable(fn):
        raise TypeError(f"{what}: fn={fn!r}: want a function, or a class with __call__")
    if constructor_args is not None or constructor_kwargs is not None:
        raise ValueError(
            f"{what}: fn_constructor_args and fn_constructor_kwargs want a class, got {fn!r}"
        )
    return fn

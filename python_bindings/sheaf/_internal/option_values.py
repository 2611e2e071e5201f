# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What values options of remote functions, classes and methods may have. A refusal begins with the
words that programs written for Ray look for, and goes on with the value and what is wanted."""

from __future__ import annotations

import math

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MAX_RETURNS = 60_000  # worker/limits.h
_MOST = 2**31 - 1  # Of a count in the protocol.
_LEAST_AMOUNT = 0.0001  # Of a resource that is asked for at all.
_NOT_NONE = {  # Of tasks and actors.
    "enable_task_events": "True or False",
    "get_if_exists": "True or False",
    "placement_group_bundle_index": "a number",
    "retry_exceptions": "True, False, or a list of exception classes",
}


def check(name: str, value: Any, of_method: bool) -> None:
    """Raises ValueError, or TypeError for the type of a value, naming the option, the value and
    what is wanted."""
    if value is None:
        if name in _NOT_NONE and not of_method:
            raise _wrong_type(name, value, _NOT_NONE[name])
        return
    known = _CHECKS.get(name)
    if known is not None:
        known(name, value)


def _wrong_type(name: str, value: Any, want: str) -> TypeError:
    return TypeError(
        f"The type of keyword '{name}' must be another than {type(value).__name__}: "
        f"{name}={value!r}: want {want}"
    )


def _of_type(kinds: type | tuple[type, ...], want: str) -> Callable[[str, Any], None]:
    def check_type(name: str, value: Any) -> None:
        if not isinstance(value, kinds):
            raise _wrong_type(name, value, want)

    return check_type


def _amount(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise _wrong_type(name, value, "a number that is not negative")
    _quantity(name, name, value)


def _quantity(option: str, resource: str, value: Any) -> None:
    if math.isnan(value) or value < 0:
        raise ValueError(
            f"The quantity of resource {resource} cannot be negative: {option}={value!r}: "
            "want a number that is not negative"
        )
    if 0 < value < _LEAST_AMOUNT:
        raise ValueError(
            f"The quantity of resource {resource} cannot go beyond 0.0001: {option}={value!r}: "
            f"want 0, or {_LEAST_AMOUNT} at least"
        )


def _resources(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong_type(name, value, "a dict of amounts, as {'slot': 1}")
    for resource, amount in value.items():
        if not isinstance(resource, str):
            raise TypeError(f"resources={value!r}: want names that are str, got {resource!r}")
        _text("resources", resource)
        if resource in ("CPU", "GPU", "memory"):
            instead = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}[resource]
            raise ValueError(
                f"Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU': "
                f"resources={value!r}: use {instead}={amount!r} for {resource}"
            )
        option = f"resources[{resource!r}]"
        if not isinstance(amount, (int, float)):
            raise TypeError(f"{option}={amount!r}: want a number that is not negative")
        _quantity(option, resource, amount)


def _object_store_memory(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise _wrong_type(name, value, "a number of bytes")
    if value < 0:
        raise ValueError(f"{name}={value!r}: want a number that is not negative")


def _num_returns(name: str, value: Any) -> None:
    if value in ("streaming", "dynamic"):
        return
    want = "a number that is not negative, or 'streaming'"
    if not isinstance(value, int):
        raise _wrong_type(name, value, want)
    if value < 0:
        raise ValueError(f"num_returns must be >= 0: num_returns={value!r}: want {want}")
    if value > _MAX_RETURNS:
        raise ValueError(
            f"num_returns={value}: at most {_MAX_RETURNS}; return one list, or make it 'streaming'"
        )


def check_items(is_generator: bool, options: dict[str, Any]) -> None:
    """ValueError: num_returns asks for the items of what is no generator function."""
    returns = options.get("num_returns")
    if returns in ("streaming", "dynamic") and not is_generator:
        raise ValueError(
            f"num_returns={returns!r} can only be used with generator functions: there is no "
            "`yield` in this one; where it wraps one, decorate that instead"
        )


def _count_or_no_bound(name: str, value: Any) -> None:
    want = "a number, or -1 for no bound"
    if not isinstance(value, int):
        raise _wrong_type(name, value, want)
    if value < -1:
        raise ValueError(
            f"The keyword '{name}' has -1 at least, where -1 represents infinity: "
            f"{name}={value!r}: want {want}"
        )
    _most(name, value)


def _backpressure(name: str, value: Any) -> None:
    want = "a number from 1, or -1 for no bound"
    if not isinstance(value, int):
        raise _wrong_type(name, value, want)
    if value < -1 or value == 0:
        raise ValueError(
            f"{name}={value} is not allowed, it must be > 0: {name}={value}: want {want}"
        )
    _most(name, value)


def _backpressure_bytes(name: str, value: Any) -> None:
    want = "a number of bytes from 1, or -1 for no bound"
    if not isinstance(value, int):
        raise _wrong_type(name, value, want)
    if value < -1 or value == 0 or value >= 1 << 63:
        raise ValueError(f"{name}={value}: want {want}")


def _per_yield(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise _wrong_type(name, value, "a number from 1")
    if value < 1:
        raise ValueError(f"{name}={value!r}: want a number from 1")


def _max_concurrency(name: str, value: Any) -> None:
    if not isinstance(value, int):
        raise _wrong_type(name, value, "a number from 1")
    if value < 1:
        raise ValueError(f"max_concurrency={value!r}: want a number from 1")
    _most(name, value)


def _max_calls(name: str, value: Any) -> None:
    want = "a number; 0 is no bound"
    if not isinstance(value, int):
        raise _wrong_type(name, value, want)
    if value < 0:
        raise ValueError(f"max_calls={value!r}: want {want}")
    _most(name, value)


def _lifetime(name: str, value: Any) -> None:
    want = "'detached' or None"
    if not isinstance(value, str):
        raise _wrong_type(name, value, want)
    if value not in ("detached", "non_detached"):
        raise ValueError(
            f"actor `lifetime` argument must be one of 'detached' and 'non_detached': "
            f"lifetime={value!r}: want {want}"
        )


def _name(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a str")
    _text(name, value)


def _retry_exceptions(name: str, value: Any) -> None:
    if not isinstance(value, (bool, list, tuple)):
        raise _wrong_type(name, value, _NOT_NONE[name])
    if not isinstance(value, bool) and not all(map(_is_exception, value)):
        raise ValueError(
            f"retry_exceptions must be either a boolean or a list of exceptions: "
            f"retry_exceptions={value!r}: want {_NOT_NONE[name]}"
        )


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _concurrency_groups(name: str, value: Any) -> None:
    want = "a dict of numbers from 1, as {'io': 2}"
    if value == []:
        return  # As some programs have it for none.
    if not isinstance(value, dict):
        raise _wrong_type(name, value, want)
    if not all(isinstance(n, int) and n > 0 for n in value.values()):
        raise ValueError(f"concurrency_groups={value!r}: want {want}")
    for group, most in value.items():
        if not isinstance(group, str):
            raise TypeError(f"concurrency_groups={value!r}: want names that are str, got {group!r}")
        _text("concurrency_groups", group)
        _most(f"concurrency_groups[{group!r}]", most)


def _label_selector(name: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise _wrong_type(name, value, "a dict of words, as {'region': 'in(a, b)'}")
    from sheaf._internal import labels  # For those that have some.

    labels.check_selector(name, value)


def _fallback_strategy(name: str, value: Any) -> None:
    want = "a list of dicts, as [{'label_selector': {'region': 'a'}}]"
    if not isinstance(value, list):
        raise _wrong_type(name, value, want)
    for strategy in value:
        if not isinstance(strategy, dict):
            raise ValueError(
                f"Each element in {name} must be a dictionary: {name}={value!r}: want {want}"
            )
        if not strategy:
            raise ValueError(f"Empty dictionary found in `{name}`: {name}={value!r}: want {want}")
        for option in strategy:
            if option != "label_selector":
                raise ValueError(
                    f"Unsupported option found: {option!r}: {name}={value!r}: want {want}"
                )
        selector = strategy["label_selector"]
        if selector and not isinstance(selector, dict):
            raise ValueError(
                f'The value of "label_selector" must be a dictionary: {name}={value!r}: want {want}'
            )
        _label_selector("label_selector", selector or {})


def _most(name: str, value: int) -> None:
    if value > _MOST:
        raise ValueError(f"{name}={value}: at most {_MOST}")


def _text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name}={value!r}: it has half of a character, which is no text"
        ) from None


_bool = _of_type(bool, "True or False")
_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("num_cpus", "num_gpus", "memory"), _amount),
    "resources": _resources,
    "object_store_memory": _object_store_memory,
    "num_returns": _num_returns,
    **dict.fromkeys(
        ("max_retries", "max_restarts", "max_task_retries", "max_pending_calls"), _count_or_no_bound
    ),
    "_generator_backpressure_num_objects": _backpressure,
    "_generator_backpressure_bytes": _backpressure_bytes,
    "_actor_generator_backpressure_num_objects": _backpressure,
    "_num_objects_per_yield": _per_yield,
    "max_concurrency": _max_concurrency,
    "max_calls": _max_calls,
    "lifetime": _lifetime,
    **dict.fromkeys(("name", "namespace", "concurrency_group"), _name),
    "retry_exceptions": _retry_exceptions,
    "concurrency_groups": _concurrency_groups,
    "label_selector": _label_selector,
    "fallback_strategy": _fallback_strategy,
    "accelerator_type": _of_type(str, "the name of a kind, as 'A100'"),
    "runtime_env": _of_type(dict, "a dict or a RuntimeEnv"),
    "placement_group_bundle_index": _of_type(int, "a number"),
    "_labels": _of_type(dict, "a dict of words"),
    **dict.fromkeys(
        (
            "allow_out_of_order_execution",
            "enable_task_events",
            "enable_tensor_transport",
            "get_if_exists",
            "placement_group_capture_child_tasks",
        ),
        _bool,
    ),
}

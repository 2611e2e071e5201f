# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The decorator @sheaf.remote."""

from __future__ import annotations

from sheaf import options
from sheaf._internal import signatures
from sheaf.actor import ActorClass
from sheaf.remote_function import RemoteFunction

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


def remote(*args: Any, **given: Any) -> Any:
    """Makes a function or a class remote: `@remote`, `@remote(num_cpus=2)`, or `remote(function)`.

    Args:
        args: the function or class, where there are no options.
        given: options by name. Of both: num_cpus (1 where it is not given; actors hold it only
            until they run), num_gpus, memory (bytes), resources (amounts by name), label_selector,
            scheduling_strategy, runtime_env, name. Of functions: num_returns (a number or
            "streaming"), max_retries (3; -1 is no bound), retry_exceptions (True, or a list of
            classes), max_calls. Of classes: max_restarts (0), max_task_retries (0),
            max_concurrency, concurrency_groups, lifetime ("detached"), namespace, get_if_exists,
            max_pending_calls.

    Returns:
        A RemoteFunction or an ActorClass; with options alone, a decorator that makes one.

    Raises:
        ValueError: there is no such option, or its value is wrong; the text names it.
        TypeError: the value of an option has the wrong type, or what is decorated is no function or
            class.
        AssertionError: neither a function or class nor options are given, or both.
    """
    if len(args) == 1 and not given and callable(args[0]):
        return _make(args[0], {})
    if args or not given:
        raise AssertionError(
            "The @ray.remote decorator must be applied as @remote, or with options by name, as "
            f"@remote(num_cpus=2, max_retries=0); got {args!r} and options {sorted(given)}"
        )
    return lambda target: _make(target, given)


def _make(target: Any, given: dict[str, Any]) -> Any:
    if isinstance(target, type):
        options.check("actor", given)
        return ActorClass(target, given)
    if isinstance(target, (RemoteFunction, ActorClass)):
        raise TypeError(
            "The @ray.remote decorator must be applied to either a function or a class: "
            f"{target!r} is remote already: use .options(...) for other options"
        )
    if not callable(target):
        raise TypeError(
            "The @ray.remote decorator must be applied to either a function or a class, got "
            f"{target!r}"
        )
    options.check_task(given, signatures.is_generator(target))
    return RemoteFunction(target, given)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of remote functions, classes and methods: which there are, what they may hold, and what
the runtime makes of them."""

from __future__ import annotations

import math

from sheaf import _core, cluster

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

TASK_ONLY = {
    "max_calls",
    "max_retries",
    "num_returns",
    "retry_exceptions",
    "_generator_backpressure_num_objects",
    "_num_objects_per_yield",
}
ACTOR_ONLY = {
    "allow_out_of_order_execution",
    "concurrency_groups",
    "enable_tensor_transport",
    "get_if_exists",
    "lifetime",
    "max_concurrency",
    "max_pending_calls",
    "max_restarts",
    "max_task_retries",
    "namespace",
    "_actor_generator_backpressure_num_objects",
}
COMMON = {
    "accelerator_type",
    "enable_task_events",
    "fallback_strategy",
    "label_selector",
    "memory",
    "name",
    "num_cpus",
    "num_gpus",
    "object_store_memory",
    "placement_group",
    "placement_group_bundle_index",
    "placement_group_capture_child_tasks",
    "resources",
    "runtime_env",
    "scheduling_strategy",
    "_labels",
    "_metadata",
}
METHOD = {
    "concurrency_group",
    "enable_task_events",
    "max_task_retries",
    "name",
    "num_returns",
    "retry_exceptions",
    "tensor_transport",
    "_generator_backpressure_num_objects",
    "_num_objects_per_yield",
}
_PLACED = {
    "fallback_strategy",
    "label_selector",
    "placement_group",
    "placement_group_bundle_index",
    "placement_group_capture_child_tasks",
    "scheduling_strategy",
}
_MAX_RETURNS = 60_000  # worker/limits.h
_MOST = 2**31 - 1  # Of a count in the protocol.
_COUNTS_OR_NO_BOUND = {
    "max_retries",
    "max_restarts",
    "max_task_retries",
    "max_pending_calls",
    "_generator_backpressure_num_objects",
    "_actor_generator_backpressure_num_objects",
}
_PER_KIND = {"task": TASK_ONLY | COMMON, "actor": ACTOR_ONLY | COMMON, "method": METHOD}


def check(kind: str, options: dict[str, Any]) -> None:
    """Checks options by name and value; `kind` is "task", "actor" or "method".

    Raises ValueError, or TypeError for the type of a value, naming the option, the value and what
    is wanted.
    """
    known = _PER_KIND[kind]
    for name, value in options.items():
        if name not in known:
            raise ValueError(_unknown(kind, name, known))
        if value is not None:
            _check_value(name, value)
    if options.get("scheduling_strategy") is not None and options.get("placement_group") not in (
        None,
        "default",
    ):
        raise ValueError(
            "Placement groups should be specified via the scheduling_strategy option: give that or "
            "placement_group, not both"
        )
    if (
        kind == "actor"
        and (options.get("lifetime") == "detached" or options.get("get_if_exists"))
        and not options.get("name")
    ):
        raise ValueError(
            "a detached actor, and get_if_exists, need a name to be found by: add name='...'"
        )


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    other = {"task": ACTOR_ONLY, "actor": TASK_ONLY, "method": ACTOR_ONLY | TASK_ONLY | COMMON}[
        kind
    ]
    if name in other:
        whose = (
            "actors"
            if kind == "task"
            else "remote functions"
            if kind == "actor"
            else "functions and classes"
        )
        return f"the option {name} is for {whose}, not for a {kind}"
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else "there are: " + ", ".join(sorted(n for n in known if n[0] != "_"))
    )
    return f"there is no option '{name}': {hint}"


def _check_value(name: str, value: Any) -> None:
    if name in ("num_cpus", "num_gpus", "memory", "object_store_memory"):
        _check_amount(name, value)
    elif name == "resources":
        if not isinstance(value, dict):
            raise TypeError(f"resources={value!r}: want a dict of amounts, as {{'slot': 1}}")
        for resource, amount in value.items():
            if not isinstance(resource, str):
                raise TypeError(f"resources={value!r}: want names that are str, got {resource!r}")
            _check_text("resources", resource)
            if resource in ("CPU", "GPU", "memory"):
                instead = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}[resource]
                raise ValueError(f"resources={value!r}: use {instead}={amount!r} for {resource}")
            _check_amount(f"resources[{resource!r}]", amount)
    elif name == "num_returns":
        if value not in ("streaming", "dynamic") and (
            not isinstance(value, int) or isinstance(value, bool) or value < 0
        ):
            raise ValueError(
                f"num_returns={value!r}: want a number that is not negative, or 'streaming'"
            )
        if isinstance(value, int) and value > _MAX_RETURNS:
            raise ValueError(
                f"num_returns={value}: at most {_MAX_RETURNS}; return one list, or "
                "make it 'streaming'"
            )
    elif name in _COUNTS_OR_NO_BOUND:
        if not isinstance(value, int) or value < -1:
            raise ValueError(f"{name}={value!r}: want a number, or -1 for no bound")
        _check_most(name, value)
    elif name == "max_concurrency":
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"max_concurrency={value!r}: want a number from 1")
        _check_most(name, value)
    elif name == "max_calls":
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"max_calls={value!r}: want a number; 0 is no bound")
        _check_most(name, value)
    elif name == "lifetime":
        if value not in ("detached", "non_detached"):
            raise ValueError(f"lifetime={value!r}: want 'detached' or None")
    elif name in ("name", "namespace", "concurrency_group"):
        if not isinstance(value, str):
            raise TypeError(f"{name}={value!r}: want a str")
        if name != "concurrency_group" and not value:
            raise ValueError(f"{name}='': want a name that is not empty")
        _check_text(name, value)
    elif name == "retry_exceptions":
        if not isinstance(value, (bool, list, tuple)) or (
            not isinstance(value, bool) and not all(map(_is_exception, value))
        ):
            raise TypeError(
                f"retry_exceptions={value!r}: want True, False, or a list of exception classes"
            )
    elif name in _PLACED:
        _check_place(name, value)
    elif name == "concurrency_groups":
        if not isinstance(value, dict) or not all(
            isinstance(n, int) and n > 0 for n in value.values()
        ):
            raise ValueError(
                f"concurrency_groups={value!r}: want a dict of numbers from 1, as {{'io': 2}}"
            )
        for group, most in value.items():
            if not isinstance(group, str):
                raise TypeError(
                    f"concurrency_groups={value!r}: want names that are str, got {group!r}"
                )
            _check_text("concurrency_groups", group)
            _check_most(f"concurrency_groups[{group!r}]", most)


def _check_place(name: str, value: Any) -> None:
    """Where a call shall run: the types, and the labels."""
    from sheaf.util import placement_group, scheduling_strategies  # For those that are placed.

    strategies = scheduling_strategies
    wanted: Any = {
        "fallback_strategy": (list, "a list of dicts, as [{'label_selector': {'zone': 'a'}}]"),
        "label_selector": (dict, "a dict of labels, as {'zone': 'a'}"),
        "placement_group": (
            (str, placement_group.PlacementGroup),
            "a placement group, or 'default'",
        ),
        "placement_group_bundle_index": (int, "a number; -1 is any bundle"),
        "placement_group_capture_child_tasks": (bool, "True or False"),
        "scheduling_strategy": (
            (
                str,
                strategies.PlacementGroupSchedulingStrategy,
                strategies.NodeAffinitySchedulingStrategy,
                strategies.NodeLabelSchedulingStrategy,
            ),
            "'DEFAULT', 'SPREAD', or an object of sheaf.util.scheduling_strategies",
        ),
    }[name]
    no_group = name == "placement_group" and isinstance(value, str) and value != "default"
    if no_group or not isinstance(value, wanted[0]):
        raise TypeError(f"{name}={value!r}: want {wanted[1]}")
    if name == "label_selector":
        strategies.check_selector(name, value)
    elif name == "fallback_strategy":
        for entry in value:
            if not isinstance(entry, dict) or set(entry) != {"label_selector"}:
                raise ValueError(f"{name}: {entry!r}: want {{'label_selector': {{'zone': 'a'}}}}")
            if entry["label_selector"]:
                strategies.check_selector(name, entry["label_selector"])


def _check_most(name: str, value: int) -> None:
    if value > _MOST:
        raise ValueError(f"{name}={value}: at most {_MOST}")


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{name}={value!r}: it has half of a character, which is no text"
        ) from None


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _check_amount(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}={value!r}: want a number")
    if math.isnan(value) or value < 0:
        raise ValueError(f"{name}={value!r}: want a number that is not negative")


def resources_of(options: dict[str, Any], default_cpus: float) -> dict[str, float]:
    """The amounts that the options ask for, by resource."""
    amounts = {
        name: float(amount)
        for name, amount in (options.get("resources") or {}).items()
        if not name.startswith("node:")
    }
    cpus = options.get("num_cpus")
    amounts["CPU"] = default_cpus if cpus is None else float(cpus)
    if options.get("num_gpus"):
        amounts["GPU"] = float(options["num_gpus"])
    if options.get("memory"):
        amounts["memory"] = float(options["memory"])
    if options.get("accelerator_type"):
        amounts["accelerator_type:" + options["accelerator_type"]] = 0.001
    return {name: amount for name, amount in amounts.items() if amount}


def strategy_of(options: dict[str, Any], amounts: dict[str, float]) -> dict[str, Any]:
    """scheduling_strategy, placement_group and label_selector as the runtime takes them, for a call
    that asks for `amounts`."""
    from sheaf.util import scheduling_strategies  # `import sheaf` does without sheaf.util.

    given = options.get("scheduling_strategy")
    named = [name for name in options.get("resources") or () if name.startswith("node:")]
    if named and given is None:
        number = cluster.node_named(named[0])
        if number is not None:
            return {"kind": "node", "node": number, "soft": False}
    group = options.get("placement_group")
    index = options.get("placement_group_bundle_index", -1)
    if given is None and (group not in (None, "default") or index != -1):
        given = scheduling_strategies.PlacementGroupSchedulingStrategy(
            None if group == "default" else group,
            index,
            options.get("placement_group_capture_child_tasks"),
        )
    if given is None and group is None and "placement_group" in options:
        given = "DEFAULT"  # Out of the group that the caller hands down.
    strategy = scheduling_strategies.as_dict(given, amounts)
    selectors = [
        options.get("label_selector"),
        *(s.get("label_selector") for s in options.get("fallback_strategy") or ()),
    ]
    terms = [scheduling_strategies.selector_terms(s) for s in selectors if s]
    if terms:
        strategy["selectors"] = strategy.get("selectors", []) + terms
    if "kind" not in strategy:
        inherited = scheduling_strategies.inherited()
        if inherited is not None:
            strategy.update(inherited)
    return strategy


def environment_of(runtime_env: Any) -> dict[str, str]:
    """runtime_env as what a worker is started with. In a worker, its own environment lies beneath.
    What the environment holds is in the cluster afterwards."""
    if not runtime_env and not _core.is_worker():
        return {}
    from sheaf import runtime_env as module  # For those that have one.

    own = module.entries_of_worker() if _core.is_worker() else {}
    if not runtime_env:
        return own
    plan = module.plan(runtime_env)
    plan.upload()
    return {**own, **plan.entries}


def for_task(options: dict[str, Any], streaming: bool) -> dict[str, Any]:
    """What make_template takes for a remote function."""
    returns = options.get("num_returns")
    retries = options.get("max_retries")
    rule = options.get("retry_exceptions")
    amounts = resources_of(options, 1.0)
    return {
        "kind": "task",
        "resources": amounts,
        "strategy": strategy_of(options, amounts),
        "environment": environment_of(options.get("runtime_env")),
        "num_returns": 0 if streaming else 1 if returns in (None, "dynamic") else returns,
        "streaming": streaming,
        "max_unconsumed": _unconsumed(options.get("_generator_backpressure_num_objects")),
        "max_retries": 3 if retries is None else retries,
        "retry_exceptions": bool(rule),
        "max_calls": options.get("max_calls") or 0,
    }


def for_actor(options: dict[str, Any], is_async: bool, groups: dict[str, int]) -> dict[str, Any]:
    """What make_template takes for a remote class."""
    placing = resources_of(options, 1.0)
    out: dict[str, Any] = {"kind": "actor", "resources": placing}
    if options.get("num_cpus") is None:  # A CPU to be placed, none to run.
        out["running"] = resources_of(options, 0.0)
        if options.get("num_gpus") or options.get("resources") or options.get("memory"):
            out["resources"] = out["running"]
    out.update(
        strategy=strategy_of(options, placing),
        environment=environment_of(options.get("runtime_env")),
        max_restarts=options.get("max_restarts") or 0,
        max_task_retries=options.get("max_task_retries") or 0,
        max_concurrency=options.get("max_concurrency") or 0,
        is_async=is_async,
        concurrency_groups={**groups, **(options.get("concurrency_groups") or {})},
        out_of_order=bool(options.get("allow_out_of_order_execution")),
        max_pending_calls=-1
        if options.get("max_pending_calls") is None
        else options["max_pending_calls"],
        actor_name=options.get("name") or "",
        namespace=options.get("namespace") or "",
        detached=options.get("lifetime") == "detached",
        get_if_exists=bool(options.get("get_if_exists")),
    )
    return out


def for_method(options: dict[str, Any], streaming: bool) -> dict[str, Any]:
    """What make_template takes for an actor's method."""
    returns = options.get("num_returns")
    out: dict[str, Any] = {
        "kind": "method",
        "num_returns": 0 if streaming else 1 if returns is None else returns,
        "streaming": streaming,
        "max_unconsumed": _unconsumed(options.get("_generator_backpressure_num_objects")),
        "retry_exceptions": bool(options.get("retry_exceptions")),
        "concurrency_group": options.get("concurrency_group") or "",
    }
    if options.get("max_task_retries") is not None:
        out["max_retries"] = options["max_task_retries"]
    return out


def _unconsumed(bound: int | None) -> int:
    return bound if bound is not None and bound > 0 else 0


def is_streaming(options: dict[str, Any], is_generator: bool) -> bool:
    """Whether a call gives a generator of references: asked for, or natural for the function."""
    returns = options.get("num_returns")
    return returns == "streaming" or (returns is None and is_generator)

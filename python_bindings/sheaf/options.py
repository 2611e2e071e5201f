# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of remote functions, classes and methods: which there are, what they may hold, and what
the runtime makes of them."""

from __future__ import annotations

from sheaf import _core, cluster
from sheaf._internal import option_values

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
    "_generator_backpressure_bytes",
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
    "_generator_backpressure_bytes",
    "_num_objects_per_yield",
}
# An actor for which one of these is given holds a CPU, as a task does, unless num_cpus says else.
_CPU_HOLDERS = ("num_cpus", "num_gpus", "resources", "accelerator_type")
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
        option_values.check(name, value, kind == "method")
    _check_placing(options)
    _check_environment(options.get("runtime_env"))
    if kind == "actor" and options.get("get_if_exists") and not options.get("name"):
        raise ValueError(
            "The actor name must be specified to use `get_if_exists`: add name='...' to be found by"
        )


def merged(options: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """`options` with those of .options(); an empty runtime_env there leaves the one that was."""
    out = {**options, **given}
    if not given.get("runtime_env", True) and options.get("runtime_env"):
        out["runtime_env"] = options["runtime_env"]
    return out


def check_task(given: dict[str, Any], is_generator: bool) -> None:
    """Checks the options of a remote function; raises as `check`."""
    check("task", given)
    option_values.check_items(is_generator, given)
    if given.get("object_store_memory") is not None:
        raise ValueError("Setting 'object_store_memory' is not implemented for tasks: leave it out")


def check_task_override(given: dict[str, Any], own: dict[str, Any], is_generator: bool) -> None:
    """Checks what options() of a remote function that has `own` options gets; raises as `check`."""
    check_task(given, is_generator)
    per_yield = "_num_objects_per_yield"
    if per_yield in given and given[per_yield] != (own.get(per_yield) or 1):
        raise ValueError(
            f"{per_yield} cannot be overridden per task call: {per_yield}={given[per_yield]!r}: it "
            "is for the decorator"
        )
    if "max_calls" in given:
        raise ValueError(
            "Setting 'max_calls' is not supported in '.options()': it counts all calls of the "
            "function, give it to the decorator"
        )


def check_actor_name(options: dict[str, Any]) -> None:
    """ValueError: a name that an actor cannot be found by."""
    if options.get("name") == "":
        raise ValueError("Actor name cannot be an empty string: name='': want a name, or None")
    if options.get("namespace") == "":
        raise ValueError("\"\" is not a valid namespace: namespace='': want a name, or None")


def _check_environment(runtime_env: Any) -> None:
    """Raises what is wrong with it now. What Sheaf does not have is refused by the call, not where
    a function is only defined. A worker that imports the module has not the driver's files."""
    if runtime_env and not _core.is_worker():
        from sheaf import runtime_env as module  # For those that have one.

        try:
            module.check(runtime_env)
        except NotImplementedError:
            pass


def _check_placing(options: dict[str, Any]) -> None:
    """The options that say where to run, which are objects of sheaf.util."""
    strategy = options.get("scheduling_strategy")
    group = options.get("placement_group")
    if strategy is not None and not isinstance(strategy, str):
        from sheaf.util import scheduling_strategies as kinds  # `import sheaf` does without it.

        if not isinstance(
            strategy,
            (
                kinds.PlacementGroupSchedulingStrategy,
                kinds.NodeAffinitySchedulingStrategy,
                kinds.NodeLabelSchedulingStrategy,
            ),
        ):
            raise TypeError(
                "The type of keyword 'scheduling_strategy' must be another than "
                f"{type(strategy).__name__}: scheduling_strategy={strategy!r}: want 'DEFAULT', "
                "'SPREAD', or an object of sheaf.util.scheduling_strategies"
            )
    if group is None or group == "default":
        return
    if strategy is not None:
        raise ValueError(
            "Placement groups should be specified via the scheduling_strategy option: there are "
            f"placement_group={group!r} and scheduling_strategy={strategy!r}, want one of them"
        )
    if not isinstance(group, str) and not hasattr(group, "bundle_count"):  # Of a PlacementGroup.
        raise TypeError(
            f"The type of keyword 'placement_group' must be another than {type(group).__name__}: "
            f"placement_group={group!r}: want a PlacementGroup"
        )


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    whose = {"task": "remote functions", "actor": "actors", "method": "methods"}
    said = f"Invalid option keyword {name} for {whose[kind]}: "
    others = [of for of, names in _PER_KIND.items() if of != kind and name in names]
    if others:
        return said + f"it is for {' and '.join(whose[of] for of in others)}"
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return said + (
        f"did you mean {near[0]}?"
        if near
        else "there are: " + ", ".join(sorted(n for n in known if n[0] != "_"))
    )


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
        "max_unconsumed_bytes": _unconsumed(options.get("_generator_backpressure_bytes")),
        "max_retries": 3 if retries is None else retries,
        "retry_exceptions": bool(rule),
        "max_calls": options.get("max_calls") or 0,
    }


def for_actor(options: dict[str, Any], is_async: bool, groups: dict[str, int]) -> dict[str, Any]:
    """What make_template takes for a remote class."""
    at_once = is_async or (options.get("max_concurrency") or 1) > 1
    in_order = options.get("allow_out_of_order_execution") is False
    if in_order and at_once:
        raise ValueError(
            "allow_out_of_order_execution=False: an actor that is async, or has max_concurrency, "
            "runs several calls at once, in no order"
        )
    placing = resources_of(options, 1.0)
    out: dict[str, Any] = {"kind": "actor", "resources": placing}
    if all(options.get(name) is None for name in _CPU_HOLDERS):  # One to be placed, none to run.
        out["running"] = resources_of(options, 0.0)
    out.update(
        strategy=strategy_of(options, placing),
        environment=environment_of(options.get("runtime_env")),
        max_restarts=options.get("max_restarts") or 0,
        max_task_retries=options.get("max_task_retries") or 0,
        max_concurrency=options.get("max_concurrency") or 0,
        is_async=is_async,
        concurrency_groups={**groups, **(options.get("concurrency_groups") or {})},
        out_of_order=at_once or bool(options.get("allow_out_of_order_execution")),
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
        "max_unconsumed_bytes": _unconsumed(options.get("_generator_backpressure_bytes")),
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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Placement groups: bundles of resources, reserved together."""

from __future__ import annotations

import importlib
import sys
import time
import types
import warnings
from typing import Any

from sheaf import _core
from sheaf.exceptions import GetTimeoutError, RaySystemError, TaskPlacementGroupRemoved
from sheaf.ids import NodeID, PlacementGroupID, node_id, node_number
from sheaf.remote_function import RemoteFunction
from sheaf.util.scheduling_strategies import (
    PlacementGroupSchedulingStrategy,
    check_selector,
    selector_terms,
)

_PLACEMENTS = {"PACK": 0, "SPREAD": 1, "STRICT_PACK": 2, "STRICT_SPREAD": 3}
VALID_PLACEMENT_GROUP_STRATEGIES = set(_PLACEMENTS)
_NODE_LABEL = "ray.io/node-id"  # In topology_strategy: what `strategy` says.
_REMOVAL_S = 1
_SOON_S = 0.002
_LOOKUP_S = 30  # A node that is dead is declared so long before.


class PlacementGroup:
    """A group of bundles of resources, reserved together. It may be passed to tasks and actors, and
    lives until it is removed or its job ends (lifetime="detached": beyond that).

    Args:
        group_id: names the group.
        bundle_cache: its bundles, where they are known.
    """

    def __init__(
        self, group_id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None
    ):
        self.id = group_id
        self._bundles = bundle_cache
        self._name, self._strategy = "", ""  # For its row when it is removed, where they are known.

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self._bundles is None:
            rows = _core.groups([("group_id", self.id.hex())])
            self._bundles = rows[0]["bundles"] if rows else []
        return self._bundles

    @property
    def bundle_count(self) -> int:
        """How many bundles there are."""
        return len(self.bundle_specs)

    @property
    def is_empty(self) -> bool:
        """Whether it names no group."""
        return self.id.is_nil()

    @staticmethod
    def empty() -> PlacementGroup:
        """Returns a group that names none."""
        return PlacementGroup(PlacementGroupID("0" * 32), [])

    def ready(self) -> Any:
        """Returns an ObjectRef of the group, which is ready when all its bundles are reserved.

        Getting it raises TaskPlacementGroupRemoved when the group is removed before that.
        """
        # A call in the group needs a worker of its own, which takes a hundred times as long as most
        # groups take to be reserved.
        if self.is_empty or self._is_reserved(_SOON_S):
            return _core.put(self)
        where = PlacementGroupSchedulingStrategy(self, -1)
        return RemoteFunction(
            _itself, {"num_cpus": 0, "scheduling_strategy": where, "name": "placement_group.ready"}
        ).remote(self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are reserved.

        Args:
            timeout_seconds: how long at most; what is negative is 0.

        Returns:
            False when the time is up before that.

        Raises:
            TaskPlacementGroupRemoved: the group was removed.
        """
        state = _core.wait_group(
            self.id.hex(), None if timeout_seconds is None else max(timeout_seconds, 0)
        )
        if state is None:
            return False
        if state[0] == "REMOVED":
            raise TaskPlacementGroupRemoved(
                f"the placement group {self.id.hex()} was removed: {state[2]}"
            )
        return state[0] == "CREATED"

    def _is_reserved(self, wait_s: float) -> bool:
        state = _core.wait_group(self.id.hex(), wait_s)
        return state is not None and state[0] == "CREATED"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"

    def __reduce__(self) -> Any:
        return _group, (self.id, self._bundles, self._name, self._strategy)


def _group(
    id: PlacementGroupID, bundles: list[dict[str, float]] | None, name: str, strategy: str
) -> PlacementGroup:
    made = PlacementGroup(id, bundles)
    made._name, made._strategy = name, strategy
    return made


def _itself(group: PlacementGroup) -> PlacementGroup:
    return group


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Asks for bundles of resources, all of them or none; gives the group at once.

    See PlacementGroup.ready and PlacementGroup.wait for when it is reserved.

    Args:
        bundles: amounts by resource, one dict for each bundle: [{"CPU": 1, "GPU": 1}].
        strategy: PACK (on few nodes; the default), SPREAD (on many), STRICT_PACK (on one), or
            STRICT_SPREAD (on a node each).
        name: by which get_placement_group finds it; "": it has none.
        lifetime: None: it ends with the job; "detached": when it is removed.
        bundle_label_selector: for each bundle, the labels that its node must have.
        topology_strategy: the strategy as {"ray.io/node-id": "PACK"}; other labels are not in
            Sheaf.

    Returns:
        The group.

    Raises:
        ValueError: wrong bundles, labels, strategy or lifetime.
        RaySystemError: another group has the name.
        NotImplementedError: a label in topology_strategy.
    """
    placement = _strategy(strategy, topology_strategy)
    if _soft_target_node_id:
        _check_target(_soft_target_node_id, placement)
    _check_bundles(bundles)
    selectors = _selectors(bundle_label_selector, len(bundles))
    if lifetime not in (None, "detached"):
        raise ValueError(
            f"lifetime={lifetime!r}: the placement group `lifetime` argument must be either `None` "
            "or 'detached'"
        )
    if name:
        _check_name(name)
    made = [{resource: float(amount) for resource, amount in bundle.items()} for bundle in bundles]
    group = _core.create_group(
        made, _PLACEMENTS[placement], name, lifetime == "detached", selectors
    )
    return _group(PlacementGroupID(group), made, name, placement)


def _check_name(name: str) -> None:
    """RaySystemError where a group has the name. One that was removed just now may be listed."""
    deadline = time.monotonic() + _REMOVAL_S
    while any(row["name"] == name for row in _core.groups() if row["state"] != "REMOVED"):
        if time.monotonic() >= deadline:
            raise RaySystemError(f"a placement group named '{name}' does already exist")
        time.sleep(0.05)


def _strategy(strategy: str | None, topology: Any) -> str:
    """Which of _PLACEMENTS the two ask for."""
    if topology is None:
        if strategy is not None and strategy not in VALID_PLACEMENT_GROUP_STRATEGIES:
            raise ValueError(
                f"Invalid placement group strategy {strategy}. Supported strategies are: "
                f"{', '.join(_PLACEMENTS)}"
            )
        return strategy or "PACK"
    if strategy is not None:
        raise ValueError(
            f"strategy={strategy!r}: `strategy` and `topology_strategy` cannot both be specified"
        )
    if not isinstance(topology, dict):
        raise ValueError(f"topology_strategy={topology!r}: want {{'{_NODE_LABEL}': 'PACK'}}")
    for label, placement in topology.items():
        allowed = list(_PLACEMENTS) if label == _NODE_LABEL else ["STRICT_PACK"]
        if not isinstance(label, str) or not label or placement not in allowed:
            raise ValueError(
                f"topology_strategy: {label!r}: {placement!r}: want a label and one of "
                f"{', '.join(allowed)}"
            )
    if set(topology) - {_NODE_LABEL}:
        raise NotImplementedError(
            "topology_strategy of placement groups is not in Sheaf: use labels and "
            "bundle_label_selector"
        )
    return topology.get(_NODE_LABEL, "PACK")


def _check_target(target: str, placement: str) -> None:
    """The node is a hint, which Sheaf does not take; what Ray refuses is refused."""
    if placement != "STRICT_PACK":
        raise ValueError(
            f"_soft_target_node_id currently only works with STRICT_PACK but got {placement}"
        )
    if len(target) != 2 * NodeID.size() or not target.strip("f"):
        raise ValueError(f"_soft_target_node_id={target!r}: want a node, as sheaf.nodes() names it")
    node_number(target)


def _check_bundles(bundles: Any) -> None:
    if not isinstance(bundles, list):
        raise ValueError(f"bundles={bundles!r}: placement group bundles must be a list")
    want = "Bundles must be a non-empty list of resource dictionaries, as [{'CPU': 1}]"
    if not bundles:
        raise ValueError(f"bundles=[]: {want}")
    for index, bundle in enumerate(bundles):
        if not isinstance(bundle, dict) or not all(
            isinstance(name, str) and isinstance(amount, (int, float))
            for name, amount in bundle.items()
        ):
            raise ValueError(f"bundles[{index}]={bundle!r}: {want}")
        if not any(bundle.values()):
            raise ValueError(
                f"bundles[{index}]={bundle!r}: Bundles cannot be an empty dictionary or resources "
                "with only 0 values"
            )
        if any(amount < 0 for amount in bundle.values()):
            raise ValueError(f"bundles[{index}]={bundle!r}: want amounts that are not negative")
        if "object_store_memory" in bundle:
            warnings.warn(
                "object_store_memory in bundles is deprecated: it reserves no memory, and objects "
                "that do not fit are spilled",
                DeprecationWarning,
                stacklevel=3,
            )


def _selectors(selectors: Any, count: int) -> list[Any]:
    """Of each bundle, the terms that the runtime compares; []: there are none."""
    if selectors is None:
        return []
    if not isinstance(selectors, list) or len(selectors) != count:
        raise ValueError(
            f"Invalid bundle label selector {selectors!r}: want a list of as many dicts of labels "
            f"as there are bundles, {count}"
        )
    for selector in selectors:
        if not isinstance(selector, dict) or not all(
            isinstance(key, str) and isinstance(value, str) for key, value in selector.items()
        ):
            raise ValueError(
                f"Invalid bundle label selector {selector!r}: want a dict of str, as "
                "{'zone': 'a'}"
            )
        check_selector("bundle_label_selector", selector)
    return [selector_terms(selector) for selector in selectors]


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the bundles of a group back. Tasks and actors in them end.

    Args:
        placement_group: the group; one that is removed already stays so.
    """
    assert placement_group is not None
    _core.remove_group(placement_group.id.hex())


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Finds a group by its name.

    Args:
        placement_group_name: what `name` of placement_group was.

    Returns:
        The group.

    Raises:
        ValueError: there is none, or the name is empty.
        GetTimeoutError: it is not known: for 30 s some node, or the head, has not answered.
    """
    if not placement_group_name:
        raise ValueError(
            f"placement_group_name={placement_group_name!r}: Please supply a non-empty value to "
            "get_placement_group"
        )
    deadline = time.monotonic() + _LOOKUP_S
    while True:
        rows, all_answered = _core.groups_if_all()
        for row in rows:
            if row["name"] == placement_group_name and row["state"] != "REMOVED":
                id = PlacementGroupID(row["group_id"])
                return _group(id, row["bundles"], row["name"], row["placement"])
        if all_answered:
            raise ValueError(
                f"Failed to look up placement group with name: {placement_group_name}: there is "
                f"no placement group named '{placement_group_name}'"
            )
        if time.monotonic() >= deadline:
            raise GetTimeoutError(
                f"no placement group named '{placement_group_name}' is known, but some node or the "
                f"head has not answered for {_LOOKUP_S} s: ask again, or see 'sheaf status'"
            )
        time.sleep(0.1)


def get_current_placement_group() -> PlacementGroup | None:
    """Returns the group that the running task or actor is in, or None."""
    group = _core.context()["group"]
    return PlacementGroup(PlacementGroupID(group)) if group else None


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """Tells what is known of one group, or of all.

    Args:
        placement_group: None: all groups.

    Returns:
        A dict of placement_group_id, name, bundles (by index), bundles_to_node_id (by index; ""
        where there is no node yet), strategy, state (PENDING, CREATED, REMOVED, ...) and stats,
        whose scheduling_state says why a group waits and whose numbers are 0; {}: the group names
        none. Of all groups such dicts by id.
    """
    rows = {row["group_id"]: _row(row) for row in _core.groups()}
    if placement_group is None:
        return rows
    group = placement_group.id.hex()
    if group in rows or placement_group.is_empty:
        return rows.get(group, {})
    bundles = placement_group._bundles or []
    removed = {  # One that was removed is listed no more.
        "group_id": group,
        "name": placement_group._name,
        "bundles": bundles,
        "nodes": [0] * len(bundles),
        "placement": placement_group._strategy,
        "state": "REMOVED",
    }
    return _row(removed)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "placement_group_id": row["group_id"],
        "name": row["name"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": {
            index: node_id(node) if node else "" for index, node in enumerate(row["nodes"])
        },
        "strategy": row["placement"],
        "state": public_state(row["state"]),
        "stats": {
            "end_to_end_creation_latency_ms": 0.0,
            "scheduling_latency_ms": 0.0,
            "scheduling_attempt": 0,
            "highest_retry_delay_ms": 0.0,
            "scheduling_state": _WAITS_FOR.get(row["state"], row["state"]),
        },
    }


_WAITS_FOR = {"CREATED": "FINISHED", "PENDING": "QUEUED"}


def public_state(state: str) -> str:
    """The state of a group in tables: one that no node could hold now waits, as others do.

    Args:
        state: as the runtime has it.

    Returns:
        The state; PENDING instead of INFEASIBLE.
    """
    return "PENDING" if state == "INFEASIBLE" else state


class _Callable(types.ModuleType):
    """`util.placement_group` is this module, and programs call it as the function of that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "__class__" or value is not types.ModuleType:  # The end of a lazy load.
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:  # Functions refer to it by their globals.
        return importlib.import_module, (__name__,)


sys.modules[__name__].__class__ = _Callable

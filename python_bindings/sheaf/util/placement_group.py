# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Placement groups: bundles of resources, reserved together."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

from sheaf import _core
from sheaf.exceptions import GetTimeoutError, TaskPlacementGroupRemoved
from sheaf.ids import PlacementGroupID, node_id
from sheaf.remote_function import RemoteFunction
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy, selector_terms

_PLACEMENTS = {"PACK": 0, "SPREAD": 1, "STRICT_PACK": 2, "STRICT_SPREAD": 3}
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

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self._bundles is None:
            rows = [row for row in _core.groups() if row["group_id"] == self.id.hex()]
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
        where = PlacementGroupSchedulingStrategy(self, -1)
        return RemoteFunction(
            _itself, {"num_cpus": 0, "scheduling_strategy": where, "name": "placement_group.ready"}
        ).remote(self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until all bundles are reserved.

        Args:
            timeout_seconds: how long at most.

        Returns:
            False when the time is up before that.

        Raises:
            TaskPlacementGroupRemoved: the group was removed.
            ValueError: the time is negative.
        """
        state = _core.wait_group(self.id.hex(), timeout_seconds)
        if state is None:
            return False
        if state[0] == "REMOVED":
            raise TaskPlacementGroupRemoved(
                f"the placement group {self.id.hex()} was removed: {state[2]}"
            )
        return state[0] == "CREATED"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"

    def __reduce__(self) -> Any:
        return PlacementGroup, (self.id, self._bundles)


def _itself(group: PlacementGroup) -> PlacementGroup:
    return group


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str = "PACK",
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: Any = None,
) -> PlacementGroup:
    """Asks for bundles of resources, all of them or none; gives the group at once.

    See PlacementGroup.ready and PlacementGroup.wait for when it is reserved.

    Args:
        bundles: amounts by resource, one dict for each bundle: [{"CPU": 1, "GPU": 1}].
        strategy: PACK (on few nodes), SPREAD (on many), STRICT_PACK (on one), or STRICT_SPREAD (on
            a node each).
        name: by which get_placement_group finds it; "": it has none.
        lifetime: None: it ends with the job; "detached": when it is removed.
        bundle_label_selector: for each bundle, the labels that its node must have.
        topology_strategy: not in Sheaf.

    Returns:
        The group.

    Raises:
        ValueError: wrong bundles, strategy or lifetime, or a name that is taken.
        NotImplementedError: topology_strategy.
    """
    del _soft_target_node_id
    if topology_strategy is not None:
        raise NotImplementedError(
            "topology_strategy of placement groups is not in Sheaf: use labels and "
            "bundle_label_selector"
        )
    if not isinstance(bundles, list) or not bundles:
        raise ValueError(
            f"bundles={bundles!r}: want a list of at least one dict of resources, as [{{'CPU': 1}}]"
        )
    for index, bundle in enumerate(bundles):
        if not isinstance(bundle, dict) or not any(amount > 0 for amount in bundle.values()):
            raise ValueError(
                f"bundles[{index}]={bundle!r}: want a dict with at least one "
                f"resource, as {{'CPU': 1}}"
            )
    if strategy not in _PLACEMENTS:
        raise ValueError(f"strategy={strategy!r}: want one of {', '.join(_PLACEMENTS)}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime={lifetime!r}: want 'detached' or None")
    selectors = [selector_terms(selector) for selector in bundle_label_selector or []]
    made = [{resource: float(amount) for resource, amount in bundle.items()} for bundle in bundles]
    group = _core.create_group(made, _PLACEMENTS[strategy], name, lifetime == "detached", selectors)
    return PlacementGroup(PlacementGroupID(group), bundles)


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the bundles of a group back. Tasks and actors in them end.

    Args:
        placement_group: the group; one that is removed already stays so.
    """
    _core.remove_group(placement_group.id.hex())


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Finds a group by its name.

    Args:
        placement_group_name: what `name` of placement_group was.

    Returns:
        The group.

    Raises:
        ValueError: there is none.
        GetTimeoutError: it is not known: for 30 s some node, or the head, has not answered.
    """
    deadline = time.monotonic() + _LOOKUP_S
    while True:
        rows, all_answered = _core.groups_if_all()
        for row in rows:
            if row["name"] == placement_group_name and row["state"] != "REMOVED":
                return PlacementGroup(PlacementGroupID(row["group_id"]), row["bundles"])
        if all_answered:
            raise ValueError(f"there is no placement group named '{placement_group_name}'")
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
        A dict of placement_group_id, name, bundles (by index), bundles_to_node_id (by index; what
        has no node yet is missing), strategy, state (PENDING, CREATED, REMOVED, ...) and stats; of
        all groups such dicts by id.
    """
    rows = {row["group_id"]: _row(row) for row in _core.groups()}
    if placement_group is None:
        return rows
    group = placement_group.id.hex()
    return rows.get(group) or {  # One that was removed is listed no more.
        "placement_group_id": group,
        "name": "",
        "bundles": dict(enumerate(placement_group._bundles or [])),
        "bundles_to_node_id": {},
        "strategy": "",
        "state": "REMOVED",
        "stats": {},
    }


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "placement_group_id": row["group_id"],
        "name": row["name"],
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": {index: node_id(node) for index, node in enumerate(row["nodes"])},
        "strategy": row["placement"],
        "state": row["state"],
        "stats": {},
    }


class _Callable(types.ModuleType):
    """`util.placement_group` is this module, and programs call it as the function of that name."""

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable

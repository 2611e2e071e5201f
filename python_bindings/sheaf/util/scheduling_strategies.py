# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where tasks and actors may run."""

from __future__ import annotations

from sheaf import _core
from sheaf.ids import node_number

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class PlacementGroupSchedulingStrategy:
    """Runs in a bundle of a placement group.

    Args:
        placement_group: the group.
        placement_group_bundle_index: which of its bundles, from 0; -1: any.
        placement_group_capture_child_tasks: whether what the task calls goes to the group, too.

    Raises:
        ValueError: the group has no such bundle.
    """

    def __init__(
        self,
        placement_group: Any,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ):
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = bool(placement_group_capture_child_tasks)
        count = placement_group.bundle_count
        if not -1 <= placement_group_bundle_index < count:
            raise ValueError(
                f"placement_group_bundle_index={placement_group_bundle_index}: the "
                f"group has {count} bundles, from 0; -1 is any"
            )


class NodeAffinitySchedulingStrategy:
    """Runs on one node.

    Args:
        node_id: the node, as sheaf.nodes() names it.
        soft: whether it may run elsewhere when that node is dead or too small.
    """

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ):
        self.node_id = node_id
        self.soft = soft


class In:
    """The label has one of these values.

    Args:
        values: of the label.
    """

    negated = False

    def __init__(self, *values: str):
        self.values = list(values)


class NotIn(In):
    """The label has none of these values."""

    negated = True


class Exists:
    """The label is there."""


class DoesNotExist:
    """The label is not there."""


class NodeLabelSchedulingStrategy:
    """Runs on a node whose labels fit.

    Args:
        hard: what must hold: In(...), NotIn(...), or words ("a", "!a", "in(a, b)") by label.
        soft: what is preferred.

    Raises:
        ValueError: neither is given.
    """

    def __init__(self, hard: dict[str, Any] | None = None, soft: dict[str, Any] | None = None):
        if not hard and not soft:
            raise ValueError(
                "NodeLabelSchedulingStrategy needs hard or soft labels, as hard={'zone': In('a')}"
            )
        self.hard = hard or {}
        self.soft = soft or {}


def selector_terms(labels: dict[str, Any]) -> list[tuple[str, list[str], bool]]:
    """Takes labels apart as the runtime compares them.

    Args:
        labels: In(...), NotIn(...), or words ("a", "!a", "in(a, b)", "!in(a, b)") by label.

    Returns:
        (label, values, negated) each.

    Raises:
        TypeError: a value is none of these.
    """
    terms = []
    for key, value in labels.items():
        if isinstance(value, In):
            terms.append((key, value.values, value.negated))
        elif isinstance(value, str):
            negated = value.startswith("!")
            words = value[1:] if negated else value
            if words.startswith("in(") and words.endswith(")"):
                terms.append((key, [word.strip() for word in words[3:-1].split(",")], negated))
            else:
                terms.append((key, [words], negated))
        else:
            raise TypeError(f"label {key!r}: {value!r}: want In(...), NotIn(...), or a str")
    return terms


def as_dict(strategy: Any) -> dict[str, Any]:
    """Gives a strategy as the runtime takes it.

    Args:
        strategy: None, "DEFAULT", "SPREAD", or an object of this module.

    Returns:
        What _core.make_template takes; {} of None.

    Raises:
        ValueError: it is no strategy.
        TypeError: it has labels that are none.
    """
    if strategy is None:
        return {}
    if strategy == "DEFAULT":
        return {"kind": "hybrid"}
    if strategy == "SPREAD":
        return {"kind": "spread"}
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        return {
            "kind": "group",
            "group": strategy.placement_group.id.hex(),
            "bundle": strategy.placement_group_bundle_index,
            "capture": strategy.placement_group_capture_child_tasks,
        }
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        return {"kind": "node", "node": node_number(strategy.node_id), "soft": bool(strategy.soft)}
    if isinstance(strategy, NodeLabelSchedulingStrategy):
        hard = selector_terms(strategy.hard)
        both = hard + selector_terms(strategy.soft)
        return {"kind": "hybrid", "selectors": [both, hard] if strategy.soft else [hard]}
    raise ValueError(
        f"scheduling_strategy={strategy!r}: want 'DEFAULT', 'SPREAD', or an object "
        "of sheaf.util.scheduling_strategies"
    )


def inherited() -> dict[str, Any] | None:
    """Tells which placement group the running task hands down to those that it calls.

    Returns:
        A strategy as as_dict gives it, or None.
    """
    if not _core.is_worker():
        return None
    context = _core.context()
    if not context["group"] or not context["captures"]:
        return None
    return {"kind": "group", "group": context["group"], "bundle": -1, "capture": True}

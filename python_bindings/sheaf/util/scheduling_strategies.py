# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where tasks and actors may run."""

from __future__ import annotations

from sheaf import _core
from sheaf.ids import node_number

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class PlacementGroupSchedulingStrategy:
    """In a bundle of a placement group; index -1 is any. Child tasks go there too where capture
    says so."""

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
    """On one node; soft: elsewhere if it is dead or too small."""

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
    """The label has one of these values."""

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
    """On a node whose labels fit: `hard` must hold, `soft` is preferred."""

    def __init__(self, hard: dict[str, Any] | None = None, soft: dict[str, Any] | None = None):
        if not hard and not soft:
            raise ValueError(
                "NodeLabelSchedulingStrategy needs hard or soft labels, as hard={'zone': In('a')}"
            )
        self.hard = hard or {}
        self.soft = soft or {}


def selector_terms(labels: dict[str, Any]) -> list[tuple[str, list[str], bool]]:
    """(key, values, negated) for each label; values are In, NotIn, or words as "a", "!a", "in(a,
    b)", "!in(a, b)"."""
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
    """A strategy as the runtime takes it. ValueError, TypeError: it is none."""
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
    """The placement group that the running task hands down to those it calls, or None."""
    if not _core.is_worker():
        return None
    context = _core.context()
    if not context["group"] or not context["captures"]:
        return None
    return {"kind": "group", "group": context["group"], "bundle": -1, "capture": True}

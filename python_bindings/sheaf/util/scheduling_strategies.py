# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where tasks and actors may run."""

from __future__ import annotations

import re

from sheaf import _core
from sheaf.ids import node_number

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

_NO_NODE = 2**32 - 1  # What is no number of a node is the id of one that never was.
_NODE_ID = re.compile(r"[0-9a-fA-F]{56}")
_LABEL = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")
_PREFIX = re.compile(rf"(?=.{{1,253}}$){_LABEL.pattern}(\.{_LABEL.pattern})*")
_WORDS = re.compile(rf"!?({_LABEL.pattern}|(in)?\({_LABEL.pattern}(, ?{_LABEL.pattern})*\))")


class PlacementGroupSchedulingStrategy:
    """Runs in a bundle of a placement group.

    Args:
        placement_group: the group; "default": that of the caller, if it hands one down.
        placement_group_bundle_index: which of its bundles, from 0; -1: any.
        placement_group_capture_child_tasks: whether what the task calls goes to the group, too.

    A call raises ValueError where the group has no such bundle, or none that is large enough.
    """

    def __init__(
        self,
        placement_group: Any,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ):
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy:
    """Runs on one node.

    Args:
        node_id: the node, as sheaf.nodes() names it.
        soft: whether it may run elsewhere when that node is dead or too small.

    Raises:
        ValueError: `node_id` is no id of a node.
    """

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ):
        if not isinstance(node_id, str):
            node_id = node_id.hex()
        if not _NODE_ID.fullmatch(node_id) or not node_id.strip("f"):
            raise ValueError(
                f"Invalid node_id '{node_id}': want 56 hexadecimal digits, as "
                "ray.nodes()[0]['NodeID']"
            )
        if _spill_on_unavailable and not soft:
            raise ValueError("_spill_on_unavailable cannot be set when soft is False")
        if _fail_on_unavailable and soft:
            raise ValueError("_fail_on_unavailable cannot be set when soft is True")
        self.node_id = node_id
        self.soft = soft


class In:
    """The label has one of these values.

    Args:
        values: of the label.

    Raises:
        ValueError: there is none, or one is no str.
    """

    negated = False

    def __init__(self, *values: str):
        name = type(self).__name__
        if not values:
            raise ValueError(f"{name}(): values must be a non-empty tuple, as {name}('a', 'b')")
        for value in values:
            if not isinstance(value, str):
                raise ValueError(f"{name}: {value!r}: each value must be str, as {name}('a', 'b')")
        self.values = list(values)


class NotIn(In):
    """The label has none of these values."""

    negated = True


class Exists:
    """The label is there."""

    def __init__(self) -> None:
        pass


class DoesNotExist:
    """The label is not there."""

    def __init__(self) -> None:
        pass


class NodeLabelSchedulingStrategy:
    """Runs on a node whose labels fit.

    Args:
        hard: what must hold: In(...), NotIn(...), Exists() or DoesNotExist() by label.
        soft: what is preferred.

    Raises:
        ValueError: neither is given, or one has something else in it.
    """

    def __init__(self, hard: dict[str, Any] | None, *, soft: dict[str, Any] | None = None):
        for name, labels in (("hard", hard or {}), ("soft", soft or {})):
            if not isinstance(labels, dict):
                raise ValueError(f"{name}={labels!r}: want a dict, as {{'zone': In('a')}}")
            for key, value in labels.items():
                if not isinstance(key, str) or not isinstance(value, (In, Exists, DoesNotExist)):
                    raise ValueError(
                        f"{name}: {key!r}: {value!r}: want one of the `In`, `NotIn`, `Exists` or "
                        "`DoesNotExist`, by a label that is str"
                    )
        if not hard and not soft:
            raise ValueError(
                "the `hard` and `soft` parameter of NodeLabelSchedulingStrategy cannot both be "
                "empty: give labels, as hard={'zone': In('a')}"
            )
        self.hard = hard or {}
        self.soft = soft or {}


def check_selector(option: str, labels: Any) -> None:
    """Checks labels as Kubernetes does, by which nodes are named in many places.

    Args:
        option: what holds the labels, for messages.
        labels: words ("a", "!a", "in(a, b)", "!in(a, b)") by label.

    Raises:
        ValueError: a label or its words are wrong.
        TypeError: one is no str.
    """
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, (str, type(None))):
            raise TypeError(f"{option}: {key!r}: {value!r}: want labels and words that are str")
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
            raise ValueError(
                f"{option}: Invalid label key name `{key}`: want letters and digits, with '-', '_' "
                "and '.' between, 63 at most; a domain and '/' may stand before them"
            )
        if value and not _WORDS.fullmatch(value):
            raise ValueError(
                f"{option}: Invalid label selector value `{value}` of {key!r}: want 'a', '!a', "
                "'in(a, b)' or '!in(a, b)', of letters and digits with '-', '_' and '.' between"
            )


def selector_terms(labels: dict[str, Any]) -> list[tuple[str, list[str], bool]]:
    """Takes labels apart as the runtime compares them.

    Args:
        labels: In(...), NotIn(...), Exists(), DoesNotExist(), or words ("a", "!a", "in(a, b)",
            "!in(a, b)") by label.

    Returns:
        (label, values, negated) each.

    Raises:
        TypeError: a value is none of these.
    """
    terms = []
    for key, value in labels.items():
        if isinstance(value, In):
            terms.append((key, value.values, value.negated))
        elif isinstance(value, (Exists, DoesNotExist)):  # No values: only whether it is there.
            terms.append((key, [], isinstance(value, DoesNotExist)))
        elif isinstance(value, str):
            negated = value.startswith("!")
            words = value[1:] if negated else value
            if words.endswith(")"):
                several = words[words.index("(") + 1 : -1].split(",")
                terms.append((key, [word.strip() for word in several], negated))
            else:
                terms.append((key, [words], negated))
        else:
            raise TypeError(f"label {key!r}: {value!r}: want In(...), NotIn(...), or a str")
    return terms


def as_dict(strategy: Any, amounts: dict[str, float] | None = None) -> dict[str, Any]:
    """Gives a strategy as the runtime takes it.

    Args:
        strategy: None, "DEFAULT", "SPREAD", or an object of this module.
        amounts: what the call asks for; a bundle of the group must hold it.

    Returns:
        What _core.make_template takes; {} of None.

    Raises:
        ValueError: it is no strategy, or its group has no such bundle.
        TypeError: it has labels that are none.
    """
    if strategy is None:
        return {}
    if strategy == "DEFAULT":
        return {"kind": "hybrid"}
    if strategy == "SPREAD":
        return {"kind": "spread"}
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        return _in_group(strategy, amounts)
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        number = min(node_number(strategy.node_id), _NO_NODE)
        return {"kind": "node", "node": number, "soft": bool(strategy.soft)}
    if isinstance(strategy, NodeLabelSchedulingStrategy):
        hard = selector_terms(strategy.hard)
        both = hard + selector_terms(strategy.soft)
        return {"kind": "hybrid", "selectors": [both, hard] if strategy.soft else [hard]}
    raise ValueError(
        f"scheduling_strategy={strategy!r}: want 'DEFAULT', 'SPREAD', or an object "
        "of sheaf.util.scheduling_strategies"
    )


def _in_group(
    strategy: PlacementGroupSchedulingStrategy, amounts: dict[str, float] | None
) -> dict[str, Any]:
    group, index = strategy.placement_group, strategy.placement_group_bundle_index
    if group == "default":  # That of the caller, if there is one that it hands down.
        of_caller = None if strategy.placement_group_capture_child_tasks is False else inherited()
        if of_caller is not None:
            return {**of_caller, "bundle": index}
        group = None
    if group is None or group.is_empty:
        if index != -1:
            raise ValueError(
                f"placement_group_bundle_index={index}: If placement group is not set, the value "
                "of bundle index must be -1"
            )
        return {"kind": "hybrid"}
    bundles = group.bundle_specs
    if not -1 <= index < len(bundles):
        raise ValueError(
            f"placement group bundle index {index} is invalid: the group has {len(bundles)} "
            "bundles, from 0; -1 is any"
        )
    wanted = amounts or {}
    if not any(all(b.get(name, 0) >= wanted[name] for name in wanted) for b in bundles):
        raise ValueError(
            f"Cannot schedule with the placement group: the resource request {amounts} cannot fit "
            f"into any bundles of it, {bundles}"
        )
    return {
        "kind": "group",
        "group": group.id.hex(),
        "bundle": index,
        "capture": bool(strategy.placement_group_capture_child_tasks),
    }


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

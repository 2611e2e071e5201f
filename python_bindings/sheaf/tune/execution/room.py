# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Whether there is room for one more trial."""

from __future__ import annotations

import collections
import logging
from collections.abc import Mapping

from sheaf.tune.execution.activity import Settings
from sheaf.tune.execution.placement_groups import PlacementGroupFactory

_logger = logging.getLogger(__name__)
_WARN_EACH_S = 60.0
_ROUNDING = 1e-6


class Room:
    """What trials hold, beside what the nodes have (`settings`, which the driver keeps current)."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self.used: dict[str, float] = collections.defaultdict(float)
        self._warned_at = -1e9

    def take(self, resources: Mapping[str, float]) -> None:
        """One more trial holds this."""
        for name, amount in resources.items():
            self.used[name] += amount

    def free(self, resources: Mapping[str, float]) -> None:
        """A trial holds this no longer."""
        for name, amount in resources.items():
            self.used[name] -= amount

    def lacks(self, factory: PlacementGroupFactory) -> str | None:
        """What the cluster would need before a trial of this kind could ever run; None: nothing."""
        nodes = self._settings.nodes
        if not nodes:
            return None  # Nobody has looked yet.
        bundles = factory.bundles
        if factory.strategy == "STRICT_PACK":
            bundles = [factory.required_resources]
        for bundle in bundles:
            if not any(_holds(node, bundle) for node in nodes):
                return f"no node has {_text(bundle)}; the nodes have {_nodes_text(nodes, bundle)}"
        total = self._settings.capacity
        if not _holds(total, factory.required_resources):
            needed = factory.required_resources
            return f"all nodes together have less than {_text(needed)}: {_share(total, needed)}"
        return None

    def warn(self, trial: object, lacking: str, now: float) -> None:
        """Says now and then that a trial cannot run; see lacks."""
        if now - self._warned_at >= _WARN_EACH_S:
            self._warned_at = now
            _logger.warning("%s cannot run: %s. It waits until such a node joins", trial, lacking)

    def waits_for(self, factory: PlacementGroupFactory, active: int) -> str | None:
        """What a trial of this kind waits for while so many run; None: there is room."""
        lacking = self.lacks(factory)
        if lacking is not None or active == 0:
            return lacking
        bound = self._settings.max_concurrent
        if bound and active >= bound:
            return f"max_concurrent_trials={bound} run"
        capacity, needed = self._settings.capacity, factory.required_resources
        left = {name: capacity.get(name, 0.0) - self.used[name] for name in needed}
        if _holds(left, needed):
            return None
        return f"it needs {_text(needed)}; free are {_share(left, needed)}"


def _holds(there: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    return all(amount <= there.get(name, 0.0) + _ROUNDING for name, amount in needed.items())


def _text(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in amounts.items())


def _share(there: Mapping[str, float], needed: Mapping[str, float]) -> str:
    return _text({name: max(there.get(name, 0.0), 0.0) for name in needed})


def _nodes_text(nodes: list[dict[str, float]], needed: Mapping[str, float]) -> str:
    """Of nodes that are alike, one."""
    kinds = collections.Counter(_share(node, needed) for node in nodes)
    return "; ".join(f"{count} x {kind}" for kind, count in kinds.most_common(5))

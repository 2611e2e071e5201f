# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a trial holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = {"cpu": "CPU", "gpu": "GPU"}


class PlacementGroupFactory:
    """What a trial holds: the first bundle is for its function, the others for what it starts.

    Args:
        bundles: amounts by resource, each on one node.
        strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
        *args: not looked at.
        **kwargs: not looked at.

    Raises:
        ValueError: there is no bundle, or a resource is none.
    """

    def __init__(
        self, bundles: list[dict[str, float]], strategy: str = "PACK", *args: Any, **kwargs: Any
    ):
        if not bundles:
            raise ValueError("bundles=[]: want at least one, as [{'CPU': 1}]")
        for bundle in bundles:
            for name, amount in bundle.items():
                if not isinstance(amount, (int, float)) or not amount >= 0:
                    raise ValueError(
                        f"bundles: {name!r}: {amount!r}: want a number that is not negative"
                    )
        self._bundles = [
            {name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles
        ]
        self._head_is_empty = not self._bundles[0]
        if self._head_is_empty and len(self._bundles) > 1:
            self._bundles.pop(0)
        self._strategy = strategy
        self.reserved_by_itself = False  # The trial's function reserves what it starts.

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The amounts by resource, of each bundle."""
        return [dict(bundle) for bundle in self._bundles]

    @property
    def strategy(self) -> str:
        """How the bundles are placed."""
        return self._strategy

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the function itself holds nothing."""
        return self._head_is_empty

    @property
    def head_cpus(self) -> float:
        """The CPUs that the function itself holds."""
        return 0.0 if self._head_is_empty else self._bundles[0].get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        """All bundles together."""
        total: dict[str, float] = {}
        for bundle in self._bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def _key(self) -> tuple[Any, ...]:
        bundles = tuple(tuple(sorted(bundle.items())) for bundle in self._bundles)
        return bundles, self._strategy, self._head_is_empty

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        head: list[dict[str, float]] = (
            [{}] if self._head_is_empty and len(self._bundles) > 1 else []
        )
        return f"PlacementGroupFactory({head + self._bundles}, strategy={self._strategy!r})"


def resource_dict_to_pg_factory(
    spec: Mapping[str, Any] | PlacementGroupFactory | None = None,
) -> PlacementGroupFactory:
    """Makes a factory of what programs say.

    Args:
        spec: amounts by resource, as {"cpu": 2, "gpu": 0.5}, also with "custom_resources" or
            "resources" inside; None: one CPU.

    Returns:
        The factory, of one bundle.

    Raises:
        ValueError: an amount is none.
        TypeError: it is no dict.
    """
    if isinstance(spec, PlacementGroupFactory):
        return spec
    if spec is not None and not isinstance(spec, Mapping):
        raise TypeError(f"resources={spec!r}: want a dict, as {{'cpu': 1}}")
    bundle: dict[str, float] = {}
    for name, amount in (spec or {"cpu": 1}).items():
        if name in ("custom_resources", "resources") and isinstance(amount, Mapping):
            bundle.update(amount)
        else:
            bundle[_NAMES.get(name, name)] = amount
    return PlacementGroupFactory([bundle])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an execution may hold of the object store and of the cluster's resources. Pure."""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, float]  # Resource -> amount.


class Budget:
    """Bytes of blocks that an execution has made and nobody has taken yet.

    Args:
        limit: bytes; what is held stays below it, but for one block of each running task.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.reserved = 0
        self.peak = 0

    def charge(self, size: int) -> None:
        """A block of `size` bytes has come."""
        self.held += size
        self.peak = max(self.peak, self.held)

    def release(self, size: int) -> None:
        """It has gone, or somebody else answers for it."""
        self.held -= size

    def is_full(self) -> bool:
        """Whether no further block is taken but by those whose work makes room."""
        return self.held >= self.limit

    def has_room(self, size: int) -> bool:
        """Whether a task that makes blocks of `size` bytes may start."""
        return self.held + self.reserved + size <= self.limit


class Resources:
    """CPUs, GPUs and so on that an execution may use at once.

    Args:
        total: what there is.
    """

    def __init__(self, total: Amounts) -> None:
        self.total = dict(total)
        self.used: dict[str, float] = {}

    def fits(self, need: Amounts, beside: Amounts | None = None) -> bool:
        """Whether `need` is free, with `beside` left."""
        return not self.lacking(need, beside)

    def lacking(self, need: Amounts, beside: Amounts | None = None) -> list[str]:
        """The resources of `need` of which too little is free, with `beside` left."""
        return [
            name
            for name, amount in need.items()
            if self.used.get(name, 0.0) + amount + (beside or {}).get(name, 0.0)
            > self.total.get(name, 0.0) + 1e-9
        ]

    def short_of(self, need: Amounts) -> str:
        """The resource that the whole cluster has too little of, as words; "": none."""
        for name, amount in need.items():
            if amount > self.total.get(name, 0.0) + 1e-9:
                return f"{name}: {amount:g} wanted, {self.total.get(name, 0.0):g} in the cluster"
        return ""

    def take(self, need: Amounts) -> None:
        """Counts `need` as used."""
        for name, amount in need.items():
            self.used[name] = self.used.get(name, 0.0) + amount

    def give_back(self, need: Amounts) -> None:
        """Counts `need` as free again."""
        for name, amount in need.items():
            self.used[name] -= amount


def largest(needs: list[Amounts]) -> dict[str, float]:
    """Of each resource the largest amount in `needs`."""
    out: dict[str, float] = {}
    for need in needs:
        for name, amount in need.items():
            out[name] = max(out.get(name, 0.0), amount)
    return out

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks that stay in the object store while there is room, and are made again otherwise."""

from __future__ import annotations

from typing import Any

import sheaf
from sheaf.data.caches.keeper import KEEPER, Cache, Kept
from sheaf.data.operators import Bundle

_SHARE = 0.4  # Of the cluster's store, by default: an execution has half of it.


class InMemory(Cache):
    """A cache in memory.

    Args:
        source: the plan that makes the blocks.
        limit_bytes: that all caches in memory of this process may have; None: a part of the store.
    """

    level = "memory"

    def __init__(self, source: Any, limit_bytes: int | None) -> None:
        super().__init__(source)
        self._bundles: list[Bundle] = []
        self._others = 0  # Blocks that are there anyway: small, or of another dataset.
        self._limit_bytes = limit_bytes
        KEEPER.add(self)

    def add(self, bundle: Bundle) -> None:
        """A block has been made."""
        self._bundles.append(bundle)
        if not self.is_own(bundle.block):
            self._others += 1
            return
        if not self.blocks:  # There is a cluster now, be it that this run has started it.
            KEEPER.limit(self._limit())
        if all(block.ref != bundle.block for block in self.blocks[-1:]):  # Slices come together.
            self.blocks.append(Kept(bundle.block, bundle.size_bytes))
        KEEPER.look_soon()

    def _limit(self) -> int:
        if self._limit_bytes is not None:
            return self._limit_bytes
        return int(_SHARE * sheaf.cluster_resources().get("object_store_memory", 0))

    def finish(self) -> list[Bundle]:
        """All blocks have been made.

        Returns:
            Them.
        """
        KEEPER.look()
        bundles, self._bundles = self._bundles, []
        return bundles

    def end(self) -> None:
        """It was unpersisted: what others read of it is made again."""
        self.has_ended = True
        self.forget_return()
        KEEPER.look()

    def text(self, before: int = 0) -> str:
        """As explain() and stats() show it."""
        KEEPER.look()
        there = sum(block.is_there for block in self.blocks) + self._others
        stay = sum(bool(block.stays) for block in self.blocks)
        return (
            f"cached (memory, {there} of {len(self.blocks) + self._others} blocks in memory, "
            f"{self.recomputed - before} recomputed"
            + (f"; {stay} stay, as they could not be made again" * bool(stay))
            + ")"
        )


class InStore(Cache):
    """A cache in the store, which spills: nothing is to be done for it.

    Args:
        source: the plan that makes the blocks.
    """

    level = "memory_and_disk"

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._bundles: list[Bundle] = []
        self._count = 0

    def add(self, bundle: Bundle) -> None:
        """A block has been made."""
        self._bundles.append(bundle)

    def finish(self) -> list[Bundle]:
        """All blocks have been made.

        Returns:
            Them.
        """
        bundles, self._bundles = self._bundles, []
        self._count = len(bundles)
        return bundles

    def end(self) -> None:
        """It was unpersisted."""

    def text(self, before: int = 0) -> str:
        """As explain() and stats() show it."""
        return f"cached (memory_and_disk, {self._count} blocks)"

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks that may have to be made again are asked for before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sheaf
from sheaf.data.caches.keeper import KEEPER
from sheaf.data.operators import Bundle


class Ahead:
    """Bundles, whose blocks are asked for before they are read: those that must be made again are
    made side by side.

    Args:
        bundles: an execution, or another iterator.
    """

    def __init__(self, bundles: Any) -> None:
        self._bundles, self._count = bundles, 0
        self._next: list[Bundle] = []
        self._given: Bundle | None = None  # The last, which is being read.

    def __iter__(self) -> Iterator[Bundle]:
        return self

    def __next__(self) -> Bundle:
        while len(self._next) < max(1, self._count):
            bundle = next(self._bundles, None)
            if bundle is None:
                break
            self._next.append(bundle)
            if isinstance(bundle.block, sheaf.ObjectRef):
                KEEPER.pin(bundle.block)
                self._count = self._count or int(sheaf.cluster_resources().get("CPU", 1))
                sheaf.wait([bundle.block], timeout=0, fetch_local=False)
        self._let_go(self._given)
        self._given = None
        if not self._next:
            raise StopIteration
        self._given = self._next.pop(0)
        return self._given

    def _let_go(self, bundle: Bundle | None) -> None:
        if bundle is not None and isinstance(bundle.block, sheaf.ObjectRef):
            KEEPER.unpin(bundle.block)

    def close(self) -> None:
        """Ends what gives the bundles."""
        given, self._given = self._given, None
        waiting, self._next = self._next, []
        for bundle in (given, *waiting):
            self._let_go(bundle)
        if hasattr(self._bundles, "close"):
            self._bundles.close()

    def __del__(self) -> None:
        self.close()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collectives between the workers of a training group. For arrays see get_context().group."""

from __future__ import annotations

import array
import pickle
from typing import TypeVar

from sheaf.train.context import current

T = TypeVar("T")


def barrier() -> None:
    """Returns when all workers have called it. CollectiveError: one is lost, or late."""
    current().group().barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """What rank 0 gave, on all workers; anything that can be pickled. CollectiveError: a worker is
    lost, or late."""
    group = current().group()
    payload = bytearray(pickle.dumps(data) if group.rank == 0 else b"")
    size = array.array("q", [len(payload)])
    group.broadcast(size)
    if group.rank != 0:
        payload = bytearray(size[0])
    group.broadcast(payload)
    value: T = data if group.rank == 0 else pickle.loads(payload)
    return value

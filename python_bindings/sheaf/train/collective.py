# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collectives between the workers of a training group. For arrays see get_context().group."""

from __future__ import annotations

import array
import pickle
from typing import TypeVar

from sheaf.train.context import get_context

T = TypeVar("T")


def barrier() -> None:
    """Waits until all workers of the group have called it.

    Raises:
        CollectiveError: a worker is lost, or late.
        RuntimeError: it is called outside of a training loop.
    """
    get_context().group.barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """Brings a value of rank 0 to all workers of the group.

    Args:
        data: of rank 0: anything that can be pickled. Of the others it is not looked at.

    Returns:
        What rank 0 gave.

    Raises:
        CollectiveError: a worker is lost, or late.
        RuntimeError: it is called outside of a training loop.
    """
    group = get_context().group
    payload = bytearray(pickle.dumps(data) if group.rank == 0 else b"")
    size = array.array("q", [len(payload)])
    group.broadcast(size)
    if group.rank != 0:
        payload = bytearray(size[0])
    group.broadcast(payload)
    value: T = data if group.rank == 0 else pickle.loads(payload)
    return value

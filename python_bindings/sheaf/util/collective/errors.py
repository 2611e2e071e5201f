# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What goes wrong in collective groups."""

from __future__ import annotations

from sheaf.exceptions import RaySystemError


class CollectiveError(RaySystemError):
    """An operation of a group failed. The group is dead then: form a new one.

    ``rank`` is the rank whose fault it is, None where it is nobody's.
    """

    rank: int | None = None


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """A rank was late; the message names it and says what it did last."""


class RankLostError(CollectiveError):
    """A rank died, left the group, or gave up."""


class MismatchError(CollectiveError, ValueError):
    """A rank called another operation, or with another type or size."""


class GroupDeadError(CollectiveError):
    """The group failed or was aborted before: form a new one."""


_CLASSES = {
    1: GroupDeadError,
    3: MismatchError,
    4: CollectiveTimeoutError,
    9: GroupDeadError,
    14: RankLostError,
}
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 3, 8, 12


def from_status(code: int, rank: int, message: str) -> Exception:
    """The exception for a status of a group; a `rank` below 0 is none."""
    if code == _INVALID_ARGUMENT and rank < 0:
        return ValueError(message)
    if code == _RESOURCE_EXHAUSTED:
        return MemoryError(message)
    if code == _UNIMPLEMENTED:
        return NotImplementedError(message)
    error = _CLASSES.get(code, CollectiveError)(message)
    error.rank = rank if rank >= 0 else None
    return error

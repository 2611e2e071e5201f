# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values that consist of parts, of which each reader takes the one that it needs.

A task that makes a piece for each of many readers returns all of them as one `Parts`. Where the
object lies on the reader's node its part is read in place; else the part alone is brought here,
from another node or from disk, and the rest stays where it is.

    @sheaf.remote(num_returns=2)
    def split(rows):
        parts = Parts([rows[i::8] for i in range(8)])
        return parts, parts.places

    ref, places = split.remote(rows)
    [third] = get_parts([(ref, sheaf.get(places)[2])])

docs/design/parts.md has the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sheaf import _core
from sheaf._core import Parts

__all__ = ["PartPlace", "Parts", "get_parts"]

# Where a part lies within its value, of `Parts.places`: offset, bytes, and a digest of all places,
# by which a value that was made anew with other parts is told.
PartPlace = tuple[int, int, int]


def get_parts(
    parts: Iterable[tuple[_core.ObjectRef[Any], PartPlace]], *, timeout: float | None = None
) -> list[Any]:
    """Waits for parts of values that were made as `Parts`. Thread-safe.

    All of them are held until all are there: read no more at a time than the object store of this
    node can hold beside other things.

    Args:
        parts: references, each with the place of one part, as `Parts.places` has it.
        timeout: seconds; None waits for ever.

    Returns:
        The values of the parts, in order. Arrays and Arrow tables in them are read-only views of
        shared memory.

    Raises:
        TypeError: an item is not (ObjectRef, place).
        ValueError: a place does not lie within its object.
        ObjectReconstructionFailedError: what lies there is not that part (any more).
        GetTimeoutError: the time was up.
        ObjectStoreFullError: the parts find no room in the store of this node.
        RayError: as of `sheaf.get`, of the objects.
    """
    wanted = []
    for item in parts:
        try:
            ref, (offset, size, digest) = item
        except (TypeError, ValueError):
            raise TypeError(f"{item!r} is no part: want (ObjectRef, place of a part)") from None
        if not isinstance(ref, _core.ObjectRef):
            raise TypeError(f"{ref!r} is no ObjectRef: want (ObjectRef, place of a part)")
        if not all(isinstance(n, int) and 0 <= n < 1 << 64 for n in (offset, size, digest)):
            raise ValueError(f"{item[1]!r} is no place of a part: want (offset, bytes, digest)")
        wanted.append((ref, offset, size, digest))
    return _core.get_parts(wanted, timeout)

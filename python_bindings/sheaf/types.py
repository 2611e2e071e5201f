# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Types for annotations."""

from __future__ import annotations

from sheaf._core import ObjectRef
from sheaf.actor import ActorHandle
from sheaf.object_ref import ObjectRefGenerator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    C = TypeVar("C")

__all__ = ["ActorHandle", "ObjectRef", "ObjectRefGenerator", "typed"]


def typed(handle: ActorHandle[C]) -> C:
    """Returns the same handle, of which a type checker sees the methods that are decorated with
    @sheaf.method, with their signatures.

        counter = typed(Counter.remote(0))
        value = sheaf.get(counter.add.remote(1))  # An int.

    Args:
        handle: of an actor.
    """
    return handle  # type: ignore[return-value]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries look up in `ray._private.internal_api`."""

from __future__ import annotations

from sheaf._internal import absent

memory_summary = absent.function(
    "internal_api.memory_summary", "sheaf.util.state.list_objects() has the objects"
)
free = absent.function(
    "internal.free", "an object goes when its last reference goes: use del, or let it go"
)


def global_gc() -> None:
    """Collects garbage in this process, so that references in cycles go."""
    import gc

    gc.collect()

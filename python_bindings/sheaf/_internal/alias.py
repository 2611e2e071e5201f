# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The module `ray` in pickles: functions refer to it by their globals."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    import types


def ray_here() -> types.ModuleType:
    """The alias `ray` where this process has made it (sheaf.as_ray), else the package itself: a
    process without the alias may read what one with the alias has pickled."""
    as_ray = sys.modules.get("sheaf.as_ray")
    return sys.modules["sheaf"] if as_ray is None else as_ray.ray

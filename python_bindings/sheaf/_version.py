# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The version of Sheaf, and the one of Ray whose interface it has: programs that ask Ray for its
version are told the latter. SHEAF_RAY_VERSION says another one, for a library that wants it."""

import os

from sheaf._core import __version__

# Digits and dots: libraries split it and call int().
__ray_version__ = os.environ.get("SHEAF_RAY_VERSION") or "2.60.0"
__all__ = ["__ray_version__", "__version__"]
version, commit = __ray_version__, ""  # As `ray._version` has them.

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The version of Sheaf, and the one of Ray whose interface it has: programs that ask Ray for its
version are told the latter."""

from sheaf._core import __version__

__ray_version__ = "2.60.0"
__all__ = ["__ray_version__", "__version__"]
version, commit = __ray_version__, ""  # As `ray._version` has them.

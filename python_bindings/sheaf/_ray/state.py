# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.state`."""

from sheaf._private.state import *  # noqa: F403
from sheaf._private.state import __all__ as __all__

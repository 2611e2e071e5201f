# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.worker`."""

from sheaf._private.worker import *  # noqa: F403
from sheaf._private.worker import __all__ as __all__

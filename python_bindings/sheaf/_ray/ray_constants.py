# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.ray_constants`."""

from sheaf._private.ray_constants import *  # noqa: F403

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.internal`."""

from sheaf._private.internal_api import free

__all__ = ["free"]

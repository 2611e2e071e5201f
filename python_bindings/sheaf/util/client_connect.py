# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of `ray.util.client_connect`."""

from sheaf.util import connect, disconnect

__all__ = ["connect", "disconnect"]

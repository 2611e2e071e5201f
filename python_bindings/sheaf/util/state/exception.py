# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What listings raise."""

from __future__ import annotations


class RayStateApiException(Exception):
    """A listing cannot be made as it was asked for."""

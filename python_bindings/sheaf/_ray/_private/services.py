# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Addresses of this machine."""

from sheaf.util import get_node_ip_address

__all__ = ["get_node_ip_address"]

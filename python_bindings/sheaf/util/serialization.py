# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How values of a class travel that cannot be pickled, or shall not."""

from sheaf._internal.serialization import deregister_serializer, register_serializer

__all__ = ["deregister_serializer", "register_serializer"]

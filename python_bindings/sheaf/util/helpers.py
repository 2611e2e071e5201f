# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of `ray.util.helpers`."""

from sheaf.util import as_completed, map_unordered

__all__ = ["DEFAULT_BACKPRESSURE_SIZE", "DEFAULT_CHUNK_SIZE", "as_completed", "map_unordered"]

DEFAULT_CHUNK_SIZE, DEFAULT_BACKPRESSURE_SIZE = 10, 100

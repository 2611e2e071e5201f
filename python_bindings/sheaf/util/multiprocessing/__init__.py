# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""multiprocessing.Pool over actors: the same names, on the cluster's CPUs."""

from sheaf.util.multiprocessing.pool import AsyncResult, IMapIterator, Pool, TimeoutError

__all__ = ["AsyncResult", "IMapIterator", "Pool", "TimeoutError"]

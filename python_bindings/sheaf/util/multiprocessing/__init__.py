# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""multiprocessing.Pool over actors: the same names, on the cluster's CPUs."""

from multiprocessing import TimeoutError

from sheaf._internal import absent
from sheaf.util.multiprocessing.pool import AsyncResult, IMapIterator, Pool

__all__ = ["AsyncResult", "IMapIterator", "JoinableQueue", "Pool", "TimeoutError"]

JoinableQueue = absent.function(
    "util.multiprocessing.JoinableQueue", "sheaf.util.queue.Queue goes to the pool's processes"
)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The pool under its old name."""

from sheaf.util.multiprocessing import JoinableQueue, Pool, TimeoutError

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]

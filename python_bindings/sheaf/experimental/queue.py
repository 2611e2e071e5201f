# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The queue under its old name."""

from sheaf.util.queue import Empty, Full, Queue

__all__ = ["Empty", "Full", "Queue"]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The session of training, by which libraries ask whether they run in a worker of a trainer."""

from __future__ import annotations

from typing import Any

from sheaf.air import session


def get_session() -> Any:
    """Returns the context of this worker of a trainer, or None elsewhere."""
    found = session.find()
    return found.context() if found is not None else None

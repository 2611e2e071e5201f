# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which task of which operator runs: for sinks, and for expressions that number rows."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

__all__ = ["TaskContext"]


@dataclasses.dataclass
class TaskContext:
    """One task of one operator.

    Attributes:
        task_idx: the task's number within its operator, from 0; a task that is run again keeps it.
        op_name: of the operator.
        kwargs: what else the operator hands to its tasks; `write_uuid` is one word per write.
    """

    task_idx: int = 0
    op_name: str = ""
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @staticmethod
    def current() -> TaskContext:
        """Returns that of the task which runs here; task 0 of nothing outside of one."""
        return _CURRENT.get() or TaskContext()

    @contextlib.contextmanager
    def entered(self) -> Iterator[TaskContext]:
        """A with block in which current() gives this one.

        Yields:
            This one.
        """
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)


_CURRENT: contextvars.ContextVar[TaskContext | None] = contextvars.ContextVar(
    "sheaf_data_task", default=None
)

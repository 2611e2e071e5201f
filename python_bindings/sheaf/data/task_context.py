# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which task of which operator runs: for sinks, and for expressions that number rows."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import secrets
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
        execution: a number that was drawn for this execution of the plan.
    """

    task_idx: int = 0
    op_name: str = ""
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    execution: int = dataclasses.field(default_factory=lambda: secrets.randbits(63))

    @staticmethod
    def current() -> TaskContext:
        """Returns that of the task which runs here; task 0 of nothing outside of one."""
        return _CURRENT.get() or TaskContext()

    def random_seed(self, seed: int | None, *more: int) -> list[int]:
        """What random numbers of this task start from. A task that is run again must draw the same
        ones, since part of what it made before is used, and the rest is made anew.

        Args:
            seed: of the user; None: other numbers in each execution.
            *more: what tells several draws of one task apart.

        Returns:
            A seed for numpy.
        """
        return [self.execution if seed is None else seed, self.task_idx, *more]

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

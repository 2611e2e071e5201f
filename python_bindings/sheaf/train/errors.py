# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How training ends when it cannot go on, and what interrupts a training loop whose group is formed
anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sheaf.exceptions import RayError

if TYPE_CHECKING:
    from sheaf.air.result import Result


class TrainingFailedError(RayError):
    """The workers failed more often than FailureConfig allows, or could not be placed.

    Args:
        message: says what happened.
        rank: of the worker that failed first; None: it was not a worker's fault.
        cause: what that one raised; also as __cause__.
        worker_failures: what all of them raised, by rank.
        result: what had been reached, with the last durable checkpoint.
    """

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        cause: BaseException | None = None,
        worker_failures: dict[int, BaseException] | None = None,
        result: Result | None = None,
    ):
        super().__init__(message)
        self.rank = rank
        self.cause = cause
        self.worker_failures = worker_failures or {}
        self.result = result
        self.__cause__ = cause


class LoopStopped(BaseException):
    """Raised inside a training loop when its group is formed anew. Not an Exception, so that loops
    do not catch it."""

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The physical plan: what the executor runs, without how. Pure: blocks are opaque here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sheaf.data.budget import Amounts


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """Rows [start, stop) of a block: a slice, not a copy.

    Attributes:
        block: an ObjectRef of a table, a small table itself, or what a read task is made of.
        start, stop: rows; of a read task 0 and its rows if known.
        size_bytes: of these rows.
        metadata: what travels beside the block.
        sources: objects without which the block could not be made again, as they come from no task:
            a reference, or a collection of such; None: there are none.
    """

    block: Any
    start: int
    stop: int
    size_bytes: int
    metadata: Any = None
    sources: Any = None

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> Bundle:
        """Rows [start, stop) of this bundle."""
        rows = self.num_rows
        size = self.size_bytes if rows == 0 else self.size_bytes * (stop - start) // rows
        return dataclasses.replace(
            self, start=self.start + start, stop=self.start + stop, size_bytes=size
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What one task does: its blocks, and what only this task needs to know; whether it is so
    little that it is done in the process of the executor."""

    bundles: tuple[Bundle, ...]
    payload: Any = None
    here: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(bundle.size_bytes for bundle in self.bundles)


# All that came from each input -> works, or the bundles themselves of an operator without tasks.
Arrange = Callable[[Sequence[Sequence[Bundle]]], Sequence[Work]]


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """Actors that run an operator's tasks.

    Attributes:
        minimum: how many start at once, as far as they fit.
        maximum: how many there may be.
        in_flight: tasks that one actor has at a time.
    """

    minimum: int
    maximum: int
    in_flight: int = 2


@dataclasses.dataclass(slots=True)
class Operator:
    """One operator of the physical plan.

    Attributes:
        name: as progress and errors show it.
        inputs: indices of the operators that feed it; all are smaller than its own.
        kind: "source" (has `bundles`), "map" (tasks), "limit", "union" or "arrange" (no tasks).
        bundles: of a source; they may be made as they are iterated over.
        stream: gives those of a source that take time, which the shell draws; opaque here.
        arrange: the operator waits for all its input and does what this says.
        merge: gets all that has come when that is much of the budget, and says what to do with it;
            what has come at the end, if that never was, goes on as it is.
        beside: which of `inputs` (its place there) goes to every task as a whole, behind the task's
            own bundles, whose numbers the payload then has; tasks and what feeds them wait for it.
        needs: resources of one task, or of one actor.
        here: tasks run in the process of the executor, and need nothing.
        pool: actors; None: tasks.
        cap: tasks at a time; None: as many as fit.
        rows_per_task, bytes_per_task: bundles are put together until there are so many (0: one
            bundle a task).
        alone: each bundle is a task, however small, since what it does depends on its number.
        size_ratio: bytes of output for one byte of input, until the first output tells.
        limit: rows, of "limit".
        in_order: outputs are in the order of the inputs, whatever that costs.
        run: what the shell needs to run a task; opaque here.
    """

    name: str
    kind: str
    inputs: tuple[int, ...] = ()
    bundles: Collection[Bundle] = ()
    stream: Any = None
    arrange: Arrange | None = None
    merge: Arrange | None = None
    beside: int | None = None
    needs: Amounts = dataclasses.field(default_factory=dict)
    here: bool = False
    pool: Pool | None = None
    cap: int | None = None
    rows_per_task: int = 0
    bytes_per_task: int = 0
    size_ratio: float = 1.0
    alone: bool = False
    limit: int = 0
    in_order: bool = False
    run: Any = None

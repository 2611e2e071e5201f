# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the executor knows of operators, tasks and actors while they run, and what it tells its
shell to do. Pure."""

from __future__ import annotations

import dataclasses
from collections import deque

from sheaf.data.operators import Bundle, Operator, Work


@dataclasses.dataclass(frozen=True, slots=True)
class Submit:
    """Run a task."""

    task: int
    operator: int
    work: Work
    actor: int | None
    skip: int  # Outputs that an earlier try of this task has given already.
    here: bool
    sequence: int  # Of the operator's tasks, in the order of its inputs; another try has the same.


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants what this task makes."""

    task: int


@dataclasses.dataclass(frozen=True, slots=True)
class AddActor:
    """Start an actor of an operator's pool."""

    actor: int
    operator: int


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveActor:
    """End an actor."""

    actor: int


@dataclasses.dataclass(frozen=True, slots=True)
class Lend:
    """An idle actor lets others use its CPUs until its next task."""

    actor: int


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """Find further bundles of a source with a stream; drawn() is told of them, once."""

    operator: int


Command = Submit | Cancel | AddActor | RemoveActor | Lend | Draw


class ExecutionError(Exception):
    """The execution cannot go on; `__cause__` says why, if that is an exception."""


@dataclasses.dataclass(slots=True)
class Held:
    """A bundle on its way, and how much of the budget it takes."""

    bundle: Bundle
    charge: int


@dataclasses.dataclass(slots=True)
class Task:
    number: int
    sequence: int
    work: Work
    charge: int
    actor: int | None
    here: bool
    outputs: int = 0  # Taken from it, over all tries.
    losses: int = 0
    reserved: int = 0


@dataclasses.dataclass(slots=True)
class Actor:
    number: int
    ready: bool = False
    lends: bool = False  # Its CPUs, which it gets back before its next task.
    tasks: set[int] = dataclasses.field(default_factory=set)


class State:
    """An operator while it runs."""

    def __init__(self, index: int, spec: Operator) -> None:
        self.index, self.spec = index, spec
        self.supply = iter(spec.bundles)  # Of a source.
        self.undrawn, self.drawn = len(spec.bundles), 0
        self.is_drawing = False
        self.consumer: int | None = None
        self.port = 0  # Which input of the consumer.
        self.open_inputs = set(spec.inputs)
        self.gathered: list[list[Held]] = [[] for _ in spec.inputs]  # Of barriers and unions.
        self.has_merged = False
        self.pending: list[Held] = []  # Not yet enough for a task.
        self.pending_rows = self.pending_bytes = 0
        self.queue: deque[tuple[Work, int]] = deque()
        self.again: deque[Task] = deque()  # Tasks whose actor died.
        self.running: dict[int, Task] = {}
        self.actors: dict[int, Actor] = {}
        self.failures = 0  # Of constructors in a row.
        self.sequence = 0
        self.head = 0  # The sequence number whose outputs pass.
        self.waiting: dict[int, deque[Held]] = {}  # Outputs that wait for those in front.
        self.ended: set[int] = set()
        self.finished = False
        self.rows_left = spec.limit
        self.tasks_done = self.rows_out = self.bytes_out = self.blocks_out = 0
        self.bytes_in_done = 0

    @property
    def first_input(self) -> int | None:
        """The feeder whose outputs come next, of a union."""
        return next((index for index in self.spec.inputs if index in self.open_inputs), None)

    @property
    def has_work(self) -> bool:
        return bool(self.queue or self.again)

    @property
    def is_busy(self) -> bool:
        return bool(self.queue or self.again or self.running)

    @property
    def has_lost_head(self) -> bool:
        """Whether the task whose outputs pass has lost its actor, and waits for another."""
        return bool(self.again) and self.again[0].sequence == self.head

    @property
    def works_elsewhere(self) -> bool:
        """Whether it needs resources, now or later."""
        return self.spec.kind == "map" and not self.spec.here and not self.finished

    @property
    def lends_all(self) -> bool:
        """Whether no actor has its CPUs."""
        return all(actor.lends for actor in self.actors.values())

    @property
    def lent(self) -> dict[str, float]:
        """What an actor lends: the runtime gives others only CPUs of what waits."""
        return {name: amount for name, amount in self.spec.needs.items() if name == "CPU"}

    def kept(self, actor: Actor) -> dict[str, float]:
        """What an actor holds now."""
        without = self.lent if actor.lends else {}
        return {name: n for name, n in self.spec.needs.items() if name not in without}

    def estimate(self, work: Work | None = None) -> int:
        """Bytes of the next block."""
        if self.blocks_out:
            return self.bytes_out // self.blocks_out
        if work is None:
            work = self.queue[0][0] if self.queue else self.again[0].work
        return int(work.size_bytes * self.spec.size_ratio)

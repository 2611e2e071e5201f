# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Decides which task runs when: a state machine without I/O and clock. A shell tells it what has
happened and does what it says; the tests do the same with a simulated cluster.

What holds at any time:
- Blocks that were made and not taken stay below the budget, but for one block of each running task.
- The most downstream operator that has work runs at least one task, whatever the budget says, so
  there is always progress; what fits is started.
- Actors leave room for one task of each operator that works without actors, and for one actor of
  each other pool; when nothing else can run, idle actors make way.
- Outputs are in the order of the inputs, unless that would make the pipeline wait with a full
  budget and the order was not asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator

from sheaf.data.budget import Amounts, Budget, Resources, largest
from sheaf.data.operators import Bundle, Operator, Work

_MOST_CONSTRUCTIONS = 3  # Of actors of a pool in a row that fail.
_MOST_LOSSES = 4  # Of actors that die under one and the same task.
_SMALL_BYTES = 1 << 20  # Blocks below this go several to a task, where there are many.


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


Command = Submit | Cancel | AddActor | RemoveActor


class ExecutionError(Exception):
    """The execution cannot go on; `__cause__` says why, if that is an exception."""


@dataclasses.dataclass(slots=True)
class _Held:
    """A bundle on its way, and how much of the budget it takes."""

    bundle: Bundle
    charge: int


@dataclasses.dataclass(slots=True)
class _Task:
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
class _Actor:
    number: int
    ready: bool = False
    tasks: set[int] = dataclasses.field(default_factory=set)


class _State:
    """An operator while it runs."""

    def __init__(self, index: int, spec: Operator) -> None:
        self.index, self.spec = index, spec
        self.consumer: int | None = None
        self.port = 0  # Which input of the consumer.
        self.open_inputs = set(spec.inputs)
        self.gathered: list[list[_Held]] = [[] for _ in spec.inputs]  # Of barriers and unions.
        self.pending: list[_Held] = []  # Not yet enough for a task.
        self.pending_rows = self.pending_bytes = 0
        self.queue: deque[tuple[Work, int]] = deque()
        self.again: deque[_Task] = deque()  # Tasks whose actor died.
        self.running: dict[int, _Task] = {}
        self.actors: dict[int, _Actor] = {}
        self.failures = 0  # Of constructors in a row.
        self.sequence = 0
        self.head = 0  # The sequence number whose outputs pass.
        self.waiting: dict[int, deque[_Held]] = {}  # Outputs that wait for those in front.
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
    def works_elsewhere(self) -> bool:
        """Whether it needs resources, now or later."""
        return self.spec.kind == "map" and not self.spec.here and not self.finished

    def estimate(self, work: Work | None = None) -> int:
        """Bytes of the next block."""
        if self.blocks_out:
            return self.bytes_out // self.blocks_out
        if work is None:
            work = self.queue[0][0] if self.queue else self.again[0].work
        return int(work.size_bytes * self.spec.size_ratio)


class Executor:
    """Runs the operators of a plan; the last one's outputs are the result.

    Args:
        operators: each behind those that feed it; each feeds one other, the last none.
        resources: what the cluster has.
        budget: bytes of blocks that may lie around.
        preserve_order: outputs are in the order of inputs, whatever that costs.
        max_errored_blocks: how many tasks may fail, their blocks left out; -1: any number.

    Raises:
        ExecutionError: an operator wants more than the cluster has.
    """

    def __init__(
        self,
        operators: list[Operator],
        resources: Amounts,
        budget: int,
        preserve_order: bool = False,
        max_errored_blocks: int = 0,
    ) -> None:
        self.states = [_State(index, spec) for index, spec in enumerate(operators)]
        self.resources = Resources(resources)
        self.budget = Budget(budget)
        self.errors: list[BaseException] = []  # Of blocks that were left out.
        self._preserve_order = preserve_order
        self._max_errored = max_errored_blocks
        self._output: deque[_Held] = deque()
        self._commands: deque[Command] = deque()
        self._numbers = itertools.count(1)
        self._of_task: dict[int, _State] = {}
        self._of_actor: dict[int, _State] = {}
        for state in self.states:
            for port, feeder in enumerate(state.spec.inputs):
                self.states[feeder].consumer, self.states[feeder].port = state.index, port
            short = "" if state.spec.here else self.resources.short_of(state.spec.needs)
            if short:
                raise ExecutionError(f"{state.spec.name} cannot run: {short}")
        self._order = self._downstream_first(self.states[-1])
        for state in self.states:
            if state.spec.kind == "limit" and state.rows_left == 0:
                self._stop(state)
                self._finish(state)
        for state in self.states:
            if state.spec.kind == "source" and not state.finished:
                for bundle in state.spec.bundles:
                    self._pass_on(state, _Held(bundle, 0))
                self._finish(state)
        self._grow_pools()
        self._schedule()

    def _downstream_first(self, state: _State) -> list[_State]:
        return [
            state,
            *(
                s
                for feeder in state.spec.inputs
                for s in self._downstream_first(self.states[feeder])
            ),
        ]

    # What the shell asks and does.

    def commands(self) -> Iterator[Command]:
        """What is to be done now; each is given once."""
        while self._commands:
            yield self._commands.popleft()

    def has_output(self) -> bool:
        """Whether take() gives a bundle."""
        return bool(self._output)

    def take(self) -> Bundle:
        """The next bundle of the result."""
        held = self._output.popleft()
        self.budget.release(held.charge)
        self._schedule()
        return held.bundle

    def is_finished(self) -> bool:
        """Whether all of the result has been given out."""
        return self.states[-1].finished and not self._output

    def runs(self, task: int) -> bool:
        """Whether this task is wanted still."""
        return task in self._of_task

    def may_take(self, task: int) -> bool:
        """Whether the next block of a running task may be taken from its stream now; it waits there
        otherwise, and so does the task."""
        state = self._of_task.get(task)
        if state is None:
            return False
        if not self.budget.is_full() or self._absorbs(state):
            return True
        # Full. What is most downstream goes on: nothing else makes room.
        if self._idle_downstream(state) and not self._output:
            return self._is_next(state, state.running[task])
        return self._is_in_the_way(state)

    def _is_next(self, state: _State, task: _Task) -> bool:
        """Whether outputs of `task` pass, or stand in the way of those that do."""
        head = next((t for t in state.running.values() if t.sequence == state.head), None)
        return (
            head is None  # It has lost its actor, and waits for one.
            or head is task
            or (head.actor is not None and head.actor == task.actor and task.number < head.number)
        )

    # What has happened.

    def output_came(self, task: int, bundle: Bundle) -> None:
        """A running task has made a block, which was taken."""
        state = self._of_task[task]
        record = state.running[task]
        record.outputs += 1
        state.blocks_out += 1
        state.rows_out += bundle.num_rows
        state.bytes_out += bundle.size_bytes
        # A barrier holds everything, and the store may spill it.
        held = _Held(bundle, 0 if self._absorbs(state) else bundle.size_bytes)
        self.budget.charge(held.charge)
        self._reserve(state, record)
        if record.sequence == state.head:
            self._pass_on(state, held)
        else:
            state.waiting.setdefault(record.sequence, deque()).append(held)
        self._schedule()

    def task_ended(self, task: int) -> None:
        """A task has ended, and all its blocks have come."""
        state = self._of_task[task]
        record = self._leave(state, task)
        state.tasks_done += 1
        state.bytes_in_done += record.work.size_bytes
        self.budget.release(record.charge)
        self._end_sequence(state, record.sequence)
        self._schedule()

    def task_failed(self, task: int, error: BaseException) -> None:
        """A task has failed for good.

        Raises:
            BaseException: `error`, unless so many may fail.
        """
        state = self._of_task[task]
        record = self._leave(state, task)
        if 0 <= self._max_errored <= len(self.errors):
            raise error
        self.errors.append(error)
        self.budget.release(record.charge)
        self._end_sequence(state, record.sequence)
        self._schedule()

    def actor_ready(self, actor: int) -> None:
        """An actor has been constructed."""
        state = self._of_actor.get(actor)
        if state is None:
            return
        state.actors[actor].ready = True
        state.failures = 0
        self._schedule()

    def actor_died(self, actor: int, error: BaseException) -> None:
        """An actor is dead: its tasks run again elsewhere, and another takes its place.

        Raises:
            ExecutionError: too many constructors failed in a row, or too many actors died of one
                task.
        """
        state = self._of_actor.pop(actor, None)
        if state is None:
            return
        record = state.actors.pop(actor)
        self.resources.give_back(state.spec.needs)
        if not record.ready:
            state.failures += 1
            if state.failures >= _MOST_CONSTRUCTIONS:
                raise ExecutionError(
                    f"{state.spec.name}: {state.failures} actors in a row did not start: {error}"
                ) from error
        for number in sorted(record.tasks):
            task = self._leave(state, number)
            task.losses += 1
            if task.losses >= _MOST_LOSSES:
                raise ExecutionError(
                    f"{state.spec.name}: {task.losses} actors died of the same block: {error}"
                ) from error
            state.again.append(task)
        state.again = deque(sorted(state.again, key=lambda task: task.sequence))
        self._schedule()

    def stop(self) -> None:
        """The result is not wanted any more: all tasks and actors are to end."""
        for state in self.states:
            self._stop(state)
        self.budget.release(sum(held.charge for held in self._output))
        self._output.clear()

    # Bundles between operators.

    def _pass_on(self, state: _State, held: _Held) -> None:
        """An output of `state` goes to whom it feeds."""
        if state.consumer is None:
            self._output.append(held)
            return
        consumer = self.states[state.consumer]
        if consumer.finished:
            self.budget.release(held.charge)
            return
        kind = consumer.spec.kind
        if consumer.spec.arrange is not None:
            consumer.gathered[state.port].append(held)
        elif kind == "limit":
            self._limit(consumer, held)
        elif kind == "union":
            if state.index == consumer.first_input:
                self._pass_on(consumer, held)
            else:
                consumer.gathered[state.port].append(held)
        else:
            self._gather(consumer, held)

    def _limit(self, state: _State, held: _Held) -> None:
        rows = held.bundle.num_rows
        if rows > state.rows_left:
            held = _Held(held.bundle.cut(0, state.rows_left), held.charge)
            rows = state.rows_left
        state.rows_left -= rows
        self._pass_on(state, held)
        if state.rows_left == 0:
            for feeder in state.spec.inputs:
                self._stop(self.states[feeder])
            self._finish(state)

    def _gather(self, state: _State, held: _Held) -> None:
        """Puts bundles together to works of tasks."""
        state.pending.append(held)
        state.pending_rows += held.bundle.num_rows
        state.pending_bytes += held.bundle.size_bytes
        spec = state.spec
        if state.pending_rows >= spec.rows_per_task and state.pending_bytes >= spec.bytes_per_task:
            self._flush(state)

    def _flush(self, state: _State) -> None:
        if state.pending:
            charge = sum(held.charge for held in state.pending)
            work = Work(tuple(held.bundle for held in state.pending))
            state.queue.append((work, charge))
            state.pending, state.pending_rows, state.pending_bytes = [], 0, 0

    def _input_ended(self, state: _State, feeder: int) -> None:
        state.open_inputs.discard(feeder)
        spec = state.spec
        if spec.kind == "union":
            # What waited for this input is next, up to an input that goes on.
            for port, index in enumerate(spec.inputs):
                waiting, state.gathered[port] = state.gathered[port], []
                for held in waiting:
                    self._pass_on(state, held)
                if index in state.open_inputs:
                    break
        if state.open_inputs:
            return
        if spec.arrange is not None:
            given = [[held.bundle for held in port] for port in state.gathered]
            state.gathered = [[] for _ in spec.inputs]
            works = spec.arrange(given)
            if spec.kind == "arrange":
                for work in works:
                    for bundle in work.bundles:
                        self._pass_on(state, _Held(bundle, 0))
            else:
                state.queue.extend((work, 0) for work in works)
        self._flush(state)
        self._finish_if_done(state)

    def _finish_if_done(self, state: _State) -> None:
        if not state.finished and not state.open_inputs and not state.is_busy:
            self._finish(state)

    def _finish(self, state: _State) -> None:
        state.finished = True
        self._remove_actors(state)
        if state.consumer is not None:
            consumer = self.states[state.consumer]
            if not consumer.finished:
                self._input_ended(consumer, state.index)

    def _stop(self, state: _State) -> None:
        """Nobody wants what `state` makes."""
        for feeder in state.spec.inputs:
            self._stop(self.states[feeder])
        if state.finished:
            return
        for task in list(state.running):
            self.budget.release(self._leave(state, task).charge)
            self._commands.append(Cancel(task))
        charges = [charge for _, charge in state.queue] + [task.charge for task in state.again]
        for held in itertools.chain(state.pending, *state.waiting.values(), *state.gathered):
            charges.append(held.charge)
        self.budget.release(sum(charges))
        state.queue.clear()
        state.again.clear()
        state.waiting.clear()
        state.pending, state.gathered = [], [[] for _ in state.spec.inputs]
        state.finished = True
        self._remove_actors(state)

    def _remove_actors(self, state: _State) -> None:
        for actor in list(state.actors):
            self._remove_actor(state, actor)

    def _remove_actor(self, state: _State, actor: int) -> None:
        del state.actors[actor], self._of_actor[actor]
        self.resources.give_back(state.spec.needs)
        self._commands.append(RemoveActor(actor))

    # The order of outputs.

    def _end_sequence(self, state: _State, sequence: int) -> None:
        state.ended.add(sequence)
        while state.head in state.ended:
            state.ended.discard(state.head)
            state.head += 1
            for held in state.waiting.pop(state.head, ()):
                self._pass_on(state, held)
            if state.finished:  # A limit downstream has had enough.
                return
        self._finish_if_done(state)

    def _release_order(self) -> None:
        """With a full budget, what waits for outputs in front goes on without them."""
        if self._preserve_order or not self.budget.is_full():
            return
        for state in self._order:
            if self._output or not self._idle_downstream(state):
                return
            kept = [held for sequence in sorted(state.waiting) for held in state.waiting[sequence]]
            state.waiting.clear()
            if state.spec.kind == "union":
                kept += itertools.chain(*state.gathered)
                state.gathered = [[] for _ in state.spec.inputs]
            for held in kept:
                self._pass_on(state, held)

    # Which task is next.

    def _schedule(self) -> None:
        self._release_order()
        started = True
        while started:
            started = False
            for state in self._order:
                while state.has_work and self._start(state):
                    started = True
        self._grow_pools()
        if not self._anything_runs() and not self._output:
            self._unblock()

    def _start(self, state: _State, whatever: bool = False) -> bool:
        """Starts the next task of `state`, if it may run now; `whatever` the budget says."""
        spec = state.spec
        if spec.cap is not None and len(state.running) >= spec.cap:
            return False
        # What is most downstream with work makes room for all others: nothing stands in its way.
        whatever = whatever or self._may_exceed(state)
        if not (whatever or self._absorbs(state) or self.budget.has_room(state.estimate())):
            return False
        here = spec.here or (bool(state.queue) and state.queue[0][0].here)
        actor = None
        if spec.pool is not None:
            actor = self._free_actor(state)
            if actor is None:
                return False
        elif not here:
            beside = {} if whatever else self._downstream_needs(state)
            if not self.resources.fits(spec.needs, beside):
                return False
            self.resources.take(spec.needs)
        self._submit(state, actor, here)
        return True

    def _submit(self, state: _State, actor: _Actor | None, here: bool) -> None:
        number = next(self._numbers)
        if state.again:
            task = state.again.popleft()
            task.number, task.actor = number, actor.number if actor else None
        else:
            work, charge = self._next_work(state)
            lent = actor.number if actor else None
            task = _Task(number, state.sequence, work, charge, lent, here)
            state.sequence += 1
        state.running[number] = task
        self._of_task[number] = state
        if actor is not None:
            actor.tasks.add(number)
        self._reserve(state, task)
        self._commands.append(
            Submit(number, state.index, task.work, task.actor, task.outputs, here, task.sequence)
        )

    def _next_work(self, state: _State) -> tuple[Work, int]:
        """The first work of the queue; of many small ones several, so that tasks do not cost more
        than what they do."""
        work, charge = state.queue.popleft()
        if state.spec.arrange is not None or state.spec.alone or work.payload is not None:
            return work, charge  # Each is as large as it shall be.
        slots = self._slots(state)
        more = len(state.queue) // (4 * slots)
        bundles, size = list(work.bundles), work.size_bytes
        while more > 0 and size < _SMALL_BYTES and state.queue[0][0].payload is None:
            other, other_charge = state.queue.popleft()
            bundles += other.bundles
            size += other.size_bytes
            charge += other_charge
            more -= 1
        return Work(tuple(bundles)), charge

    def _slots(self, state: _State) -> int:
        """How many tasks of `state` could run at once, at least 1."""
        spec = state.spec
        if spec.pool is not None:
            return max(1, spec.pool.in_flight * max(1, len(state.actors)))
        if spec.here:
            return 1
        count = min(
            (self.resources.total.get(name, 0.0) / amount for name, amount in spec.needs.items()),
            default=64.0,
        )
        return max(1, int(min(count, spec.cap or count)))

    def _reserve(self, state: _State, task: _Task) -> None:
        self.budget.reserved -= task.reserved
        # Nothing of what goes into a barrier stays in the budget.
        task.reserved = 0 if self._absorbs(state) else state.estimate(task.work)
        self.budget.reserved += task.reserved

    def _leave(self, state: _State, number: int) -> _Task:
        """`number` runs no more."""
        task = state.running.pop(number)
        del self._of_task[number]
        self.budget.reserved -= task.reserved
        task.reserved = 0
        if task.actor is None:
            if not task.here:
                self.resources.give_back(state.spec.needs)
        elif task.actor in state.actors:
            state.actors[task.actor].tasks.discard(number)
        return task

    def _absorbs(self, state: _State) -> bool:
        """Whether outputs of `state` go to a barrier, which holds all."""
        while state.consumer is not None:
            state = self.states[state.consumer]
            if state.spec.arrange is not None:
                return True
            if state.spec.kind not in ("limit", "union"):
                return False
        return False

    def _downstream(self, state: _State) -> Iterator[_State]:
        """Those that take what `state` makes as it comes."""
        while state.consumer is not None:
            state = self.states[state.consumer]
            if state.spec.arrange is not None:
                return
            yield state

    def _idle_downstream(self, state: _State) -> bool:
        feeder = state
        for other in self._downstream(state):
            if other.is_busy or other.waiting:
                return False
            if other.spec.kind == "union" and feeder.index != other.first_input:
                return self._preserve_order is False and not any(other.gathered)
            feeder = other
        return True

    def _may_exceed(self, state: _State) -> bool:
        """Whether a task of `state` may start with a full budget: it is the most downstream one
        with work, and none of its tasks runs."""
        lost_head = bool(state.again) and state.again[0].sequence == state.head
        return (
            (not state.running or lost_head) and not self._output and self._idle_downstream(state)
        )

    def _downstream_needs(self, state: _State) -> dict[str, float]:
        """What tasks downstream must find free, since they make room while those of `state` may
        wait."""
        beside = largest(
            [
                other.spec.needs
                for other in self._downstream(state)
                if other.works_elsewhere and not other.running and not other.actors
            ]
        )
        both = {name: amount + state.spec.needs.get(name, 0.0) for name, amount in beside.items()}
        # Where both do not fit in any case, they take turns.
        return {} if self.resources.short_of(both) else beside

    def _is_in_the_way(self, holder: _State) -> bool:
        """Whether the most downstream operator with work lacks resources that others hold, which
        wait for room: then those of `holder` end first, if no other's come before."""
        state = self._most_downstream()
        if state is None or state.running or state.spec.here or state.actors:
            return False
        running = next(other for other in self._order if other.running)
        return running is holder and not self.resources.fits(state.spec.needs)

    def _most_downstream(self) -> _State | None:
        """The operator whose work makes room first."""
        return next((state for state in self._order if state.is_busy), None)

    # Actors.

    def _free_actor(self, state: _State) -> _Actor | None:
        assert state.spec.pool is not None
        free = [
            actor
            for actor in state.actors.values()
            if actor.ready and len(actor.tasks) < state.spec.pool.in_flight
        ]
        return min(free, key=lambda actor: (len(actor.tasks), actor.number), default=None)

    def _grow_pools(self) -> None:
        for state in self.states:
            pool = state.spec.pool
            if pool is None or state.finished or self._behind_barrier(state):
                continue
            while len(state.actors) < pool.minimum or (
                len(state.actors) < pool.maximum
                and state.has_work
                and all(actor.ready for actor in state.actors.values())
                and self._free_actor(state) is None
            ):
                first = self.budget.is_full() and state is self._most_downstream()
                beside = {} if first and not state.actors else self._beside_actor(state)
                if not self._add_actor(state, beside):
                    break

    def _beside_actor(self, state: _State) -> dict[str, float]:
        """What an actor of `state` leaves free for others, so that all can work."""
        tasks = largest(
            [
                other.spec.needs
                for other in self.states
                if other.works_elsewhere
                and other.spec.pool is None
                and not other.running
                and not self._behind_barrier(other)
            ]
        )
        for other in self.states:
            lacks_all = other.spec.pool and other.works_elsewhere and not other.actors
            if other is not state and lacks_all and not self._behind_barrier(other):
                for name, amount in other.spec.needs.items():
                    tasks[name] = tasks.get(name, 0.0) + amount
        return tasks

    def _behind_barrier(self, state: _State) -> bool:
        """Whether all that `state` could get waits for a barrier."""
        if state.is_busy or not state.open_inputs:
            return False
        return state.spec.arrange is not None or all(
            self._behind_barrier(self.states[index]) for index in state.open_inputs
        )

    def _add_actor(self, state: _State, beside: Amounts) -> bool:
        if not self.resources.fits(state.spec.needs, beside):
            return False
        self.resources.take(state.spec.needs)
        number = next(self._numbers)
        state.actors[number] = _Actor(number)
        self._of_actor[number] = state
        self._commands.append(AddActor(number, state.index))
        return True

    # When nothing runs.

    def _anything_runs(self) -> bool:
        return any(state.running for state in self.states) or any(
            not actor.ready for state in self.states for actor in state.actors.values()
        )

    def _unblock(self) -> None:
        """Nothing runs and nothing waits to be taken: the most downstream operator with work gets
        what it needs, from actors that have nothing to do if need be."""
        for state in self._order:
            if not state.has_work:
                continue
            if state.spec.pool is not None and state.actors:
                self._start(state, whatever=True)
                return
            idle = [
                (other, actor)
                for other in self.states
                if other is not state
                for actor in sorted(other.actors)
            ]
            while not self.resources.fits(state.spec.needs) and idle and not state.spec.here:
                self._remove_actor(*idle.pop(0))
            if state.spec.pool is not None:
                self._add_actor(state, {})
            else:
                self._start(state, whatever=True)
            return

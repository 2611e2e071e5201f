# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Decides which task runs when: a state machine without I/O and clock. A shell tells it what has
happened and does what it says; the tests do the same with a simulated cluster.

What holds at any time:
- Blocks that were made and not taken stay below the budget, but for one block of each running task.
  Where actors leave too little for one task of each other operator, those take turns, and a task
  whose resources another needs ends first.
- The most downstream operator that has work runs at least one task, whatever the budget says, so
  there is always progress; what fits is started.
- Actors leave room for one task of each operator that works without actors, and for one actor of
  each other pool; when nothing else can run, idle actors lend their CPUs, and those make way that
  hold what cannot be lent.
- Outputs are in the order of the inputs, unless that would make the pipeline wait with a full
  budget and the order was not asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sheaf.data.budget import Amounts, Budget, Resources
from sheaf.data.executor_scheduler import Scheduler
from sheaf.data.executor_state import (
    AddActor,
    Cancel,
    Command,
    Draw,
    ExecutionError,
    Held,
    Lend,
    RemoveActor,
    State,
    Submit,
    Task,
)
from sheaf.data.operators import Bundle, Operator

__all__ = [
    "AddActor",
    "Cancel",
    "Command",
    "Draw",
    "ExecutionError",
    "Executor",
    "Lend",
    "RemoveActor",
    "Submit",
]

_MOST_CONSTRUCTIONS = 3  # Of actors of a pool in a row that fail.
_MOST_LOSSES = 4  # Of actors that die under one and the same task.


class Executor(Scheduler):
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
        states = [State(index, spec) for index, spec in enumerate(operators)]
        super().__init__(states, Resources(resources), Budget(budget), preserve_order)
        self.errors: list[BaseException] = []  # Of blocks that were left out.
        self._max_errored = max_errored_blocks
        for state in self.states:
            short = "" if state.spec.here else self.resources.short_of(state.spec.needs)
            if short:
                raise ExecutionError(f"{state.spec.name} cannot run: {short}")
        self._supply()
        self._grow_pools()
        self._schedule()

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

    def _is_next(self, state: State, task: Task) -> bool:
        """Whether outputs of `task` pass, or stand in the way of those that do."""
        head = next((t for t in state.running.values() if t.sequence == state.head), None)
        if head is None:  # It has lost its actor; another starts, or has room for it already.
            return False
        in_front = head.actor is not None and head.actor == task.actor and task.number < head.number
        return head is task or in_front

    # What has happened.

    def drawn(self, operator: int, bundles: list[Bundle], is_last: bool) -> None:
        """More of a source with a stream has been found; nothing comes behind the last."""
        state = self.states[operator]
        state.is_drawing = False
        for bundle in bundles:
            if not state.finished:  # Else a limit has had enough.
                self._pass_on(state, Held(bundle, 0))
        state.drawn += len(bundles)
        if is_last and not state.finished:
            self._finish(state)
        self._schedule()

    def output_came(self, task: int, bundle: Bundle) -> None:
        """A running task has made a block, which was taken."""
        state = self._of_task[task]
        record = state.running[task]
        record.outputs += 1
        state.blocks_out += 1
        state.rows_out += bundle.num_rows
        state.bytes_out += bundle.size_bytes
        # A barrier holds everything, and the store may spill it.
        held = Held(bundle, 0 if self._absorbs(state) else bundle.size_bytes)
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
        self.resources.give_back(state.kept(record))
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
        if state.has_lost_head:  # All others may wait for it, so nobody else gets its resources.
            self._add_actor(state, {})
        self._schedule()

    def stop(self) -> None:
        """The result is not wanted any more: all tasks and actors are to end."""
        for state in self.states:
            if not state.finished:
                self._stop(state)
        self.budget.release(sum(held.charge for held in self._output))
        self._output.clear()

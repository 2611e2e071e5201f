# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How bundles get from operator to operator, and in which order. A part of the executor."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

from sheaf.data.budget import Budget, Resources
from sheaf.data.executor_state import Cancel, Command, Held, RemoveActor, State, Task
from sheaf.data.operators import Work


class Flow:
    """Operators with what is on its way between them.

    Args:
        states: of all operators, each behind those that feed it.
        resources: what the cluster has.
        budget: of bytes of blocks that may lie around.
        preserve_order: outputs are in the order of inputs, whatever that costs.
    """

    def __init__(
        self, states: list[State], resources: Resources, budget: Budget, preserve_order: bool
    ) -> None:
        self.states, self.resources, self.budget = states, resources, budget
        self._preserve_order = preserve_order
        self._output: deque[Held] = deque()
        self._commands: deque[Command] = deque()
        self._of_task: dict[int, State] = {}
        self._of_actor: dict[int, State] = {}
        self._ends: deque[State] = deque()  # Of which those that they feed are not told yet.
        for state in states:
            for port, feeder in enumerate(state.spec.inputs):
                states[feeder].consumer, states[feeder].port = state.index, port
        self._order = self._downstream_first(states[-1])
        self._sources = [state for state in states if state.spec.kind == "source"]

    def _downstream_first(self, state: State) -> list[State]:
        order, left = [], [state]
        while left:
            order.append(left.pop())
            left += [self.states[feeder] for feeder in reversed(order[-1].spec.inputs)]
        return order

    def _draw(self, state: State, count: int | None) -> None:
        """The next bundles of a source go on, all of them for None; its end is not told yet."""
        found = 0
        for bundle in itertools.islice(state.supply, count):
            self._pass_on(state, Held(bundle, 0))
            found += 1
            if state.finished:  # A limit has had enough.
                return
        state.drawn += found
        state.undrawn -= found
        if count is None or found < count:
            state.undrawn = 0

    def _pass_on(self, state: State, held: Held) -> None:
        """An output of `state` goes to whom it feeds, through limits and unions. Nothing here calls
        itself for who is behind: plans are deeper than Python's stack."""
        satisfied = []
        while True:
            if state.consumer is None:
                self._output.append(held)
                break
            consumer = self.states[state.consumer]
            if consumer.finished:
                self.budget.release(held.charge)
                break
            if consumer.spec.kind == "limit":
                held = self._cut(consumer, held)
                if consumer.rows_left == 0:
                    satisfied.append(consumer)
            elif consumer.spec.kind != "union" or state.index != consumer.first_input:
                self._keep(consumer, state.port, held)
                break
            state = consumer
        for limit in reversed(satisfied):
            self._stop_feeders(limit)
            self._finish(limit)

    def _keep(self, state: State, port: int, held: Held) -> None:
        """What has come at an input lies there until there is a task for it, or it is its turn."""
        spec = state.spec
        if spec.arrange is not None or spec.beside == port or spec.kind == "union":
            state.gathered[port].append(held)
        elif spec.merge is not None:
            state.gathered[0].append(held)
            if state.has_merged and self._unmerged(state) >= self.budget.limit // 2:
                self._merge(state)
        else:
            self._gather(state, held)

    def _unmerged(self, state: State) -> int:
        """Bytes of what waits to be merged."""
        return sum(held.charge for held in state.gathered[0])

    def _merge(self, state: State) -> None:
        """A round: what has come so far becomes works."""
        assert state.spec.merge is not None
        charge, state.has_merged = self._unmerged(state), True
        works = state.spec.merge([[held.bundle for held in state.gathered[0]]])
        state.gathered[0] = []
        for work in works[:-1]:
            state.queue.append((work, 0))
        if works:  # What goes in is there until the last is done.
            state.queue.append((works[-1], charge))
        else:
            self.budget.release(charge)

    def _cut(self, state: State, held: Held) -> Held:
        """What a limit lets through."""
        if held.bundle.num_rows > state.rows_left:
            held = Held(held.bundle.cut(0, state.rows_left), held.charge)
        state.rows_left -= held.bundle.num_rows
        return held

    def _gather(self, state: State, held: Held) -> None:
        """Puts bundles together to works of tasks."""
        state.pending.append(held)
        state.pending_rows += held.bundle.num_rows
        state.pending_bytes += held.bundle.size_bytes
        spec = state.spec
        if state.pending_rows >= spec.rows_per_task and state.pending_bytes >= spec.bytes_per_task:
            self._flush(state)

    def _flush(self, state: State) -> None:
        if state.pending:
            charge = sum(held.charge for held in state.pending)
            work = Work(tuple(held.bundle for held in state.pending))
            state.queue.append((work, charge))
            state.pending, state.pending_rows, state.pending_bytes = [], 0, 0

    def _input_ended(self, state: State, feeder: int) -> None:
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
                        self._pass_on(state, Held(bundle, 0))
            else:
                state.queue.extend((work, 0) for work in works)
        elif spec.merge is not None and state.has_merged and state.gathered[0]:
            self._merge(state)
        elif spec.merge is not None:
            self.budget.release(self._unmerged(state))
            kept, state.gathered[0] = state.gathered[0], []
            for held in kept:
                self._pass_on(state, Held(held.bundle, 0))
        self._flush(state)
        self._finish_if_done(state)

    def _finish_if_done(self, state: State) -> None:
        if not state.finished and not state.open_inputs and not state.is_busy:
            self._finish(state)

    def _finish(self, state: State) -> None:
        state.finished = True
        state.gathered = [[] for _ in state.spec.inputs]
        self._remove_actors(state)
        self._ends.append(state)
        if len(self._ends) > 1:  # Whoever tells of the first goes on with this one.
            return
        while self._ends:
            ended = self._ends[0]
            if ended.consumer is not None and not self.states[ended.consumer].finished:
                self._input_ended(self.states[ended.consumer], ended.index)
            self._ends.popleft()

    def _stop_feeders(self, state: State) -> None:
        """Nobody wants what comes to `state`."""
        left = list(state.spec.inputs)
        while left:
            feeder = self.states[left.pop()]
            left += feeder.spec.inputs
            if not feeder.finished:
                self._stop(feeder)

    def _stop(self, state: State) -> None:
        """Nobody wants what `state` makes."""
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

    def _remove_actors(self, state: State) -> None:
        for actor in list(state.actors):
            self._remove_actor(state, actor)

    def _remove_actor(self, state: State, actor: int) -> None:
        del self._of_actor[actor]
        self.resources.give_back(state.kept(state.actors.pop(actor)))
        self._commands.append(RemoveActor(actor))

    # The order of outputs.

    def _end_sequence(self, state: State, sequence: int) -> None:
        state.ended.add(sequence)
        while state.head in state.ended:
            state.ended.discard(state.head)
            state.head += 1
            for held in state.waiting.pop(state.head, ()):
                self._pass_on(state, held)
            if state.finished:  # A limit downstream has had enough.
                return
        self._finish_if_done(state)

    def _keeps_order(self, state: State) -> bool:
        return self._preserve_order or state.spec.in_order

    def _release_order(self) -> None:
        """With a full budget, what waits for outputs in front goes on without them."""
        if not self.budget.is_full():
            return
        for state in self._order:
            if self._output or not self._idle_downstream(state):
                return
            if self._keeps_order(state):
                continue
            kept = [held for sequence in sorted(state.waiting) for held in state.waiting[sequence]]
            state.waiting.clear()
            if state.spec.kind == "union":
                kept += itertools.chain(*state.gathered)
                state.gathered = [[] for _ in state.spec.inputs]
            for held in kept:
                self._pass_on(state, held)

    # What is downstream.

    def _leave(self, state: State, number: int) -> Task:
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

    def _absorbs(self, state: State) -> bool:
        """Whether outputs of `state` go to a barrier, which holds all."""
        while state.consumer is not None:
            port, state = state.port, self.states[state.consumer]
            if state.spec.arrange is not None or state.spec.beside == port:
                return True
            if state.spec.kind not in ("limit", "union"):
                return False
        return False

    def _downstream(self, state: State) -> Iterator[State]:
        """Those that take what `state` makes as it comes."""
        while state.consumer is not None:
            port, state = state.port, self.states[state.consumer]
            if state.spec.arrange is not None or state.spec.beside == port:
                return
            yield state

    def _waits_beside(self, state: State) -> bool:
        """Whether `state`, or one that takes what it makes, waits for what goes to all its
        tasks."""
        return any(
            other.spec.beside is not None
            and other.spec.inputs[other.spec.beside] in other.open_inputs
            for other in itertools.chain([state], self._downstream(state))
        )

    def _idle_downstream(self, state: State) -> bool:
        feeder = state
        for other in self._downstream(state):
            if other.is_busy or other.waiting:
                return False
            if other.spec.kind == "union" and feeder.index != other.first_input:
                return not self._keeps_order(other) and not any(other.gathered)
            feeder = other
        return True

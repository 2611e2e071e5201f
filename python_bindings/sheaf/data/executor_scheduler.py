# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which task of which operator runs next, and how many actors there are. A part of the executor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from sheaf.data.budget import Amounts, Budget, Resources, largest
from sheaf.data.executor_flow import Flow
from sheaf.data.executor_state import Actor, AddActor, Draw, Lend, State, Submit, Task
from sheaf.data.operators import Bundle, Work

_SMALL_BYTES = 1 << 20  # Blocks below this go several to a task, where there are many.
_LEAST_AHEAD, _AHEAD = 2, 8  # Works in front of a limit for each task that may run.


class Scheduler(Flow):
    """Starts what fits.

    Args:
        states, resources, budget, preserve_order: as of Flow.
    """

    def __init__(
        self, states: list[State], resources: Resources, budget: Budget, preserve_order: bool
    ) -> None:
        super().__init__(states, resources, budget, preserve_order)
        self._numbers = itertools.count(1)

    def _schedule(self) -> None:
        self._release_order()
        started = True
        while started:
            started = False
            self._supply()
            for state in self._order:
                while state.has_work and self._start(state):
                    started = True
            started = started or self._merge_for_room()
        self._grow_pools()
        if not self._anything_runs() and not self._output:
            self._unblock()

    def _supply(self) -> None:
        """Sources give what they have; where a limit may make an end, what tasks need soon."""
        for state in self._sources:
            while not state.finished and not state.is_drawing and self._wants_more(state):
                if state.spec.stream is not None:
                    state.is_drawing = True
                    self._commands.append(Draw(state.index))
                elif state.undrawn:  # Twice as much each time, as few rows may get to the limit.
                    least = _AHEAD * self._slots(self._consumer(state) or state)
                    self._draw(state, max(least, state.drawn) if self._may_end(state) else None)
                else:
                    self._finish(state)
        self._sources = [state for state in self._sources if not state.finished]

    def _wants_more(self, state: State) -> bool:
        consumer = self._consumer(state)
        if consumer is None or not self._may_end(state):
            return True
        if state.spec.stream is None and not state.undrawn:
            return True
        return len(consumer.queue) < _LEAST_AHEAD * self._slots(consumer)

    def _consumer(self, state: State) -> State | None:
        return None if state.consumer is None else self.states[state.consumer]

    def _may_end(self, source: State) -> bool:
        """Whether tasks take what a source gives one by one, and a limit behind them may have had
        enough before it has given all."""
        state = self._consumer(source)
        if state is None or state.spec.kind != "map" or state.spec.merge is not None:
            return False
        return any(other.spec.kind == "limit" for other in self._downstream(source))

    def _merge_for_room(self) -> bool:
        """Where the budget stops a task, what waits to be merged is merged, if that is much or the
        budget is full; whether anything is."""
        waiting = [
            state
            for state in self._order
            if state.spec.merge is not None and state.gathered[0] and not state.is_busy
        ]
        if not waiting:
            return False
        largest_first = sorted(waiting, key=self._unmerged)
        state, full = largest_first[-1], self.budget.is_full()
        if not full and self._unmerged(state) < self.budget.limit // 4:
            return False
        if not full and not any(self._lacks_room(other) for other in self.states):
            return False
        self._merge(state)
        return state.has_work

    def _lacks_room(self, state: State) -> bool:
        return (
            state.has_work
            and not self._absorbs(state)
            and not self.budget.has_room(state.estimate())
        )

    def _start(self, state: State, whatever: bool = False) -> bool:
        """Starts the next task of `state`, if it may run now; `whatever` the budget says."""
        spec = state.spec
        if spec.cap is not None and len(state.running) >= spec.cap:
            return False
        if self._waits_beside(state):
            return False
        # What is most downstream with work makes room for all others: nothing stands in its way.
        whatever = whatever or self._may_exceed(state)
        if not (whatever or self._absorbs(state) or self.budget.has_room(state.estimate())):
            return False
        here = spec.here or (bool(state.queue) and state.queue[0][0].here)
        actor = None
        if spec.pool is not None:
            actor = self._free_actor(state)
            if actor is None or not self._has_again(state, actor):
                return False
        elif not here:
            beside = {} if whatever else self._downstream_needs(state)
            if not self.resources.fits(spec.needs, beside):
                return False
            self.resources.take(spec.needs)
        self._submit(state, actor, here)
        return True

    def _submit(self, state: State, actor: Actor | None, here: bool) -> None:
        number = next(self._numbers)
        if state.again:
            task = state.again.popleft()
            task.number, task.actor = number, actor.number if actor else None
        else:
            work, charge = self._next_work(state)
            lent = actor.number if actor else None
            task = Task(number, state.sequence, work, charge, lent, here)
            state.sequence += 1
        state.running[number] = task
        self._of_task[number] = state
        if actor is not None:
            actor.tasks.add(number)
        self._reserve(state, task)
        self._commands.append(
            Submit(number, state.index, task.work, task.actor, task.outputs, here, task.sequence)
        )

    def _next_work(self, state: State) -> tuple[Work, int]:
        """The first work of the queue; of many small ones several, so that tasks do not cost more
        than what they do."""
        work, charge = state.queue.popleft()
        alone = state.spec.arrange is not None or state.spec.alone or work.payload is not None
        if not alone:  # Else each is as large as it shall be.
            work, charge = self._put_together(state, work, charge)
        if state.spec.beside is not None:
            beside = tuple(held.bundle for held in state.gathered[state.spec.beside])
            work = Work(work.bundles + beside, (len(work.bundles), len(beside)))
        return work, charge

    def _put_together(self, state: State, work: Work, charge: int) -> tuple[Work, int]:
        source = self.states[state.spec.inputs[0]]
        ahead = source.undrawn if source.spec.kind == "source" and not source.finished else 0
        more = (len(state.queue) + ahead) // (4 * self._slots(state))
        bundles, size = list(work.bundles), work.size_bytes
        rows, wanted = _least_rows(bundles), self._rows_wanted(state)
        while more > 0 and size < _SMALL_BYTES and rows < wanted:
            if not state.queue and source.undrawn:
                self._draw(source, more)
            if not state.queue or state.queue[0][0].payload is not None:
                break
            other, other_charge = state.queue.popleft()
            bundles += other.bundles
            size += other.size_bytes
            rows += _least_rows(other.bundles)
            charge += other_charge
            more -= 1
        return Work(tuple(bundles)), charge

    def _rows_wanted(self, state: State) -> float:
        """How many rows the next task is worth: what a limit downstream lacks, and twice as many
        for each task before, as few of them may get there."""
        limits = [other for other in self._downstream(state) if other.spec.kind == "limit"]
        lacking = min((other.rows_left for other in limits), default=math.inf)
        return lacking * 2.0 ** min(state.sequence, 64)

    def _slots(self, state: State) -> int:
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

    def _reserve(self, state: State, task: Task) -> None:
        self.budget.reserved -= task.reserved
        # Nothing of what goes into a barrier stays in the budget.
        task.reserved = 0 if self._absorbs(state) else state.estimate(task.work)
        self.budget.reserved += task.reserved

    def _may_exceed(self, state: State) -> bool:
        """Whether a task of `state` may start with a full budget: it is the most downstream one
        with work, and none of its tasks runs."""
        comes_next = not state.running or state.has_lost_head
        return comes_next and not self._output and self._idle_downstream(state)

    def _downstream_needs(self, state: State) -> dict[str, float]:
        """What tasks downstream must find free, since they make room while those of `state` may
        wait."""
        beside = largest(
            [
                other.spec.needs
                for other in self._downstream(state)
                if other.works_elsewhere
                and not other.running
                and other.lends_all
                and not self._behind_barrier(other)
            ]
        )
        both = {name: amount + state.spec.needs.get(name, 0.0) for name, amount in beside.items()}
        # Where both do not fit in any case, they take turns.
        return {} if self.resources.short_of(both) else beside

    def _is_in_the_way(self, holder: State) -> bool:
        """Whether the most downstream operator with work lacks resources that others hold, which
        wait for room: then those of `holder` end first, if no other's come before."""
        state = self._most_downstream()
        if state is None or state.running or state.spec.here or not state.lends_all:
            return False
        lacking = self.resources.lacking(state.lent if state.actors else state.spec.needs)
        if not lacking:
            return False
        running = [other for other in self._order if other.running]
        holding = [
            other
            for other in running
            if other.spec.pool is None
            and any(other.spec.needs.get(name) for name in lacking)
            and any(not task.here for task in other.running.values())
        ]
        # Where idle actors hold them, they make way when nothing runs.
        return holder is next(iter(holding or running))

    def _most_downstream(self) -> State | None:
        """The operator whose work makes room first."""
        return next(
            (state for state in self._order if state.is_busy and not self._waits_beside(state)),
            None,
        )

    # Actors.

    def _free_actor(self, state: State) -> Actor | None:
        assert state.spec.pool is not None
        free = [
            actor
            for actor in state.actors.values()
            if actor.ready and len(actor.tasks) < state.spec.pool.in_flight
        ]
        order = lambda actor: (actor.lends, len(actor.tasks), actor.number)  # noqa: E731
        return min(free, key=order, default=None)

    def _has_again(self, state: State, actor: Actor) -> bool:
        """Gives an actor its CPUs back, if they are free; whether it has them."""
        if actor.lends and self.resources.fits(state.lent):
            self.resources.take(state.lent)
            actor.lends = False
        return not actor.lends

    def _grow_pools(self) -> None:
        for state in self.states:
            pool = state.spec.pool
            if pool is None or state.finished or self._behind_barrier(state):
                continue
            if any(actor.lends for actor in state.actors.values()):
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

    def _beside_actor(self, state: State) -> dict[str, float]:
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

    def _behind_barrier(self, state: State) -> bool:
        """Whether all that `state` could get waits for a barrier, or for a round to be merged."""
        left = [state]
        while left:
            state = left.pop()
            if self._waits_beside(state):
                continue
            if state.is_busy or not state.open_inputs:
                return False
            if state.spec.arrange is None and state.spec.merge is None:
                left += [self.states[index] for index in state.open_inputs]
        return True

    def _add_actor(self, state: State, beside: Amounts) -> bool:
        if not self.resources.fits(state.spec.needs, beside):
            return False
        self.resources.take(state.spec.needs)
        number = next(self._numbers)
        state.actors[number] = Actor(number)
        self._of_actor[number] = state
        self._commands.append(AddActor(number, state.index))
        return True

    # When nothing runs.

    def _anything_runs(self) -> bool:
        return any(state.running or state.is_drawing for state in self.states) or any(
            not actor.ready for state in self.states for actor in state.actors.values()
        )

    def _unblock(self) -> None:
        """Nothing runs and nothing waits to be taken: the most downstream operator with work gets
        what it needs, from actors that have nothing to do if need be."""
        for state in self._order:
            if not state.has_work or self._waits_beside(state):
                continue
            if not state.spec.here:
                self._make_room(state)
            if state.spec.pool is not None and not state.actors:
                self._add_actor(state, {})
            else:
                self._start(state, whatever=True)
            return

    def _make_room(self, state: State) -> None:
        """Idle actors lend `state` the CPUs that its next task or actor lacks; those end that hold
        something else which it lacks. An actor that ended for a CPU would be made again, and again,
        where there is one CPU for it and for what feeds it."""
        needs = state.spec.needs
        if state.actors:
            needs = state.lent if state.lends_all else {}
        idle = [
            (other, actor)
            for other in self.states
            if other is not state
            for _, actor in sorted(other.actors.items())
        ]
        for other, actor in idle:
            if "CPU" in self.resources.lacking(needs) and other.lent and not actor.lends:
                self.resources.give_back(other.lent)
                actor.lends = True
                self._commands.append(Lend(actor.number))
        for other, actor in idle:
            if any(name in other.spec.needs for name in self.resources.lacking(needs)):
                self._remove_actor(other, actor.number)


def _least_rows(bundles: Iterable[Bundle]) -> int:
    """How many rows these have; of a read task that does not know, one."""
    return sum(max(1, bundle.num_rows) for bundle in bundles)

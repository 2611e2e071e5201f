# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The executor of sheaf.data against a simulated cluster: random plans, durations, sizes, failures
and consumers. One seed is one run; a failing one is printed and replays with SEED=n."""

import heapq
import itertools
import os
import random

import pytest
from sheaf.data import executor as machine
from sheaf.data.operators import Bundle, Operator, Pool, Work

SEEDS = int(os.environ.get("SEEDS", 400))


class Lost(Exception):
    """What ends an actor here."""


class Simulation:
    """Runs one random plan to its end and looks at every step whether the executor keeps what it
    promises."""

    def __init__(self, seed):
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.events = []  # (time, number, what, task or actor)
        self.count = 0
        self.limit_bytes = self.random.choice([10, 100, 1000, 10**9])
        self.total = {"CPU": float(self.random.choice([1, 2, 4, 16])), "GPU": 1.0}
        self.block = self.random.choice([1, 10, 50])  # Most bytes of a block.
        self.strict = self.random.random() < 0.5
        # How often an actor dies in a task.
        self.losing = self.random.choice([0.0, 0.0, 0.05, 0.2])
        self.operators = self.plan()
        # By a setting of all, or by each operator; in plans that are not strict some are, up to the
        # last one, or from the first one on.
        by_setting, some = (
            self.random.random() < 0.5,
            self.random.randrange(len(self.operators) + 1),
        )
        chosen = self.operators[some:] if self.random.random() < 0.5 else self.operators[:some]
        for operator in self.operators if self.strict else chosen:
            operator.in_order = not by_setting
        self.tasks, self.actors = {}, {}
        self.drawing, self.drawn = set(), {}  # Sources; how many parts of them have been found.
        self.got = []
        self.stopped = False
        self.takes_turns = False
        self.tasks_over = 0  # The most tasks since the budget was kept last.
        self.machine = machine.Executor(
            self.operators, self.total, self.limit_bytes, preserve_order=self.strict and by_setting
        )

    # The plan. Row i of a source is a bundle's start; maps keep it in the metadata, so order shows.

    def source(self):
        count = self.random.choice([0, 1, 3, 20, 60])
        base = self.random.randrange(10**6)
        bundles = tuple(
            Bundle(
                None,
                0,
                self.random.randrange(4),
                self.random.randrange(self.block + 1),
                (base + i,),
            )
            for i in range(count)
        )
        if self.random.random() < 0.3:  # It takes time to find them.
            cuts = sorted(self.random.randrange(count + 1) for _ in range(self.random.randrange(4)))
            parts = [list(bundles[a:b]) for a, b in zip([0, *cuts], [*cuts, count])]
            return Operator("source", "source", stream=parts)
        return Operator("source", "source", bundles=bundles)

    def needs(self):
        kinds = [{"CPU": 1.0}, {"CPU": 0.5}, {}, {"CPU": 1.0, "GPU": 0.5}]
        if self.total["CPU"] >= 2:
            kinds.append({"CPU": 2.0})
        return self.random.choice(kinds)

    def plan(self):
        operators = []

        def add(operator):
            operators.append(operator)
            return len(operators) - 1

        def tree(depth):
            kind = (
                "source"
                if depth == 0
                else self.random.choice(
                    ["map"] * 5
                    + ["pool"] * 2
                    + ["limit", "union", "barrier", "arrange", "beside", "rounds"]
                )
            )
            if kind == "source":
                return add(self.source())
            if kind == "union":
                inputs = tuple(tree(depth - 1) for _ in range(self.random.choice([1, 2, 3])))
                return add(Operator("union", "union", inputs=inputs))
            inputs = (tree(depth - 1),)
            if kind == "limit":
                return add(
                    Operator(
                        "limit", "limit", inputs=inputs, limit=self.random.choice([0, 1, 5, 30])
                    )
                )
            if kind == "arrange":
                return add(
                    Operator(
                        "arrange",
                        "arrange",
                        inputs=inputs,
                        arrange=lambda given: [Work(tuple(given[0]))],
                    )
                )
            if kind == "rounds":
                merging = Operator(
                    "merge", "map", inputs=inputs, merge=self.regroup, needs=self.needs()
                )
                inputs, kind = (add(merging),), self.random.choice(["barrier", "barrier", "map"])
            arrange = None
            if kind == "barrier":
                if self.random.random() < 0.3:
                    inputs = (*inputs, tree(depth - 1))
                arrange = self.regroup
            if kind == "beside":
                inputs = (*inputs, tree(depth - 1))
            pool = None
            if kind == "pool" or (kind == "beside" and self.random.random() < 0.3):
                least = self.random.choice([1, 2, 5])
                pool = Pool(least, least + self.random.choice([0, 3]), self.random.choice([1, 2]))
            return add(
                Operator(
                    kind,
                    "map",
                    inputs=inputs,
                    arrange=arrange,
                    beside=1 if kind == "beside" else None,
                    pool=pool,
                    needs=self.needs(),
                    here=pool is None and self.random.random() < 0.15,
                    cap=self.random.choice([None, None, 1, 3]),
                    rows_per_task=self.random.choice([0, 0, 10]),
                )
            )

        tree(self.random.choice([1, 2, 3, 4]))
        return operators

    def regroup(self, given):
        rows = [bundle for port in given for bundle in port]
        size = self.random.choice([1, 2, 7])
        return [Work(tuple(rows[at : at + size])) for at in range(0, len(rows), size)]

    # The cluster.

    def at(self, delay, what, number):
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, what, number))

    def carry_out(self):
        for command in self.machine.commands():
            match command:
                case machine.Submit(task, index, work, actor, skip, _, _):
                    assert task not in self.tasks
                    if self.operators[index].beside is not None:
                        work = self.without_beside(index, work)
                    outputs = self.outputs_of(work)
                    assert skip <= len(outputs)
                    self.tasks[task] = {
                        "left": outputs[skip:],
                        "operator": index,
                        "actor": actor,
                        "ready": False,
                        "began": False,
                    }
                    if actor is None:
                        self.begin(task)
                    else:
                        self.actors[actor]["lends"] = False
                        self.actors[actor]["queue"].append(task)
                        self.next_of(actor)
                case machine.Cancel(task):
                    gone = self.tasks.pop(task)
                    if gone["actor"] in self.actors:
                        self.actors[gone["actor"]]["queue"].remove(task)
                        self.next_of(gone["actor"])
                case machine.AddActor(actor, index):
                    self.actors[actor] = {"operator": index, "ready": False, "queue": []}
                    self.actors[actor]["lends"] = False
                    self.at(self.random.expovariate(1), "constructed", actor)
                case machine.RemoveActor(actor):
                    index = self.actors.pop(actor)["operator"]
                    if not self.machine.states[index].finished:
                        assert self.operators[index].needs.keys() > {"CPU"}, "it could have lent"
                case machine.Lend(actor):
                    state = self.actors[actor]
                    assert state["ready"] and not state["queue"] and not state["lends"]
                    state["lends"] = True
                case machine.Draw(index):
                    assert index not in self.drawing and not self.machine.states[index].finished
                    self.drawing.add(index)
                    self.at(self.random.expovariate(1), "drawn", index)
        self.look()

    def without_beside(self, index, work):
        """A work without what goes to every task, which must have come as a whole."""
        own, beside = work.payload
        assert len(work.bundles) == own + beside
        rows = sum(bundle.num_rows for bundle in work.bundles[own:])
        _, least, most, _ = self.expected(self.operators[index].inputs[1])
        assert least <= rows <= most, "a task began before all that goes to it had come"
        return Work(work.bundles[:own])

    def outputs_of(self, work):
        """A task gives its input again, in blocks that do not depend on the try."""
        mark = sum(bundle.metadata[0] * 31 + bundle.num_rows for bundle in work.bundles)
        return [
            Bundle(None, 0, bundle.num_rows, 1 + (mark * 7 + i) % self.block, bundle.metadata)
            for i, bundle in enumerate(work.bundles)
        ]

    def begin(self, task):
        self.tasks[task]["began"] = True
        self.at(self.random.expovariate(1), "step", task)

    def next_of(self, actor):
        state = self.actors[actor]
        if state["ready"] and state["queue"] and not self.tasks[state["queue"][0]]["began"]:
            self.begin(state["queue"][0])

    def step(self, task):
        state = self.tasks.get(task)
        if state is None:
            return
        actor = state["actor"]
        if actor is not None and self.random.random() < self.losing:
            for other in self.actors.pop(actor)["queue"]:
                del self.tasks[other]
            self.machine.actor_died(actor, Lost())
        elif state["left"]:
            state["ready"] = True  # It waits until the block is taken.
        else:
            del self.tasks[task]
            if actor is not None:
                self.actors[actor]["queue"].pop(0)
                self.next_of(actor)
            self.machine.task_ended(task)

    def draw(self, index):
        """One part of what a source has, or two, has been found; perhaps nobody wants it now."""
        parts = self.operators[index].stream
        self.drawing.remove(index)
        first = self.drawn.get(index, 0)
        self.drawn[index] = min(len(parts), first + self.random.choice([1, 2]))
        found = [bundle for part in parts[first : self.drawn[index]] for bundle in part]
        self.machine.drawn(index, found, self.drawn[index] == len(parts))

    def take_from_streams(self):
        moved = True
        while moved:
            moved = False
            for task in list(self.tasks):
                state = self.tasks.get(task)
                if state is None or not state["ready"] or not self.machine.may_take(task):
                    continue
                moved, state["ready"] = True, False
                self.at(self.random.expovariate(1), "step", task)
                self.machine.output_came(task, state["left"].pop(0))
                self.carry_out()

    # What must hold.

    def look(self):
        e = self.machine
        used = {}
        for state in self.tasks.values():
            spec = self.operators[state["operator"]]
            if state["actor"] is None and not spec.here:
                for name, amount in spec.needs.items():
                    used[name] = used.get(name, 0) + amount
        for state in self.actors.values():
            for name, amount in self.operators[state["operator"]].needs.items():
                lent = name == "CPU" and state["lends"]
                used[name] = used.get(name, 0) + (0 if lent else amount)
        for name, amount in used.items():
            assert amount <= self.total[name] + 1e-9, f"{name}: {amount} in use"
        for index, spec in enumerate(self.operators):
            running = sum(task["operator"] == index for task in self.tasks.values())
            assert spec.cap is None or running <= spec.cap
            pool = spec.pool
            if pool:
                assert sum(a["operator"] == index for a in self.actors.values()) <= pool.maximum
        self.takes_turns = self.takes_turns or not self.fits_together
        if not self.takes_turns:  # A task of so many rows has them all at once.
            pending = sum(
                sum(held.charge for held in state.pending)
                + sum(charge for _, charge in state.queue)
                + sum(task.charge for task in (*state.running.values(), *state.again))
                for state in e.states
                if state.spec.rows_per_task
            )
            # A round may wait for CPUs that tasks of many blocks have: those go on, and the store may
            # spill what they make, as everything that an exchange holds.
            for state in e.states:
                feeds_rounds = state.consumer is not None and e.states[state.consumer].has_merged
                if feeds_rounds:
                    waiting = itertools.chain(*state.waiting.values())
                    pending += sum(held.charge for held in waiting)
                if state.has_merged:
                    pending += sum(held.charge for held in state.gathered[0])
                    pending += sum(charge for _, charge in state.queue)
                    pending += sum(task.charge for task in state.running.values())
            # What tasks have made stays when their actors die.
            is_over = e.budget.held > self.limit_bytes
            self.tasks_over = max(len(self.tasks), self.tasks_over if is_over else 0)
            most = self.limit_bytes + self.block * (2 + self.tasks_over) + pending
            assert e.budget.held <= most, f"over the budget: {e.budget.held} of {most}"
        for state in e.states:  # Nothing that fits waits.
            spec = state.spec
            if not state.has_work or spec.pool or len(state.running) >= (spec.cap or 10**9):
                continue
            if e.budget.has_room(state.estimate()) and not e._waits_beside(state):
                others = [o.spec.needs for o in e.states if not self.waits_for_all(o)]
                beside = {n: sum(needs.get(n, 0) for needs in others) for n in self.total}
                assert not spec.here and not e.resources.fits(spec.needs, beside), (
                    f"{spec.name} {state.index} could run"
                )

    def waits_for_all(self, state):
        """Whether it gets nothing to do before all tasks upstream, or some round of them, end."""
        if state.has_work or state.running or not state.open_inputs:
            return False
        barrier = state.spec.arrange is not None or state.spec.merge is not None
        feeders = [self.machine.states[index] for index in state.open_inputs]
        return barrier or all(self.waits_for_all(feeder) for feeder in feeders)

    @property
    def fits_together(self):
        """Whether every operator may run one task beside the actors that there are and one task of
        all others: else they take turns, and a task whose resources another needs ends first."""
        actors = [actor["operator"] for actor in self.actors.values()]
        times = {i: max(1, actors.count(i)) for i, o in enumerate(self.operators) if not o.here}
        return all(
            sum(n * self.operators[i].needs.get(name, 0) for i, n in times.items()) <= amount
            for name, amount in self.total.items()
        )

    def run(self):
        slow = self.random.choice([0.0, 0.1, 0.9])  # How often the consumer does something else.
        patience = self.random.choice([10**9, 10**9, 5])
        self.carry_out()
        while not self.machine.is_finished():
            self.take_from_streams()
            if self.machine.has_output() and self.random.random() >= slow:
                self.got.append(self.machine.take())
                self.carry_out()
                if len(self.got) >= patience:
                    self.machine.stop()
                    self.stopped = True
                    self.carry_out()
                continue
            if not self.events:
                assert self.machine.has_output(), "deadlock: " + self.describe()
                continue
            self.now, _, what, number = heapq.heappop(self.events)
            if what == "step":
                self.step(number)
            elif what == "drawn":
                self.draw(number)
            elif number in self.actors and self.random.random() < self.losing:
                self.actors.pop(number)
                self.machine.actor_died(number, Lost())
            elif number in self.actors:
                self.actors[number]["ready"] = True
                self.machine.actor_ready(number)
            self.carry_out()
        self.check_end()

    def describe(self):
        return (
            f"budget {self.machine.budget.held}+{self.machine.budget.reserved} of {self.limit_bytes}; "
            + "; ".join(
                f"{s.index} {s.spec.name} queue {len(s.queue)} again {len(s.again)} running {sorted(s.running)} waiting {sorted(s.waiting)} head {s.head} actors {list(s.actors)}"
                for s in self.machine.states
            )
        )

    def check_end(self):
        e = self.machine
        assert not self.tasks and not self.actors, "something still runs"
        assert e.budget.held == 0 and e.budget.reserved == 0, self.describe()
        assert all(abs(amount) < 1e-9 for amount in e.resources.used.values())
        if self.stopped:
            return
        rows, least, most, ordered = self.expected(len(self.operators) - 1)
        got = [bundle.metadata[0] for bundle in self.got for _ in range(bundle.num_rows)]
        assert least <= len(got) <= most
        if least == len(rows):
            assert sorted(got) == sorted(rows)
        if ordered and (self.strict or self.limit_bytes == 10**9):
            assert got == rows[: len(got)], "not in order"

    def expected(self, index):
        """The rows of an operator in order, how many of them come at least and at most, and
        whether their order is known."""
        spec = self.operators[index]
        if spec.kind == "source":
            bundles = [*spec.bundles, *(one for part in spec.stream or () for one in part)]
            rows = [b.metadata[0] for b in bundles for _ in range(b.num_rows)]
            return rows, len(rows), len(rows), True
        parts = [self.expected(i) for i in spec.inputs]
        if spec.beside is not None:
            return parts[0]
        rows = [row for part in parts for row in part[0]]
        least, most = sum(p[1] for p in parts), sum(p[2] for p in parts)
        ordered = all(p[3] for p in parts) and (len(parts) == 1 or least == len(rows))
        if spec.kind == "limit":
            return rows, min(least, spec.limit), min(most, spec.limit), ordered
        return rows, least, most, ordered


def run(seed):
    simulation = Simulation(seed)
    try:
        simulation.run()
    except machine.ExecutionError as error:
        # Actors that die again and again end an execution.
        assert simulation.losing and "actors" in str(error), f"SEED={seed}: {error}"
    except Exception as error:
        raise AssertionError(f"SEED={seed}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("part", range(4))
def test_random_plans(part):
    """Never a deadlock, never over the budget or the resources, never idle when something fits, and
    every row comes once."""
    if "SEED" in os.environ:
        run(int(os.environ["SEED"]))
        return
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        run(seed)


def test_plans_may_be_deeper_than_the_stack():
    """What waits at each of 400 unions is passed on when the one input that is in front of all
    ends, and satisfies the limits behind them one by one."""
    operators = [Operator("first", "source")]
    operators.append(Operator("map", "map", inputs=(0,), needs={"CPU": 1.0}))
    for number in range(400):
        front = len(operators) - 1
        bundles = (Bundle(None, 0, 1, 1, (number,)),)
        operators.append(Operator("source", "source", bundles=bundles))
        operators.append(Operator("union", "union", inputs=(front, front + 1)))
        operators.append(Operator("limit", "limit", inputs=(front + 2,), limit=number // 2 + 2))
    operators[0].bundles = (Bundle(None, 0, 1, 1, (-1,)),)
    e = machine.Executor(operators, {"CPU": 1.0}, 10**9)
    (submitted,) = e.commands()
    e.output_came(submitted.task, Bundle(None, 0, 1, 1, (-1,)))
    e.task_ended(submitted.task)
    got = []
    while not e.is_finished():
        got.append(e.take().metadata[0])
    assert got == [-1, *range(0, 400, 2)]
    assert not list(e.commands()) and e.budget.held == 0


def test_a_limit_draws_no_more_of_a_source_than_it_needs():
    """Of bundles that are made as they are taken, and of those that are found with time."""
    made = []

    class Made:
        def __len__(self):
            return 20_000

        def __iter__(self):
            for number in range(20_000):
                made.append(number)
                yield Bundle(None, 0, 1, 1 << 30, (number,))

    parts = [[bundle] for bundle in itertools.islice(Made(), 100)]
    for kind in ("bundles", "stream"):
        made.clear()
        operators = [
            Operator("source", "source", **{kind: Made() if kind == "bundles" else parts}),
            Operator("map", "map", inputs=(0,), needs={"CPU": 1.0}),
            Operator("limit", "limit", inputs=(1,), limit=30),
        ]
        e = machine.Executor(operators, {"CPU": 2.0}, 10**12)
        tasks, drawn = [], 0
        while not e.is_finished():
            for command in e.commands():
                if isinstance(command, machine.Draw):
                    e.drawn(0, parts[drawn], False)
                    drawn += 1
                elif isinstance(command, machine.Submit):
                    tasks.append(command)
            if e.has_output():
                e.take()
            elif tasks:
                task = tasks.pop(0)
                e.output_came(task.task, task.work.bundles[0])
                if e.runs(task.task):
                    e.task_ended(task.task)
        assert 30 <= len(made) + drawn < 80, (made, drawn)


def test_tasks_in_front_of_a_limit_take_as_many_rows_as_it_lacks_and_then_twice_as_many():
    bundles = tuple(Bundle(None, 0, 1, 10, (i,)) for i in range(5000))
    operators = [
        Operator("source", "source", bundles=bundles),
        Operator("map", "map", inputs=(0,), needs={"CPU": 1.0}),
        Operator("limit", "limit", inputs=(1,), limit=3),
    ]
    e = machine.Executor(operators, {"CPU": 1.0}, 10**9)
    taken = []
    while len(taken) < 5:  # No row gets through.
        (submitted,) = e.commands()
        taken.append(len(submitted.work.bundles))
        e.task_ended(submitted.task)
    assert taken == [3, 6, 12, 24, 48]
    (submitted,) = e.commands()
    e.output_came(submitted.task, Bundle(None, 0, 3, 30))
    assert [type(command) for command in e.commands()] == [machine.Cancel]
    assert e.take().num_rows == 3 and e.is_finished()


def test_others_wait_for_a_task_that_has_lost_its_actor():
    """What they make would pile up behind it, however often its actor dies."""
    bundles = tuple(Bundle(None, 0, 1, 10, (i,)) for i in range(8))
    operators = [
        Operator("source", "source", bundles=bundles),
        Operator("pool", "map", inputs=(0,), pool=Pool(2, 2, 1), needs={"CPU": 1.0}),
    ]
    e = machine.Executor(operators, {"CPU": 2.0}, 100, preserve_order=True)

    def commands(kind):
        return [command for command in e.commands() if isinstance(command, kind)]

    for command in commands(machine.AddActor):
        e.actor_ready(command.actor)
    head, behind = commands(machine.Submit)
    for _ in range(2):
        assert e.may_take(behind.task)
        e.output_came(behind.task, Bundle(None, 0, 1, 60, ()))
    assert e.budget.is_full() and e.may_take(head.task) and not e.may_take(behind.task)
    e.actor_died(head.actor, Lost())
    assert not e.may_take(behind.task)
    (added,) = commands(machine.AddActor)
    e.actor_ready(added.actor)
    (again,) = commands(machine.Submit)
    assert again.sequence == 0 and e.may_take(again.task) and not e.may_take(behind.task)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Workers that are not needed any more: what they have begun comes to its end before they do."""

import atexit
import os
import sys
import time

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.exceptions import ActorDiedError

pytestmark = pytest.mark.usefixtures("node")

IDLE_S = 12  # A worker that has been idle for 10 s is asked to leave.
WORKERS = 8  # More than the node has CPUs: so many are kept.


@sheaf.remote(num_cpus=0)
class Notes:
    def __init__(self):
        self.notes = []

    def note(self, what):
        self.notes.append(what)

    def all(self):
        return sorted(self.notes)


@sheaf.remote(num_cpus=0)
class Seven:
    def get(self):
        return 7


@sheaf.remote(num_cpus=0)
def slow(notes, number, wait_s):
    time.sleep(wait_s)
    sheaf.get(notes.note.remote(number), timeout=WAIT_S)
    return number


@pytest.fixture
def notes():
    made = Notes.remote()
    assert sheaf.get(made.all.remote(), timeout=WAIT_S) == []
    return made


def arrive(notes, wanted):
    wait_until(
        lambda: sheaf.get(notes.all.remote(), timeout=WAIT_S) == wanted, "what was begun is lost"
    )


def test_a_worker_that_idles_stays_for_what_its_task_began(notes):
    gate = Notes.remote()

    @sheaf.remote(num_cpus=0.1, max_retries=0)
    def begin(number):
        sheaf.get(gate.note.remote(number), timeout=WAIT_S)
        arrive(gate, list(range(WORKERS)))  # So that each has a worker of its own.
        slow.remote(notes, number, IDLE_S)  # Whose result nobody wants.
        actor = Seven.remote()
        assert sheaf.get(actor.get.remote(), timeout=WAIT_S) == 7
        return [slow.remote(notes, number, IDLE_S)], actor, os.getpid()

    begun = sheaf.get([begin.remote(i) for i in range(WORKERS)], timeout=WAIT_S)
    assert len({pid for *_, pid in begun}) == WORKERS
    for number, (box, actor, _) in enumerate(begun):
        assert sheaf.get(box[0], timeout=WAIT_S + IDLE_S) == number
        assert sheaf.get(actor.get.remote(), timeout=WAIT_S) == 7
    arrive(notes, sorted(2 * list(range(WORKERS))))


def test_a_worker_ends_by_max_calls_once_what_it_has_begun_has_ended(notes):
    @sheaf.remote(max_calls=1)
    def begin(number):
        atexit.register(lambda: notes.note.remote(100 + number))
        slow.remote(notes, number, 0.5)
        actor = Seven.remote()
        return [slow.remote(notes, 10 + number, 0.5), actor.get.remote()], os.getpid()

    begun = sheaf.get([begin.remote(i) for i in range(4)], timeout=WAIT_S)
    assert len({pid for _, pid in begun}) == 4
    for number, (box, _) in enumerate(begun):
        assert sheaf.get(box, timeout=WAIT_S) == [10 + number, 7]
    arrive(notes, [*range(4), *range(10, 14), *range(100, 104)])


class Leaver:
    def __init__(self, notes):
        self.notes = notes
        atexit.register(lambda: notes.note.remote("atexit"))

    def leave(self, code):
        self.notes.note.remote("call")
        sys.exit(code)


class AsyncLeaver(Leaver):
    async def leave(self, code):
        Leaver.leave(self, code)


@pytest.mark.parametrize("code", [0, None, 1, "words"])
@pytest.mark.parametrize("kind", [Leaver, AsyncLeaver])
def test_calls_arrive_that_an_actor_made_before_it_called_sys_exit(kind, code, notes):
    actors = [sheaf.remote(num_cpus=0)(kind).remote(notes) for _ in range(4)]
    for leaves in [actor.leave.remote(code) for actor in actors]:
        with pytest.raises(ActorDiedError):
            sheaf.get(leaves, timeout=WAIT_S)
    arrive(notes, 4 * ["atexit"] + 4 * ["call"])


@sheaf.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.arrived = 0

    def arrive(self):
        self.arrived += 1

    def count(self):
        return self.arrived


def test_workers_that_run_their_exit_functions_are_leased_to_nobody():
    gate = Gate.remote()

    @sheaf.remote(num_cpus=0)
    def arrive_and_idle():
        atexit.register(lambda: time.sleep(6))
        sheaf.get(gate.arrive.remote(), timeout=WAIT_S)
        wait_until(
            lambda: sheaf.get(gate.count.remote(), timeout=WAIT_S) == WORKERS, "others are missing"
        )

    sheaf.get([arrive_and_idle.remote() for _ in range(WORKERS)], timeout=WAIT_S)
    time.sleep(IDLE_S)  # Those that are too many have begun to leave.
    begun = time.monotonic()
    actors = [Seven.remote() for _ in range(WORKERS)]
    assert sheaf.get([actor.get.remote() for actor in actors], timeout=WAIT_S) == [7] * WORKERS
    assert time.monotonic() - begun < 4  # Not after those functions.


def test_calls_of_a_dropped_actor_arrive_though_its_owner_leaves_first(notes):
    @sheaf.remote(num_cpus=0)
    class Caller:
        def begin(self, number):
            slow.remote(notes, number, 3)

    @sheaf.remote(max_calls=1)
    def begin(number):
        caller = Caller.remote()
        sheaf.get(caller.begin.remote(number), timeout=WAIT_S)

    sheaf.get([begin.remote(i) for i in range(4)], timeout=WAIT_S)
    arrive(notes, list(range(4)))


@sheaf.remote(max_calls=1, num_cpus=0)
def make_group():
    group = sheaf.util.placement_group([{"CPU": 1}])
    assert group.wait(WAIT_S)
    return group, os.getpid()


@sheaf.remote(num_cpus=0)
class GroupMaker:
    def make(self):
        return sheaf.get(make_group.remote(), timeout=WAIT_S)


@pytest.mark.parametrize("caller", ["driver", "detached"])
def test_a_placement_group_lives_on_when_the_worker_that_made_it_has_left(caller):
    if caller == "driver":
        group, pid = sheaf.get(make_group.remote(), timeout=WAIT_S)
    else:
        maker = GroupMaker.options(name="maker", lifetime="detached").remote()
        group, pid = sheaf.get(maker.make.remote(), timeout=WAIT_S)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the worker did not leave")
    in_group = sheaf.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    seven = Seven.options(num_cpus=1, scheduling_strategy=in_group).remote()
    assert sheaf.get(seven.get.remote(), timeout=WAIT_S) == 7
    if caller == "driver":
        sheaf.util.remove_placement_group(group)
    else:  # It ends with the actor.
        sheaf.kill(maker)
        wait_until(
            lambda: sheaf.util.placement_group_table(group)["state"] == "REMOVED",
            "the group is there still",
        )


class AsyncCaller:
    """With all CPUs of the node."""

    async def leave_after_calling(self, notes):
        slow.options(num_cpus=1).remote(notes, 1, 0.1)
        sheaf.actor.exit_actor()


class Caller:
    def leave_after_calling(self, notes):
        slow.options(num_cpus=1).remote(notes, 1, 0.1)
        sheaf.actor.exit_actor()


@pytest.mark.parametrize("kind", [Caller, AsyncCaller])
def test_actors_that_leave_lend_their_cpus_to_what_they_have_begun(kind, notes):
    caller = sheaf.remote(num_cpus=4)(kind).remote()
    begun = time.monotonic()
    with pytest.raises(ActorDiedError):
        sheaf.get(caller.leave_after_calling.remote(notes), timeout=WAIT_S)
    arrive(notes, [1])
    assert time.monotonic() - begun < 20  # Not when its patience has ended.


@sheaf.remote(num_cpus=0, max_concurrency=4, max_restarts=1, max_task_retries=-1)
class Threaded:
    def __init__(self, notes):
        self.notes = notes
        self.ended = False

    def __ray_shutdown__(self):
        self.ended = True
        time.sleep(0.5)

    def call(self):
        ended = self.ended
        time.sleep(0.05)
        return ended, os.getpid()

    def leave(self):
        if not sheaf.get(self.notes.all.remote(), timeout=WAIT_S):
            sheaf.get(self.notes.note.remote(1), timeout=WAIT_S)
            slow.remote(self.notes, 2, 1)
            sys.exit(1)


def test_no_call_begins_in_a_process_that_ends_by_sys_exit(notes):
    actor = Threaded.remote(notes)
    _, first = sheaf.get(actor.call.remote(), timeout=WAIT_S)
    left = actor.leave.remote()
    wait_until(lambda: sheaf.get(notes.all.remote(), timeout=WAIT_S), "it did not begin to leave")
    calls = sheaf.get([actor.call.remote() for _ in range(20)], timeout=WAIT_S)
    assert not any(ended for ended, _ in calls)
    assert calls[-1][1] != first
    sheaf.get(left, timeout=WAIT_S)
    arrive(notes, [1, 2])


@sheaf.remote(num_cpus=0)
def begin_slow():
    time.sleep(0.05)
    return [Seven.remote().get.remote(), slow_seven.remote()]


@sheaf.remote(num_cpus=0)
def slow_seven():
    time.sleep(1)
    return 7


@sheaf.remote(num_cpus=0)
class Asks:
    def begin(self):
        return sheaf.get(begin_slow.remote(), timeout=WAIT_S)

    def leave(self):
        sheaf.actor.exit_actor()


@sheaf.remote(num_cpus=0, max_calls=1)
def ask_once():
    return sheaf.get(begin_slow.remote(), timeout=WAIT_S)


@pytest.mark.parametrize("how", ["dropped", "exit_actor", "max_calls"])
def test_what_a_task_began_lives_on_when_who_called_that_task_has_left(how):
    for _ in range(2):
        if how == "max_calls":
            inner = sheaf.get(ask_once.remote(), timeout=WAIT_S)
        else:
            actor = Asks.remote()
            inner = sheaf.get(actor.begin.remote(), timeout=WAIT_S)
            if how == "exit_actor":
                actor.leave.remote()
            del actor
        assert sheaf.get(inner, timeout=WAIT_S) == [7, 7]

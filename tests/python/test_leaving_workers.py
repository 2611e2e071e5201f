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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Small values of processes that end as soon as a reference has left them: who holds it reads them.

The first value of a process is the one in danger: it has no memory of the store yet."""

import os
import signal
import time

import pytest
import sheaf
from conftest import WAIT_S
from sheaf.exceptions import ActorDiedError

pytestmark = pytest.mark.usefixtures("node")

ROUNDS = 8


@sheaf.remote(num_cpus=0)
class Keeper:
    def __init__(self):
        self.boxes = []

    def keep(self, box):
        self.boxes.append(box)

    def count(self):
        return len(self.boxes)

    def read(self):
        return [sheaf.get(box[0], timeout=WAIT_S) for box in self.boxes]


@sheaf.remote(num_cpus=0)
class Owner:
    def pid(self, keeper=None):
        if keeper is not None:
            sheaf.get(keeper.count.remote())
        return os.getpid()

    def make(self, size):
        return [sheaf.put(b"x" * size)]

    def hand(self, keeper):
        sheaf.get(keeper.keep.remote([sheaf.put(b"value")]))

    def fill_and_hand_in_a_value(self, keeper):
        """What it had of the store is used up before the values in the last value leave."""
        kept = [sheaf.put(b"x" * 30_000) for _ in range(8)]
        sheaf.get(keeper.count.remote())
        keeper.keep.remote(sheaf.put(kept))
        time.sleep(WAIT_S)

    def hand_and_leave(self, keeper):
        keeper.keep.remote([sheaf.put(b"value")])
        sheaf.actor.exit_actor()

    def hand_and_make(self, keeper):
        keeper.keep.remote([sheaf.put(b"value")])
        return [sheaf.put(b"value")]


def new_owner(keeper=None):
    owner = Owner.remote()
    return owner, sheaf.get(owner.pid.remote(keeper), timeout=WAIT_S)


@pytest.mark.parametrize("size", [10, 60_000, 300_000])
def test_a_value_in_a_result(size):
    for _ in range(ROUNDS):
        owner, pid = new_owner()
        (reference,) = sheaf.get(owner.make.remote(size), timeout=WAIT_S)
        os.kill(pid, signal.SIGKILL)
        assert len(sheaf.get(reference, timeout=WAIT_S)) == size


def test_a_value_in_an_argument():
    keeper = Keeper.remote()
    for _ in range(2 * ROUNDS):
        owner, pid = new_owner()
        sheaf.get(owner.hand.remote(keeper), timeout=WAIT_S)
        os.kill(pid, signal.SIGKILL)
    assert sheaf.get(keeper.read.remote(), timeout=WAIT_S) == [b"value"] * 2 * ROUNDS


def test_a_value_in_an_argument_of_an_actor_that_leaves():
    keeper = Keeper.remote()
    for _ in range(ROUNDS):
        owner, _ = new_owner(keeper)
        with pytest.raises(ActorDiedError):
            sheaf.get(owner.hand_and_leave.remote(keeper), timeout=WAIT_S)
    assert sheaf.get(keeper.read.remote(), timeout=WAIT_S) == [b"value"] * ROUNDS


def test_a_value_in_a_result_beside_one_in_an_argument():
    keeper = Keeper.remote()
    for _ in range(ROUNDS):
        owner, pid = new_owner(keeper)
        (reference,) = sheaf.get(owner.hand_and_make.remote(keeper), timeout=WAIT_S)
        os.kill(pid, signal.SIGKILL)
        assert sheaf.get(reference, timeout=WAIT_S) == b"value"


@sheaf.remote(num_cpus=0)
class Killer:
    def __init__(self):
        self.boxes = []

    def count(self):
        return len(self.boxes)

    def expect(self, pid):
        self.pid = pid

    def keep(self, box):
        os.kill(self.pid, signal.SIGKILL)
        self.boxes.append(box)

    def sizes(self):
        return [[len(sheaf.get(ref, timeout=WAIT_S)) for ref in box] for box in self.boxes]


def test_values_in_a_value_that_is_an_argument():
    killer = Killer.remote()
    for _ in range(ROUNDS):
        owner, pid = new_owner()
        sheaf.get(killer.expect.remote(pid), timeout=WAIT_S)
        with pytest.raises(ActorDiedError):
            sheaf.get(owner.fill_and_hand_in_a_value.remote(killer), timeout=WAIT_S)
    assert sheaf.get(killer.sizes.remote(), timeout=WAIT_S) == [[30_000] * 8] * ROUNDS

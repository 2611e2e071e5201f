# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Small values of processes that end as soon as a reference has left them: who holds it reads them.

The first value of a process is the one in danger: it has no memory of the store yet."""

import os
import signal

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

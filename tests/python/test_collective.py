# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collective groups of actors: Ray's functions and Group objects, on NumPy arrays and other
buffers."""

import array
import os
import signal
import threading
import time

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S
from sheaf.util import collective
from sheaf.util.collective import (
    CollectiveTimeoutError,
    Group,
    GroupDeadError,
    MismatchError,
    RankLostError,
    ReduceOp,
)

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0, max_concurrency=2)
class Rank:
    """One rank: runs what a test sends, with its group."""

    def __init__(self, world_size, rank):
        self.world_size, self.rank, self.group = world_size, rank, None

    def pid(self):
        return os.getpid()

    def form(self, name, **options):
        self.group = Group(self.world_size, self.rank, name, **options)
        return self.group.epoch

    def run(self, function, *args):
        return function(self.group, *args)

    def call(self, function, *args):
        return function(*args)

    def failure(self, function, *args):
        """What `function` raised: its type's name, the rank it names, and its words."""
        began = time.monotonic()
        try:
            function(self.group, *args)
        except Exception as error:
            return (
                type(error).__name__,
                getattr(error, "rank", None),
                str(error),
                time.monotonic() - began,
            )
        return None


def ranks_of(world_size):
    return [Rank.remote(world_size, rank) for rank in range(world_size)]


@pytest.fixture
def group_of():
    """Makes actors and a group of them, and ends the actors."""
    made = []

    def make(world_size, name, **options):
        actors = ranks_of(world_size)
        made.extend(actors)
        sheaf.get([actor.form.remote(name, **options) for actor in actors], timeout=WAIT_S)
        return actors

    yield make
    for actor in made:
        sheaf.kill(actor)


def on_all(actors, function, *args, method="run"):
    return sheaf.get(
        [getattr(actor, method).remote(function, *args) for actor in actors], timeout=WAIT_S
    )


def test_every_operation_on_numpy(group_of):
    actors = group_of(3, "numpy")

    def work(group):
        rank, out = group.rank, {}
        for make in (np.empty, group.empty):  # Private memory, and what the ranks share.
            x = make(5, "float64")
            x[:] = rank
            group.all_reduce(x)
            assert x.tolist() == [3.0] * 5
            y = make((2, 2), "float32")
            y[:] = rank + 1
            group.all_reduce(y, "product")
            assert y.tolist() == [[6.0, 6.0], [6.0, 6.0]]
            z, zout = make(3, "int64"), make(3, "int64")
            z[:] = [rank, 5, -rank]
            group.all_reduce(z, ReduceOp.MAX, out=zout)
            assert zout.tolist() == [2, 5, 0] and z.tolist() == [rank, 5, -rank]
            h = make(4, "float16")
            h[:] = rank + 0.5
            group.all_reduce(h, "average")
            assert h.tolist() == [1.5] * 4
            r = make(2, "int32")
            r[:] = rank
            group.reduce(r, 1, "min")
            assert r.tolist() == ([0, 0] if rank == 1 else [rank, rank])
            b = make(2, "complex128")  # Only copied, so any type will do.
            b[:] = rank
            group.broadcast(b, 2)
            assert b.tolist() == [2, 2]
            g, part = make((3, 2), "float32"), make(2, "float32")
            part[:] = rank
            group.all_gather(g, part)
            assert g.tolist() == [[0, 0], [1, 1], [2, 2]]
            group.reduce_scatter(part, g)
            assert part.tolist() == [3 * rank] * 2
            a, aout = make(3, "uint8"), make(3, "uint8")
            a[:] = [10 * rank, 10 * rank + 1, 10 * rank + 2]
            group.all_to_all(aout, a)
            assert aout.tolist() == [rank, 10 + rank, 20 + rank]
            s = make(3, "float32")
            s[:] = rank
            if rank == 0:
                group.send(s, 2)
            elif rank == 2:
                group.recv(s, 0)
                assert s.tolist() == [0, 0, 0]
            group.barrier()
            del x, y, z, zout, h, r, b, g, part, a, aout, s
        return out

    on_all(actors, work)


def test_other_buffers_and_what_is_refused(group_of):
    actors = group_of(2, "buffers")

    def work(group):
        numbers = array.array("d", [group.rank, 1])
        group.all_reduce(numbers)
        text = bytearray(b"abc" if group.rank == 0 else b"xyz")
        group.broadcast(memoryview(text))
        said = []
        for wrong in (
            np.zeros(3, "complex64"),
            np.zeros((4, 4))[:, 1],
            b"frozen",
            7,
            np.zeros(3, "int16"),
        ):
            try:
                group.all_reduce(wrong)
            except (TypeError, ValueError, BufferError) as error:
                said.append(str(error))
        try:
            group.all_gather(np.zeros(3), np.zeros(2))
        except ValueError as error:
            said.append(str(error))
        group.barrier()
        return list(numbers), bytes(text), said

    for numbers, text, said in on_all(actors, work):
        assert numbers == [1.0, 2.0] and text == b"abc"
        assert len(said) == 6 and "cannot be reduced: want float16" in said[0]
        assert said[5] == "all_gather: the output has 24 bytes, want 32"


def test_operations_beside_the_caller(group_of):
    actors = group_of(2, "beside")

    def work(group):
        arrays = [np.full(1000, i + group.rank, "float32") for i in range(10)]
        works = [group.all_reduce(x, async_op=True) for x in arrays]
        assert all(work.wait(30) for work in works) and all(work.done() for work in works)
        # A forgotten one holds its array until it is done.
        group.all_reduce(np.ones(1 << 20, "float32"), async_op=True)
        return [x[-1] for x in arrays]

    assert on_all(actors, work) == [[2 * i + 1 for i in range(10)]] * 2


def test_torch_tensors(group_of):
    torch = pytest.importorskip("torch")
    actors = group_of(2, "torch")

    def work(group):
        sums = []
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
            tensor = torch.full((3, 2), group.rank + 1).to(kind)
            group.all_reduce(tensor)
            sums.append(tensor.sum().item())
        shared = torch.from_numpy(group.zeros(4)) + group.rank
        group.all_reduce(shared)
        return sums, shared.tolist()

    assert on_all(actors, work) == [([18] * 4, [1.0] * 4)] * 2


def test_rays_names():
    actors = ranks_of(2)

    def work(world_size, rank):
        assert not collective.is_group_initialized("ray") and collective.get_rank("ray") == -1
        collective.init_collective_group(world_size, rank, "gloo", "ray")
        assert collective.is_group_initialized("ray") and collective.get_rank("ray") == rank
        assert collective.get_collective_group_size("ray") == world_size
        x = np.full(4, rank + 1, "float32")
        collective.allreduce(x, "ray")
        assert x.tolist() == [3] * 4
        collective.reduce(x, 1, "ray", ReduceOp.PRODUCT)
        assert x.tolist() == [9 if rank == 1 else 3] * 4
        collective.broadcast(x, 1, "ray")
        assert x.tolist() == [9] * 4
        parts = [np.empty(4, "float32") for _ in range(world_size)]
        collective.allgather(parts, x + rank, "ray")
        assert [part[0] for part in parts] == [9, 10]
        collective.reducescatter(x, parts, "ray")
        assert x[0] == (18 if rank == 0 else 20)
        if rank == 0:
            collective.send(x, 1, "ray")
        else:
            collective.recv(x, 0, "ray")
        assert x[0] == 18
        collective.barrier("ray")
        assert collective.get_group_handle("ray").epoch == 0
        assert collective.empty((2, 3), "int32", "ray").shape == (2, 3)
        collective.destroy_collective_group("ray")
        return collective.is_group_initialized("ray")

    assert (
        sheaf.get(
            [actor.call.remote(work, 2, rank) for rank, actor in enumerate(actors)], timeout=WAIT_S
        )
        == [False] * 2
    )


def test_a_group_that_the_driver_declares():
    actors = ranks_of(2)
    with pytest.raises(ValueError, match="want each of 0 to 1 once"):
        collective.create_collective_group(actors, 2, [0, 0], "shm", "declared")
    collective.create_collective_group(actors, 2, [1, 0], "shm", "declared")
    with pytest.raises(RuntimeError, match="declared already"):
        collective.create_collective_group(actors, 2, [1, 0], "shm", "declared")

    def work():
        x = np.ones(1)
        collective.allreduce(x, "declared")
        return x[0], collective.get_rank("declared")

    assert sheaf.get([actor.call.remote(work) for actor in actors], timeout=WAIT_S) == [
        (2, 1),
        (2, 0),
    ]
    with pytest.raises(RuntimeError, match="not in the group 'declared'"):
        collective.barrier("declared")
    collective.destroy_collective_group("declared")


def test_what_does_not_exist_is_said():
    if not collective.nccl_available():
        with pytest.raises(
            RuntimeError, match="backend 'nccl' cannot be used here: no (NCCL|CUDA driver|GPU): .*"
        ):
            collective.init_collective_group(2, 0, "nccl", "none")
    with pytest.raises(ValueError, match="backend 'carrier'"):
        collective.init_collective_group(2, 0, "carrier", "none")
    with pytest.raises(ValueError, match="there is no rank 2 in a group of 2"):
        Group(2, 2, "none")
    for wrong in (("a", 0), (2, -1), (2**40, 0), (2, None)):
        with pytest.raises(ValueError, match="world_size=|rank="):
            Group(*wrong, "none")
    with pytest.raises(TypeError, match="name=None"):
        Group(2, 0, None)
    with pytest.raises(CollectiveTimeoutError, match="rank 1: it has not come") as caught:
        Group(2, 0, "none", formation_timeout=0.2)
    assert caught.value.rank == 1


def test_wrong_arrays_are_refused_before_anything_is_sent(group_of):
    actors = group_of(2, "wrong")

    def work(group):
        for call in (group.all_reduce, group.reduce, group.broadcast):
            with pytest.raises(TypeError, match="the array is None"):
                call(None)
        for call in (group.all_gather, group.reduce_scatter, group.all_to_all):
            with pytest.raises(TypeError, match="one is None"):
                call(None, np.ones(2))
        for shape, kind in ((-1, ValueError), ((2**40, 2**40), MemoryError)):
            with pytest.raises(kind, match="shape="):
                group.empty(shape)
        x = np.ones(2)
        group.all_reduce(x)
        return x.tolist()

    assert sheaf.get([actor.run.remote(work) for actor in actors], timeout=WAIT_S) == [[2, 2]] * 2


def test_several_groups_of_any_actors_at_once(group_of):
    actors = group_of(3, "all")

    def pair(world_size, rank):
        with Group(world_size, rank, "pair") as group:
            x = np.full(1, rank + 1.0)
            group.all_reduce(x)
            return x[0]

    pairs = [actors[0].call.remote(pair, 2, 1), actors[2].call.remote(pair, 2, 0)]
    assert sheaf.get(pairs, timeout=WAIT_S) == [3, 3]
    on_all(actors, lambda group: group.barrier())


def test_a_dead_rank_is_named_and_the_group_forms_anew(group_of):
    actors = group_of(3, "deaths")

    def reduce_big(group):
        group.all_reduce(np.ones(1 << 18), timeout=20)

    calls = [actor.failure.remote(reduce_big) for actor in actors[:2]]
    os.kill(sheaf.get(actors[2].pid.remote(), timeout=WAIT_S), signal.SIGKILL)
    for kind, rank, words, seconds in sheaf.get(calls, timeout=WAIT_S):
        assert kind == "RankLostError" and rank == 2 and seconds < 10
        assert "rank 2" in words and "died" in words
    kind, rank, words, _ = sheaf.get(actors[0].failure.remote(reduce_big), timeout=WAIT_S)
    assert kind == "GroupDeadError" and rank == 2 and "is dead, form it anew" in words
    actors[2] = Rank.remote(3, 2)
    assert sheaf.get([actor.form.remote("deaths") for actor in actors], timeout=WAIT_S) == [1, 1, 1]
    on_all(actors, reduce_big)
    sheaf.kill(actors[2])


def test_a_stopped_rank_is_named_after_the_timeout(group_of):
    actors = group_of(2, "stops")
    pid = sheaf.get(actors[1].pid.remote(), timeout=WAIT_S)
    os.kill(pid, signal.SIGSTOP)
    try:
        call = actors[0].failure.remote(lambda group: group.barrier(timeout=0.3))
        kind, rank, words, seconds = sheaf.get(call, timeout=WAIT_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert kind == "CollectiveTimeoutError" and rank == 1 and seconds < 15
    assert "which is stopped) has not entered barrier #1 within 300ms" in words


def test_a_mismatch_is_named_on_every_rank(group_of):
    actors = group_of(2, "mismatch")

    def differ(group):
        group.all_reduce(np.ones(10 + group.rank))

    for kind, rank, words, _ in on_all(actors, differ, method="failure"):
        assert kind == "MismatchError" and rank == 1
        assert (
            "all_reduce (float64 x 11, sum)" in words and "all_reduce (float64 x 10, sum)" in words
        )


def test_an_abort_ends_a_wait(group_of):
    actors = group_of(2, "abort")
    call = actors[0].failure.remote(lambda group: group.barrier())
    sheaf.get(actors[1].run.remote(lambda group: group.abort("had enough")), timeout=WAIT_S)
    kind, rank, words, _ = sheaf.get(call, timeout=WAIT_S)
    assert kind == "RankLostError" and rank == 1 and "had enough" in words


def test_ctrl_c_ends_a_wait():
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Group(2, 0, "interrupted")
    timer.join()
    assert time.monotonic() - began < 10


def test_a_cancelled_call_ends_its_wait(group_of):
    @sheaf.remote(num_cpus=0)
    def alone():
        Group(2, 0, "cancelled", formation_timeout=WAIT_S)

    call = alone.remote()
    time.sleep(0)  # It may not have begun: then it never does.
    sheaf.cancel(call)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(call, timeout=WAIT_S)


def test_errors_have_the_types_of_python():
    assert issubclass(CollectiveTimeoutError, TimeoutError) and issubclass(
        MismatchError, ValueError
    )
    assert issubclass(RankLostError, sheaf.exceptions.RayError) and issubclass(
        GroupDeadError, collective.CollectiveError
    )

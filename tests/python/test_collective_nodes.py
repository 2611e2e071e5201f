# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collective groups, and training, whose ranks are on two nodes."""

import os
import signal
import sys

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S, joined_cluster
from sheaf import train
from sheaf.exceptions import ActorDiedError
from sheaf.util.collective import Group


@pytest.fixture(scope="module")
def cluster():
    here = {"num_cpus": 2, "object_store_memory": 64 << 20}
    with joined_cluster(
        {**here, "resources": {"first": 9}}, {**here, "resources": {"second": 9}}
    ) as made:
        yield made


@sheaf.remote(num_cpus=0)
class Rank:
    def form(self, world_size, rank):
        self.group = Group(world_size, rank, "across", formation_timeout=WAIT_S)
        return sheaf.get_runtime_context().get_node_id(), self.group.epoch

    def pid(self):
        return os.getpid()

    def work(self):
        group, world = self.group, self.group.world_size
        x = np.full(1000, group.rank + 1.0, "float32")
        group.all_reduce(x)
        shared = group.empty(70_000)
        shared[:] = group.rank
        group.all_reduce(shared, "max", async_op=True).wait()
        gathered = np.empty(world, "int64")
        group.all_gather(gathered, np.full(1, group.rank, "int64"))
        word = np.full(3, group.rank, "int32")
        group.broadcast(word, world - 1)
        big = np.full(30_000, group.rank, "float64")  # Too much to travel with its announcement.
        other = np.empty_like(big)
        sent = group.send(big, (group.rank + 1) % world, async_op=True)
        group.recv(other, (group.rank - 1) % world)
        sent.wait()
        group.barrier()
        return (
            float(x[999]),
            float(shared[69_999]),
            gathered.tolist(),
            word.tolist(),
            float(other[-1]),
        )

    def send_what_nobody_receives(self):
        self.group.send(np.zeros(1 << 16, "uint8"), 1 - self.group.rank)

    def send_and_end(self, how):
        self.group.send(np.full(1 << 20, 7, "uint8"), 1 - self.group.rank)
        if how == "exit_actor":
            sheaf.actor.exit_actor()
        sys.exit(3)

    def receive(self):
        array = np.zeros(1 << 20, "uint8")
        self.group.recv(array, 1 - self.group.rank)
        return array.sum()

    def failure(self):
        try:
            self.group.all_reduce(np.ones(1 << 18), timeout=WAIT_S)
        except Exception as error:
            return type(error).__name__, error.rank, str(error)
        return None


@pytest.mark.parametrize("how", ["exit_actor", "sys.exit"])
def test_what_a_rank_sent_arrives_though_its_process_ends(cluster, how):
    sender, receiver = ranks_of(["first", "second"])
    sheaf.get([sender.form.remote(2, 0), receiver.form.remote(2, 1)], timeout=2 * WAIT_S)
    # Bytes that the sender has not read when it ends: a plain end resets the connection.
    sheaf.get(receiver.send_what_nobody_receives.remote(), timeout=WAIT_S)
    with pytest.raises(ActorDiedError):
        sheaf.get(sender.send_and_end.remote(how), timeout=WAIT_S)
    assert sheaf.get(receiver.receive.remote(), timeout=WAIT_S) == 7 << 20


def ranks_of(places):
    return [Rank.options(resources={place: 1}).remote() for place in places]


def test_a_group_of_two_nodes_survives_the_death_of_a_rank_by_forming_anew(cluster):
    places = ["first", "second", "second", "first"]
    actors = ranks_of(places)
    formed = sheaf.get(
        [actor.form.remote(4, rank) for rank, actor in enumerate(actors)], timeout=2 * WAIT_S
    )
    nodes = [node for node, _ in formed]
    assert nodes[0] == nodes[3] != nodes[1] == nodes[2]
    expected = [(10.0, 3.0, [0, 1, 2, 3], [3, 3, 3], float((rank - 1) % 4)) for rank in range(4)]
    assert sheaf.get([actor.work.remote() for actor in actors], timeout=WAIT_S) == expected

    calls = [actors[rank].failure.remote() for rank in (0, 1, 3)]
    os.kill(sheaf.get(actors[2].pid.remote(), timeout=WAIT_S), signal.SIGKILL)
    for kind, rank, words in sheaf.get(calls, timeout=WAIT_S):
        assert (kind, rank) == ("RankLostError", 2)
        assert (
            "rank 2 (process" in words
            and " at 127.0.0.1) died" in words
            and "all_reduce (float64 x 262144, sum)" in words
        )

    actors[2] = ranks_of(["second"])[0]
    formed = sheaf.get(
        [actor.form.remote(4, rank) for rank, actor in enumerate(actors)], timeout=2 * WAIT_S
    )
    assert [epoch for _, epoch in formed] == [1] * 4
    assert sheaf.get([actor.work.remote() for actor in actors], timeout=WAIT_S) == expected


def test_ranks_of_one_node_of_two_share_memory(cluster):
    actors = ranks_of(["second", "second"])
    formed = sheaf.get(
        [actor.form.remote(2, rank) for rank, actor in enumerate(actors)], timeout=2 * WAIT_S
    )
    assert formed[0] == formed[1]
    assert [
        result[0] for result in sheaf.get([actor.work.remote() for actor in actors], timeout=WAIT_S)
    ] == [3.0, 3.0]


def sum_of_ranks(config):
    context = train.get_context()
    x = np.full(5, context.get_world_rank() + 1.0)
    context.group.all_reduce(x)
    train.report({"sum": float(x[4]), "node": sheaf.get_runtime_context().get_node_id()})


class Nodes(train.UserCallback):
    def __init__(self):
        self.seen = set()

    def after_report(self, run_context, metrics, checkpoint):
        self.seen |= {row["node"] for row in metrics}


def test_training_reduces_over_two_nodes(cluster, tmp_path):
    nodes = Nodes()
    result = train.DataParallelTrainer(
        sum_of_ranks,
        scaling_config=train.ScalingConfig(num_workers=4),
        run_config=train.RunConfig(
            name="across", storage_path=tmp_path, callbacks=[nodes], progress=False
        ),
    ).fit()
    assert result.error is None and result.metrics["sum"] == 10.0
    assert len(nodes.seen) == 2

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Clusters of real nodes on this machine: where work goes, what moves, and what happens when a node
dies."""

import json
import os
import socket
import subprocess
import sys
import time
import uuid

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S, is_running, joined_cluster, wait_until
from sheaf.lifecycle import executable
from sheaf.util import metrics, state
from sheaf.util.placement_group import placement_group, remove_placement_group
from sheaf.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)


@pytest.fixture(scope="module", autouse=True)
def no_node_of_another_module():
    sheaf.shutdown()


@pytest.fixture
def cluster():
    here = {"object_store_memory": 128 << 20}
    others = (
        {**here, "num_cpus": 2, "resources": {name: 2}, "labels": {"zone": name}}
        for name in ("b", "c")
    )
    with joined_cluster({**here, "num_cpus": 1}, *others) as made:
        yield made


@sheaf.remote
def where(seconds=0.0):
    time.sleep(seconds)
    return sheaf.get_runtime_context().get_node_id()


@sheaf.remote
def where_beside(count, folder):
    """Where it runs, once so many of these calls run."""
    open(os.path.join(folder, uuid.uuid4().hex), "w").close()
    deadline = time.monotonic() + WAIT_S
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < deadline, f"{count} calls do not run at once"
        time.sleep(0.01)
    return sheaf.get_runtime_context().get_node_id()


@sheaf.remote
class Counter:
    def __init__(self):
        self.total = 0

    def add(self, amount):
        self.total += amount
        return self.total

    def where(self):
        return sheaf.get_runtime_context().get_node_id()


def test_work_goes_where_there_is_room_and_where_it_must(cluster, tmp_path):
    nodes = {node.node_id for node in cluster.list_all_nodes()}
    assert {row["NodeID"] for row in sheaf.nodes() if row["Alive"]} == nodes
    assert sheaf.cluster_resources()["CPU"] == 5
    at_once = [where_beside.remote(5, str(tmp_path)) for _ in range(5)]
    assert set(sheaf.get(at_once, timeout=2 * WAIT_S)) == nodes
    b, c = cluster.worker_nodes
    assert sheaf.get(where.options(resources={"b": 1}).remote(), timeout=WAIT_S) == b.node_id
    assert sheaf.get(where.options(resources={"c": 1}).remote(), timeout=WAIT_S) == c.node_id
    bound = NodeAffinitySchedulingStrategy(c.node_id, soft=False)
    assert (
        sheaf.get(
            [where.options(scheduling_strategy=bound).remote() for _ in range(3)], timeout=WAIT_S
        )
        == [c.node_id] * 3
    )
    spread = sheaf.get(
        [where.options(scheduling_strategy="SPREAD").remote(0.2) for _ in range(6)], timeout=WAIT_S
    )
    assert len(set(spread)) > 1
    spread = [Counter.options(num_cpus=0, scheduling_strategy="SPREAD").remote() for _ in range(3)]
    assert set(sheaf.get([actor.where.remote() for actor in spread], timeout=WAIT_S)) == nodes


def test_each_node_has_a_resource_of_its_name(cluster):
    rows = {row["NodeID"]: row for row in sheaf.nodes() if row["Alive"]}
    (head,) = (node for node, row in rows.items() if "node:__internal_head__" in row["Resources"])
    assert head == cluster.head_node.node_id
    assert [row.node_id for row in state.list_nodes() if row.is_head_node] == [head]
    bound = where.options(num_cpus=0, resources={"node:__internal_head__": 0.001})
    assert sheaf.get([bound.remote() for _ in range(3)], timeout=WAIT_S) == [head] * 3
    address = rows[head]["NodeManagerAddress"]  # All nodes of this test have the same.
    assert (
        sheaf.get(
            where.options(num_cpus=0, resources={f"node:{address}": 0.01}).remote(), timeout=WAIT_S
        )
        in rows
    )
    with pytest.raises(ValueError, match="no node has it; there are"):
        where.options(resources={"node:203.0.113.1": 1}).remote()


def test_actors_are_listed_with_process_job_and_namespace(cluster):
    actors = [Counter.options(name=name, resources={name: 1}).remote() for name in ("b", "c")]
    pids = sheaf.get(
        [actor.__ray_call__.remote(lambda self: __import__("os").getpid()) for actor in actors],
        timeout=WAIT_S,
    )
    job = sheaf.get_runtime_context().get_job_id()
    wait_until(
        lambda: [row.pid for row in sorted(state.list_actors(), key=lambda row: row.name)] == pids,
        state.list_actors,
    )
    assert {row.job_id for row in state.list_actors()} == {job}
    namespace = sheaf.get_runtime_context().namespace
    assert sorted(sheaf.util.list_named_actors()) == ["b", "c"]
    assert {row["namespace"] for row in sheaf.util.list_named_actors(all_namespaces=True)} == {
        namespace
    }


def test_figures_and_logs_of_each_node_are_at_hand(cluster):
    @sheaf.remote(num_cpus=0)
    class Talker:
        def __init__(self):
            self.said = metrics.Counter("said_on_a_node")

        def say(self, word):
            print(word, flush=True)
            self.said.inc()
            return sheaf.get_runtime_context().get_node_id()

    talkers = [Talker.options(resources={name: 1}).remote() for name in ("b", "c")]
    nodes = sheaf.get(
        [talker.say.remote(f"word {index}") for index, talker in enumerate(talkers)], timeout=WAIT_S
    )
    urls = metrics.endpoints()
    assert (
        set(urls) == {node.node_id for node in cluster.list_all_nodes()}
        and len(set(urls.values())) == 3
    )
    wait_until(lambda: all("ray_said_on_a_node" in metrics.scrape(node)[node] for node in nodes))
    for index, node in enumerate(nodes):
        names = state.list_logs(node_id=node, glob_filter="*.out")["worker_out"]
        texts = ["".join(state.get_log(node_id=node, filename=name)) for name in names]
        assert sum(f"word {index}\n" in text for text in texts) == 1
    with pytest.raises(ValueError, match="no log 'nothing'"):
        list(state.get_log(filename="nothing"))


def test_actors_answer_across_nodes_in_order(cluster):
    counter = Counter.options(resources={"b": 1}).remote()
    assert sheaf.get(counter.where.remote(), timeout=WAIT_S) == cluster.worker_nodes[0].node_id
    assert sheaf.get([counter.add.remote(1) for _ in range(2000)], timeout=WAIT_S) == list(
        range(1, 2001)
    )

    @sheaf.remote(resources={"c": 1})
    def add_from_there(handle):
        return sheaf.get([handle.add.remote(1) for _ in range(100)])[-1]

    assert sheaf.get(add_from_there.remote(counter), timeout=WAIT_S) == 2100


def test_values_move_and_references_inside_values_stay_alive(cluster):
    @sheaf.remote(resources={"b": 1})
    def make(seed):
        return np.arange(3_000_000, dtype=np.int64) + seed

    @sheaf.remote(resources={"c": 1})
    def total(array):
        return int(array[0]), len(array)

    @sheaf.remote(resources={"c": 1})
    def put_inside():
        return [sheaf.put(np.full(2_000_000, 7))]

    made = make.remote(5)
    assert sheaf.get(total.remote(made), timeout=WAIT_S) == (5, 3_000_000)
    assert sheaf.get(made, timeout=WAIT_S)[-1] == 3_000_004
    (inside,) = sheaf.get(put_inside.remote(), timeout=WAIT_S)
    assert sheaf.get(total.options(resources={"b": 1}).remote(inside), timeout=WAIT_S) == (
        7,
        2_000_000,
    )


@pytest.mark.parametrize("size", [1, 300_000])
@pytest.mark.parametrize("ends", ["dropped", "killed"])
def test_what_lies_inside_an_object_whose_owner_on_another_node_ends_lives_on(cluster, ends, size):
    @sheaf.remote(num_cpus=0, resources={"b": 0.1})
    class Nester:
        def nest(self, box):
            return [sheaf.put(box)]

        def ping(self):
            return True

    inner = sheaf.put(b"x" * size)
    nester = Nester.remote()
    assert sheaf.get(nester.ping.remote(), timeout=WAIT_S)
    nested = nester.nest.remote([inner])
    del inner
    sheaf.wait([nested], timeout=WAIT_S)
    if ends == "killed":
        (outer,) = sheaf.get(nested, timeout=WAIT_S)
        sheaf.kill(nester)
    del nester
    time.sleep(0.5)  # As long as it takes until it has ended, and longer.
    if ends == "dropped":
        (outer,) = sheaf.get(nested, timeout=WAIT_S)
    (inner,) = sheaf.get(outer, timeout=WAIT_S)
    assert sheaf.get(inner, timeout=WAIT_S) == b"x" * size


def test_placement_groups_span_nodes(cluster):
    group = placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD")
    assert group.wait(WAIT_S)
    places = [
        sheaf.get(
            where.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                )
            ).remote(),
            timeout=WAIT_S,
        )
        for index in range(3)
    ]
    assert len(set(places)) == 3
    remove_placement_group(group)
    wait_until(lambda: sheaf.available_resources().get("CPU") == 5, sheaf.available_resources)


def test_a_node_that_dies_takes_no_result_along(cluster):
    b, _ = cluster.worker_nodes

    @sheaf.remote(max_retries=3)
    def square(x):
        time.sleep(0.3)
        return x * x

    @sheaf.remote(resources={"b": 0.001}, max_retries=0)
    def bound_there(started):
        started.add.remote(1)
        time.sleep(60)

    @sheaf.remote(
        max_retries=3, scheduling_strategy=NodeAffinitySchedulingStrategy(b.node_id, soft=True)
    )
    def large(seed):
        return np.full(2_000_000, seed)

    counter = Counter.options(resources={"b": 0.001}).remote()
    assert sheaf.get(counter.add.remote(1), timeout=WAIT_S) == 1
    lost = large.remote(9)
    sheaf.wait([lost], timeout=WAIT_S, fetch_local=False)
    stuck = bound_there.remote(counter)
    while sheaf.get(counter.add.remote(0), timeout=WAIT_S) == 1:  # It does not run yet.
        time.sleep(0.01)
    results = [square.remote(x) for x in range(20)]
    begin = time.monotonic()
    cluster.remove_node(b, allow_graceful=False)
    assert sheaf.get(results, timeout=WAIT_S) == [x * x for x in range(20)]
    with pytest.raises(sheaf.exceptions.RayActorError):
        sheaf.get(counter.add.remote(1), timeout=WAIT_S)
    with pytest.raises((sheaf.exceptions.NodeDiedError, sheaf.exceptions.WorkerCrashedError)):
        sheaf.get(stuck, timeout=WAIT_S)
    assert time.monotonic() - begin < WAIT_S
    assert sheaf.get(lost, timeout=WAIT_S)[0] == 9
    cluster.wait_for_nodes()


def test_detached_actors_move_to_another_node(cluster):
    b, c = cluster.worker_nodes
    keeper = Counter.options(
        name="keeper", lifetime="detached", max_restarts=-1, num_cpus=1.5
    ).remote()
    home = sheaf.get(keeper.where.remote(), timeout=WAIT_S)
    assert home in (b.node_id, c.node_id)
    cluster.remove_node(b if home == b.node_id else c, allow_graceful=False)
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            assert sheaf.get(keeper.where.remote(), timeout=WAIT_S) not in (home, None)
            break
        except sheaf.exceptions.RayActorError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_driver_outside_of_the_cluster_joins_by_address(cluster, monkeypatch):
    sheaf.shutdown()
    monkeypatch.setenv("SHEAF_TOKEN_FILE", cluster.token_file)
    sheaf.init(address=cluster.join_address)
    try:
        nodes = {node.node_id for node in cluster.list_all_nodes()}
        assert set(sheaf.get([where.remote(0.3) for _ in range(5)], timeout=WAIT_S)) <= nodes
        array = np.arange(1_000_000)
        assert sheaf.get(sheaf.put(array), timeout=WAIT_S)[-1] == 999_999
    finally:
        sheaf.shutdown()


def sheaf_command(cluster, *words):
    return subprocess.run(
        [executable(), *words, f"--address={cluster.head_node.session}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


def test_a_node_that_drains_finishes_what_it_runs_and_gets_nothing_more(cluster):
    b, c = cluster.worker_nodes
    actor = Counter.options(resources={"b": 1}).remote()
    assert sheaf.get(actor.add.remote(1), timeout=WAIT_S) == 1
    done = sheaf_command(cluster, "drain", str(b.node_number))
    assert done.returncode == 0 and "takes no new work" in done.stdout, done.stderr
    states = lambda: {
        row["node"]: row["state"]
        for row in json.loads(sheaf_command(cluster, "list", "nodes", "--json").stdout)["nodes"]
    }  # noqa: E731
    assert states()[b.node_number] == "DRAINING"
    assert (
        sheaf_command(cluster, "drain", str(b.node_number), "--wait", "0.3").returncode == 5
    )  # The actor runs there.
    assert b.node_id not in sheaf.get(
        [where.options(num_cpus=0.1).remote(0.05) for _ in range(40)], timeout=WAIT_S
    )
    assert sheaf.get(actor.add.remote(1), timeout=WAIT_S) == 2
    waiting = where.options(resources={"b": 1}).remote()
    assert sheaf.wait([waiting], timeout=0.3)[1] == [waiting]
    sheaf.cancel(waiting)
    sheaf.kill(actor)
    done = sheaf_command(cluster, "drain", str(b.node_number), "--wait", "30")
    assert done.returncode == 0 and "DRAINED" in done.stdout, done.stderr
    cluster.remove_node(b)
    wait_until(lambda: states()[b.node_number] == "DEAD")
    done = sheaf_command(cluster, "drain", str(b.node_number))
    assert done.returncode == 4 and f"no node {b.node_number} is in the cluster" in done.stderr


def test_a_node_whose_head_is_gone_leaves_by_its_own_word(cluster):
    b, _ = cluster.worker_nodes
    assert sheaf.get(where.options(resources={"b": 1}).remote(), timeout=WAIT_S) == b.node_id
    sheaf.shutdown()
    cluster.head_node.kill_raylet()
    begin = time.monotonic()
    done = subprocess.run(
        [executable(), "drain", "self", f"--address={b.session}", "--wait=585"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert f"Node {b.node_number} is DRAINED, as it says itself (the GCS is away)" in done.stdout
    assert time.monotonic() - begin < 40


def test_a_head_dials_no_node_that_has_left(cluster):
    b, _ = cluster.worker_nodes
    assert sheaf.get(where.options(resources={"b": 1}).remote(), timeout=WAIT_S) == b.node_id
    row = lambda: next(  # noqa: E731
        row
        for row in json.loads(sheaf_command(cluster, "list", "nodes", "--json").stdout)["nodes"]
        if row["node"] == b.node_number
    )
    host, port = row()["address"].rsplit(":", 1)
    cluster.remove_node(b)
    wait_until(lambda: row()["state"] == "DEAD")
    with socket.create_server((host, int(port))) as place:
        place.settimeout(3)  # A head that keeps a link up dials at least once a second.
        with pytest.raises(TimeoutError):
            place.accept()


def test_tasks_that_an_owner_has_queued_leave_a_node_that_drains(cluster):
    b, c = cluster.worker_nodes
    refs = [where.remote(0.2) for _ in range(40)]  # 8 s of work for one CPU.
    first = sheaf.get(sheaf.wait(refs, num_returns=5, timeout=WAIT_S)[0])
    assert len(first) == 5
    assert (
        sheaf_command(cluster, "drain", str(b.node_number), "--wait", str(WAIT_S)).returncode == 0
    )
    late = sheaf.get([where.remote() for _ in range(5)] + refs, timeout=WAIT_S)
    assert b.node_id not in late[:5] and len(late) == 45


def test_listings_show_all_nodes(cluster):
    b, c = cluster.worker_nodes

    @sheaf.remote
    class Starter:
        def start(self):
            self.running = where.options(name="far away", resources={"c": 1}).remote(60)
            self.kept = sheaf.put(b"x" * 300_000)
            return [self.kept]

        def go(self):
            sheaf.cancel(self.running, force=True)

    starter = Starter.options(resources={"b": 1}, name="starter").remote()
    (kept,) = sheaf.get(starter.start.remote(), timeout=WAIT_S)
    until = time.monotonic() + WAIT_S
    while not (
        rows := [
            row for row in state.list_tasks() if row.name == "far away" and row.state == "RUNNING"
        ]
    ):
        assert time.monotonic() < until, state.list_tasks()
        time.sleep(0.02)
    assert state.get_task(rows[0].task_id).name == "far away"
    assert any(
        row.object_id == kept.hex() and row.object_size >= 300_000
        for row in state.list_objects(limit=1000)
    )
    assert {row.node_id for row in state.list_workers()} >= {b.node_id, c.node_id}
    sheaf.get(starter.go.remote(), timeout=WAIT_S)


def test_the_timeline_has_the_calls_of_all_nodes(cluster):
    @sheaf.remote
    def seen_in_the_timeline():
        return sheaf.get_runtime_context().get_node_id()

    begin = time.time() * 1e6
    nodes = [node.node_id for node in cluster.list_all_nodes()]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    assert (
        sheaf.get(
            [seen_in_the_timeline.options(scheduling_strategy=place).remote() for place in places],
            timeout=WAIT_S,
        )
        == nodes
    )
    deadline = time.monotonic() + WAIT_S
    while True:  # A worker records a call behind its reply.
        events = [event for event in sheaf.timeline() if event["name"] == "seen_in_the_timeline"]
        if len(events) == len(nodes):
            break
        assert time.monotonic() < deadline, events
        time.sleep(0.05)
    assert len({event["pid"] for event in events}) == len(nodes)
    assert all(begin - 1e6 < event["ts"] < time.time() * 1e6 + 1e6 for event in events)


def test_the_nodes_end_with_the_process_that_made_them_however_it_ends():
    text = """if True:
        import os
        from sheaf.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20})
        cluster.add_node(num_cpus=1, object_store_memory=64 << 20)
        print(cluster._directory, *[node.os_pid for node in cluster.list_all_nodes()], flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=2 * WAIT_S
    )
    directory, *pids = done.stdout.split()
    assert len(pids) == 2, done.stderr
    wait_until(
        lambda: not os.path.exists(directory) and not any(is_running(pid) for pid in pids),
        lambda: (os.path.exists(directory), pids),
        seconds=2 * WAIT_S,
    )


PARENT = """
import sys
import sheaf
sheaf.init(address=sys.argv[1], namespace="outlives")

@sheaf.remote(num_cpus=0, resources={"b": 1})
class Parent:
    def call(self, where):
        @sheaf.remote(num_cpus=0.1, resources={where: 0.1}, max_retries=0)
        def child():
            return sheaf.get_runtime_context().get_node_id()
        return sheaf.get([child.remote() for _ in range(3)])

    def begin(self, where, mark):
        import os, time
        @sheaf.remote(num_cpus=0.1, resources={where: 0.1}, max_retries=0)
        def child():
            open(mark, "w").close()
            while os.path.exists(mark):
                time.sleep(0.01)
            return "whole"
        self.child = child.remote()

    def what_came(self):
        return sheaf.get(self.child)

parent = Parent.options(name="parent", lifetime="detached").remote()
assert len(sheaf.get(parent.call.remote(sys.argv[2]))) == 3
if len(sys.argv) > 3:
    for where, mark in zip("bc", sys.argv[3:]):
        Parent.options(name="slow-" + where, lifetime="detached", resources={"b": 0.1}).remote().begin.remote(where, mark)
    import os, time
    while not all(os.path.exists(mark) for mark in sys.argv[3:]):
        time.sleep(0.01)
"""


def test_what_a_detached_actor_submits_after_its_driver_has_left(cluster, tmp_path):
    """On its node, on one that knew the job, and on one that joins later. What ran for it when the
    driver left goes on."""
    marks = [str(tmp_path / where) for where in "bc"]
    done = subprocess.run(
        [sys.executable, "-c", PARENT, cluster.address, "c", *marks],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    cluster.add_node(num_cpus=1, resources={"d": 1}, object_store_memory=128 << 20)
    cluster.wait_for_nodes()
    parent = sheaf.get_actor("parent", namespace="outlives")
    places = [sheaf.get(parent.call.remote(where), timeout=WAIT_S) for where in "bcd"]
    assert [len(set(nodes)) for nodes in places] == [1, 1, 1] and len(
        {nodes[0] for nodes in places}
    ) == 3
    for where, mark in zip("bc", marks):  # They are not tried again.
        os.remove(mark)
        assert (
            sheaf.get(
                sheaf.get_actor(f"slow-{where}", namespace="outlives").what_came.remote(),
                timeout=WAIT_S,
            )
            == "whole"
        )
    sheaf.kill(parent)

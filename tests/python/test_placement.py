# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where detached actors start in a cluster of real nodes, and what a stopped driver holds."""

import collections
import concurrent.futures
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from sheaf.lifecycle import executable
from sheaf.util import get_placement_group
from sheaf.util.placement_group import placement_group, remove_placement_group
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@pytest.fixture(scope="module")
def cluster():
    here = {"object_store_memory": 128 << 20}
    others = (
        {**here, "num_cpus": 2, "resources": {name: 1}, "labels": {"zone": name}}
        for name in ("b", "c")
    )
    with joined_cluster({**here, "num_cpus": 2}, *others) as made:
        yield made


@sheaf.remote
class Place:
    def where(self):
        return sheaf.get_runtime_context().get_node_id()


def detached(count=1, **given):
    made = [
        Place.options(lifetime="detached", name=uuid.uuid4().hex, **given).remote()
        for _ in range(count)
    ]
    return made if count > 1 else made[0]


def nodes_of(actors):
    return collections.Counter(
        sheaf.get([actor.where.remote() for actor in actors], timeout=WAIT_S)
    )


def end(actors):
    for actor in actors:
        sheaf.kill(actor)


def all_is_free():
    """Returns when all nodes have said so."""
    wait_until(
        lambda: sheaf.available_resources().get("CPU") == sheaf.cluster_resources()["CPU"],
        sheaf.available_resources,
    )


def why(cluster, actor):
    words = subprocess.run(
        [executable(), "why", f"--address={cluster.head_node.session}", actor._actor_id.hex()],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    return words.stdout + words.stderr


def test_actors_made_at_once_fill_all_nodes_and_the_next_waits_for_the_first_that_ends(cluster):
    actors = detached(6, num_cpus=1)
    assert sorted(nodes_of(actors).values()) == [2, 2, 2]
    waits = detached(num_cpus=1)
    answer = waits.where.remote()
    assert not sheaf.wait([answer], timeout=1.5)[0]
    for last in (5, 0):  # On whichever node it waits.
        sheaf.kill(actors.pop(last))
    assert sheaf.get(answer, timeout=WAIT_S)
    end([*actors, waits])


def test_actors_that_hold_nothing_are_spread_and_so_are_those_that_ask_for_it(cluster):
    for given in ({}, {"num_cpus": 1, "scheduling_strategy": "SPREAD"}):
        deadline = time.monotonic() + WAIT_S
        while True:  # What the GCS ordered last may count for a moment after its end.
            all_is_free()
            actors = detached(3, **given)
            found = sorted(nodes_of(actors).values())
            end(actors)
            if found == [1, 1, 1]:
                break
            assert time.monotonic() < deadline, (given, found)


def test_actors_follow_labels_and_say_what_they_wait_for(cluster):
    b, c = cluster.worker_nodes
    actor = detached(label_selector={"zone": "c"})
    assert list(nodes_of([actor])) == [c.node_id]
    nowhere = detached(label_selector={"zone": "d"})
    answer = nowhere.where.remote()
    assert not sheaf.wait([answer], timeout=1.5)[0]
    assert "zone in (d)" in why(cluster, nowhere)
    d = cluster.add_node(num_cpus=1, labels={"zone": "d"}, object_store_memory=128 << 20)
    assert sheaf.get(answer, timeout=WAIT_S) == d.node_id
    end([actor, nowhere])


@pytest.mark.parametrize("given", [{}, {"name": "pair", "lifetime": "detached"}])
def test_actors_go_to_the_bundle_of_their_group(cluster, given):
    b, c = cluster.worker_nodes[:2]
    all_is_free()
    group = placement_group([{"CPU": 1, "b": 1}, {"CPU": 1, "c": 1}], **given)
    actors = [
        detached(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, index))
        for index in (0, 1)
    ]
    assert sheaf.get([actor.where.remote() for actor in actors], timeout=WAIT_S) == [
        b.node_id,
        c.node_id,
    ]
    end(actors)
    anywhere = [
        detached(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, -1))
        for _ in range(2)
    ]
    assert set(nodes_of(anywhere)) == {b.node_id, c.node_id}
    end(anywhere)
    remove_placement_group(group)


@pytest.mark.parametrize("life", [{}, {"lifetime": "detached"}])
def test_an_actor_ends_whose_group_is_removed_while_it_starts(cluster, life):
    """Its worker is of another environment each time: it has to be started."""
    all_is_free()
    for number in range(3):
        group = placement_group([{"CPU": 1}])
        assert group.wait(WAIT_S)
        given = {**life, "name": uuid.uuid4().hex} if life else {}
        actor = Place.options(
            num_cpus=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group),
            runtime_env={"env_vars": {"NUMBER": uuid.uuid4().hex}},
            **given,
        ).remote()
        answer = actor.where.remote()
        sheaf.wait([answer], timeout=0.02 * number)
        remove_placement_group(group)
        try:  # It may have started before.
            assert sheaf.get(answer, timeout=WAIT_S)
        except (sheaf.exceptions.RayActorError, sheaf.exceptions.ActorPlacementGroupRemoved):
            pass
    all_is_free()


def test_an_actor_that_waits_in_a_group_hears_that_it_is_removed(cluster):
    all_is_free()
    group = placement_group([{"CPU": 1}])
    assert group.wait(WAIT_S)
    strategy = PlacementGroupSchedulingStrategy(group)
    first, second = (
        Place.options(num_cpus=1, scheduling_strategy=strategy).remote() for _ in range(2)
    )
    assert sheaf.get(first.where.remote(), timeout=WAIT_S)
    waiting = second.where.remote()
    remove_placement_group(group)
    with pytest.raises(sheaf.exceptions.ActorPlacementGroupRemoved):
        sheaf.get(waiting, timeout=WAIT_S)
    all_is_free()


def test_a_thread_that_waits_for_a_group_hears_that_another_removed_it(cluster):
    group = placement_group([{"CPU": 1000}])
    heard = concurrent.futures.ThreadPoolExecutor(1).submit(group.wait, WAIT_S)
    assert not group.wait(0.1)  # That one waits by now, as a rule.
    remove_placement_group(group)
    begun = time.monotonic()
    with pytest.raises(sheaf.exceptions.TaskPlacementGroupRemoved):
        heard.result(WAIT_S)
    assert time.monotonic() - begun < WAIT_S / 3


@pytest.mark.parametrize(
    "given",
    [{"name": "short"}, {"lifetime": "detached"}, {"name": "short", "lifetime": "detached"}],
)
def test_a_group_that_is_removed_at_once_leaves_nothing(cluster, given):
    all_is_free()
    for _ in range(3):
        group = placement_group([{"CPU": 1}], **given)
        task = (
            sheaf.remote(lambda: 7)
            .options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group))
            .remote()
        )
        remove_placement_group(group)
        try:  # It may have run before.
            assert sheaf.get(task, timeout=WAIT_S) == 7
        except sheaf.exceptions.TaskPlacementGroupRemoved:
            pass
    all_is_free()
    deadline = time.monotonic() + WAIT_S
    while "name" in given:
        try:
            get_placement_group("short")
        except ValueError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


LEAVES_AN_ACTOR = """
import os, sys, sheaf
from sheaf.util.placement_group import placement_group
sheaf.init(address=sys.argv[1], namespace="groups", log_to_driver=False)

@sheaf.remote(max_calls=1, num_cpus=0)
def make():
    group = placement_group([{"CPU": 0.5}])
    assert group.wait(60)
    return group, os.getpid()

@sheaf.remote(num_cpus=0)
class Maker:
    def make(self, **where):
        return sheaf.get(make.options(**where).remote())

maker = Maker.options(name="maker", lifetime="detached").remote()
sheaf.get(maker.make.remote())
"""


@pytest.mark.parametrize("place", [{}, {"resources": {"b": 1}}])
def test_a_group_of_a_detached_actor_lives_as_long_as_it_though_its_driver_has_left(cluster, place):
    made_by = [sys.executable, "-c", LEAVES_AN_ACTOR, cluster.address]
    subprocess.run(made_by, check=True, timeout=2 * WAIT_S)
    maker = sheaf.get_actor("maker", namespace="groups")
    try:
        group, pid = sheaf.get(maker.make.remote(**place), timeout=WAIT_S)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the worker did not leave")
        inside = sheaf.remote(num_cpus=0.5)(lambda: 7).options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(group)
        )
        assert sheaf.get(inside.remote(), timeout=WAIT_S) == 7
    finally:
        sheaf.kill(maker)

    def state():
        return sheaf.util.placement_group_table(group).get("state")

    wait_until(lambda: state() == "REMOVED", "the group is there still")


STOPPED = """if True:
    import os, sys, time
    import sheaf

    sheaf.init(address=sys.argv[1], log_to_driver=False)

    @sheaf.remote(max_retries=0)
    def note(number):
        with open({path!r}, "a") as file:
            file.write(f"{{number}}\\n")
        time.sleep(0.05)
        return number

    calls = [note.remote(number) for number in range(60)]
    sheaf.get(calls[3])
    print("holds it", flush=True)
    assert sheaf.get(calls, timeout={wait}) == list(range(60))
"""


def test_a_stopped_driver_does_not_keep_its_leases(tmp_path):
    sheaf.shutdown()
    context = sheaf.init(num_cpus=1, log_to_driver=False)
    path = str(tmp_path / "ran")
    text = STOPPED.format(path=path, wait=WAIT_S)
    driver = subprocess.Popen(
        [sys.executable, "-c", text, context.address_info["session_dir"]],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout.readline() == "holds it\n"
        os.kill(driver.pid, signal.SIGSTOP)
        begun = time.monotonic()
        for _ in range(3):
            assert sheaf.get(sheaf.remote(lambda: 7).remote(), timeout=WAIT_S) == 7
        assert (
            time.monotonic() - begun < WAIT_S / 3
        )  # About a second, on a machine that is not busy.
        os.kill(driver.pid, signal.SIGCONT)
        assert driver.wait(timeout=WAIT_S) == 0
        with open(path) as file:
            assert sorted(map(int, file)) == list(range(60))  # Each ran once.
    finally:
        driver.kill()
        driver.wait()
        sheaf.shutdown()


def test_the_default_group_is_that_of_the_caller(cluster):
    strategy = PlacementGroupSchedulingStrategy("default")

    @sheaf.remote(num_cpus=0)
    def group():
        return sheaf.get_runtime_context().get_placement_group_id()

    @sheaf.remote(num_cpus=0)
    def inner(given):
        return sheaf.get(group.options(scheduling_strategy=given).remote())

    assert sheaf.get(group.options(scheduling_strategy=strategy).remote(), timeout=WAIT_S) is None
    bundles = sheaf.util.placement_group([{"CPU": 1}])
    captured = PlacementGroupSchedulingStrategy(bundles, 0, True)
    told = inner.options(scheduling_strategy=captured).remote(strategy)
    assert sheaf.get(told, timeout=WAIT_S) == bundles.id.hex()
    sheaf.util.remove_placement_group(bundles)

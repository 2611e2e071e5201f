# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Nodes, resources, placement groups, the context of a call."""

import subprocess
import sys
import time

import pytest
import sheaf
from conftest import WAIT_S
from sheaf._core import metrics_url
from sheaf.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from sheaf.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote
def where():
    context = sheaf.get_runtime_context()
    return (
        context.get_node_id(),
        context.get_task_name(),
        context.get_placement_group_id(),
        context.get_assigned_resources(),
    )


def test_nodes_and_resources():
    (row,) = sheaf.nodes()
    assert f":{row['MetricsExportPort']}/" in metrics_url()
    assert row["Alive"] and row["Resources"]["CPU"] == 4 and row["Resources"]["slot"] == 2
    assert sheaf.cluster_resources()["GPU"] == 2
    assert any(name.startswith("node:") for name in sheaf.cluster_resources())


def test_the_context_of_a_call():
    node, name, group, resources = sheaf.get(where.remote())
    assert (
        node == sheaf.nodes()[0]["NodeID"]
        and name == "where"
        and group is None
        and resources["CPU"] == 1
    )
    assert sheaf.get(where.options(name="else").remote())[1] == "else"
    context = sheaf.get_runtime_context()
    assert context.get_task_id() is None and context.get_node_id() == node


def test_gpus_are_assigned():
    @sheaf.remote(num_gpus=1, num_cpus=0)
    class Holder:
        def ids(self):
            import os

            return sheaf.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    holders = [Holder.remote() for _ in range(2)]
    ids = sheaf.get([h.ids.remote() for h in holders], timeout=WAIT_S)
    assert sorted(i[0][0] for i in ids) == [0, 1]
    assert all(visible == str(gpus[0]) for gpus, visible in ids)


def test_tasks_go_to_their_node():
    node = sheaf.nodes()[0]["NodeID"]
    assert (
        sheaf.get(
            where.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, False)).remote()
        )[0]
        == node
    )
    with pytest.raises(ValueError, match="scheduling_strategy='BEST'"):
        where.options(scheduling_strategy="BEST").remote()


def test_a_placement_group_from_wish_to_end():
    group = placement_group([{"CPU": 1}, {"CPU": 1, "slot": 1}], name="pair")
    assert sheaf.get(group.ready(), timeout=WAIT_S) == group and group.wait(5)
    inside = PlacementGroupSchedulingStrategy(group, 1)
    assert (
        sheaf.get(where.options(scheduling_strategy=inside).remote(), timeout=WAIT_S)[2]
        == group.id.hex()
    )
    table = placement_group_table(group)
    assert (
        table["bundles"][1] == {"CPU": 1, "slot": 1}
        and table["bundles_to_node_id"][0] == sheaf.nodes()[0]["NodeID"]
    )
    assert sheaf.util.get_placement_group("pair") == group
    remove_placement_group(group)
    deadline = time.monotonic() + WAIT_S
    with pytest.raises(sheaf.exceptions.RayError):
        while time.monotonic() < deadline:  # A lease from before may serve one more call.
            sheaf.get(where.options(scheduling_strategy=inside).remote(), timeout=WAIT_S)


def test_groups_that_are_reserved_at_once_are_ready_without_a_process_for_each():
    at_once = 0
    for _ in range(20):
        group = placement_group([{"CPU": 0.01}])
        ref = group.ready()
        at_once += len(sheaf.wait([ref], timeout=0)[0])
        assert sheaf.get(ref, timeout=WAIT_S) == group
        remove_placement_group(group)
    assert at_once > 0  # Each, but for pauses of a busy machine.


def test_a_child_inherits_the_group_of_the_task_that_makes_it_whatever_its_process_ran_before():
    text = """if True:
        import sheaf
        from sheaf.util.placement_group import placement_group, remove_placement_group
        from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        @sheaf.remote
        def child():
            return sheaf.get_runtime_context().get_placement_group_id()

        @sheaf.remote
        def parent():
            return sheaf.get(child.remote())

        def run(**given):
            return sheaf.get(parent.options(num_cpus=1, **given).remote(), timeout=%d)

        def into(group, index, capture):
            return PlacementGroupSchedulingStrategy(group, index, placement_group_capture_child_tasks=capture)

        sheaf.init(num_cpus=2)
        assert run() is None  # The processes that serve it make the template of `child`, outside of any group.
        first = placement_group([{"CPU": 1}])
        assert first.wait(%d)
        for index in (-1, 0, -1, 0):
            assert run(scheduling_strategy=into(first, index, True)) == first.id.hex()
        for index in (-1, 0):  # Its children have the other CPU.
            assert run(scheduling_strategy=into(first, index, False)) is None
        assert run() is None
        remove_placement_group(first)
        assert run() is None  # Not in the group that is gone.
        second = placement_group([{"CPU": 1}])
        assert second.wait(%d)
        assert run(scheduling_strategy=into(second, 0, True)) == second.id.hex()
    """ % (WAIT_S, WAIT_S, WAIT_S)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=3 * WAIT_S
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "bundles, strategy", [([], "PACK"), ([{}], "PACK"), ([{"CPU": 1}], "TIGHT")]
)
def test_wrong_placement_groups_are_refused(bundles, strategy):
    with pytest.raises(ValueError):
        placement_group(bundles, strategy)


def test_what_can_never_fit_waits_and_harms_nobody():
    ready, rest = sheaf.wait([where.options(num_cpus=64).remote()], timeout=0.2)
    assert not ready and len(rest) == 1
    assert sheaf.get(where.remote(), timeout=WAIT_S)


def test_util_placement_group_is_a_module_and_a_function():
    group = sheaf.util.placement_group([{"CPU": 1}])
    assert group.wait(WAIT_S)
    sheaf.util.remove_placement_group(group)


def test_a_placement_group_that_fits_nowhere_is_said_at_once():
    text = """if True:
        import sheaf

        sheaf.init(num_cpus=1)
        group = sheaf.util.placement_group([{"CPU": 7}])
        assert not group.wait(0.1)
        sheaf.get(sheaf.remote(lambda: 1).remote())
        assert not group.wait(0.1)
    """
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=2 * WAIT_S
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("the placement group") == 1
        and "7" in done.stderr
        and "CPU" in done.stderr
    ), done.stderr

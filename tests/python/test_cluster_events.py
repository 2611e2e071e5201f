# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What has happened in a cluster, and what waits in it, as people and autoscalers ask for it."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.cluster_utils import Cluster, _program
from sheaf.util import state
from sheaf.util.placement_group import placement_group, remove_placement_group
from sheaf.util.state.exception import RayStateApiException
from test_jobs import dashboard_of


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20}
    )
    sheaf.init(address=made.address)
    yield made
    sheaf.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def ask(cluster):
    """Gives what a path of the head's dashboard answers."""
    with dashboard_of(cluster.head_node.session) as (_, url):

        def get(path):
            with urllib.request.urlopen(url + path, timeout=WAIT_S) as answer:
                return json.loads(answer.read())

        yield get


def events(kind):
    return [
        row for row in state.list_cluster_events(limit=10_000) if row.custom_fields["kind"] == kind
    ]


@sheaf.remote(num_cpus=0)
class Victim:
    def pid(self):
        return os.getpid()

    def leave(self):
        sheaf.actor.exit_actor()


def test_a_node_joins_and_dies(cluster, ask):
    node = cluster.add_node(num_cpus=1, object_store_memory=64 << 20)
    (joined,) = wait_until(
        lambda: [e for e in events("NODE_JOINED") if e.custom_fields["node_id"] == node.node_id]
    )
    assert joined.severity == "INFO" and joined.source_type == "GCS"
    os.kill(node.os_pid, signal.SIGKILL)
    (died,) = wait_until(
        lambda: [e for e in events("NODE_DIED") if e.custom_fields["node_id"] == node.node_id]
    )
    assert died.severity == "ERROR" and "died" in died.message
    assert joined.event_id < died.event_id and joined.time < died.time
    page = ask(f"/api/sheaf/events?after={joined.event_id}&kind=NODE_DIED&severity=error")
    assert [row["event_id"] for row in page["events"]] == [died.event_id]
    assert ask(f"/api/sheaf/events?after={died.event_id}&kind=NODE_DIED")["events"] == []
    rows = ask("/api/v0/cluster_events?detail=1&limit=10000")["data"]["result"]["result"]
    assert died.event_id in [row["event_id"] for row in rows]


def test_an_actor_dies_unwanted(cluster):
    wanted = Victim.remote()
    with pytest.raises(sheaf.exceptions.RayActorError):
        sheaf.get(wanted.leave.remote())
    victim = Victim.remote()
    os.kill(sheaf.get(victim.pid.remote()), signal.SIGKILL)
    (died,) = wait_until(
        lambda: [e for e in events("ACTOR_DIED") if e.custom_fields["id"] == victim._actor_id.hex()]
    )
    assert died.severity == "ERROR" and "Victim" in died.message
    assert not [e for e in events("ACTOR_DIED") if e.custom_fields["id"] == wanted._actor_id.hex()]


def test_work_that_no_node_can_take(cluster, ask):
    @sheaf.remote(num_gpus=77)
    def hopeless():
        pass

    refs = [hopeless.remote() for _ in range(3)]
    (event,) = wait_until(lambda: [e for e in events("INFEASIBLE") if "77" in e.message])
    assert event.severity == "WARNING" and "hopeless" in event.message
    demand = wait_until(
        lambda: [s for s in ask("/api/sheaf/demand")["shapes"] if s["resources"].get("GPU") == 77]
    )
    assert demand[0]["infeasible"] and demand[0]["count"] >= 1
    load = ask("/api/cluster_status")["data"]["clusterStatus"]["loadMetricsReport"]
    assert [shape for shape, count in load["resourceDemand"] if shape.get("GPU") == 77]
    for ref in refs:
        sheaf.cancel(ref)
    wait_until(
        lambda: (
            not [s for s in ask("/api/sheaf/demand")["shapes"] if s["resources"].get("GPU") == 77]
        )
    )


def test_groups_that_wait_are_gangs(cluster, ask):
    made = placement_group([{"CPU": 0.01}])
    assert made.wait(WAIT_S)
    group = placement_group([{"CPU": 50}, {"CPU": 50}], "STRICT_SPREAD")
    (gang,) = wait_until(
        lambda: [
            gang
            for gang in ask("/api/sheaf/demand")["gangs"]
            if gang["placement_group_id"] == group.id.hex()
        ]
    )
    assert gang["strategy"] == "STRICT_SPREAD" and len(gang["bundles"]) == 2
    load = ask("/api/cluster_status")["data"]["clusterStatus"]["loadMetricsReport"]
    assert [{"strategy": "STRICT_SPREAD", "bundles": [[{"CPU": 50}, 2]]}, 1] in load["pgDemand"]
    assert len(ask("/api/sheaf/demand")["gangs"]) == 1  # What is placed waits for nothing.
    remove_placement_group(group)
    wait_until(lambda: ask("/api/sheaf/demand")["gangs"] == [])
    remove_placement_group(made)


def test_jobs_begin_and_end(cluster):
    (begun,) = [e for e in events("JOB_STATE") if "is RUNNING" in e.message][-1:]
    assert begun.source_type == "JOBS"
    done = subprocess.run(
        [_program(), "list", "cluster-events", "--json", f"--address={cluster.address}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["cluster_events"]
    assert "JOB_STATE" in {row["kind"] for row in rows}


def test_events_are_chosen_by_filters_and_limited(cluster):
    every = state.list_cluster_events(limit=10_000)
    assert state.list_cluster_events(limit=2) == every[-2:]
    assert state.list_cluster_events(limit=0) == []
    errors = state.list_cluster_events(filters=[("severity", "=", "ERROR")], limit=10_000)
    assert errors == [row for row in every if row.severity == "ERROR"]
    with pytest.raises(RayStateApiException, match="not supported"):
        state.list_cluster_events(filters=[("colour", "=", "red")])


def test_a_question_that_means_nothing_is_refused(ask):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask("/api/sheaf/events?limit=0")
    assert refused.value.code == 400
    assert "from 1 to" in refused.value.read().decode()

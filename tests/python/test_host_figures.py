# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the machines of a cluster do, as charts and as metrics, told by real nodes."""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from test_jobs import dashboard_of


@pytest.fixture(scope="module")
def cluster():
    with joined_cluster({"num_cpus": 1}, {"num_cpus": 1}) as made:
        yield made


@pytest.fixture(scope="module")
def series(cluster):
    """Asks the head's dashboard for series; gives what it answers."""
    with dashboard_of(cluster.head_node.session) as (_, url):

        def ask(**parameters):
            path = f"{url}/api/sheaf/series?{urllib.parse.urlencode(parameters)}"
            with urllib.request.urlopen(path, timeout=WAIT_S) as answer:
                return json.loads(answer.read())

        yield ask


def known(row):
    return [value for value in row["values"] if value is not None]


def test_all_nodes_tell_of_their_machines(cluster, series):
    def both():
        rows = series(name="cpu,memory_total_bytes")["series"]
        return rows if len([row for row in rows if known(row)]) == 4 else None

    rows = wait_until(both)
    assert {row["node_id"] for row in rows} == {node["NodeID"] for node in sheaf.nodes()}
    assert {row["name"] for row in rows} == {"cpu", "memory_total_bytes"}
    for row in rows:
        assert row["period_ms"] == 2000
        assert abs(row["first_ms"] / 1000 - time.time()) < 3600
        if row["name"] == "cpu":
            assert all(0 <= value <= 1 for value in known(row))
        else:
            assert known(row)[0] > 1 << 20


def test_one_node_one_series_and_a_beginning_can_be_asked_for(cluster, series):
    node = cluster.worker_nodes[0].node_id
    (row,) = series(name="load", node=node)["series"]
    assert row["node_id"] == node
    future = {"from": int(time.time() * 1000) + 60_000}
    assert all(row["values"] == [] for row in series(name="load", **future)["series"])


def test_each_process_has_its_figures(cluster, series):
    @sheaf.remote
    def spin(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return os.getpid()

    busy = spin.remote(600)

    def spinning():
        rows = series(name="processes")["processes"]
        return [row for row in rows if row["cpus"] > 0.05 and row["pid"] != os.getpid()]

    assert wait_until(spinning)[0]["memory_bytes"] > 1 << 20
    sheaf.cancel(busy, force=True)
    own = [row for row in series(name="processes")["processes"] if row["pid"] == os.getpid()]
    assert len(own) == 1


def test_prometheus_reads_the_same(cluster):
    (head,) = [row for row in sheaf.nodes() if row["NodeID"] == cluster.head_node.node_id]
    with urllib.request.urlopen(sheaf._core.metrics_url(), timeout=WAIT_S) as answer:
        text = answer.read().decode()
    value = next(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("sheaf_host_memory_bytes") and 'state="total"' in line
    )
    assert value > 1 << 20 and head["Alive"]


def test_a_series_that_there_is_not_says_which_there_are(series):
    for wrong in ({"name": "colour"}, {"from": "x"}, {"node": "zz"}, {"colour": "red"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            series(**wrong)
        assert refused.value.code == 400
    with pytest.raises(urllib.error.HTTPError) as refused:
        series(name="colour")
    assert "memory_used_bytes" in refused.value.read().decode()

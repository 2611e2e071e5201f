# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster says of one call or actor, of what waits, and of actors wherever they run."""

import json
import os
import socket
import subprocess
import time

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from sheaf.lifecycle import executable

HERE = {"object_store_memory": 128 << 20}


@pytest.fixture(scope="module")
def cluster():
    with joined_cluster(
        {**HERE, "num_cpus": 2}, {**HERE, "num_cpus": 0, "resources": {"there": 4}}
    ) as made:
        yield made


def tool(cluster, *arguments, code=0):
    done = subprocess.run(
        [executable(), *arguments, f"--address={cluster.head_node.session}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@sheaf.remote
def sq(x):
    return x * x


@sheaf.remote
def slow(path):
    while not os.path.exists(path):
        time.sleep(0.01)


@sheaf.remote(num_cpus=0)
class Place:
    def pid(self):
        return os.getpid()

    def leave(self):
        os._exit(3)


def test_what_waits_is_counted_and_named_as_it_is_now(cluster, tmp_path):
    squares = [sq.remote(x) for x in range(2000)]
    sheaf.get(squares, timeout=WAIT_S)
    end = tmp_path / "end"
    calls = [slow.remote(str(end)) for _ in range(20)]

    def demand():
        rows = json.loads(tool(cluster, "status", "--json"))["demand"]
        return sum(row["count"] for row in rows) == 18 and rows

    (row,) = wait_until(demand, lambda: tool(cluster, "status"))
    assert row["words"].startswith("slow waits for 1 CPU: 2 of 2 CPU are held by 2 leases of slow ")

    def reasons():
        found = [tool(cluster, "why", call.hex()).splitlines() for call in calls]
        return sum(words == ["slow runs"] for words in found) == 2 and found

    waiting = [words for words in wait_until(reasons) if words != ["slow runs"]]
    assert len(waiting) == 18
    for first, second in waiting:
        assert first.startswith("slow waits for a worker")
        assert second.startswith("waits for 1 CPU: 2 of 2 CPU are held by")
    end.touch()
    sheaf.get(calls, timeout=WAIT_S)
    assert "slow has ended" in tool(cluster, "why", calls[0].hex()) or "ready" in tool(
        cluster, "why", calls[0].hex()
    )
    tool(cluster, "why", calls[0].hex()[:16] + "ffffffffffff0000", code=4)


def test_actors_have_their_jobs_names_and_pids_wherever_they_run_and_say_why_they_ended(cluster):
    actors = {
        "plain": Place.remote(),
        "named": Place.options(name="named").remote(),
        "there": Place.options(resources={"there": 1}).remote(),
        "killed": Place.options(name="killed").remote(),
        "left": Place.options(name="left").remote(),
        "waits": Place.options(resources={"nowhere": 1}).remote(),
    }
    ids = {name: actor._actor_id.hex() for name, actor in actors.items()}
    pids = {
        name: sheaf.get(actor.pid.remote(), timeout=WAIT_S)
        for name, actor in actors.items()
        if name != "waits"
    }
    sheaf.kill(actors["killed"])
    actors["left"].leave.remote()

    def rows():
        found = json.loads(tool(cluster, "list", "actors", "--json"))["actors"]
        mine = {name: row for row in found for name, one in ids.items() if row["actor_id"] == one}
        dead = [name for name, row in mine.items() if row["state"] == "DEAD" and row["death"]]
        return len(mine) == len(ids) and sorted(dead) == ["killed", "left"] and mine

    found = wait_until(rows, lambda: tool(cluster, "list", "actors"))
    job = found["plain"]["job"]
    assert job and {row["job"] for row in found.values()} == {job}
    assert len({row["name_space"] for row in found.values()} - {""}) == 1
    for name in ("plain", "named", "there"):
        assert found[name]["os_pid"] == pids[name], found[name]
        assert f"is alive in process {found[name]['process']}" in tool(cluster, "why", ids[name])
    assert "status 3" in found["left"]["death"]
    assert "nowhere" in tool(cluster, "why", ids["waits"])
    assert "is dead" in tool(cluster, "why", ids["left"])


def test_a_file_or_a_port_that_is_not_to_be_had_is_no_missing_node(cluster, tmp_path):
    tool(cluster, "timeline", str(tmp_path / "no" / "trace.json"), code=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tool(cluster, "dashboard", f"--port={taken.getsockname()[1]}", code=1)

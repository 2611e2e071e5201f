# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs of a cluster of two nodes: the dashboard stands on the head, they run on the other, which has
an address of its own."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.cluster_utils import Cluster, _program
from sheaf.job_submission import JobStatus, JobSubmissionClient
from test_jobs import dashboard_of, ended, followed, python, refusal, running

IP = "127.0.0.2"
THERE = {"entrypoint_resources": {"there": 1}}


def add_node(cluster, *flags):
    """A node that listens on another address than the head; its session, process and number."""
    done = subprocess.run(
        [
            *(_program(), "start", "--json", f"--dir={cluster._directory}", "--port=0"),
            *(f"--address={cluster.join_address}", f"--host={IP}", *flags),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def cluster():
    sheaf.shutdown()
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20}
    )
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def there(cluster):
    node = add_node(cluster, "--num-cpus=1", "--object-store-memory=64MiB", "--resources=there:10")
    yield node
    subprocess.run([_program(), "stop", f"--address={node['session']}"], timeout=WAIT_S)


@pytest.fixture(scope="module")
def client(cluster, there):
    with dashboard_of(cluster.head_node.session) as (_, url):
        yield JobSubmissionClient(url)


def log_of(node, job):
    return pathlib.Path(node["session"], "logs", f"job-driver-{job}.log")


def test_a_job_on_another_node_is_shown_with_its_place_and_its_logs(client, there):
    code = (
        "import sheaf; sheaf.init(); print(sheaf.util.get_node_ip_address()); "
        "print(sheaf.get(sheaf.remote(num_cpus=0, resources={'there': 1})"
        "(sheaf.util.get_node_ip_address).remote()))"
    )
    job = client.submit_job(entrypoint=python(code), **THERE)
    info = ended(client, job)
    assert client.get_job_logs(job) == f"{IP}\n{IP}\n"
    assert info.status == JobStatus.SUCCEEDED
    assert info.driver_node_id == f"{there['node']:056x}"
    assert info.driver_info.node_ip_address == IP
    with urllib.request.urlopen(
        f"{info.driver_agent_http_address}/metrics", timeout=WAIT_S
    ) as answer:
        assert b"sheaf_" in answer.read()
    assert "".join(asyncio.run(followed(client, job))) == f"{IP}\n{IP}\n"
    assert log_of(there, job).exists()
    url = client.get_address()
    with urllib.request.urlopen(
        f"{url}/api/v0/logs/file?submission_id={job}", timeout=WAIT_S
    ) as answer:
        assert answer.read().decode() == f"{IP}\n{IP}\n"
    with urllib.request.urlopen(f"{url}/api/v0/logs?node_ip={IP}", timeout=WAIT_S) as answer:
        groups = json.load(answer)["data"]["result"]
    assert f"job-driver-{job}.log" in groups["driver"]


def test_the_address_of_a_process_is_that_of_its_node(cluster, there):
    sheaf.init(address=cluster.address, log_to_driver=False)
    try:
        assert sheaf.util.get_node_ip_address() == "127.0.0.1"
        away = sheaf.remote(num_cpus=0, resources={"there": 1})(sheaf.util.get_node_ip_address)
        assert sheaf.get(away.remote(), timeout=WAIT_S) == IP
    finally:
        sheaf.shutdown()
    sheaf.init(address=there["session"], log_to_driver=False)
    try:
        assert sheaf.util.get_node_ip_address() == IP
    finally:
        sheaf.shutdown()


def test_the_command_line_follows_a_job_on_another_node(cluster, client, there, tmp_path):
    mark = tmp_path / "go"
    job = client.submit_job(
        entrypoint=f"echo first; while [ ! -e {mark} ]; do sleep 0.05; done; echo last", **THERE
    )
    follow = [
        [_program(), "job", "logs", "--follow", f"--address={client.get_address()}", job],
        [_program(), "logs", "job", job, "-f", f"--address={cluster.address}"],
    ]
    own = {**os.environ, "SHEAF_PYTHON": sys.executable}
    shells = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=own) for words in follow
    ]
    for shell in shells:
        while "first" not in (line := shell.stdout.readline()):
            assert line, "it has ended"
    mark.touch()
    for shell in shells:
        assert "last\n" in shell.communicate(timeout=WAIT_S)[0]
        assert shell.returncode == 0


# Each round comes over the size of a file by one write, and pauses until that is rotated, when less
# than a block of the file system is left in it.
FILL = """
import os, sys, time
log, lines = sys.argv[1], int(sys.argv[2])
for round in range(3):
    text = ''.join(f'{round} {number:017d}\\n' for number in range(lines)).encode()
    for part in (text[:16_000_000], text[16_000_000:]):
        while part:
            part = part[os.write(1, part):]
    deadline = time.monotonic() + 20
    while os.path.getsize(log) > 4096:
        assert time.monotonic() < deadline
        time.sleep(0.01)
print('the end', flush=True)
"""


def test_what_a_job_prints_is_bounded_and_its_end_is_served(client, there, tmp_path):
    """It pauses, so that its file is rotated seven times, of which five parts are kept."""
    program = tmp_path / "fill.py"
    program.write_text(FILL.replace("range(3)", "range(7)"))
    job, count = "bounded", 850_000  # Of 20 bytes: more than a file may have.
    client.submit_job(
        entrypoint=f"python3 {program} {log_of(there, job)} {count}", submission_id=job, **THERE
    )
    assert ended(client, job, 4 * WAIT_S).status == JobStatus.SUCCEEDED
    printed = 7 * 20 * count + len("the end\n")
    first, _, rest = client.get_job_logs(job).partition("\n")
    assert first == f"[sheaf: the first {printed - (64 << 20)} bytes are left out]"
    assert len(rest) == 64 << 20
    assert rest.endswith(f"6 {count - 1:017d}\nthe end\n")
    log = log_of(there, job)
    kept = sum(path.stat().st_size for path in log.parent.glob(f"{log.name}*"))
    assert kept < printed * 2 / 3


def test_who_follows_a_job_misses_nothing_while_its_log_is_rotated(client, there, tmp_path):
    program = tmp_path / "fill.py"
    program.write_text(FILL)
    job, count = "rotated", 850_000  # Of 20 bytes: more than a file may have.
    client.submit_job(
        entrypoint=f"python3 {program} {log_of(there, job)} {count}", submission_id=job, **THERE
    )
    lines = "".join(asyncio.run(followed(client, job))).splitlines()
    assert lines.pop() == "the end"
    assert len(lines) == 3 * count
    assert lines == sorted(lines)
    assert ended(client, job).status == JobStatus.SUCCEEDED


def test_a_job_whose_id_was_used_before_has_a_log_of_its_own(client):
    for word in ("one", "two"):
        job = client.submit_job(entrypoint=f"echo {word}", submission_id="again", **THERE)
        ended(client, job)
        assert client.get_job_logs(job) == f"{word}\n"
        assert client.delete_job(job)


def test_the_node_of_a_job_dies(client, cluster):
    doomed = add_node(
        cluster, "--num-cpus=0", "--object-store-memory=64MiB", "--resources=doomed:1"
    )
    job = client.submit_job(entrypoint="echo alive; sleep 1000", entrypoint_resources={"doomed": 1})
    running(client, job)
    wait_until(lambda: client.get_job_logs(job) == "alive\n")
    pieces = client._server.follow(f"/api/sheaf/jobs/{job}/logs")
    assert next(pieces) == "alive\n"
    os.kill(doomed["os_pid"], 9)
    assert list(pieces) == []
    info = ended(client, job)
    assert info.status == JobStatus.FAILED
    assert f"node {doomed['node']}" in info.message
    assert "has died" in refusal(lambda: client.get_job_logs(job))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Logs of a cluster of two nodes, asked for on one and written on the other: from Python, over HTTP
and on the command line."""

import json
import os
import pathlib
import queue
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, stop, wait_until
from sheaf.cluster_utils import _program
from sheaf.util import state
from test_jobs import dashboard_of

SMALL = 200_000  # Bytes of a worker's log before it is rotated.
BLOCK = 4096  # Of the file system, at most: less stays in a file that is rotated.
NODE = {"object_store_memory": 64 << 20, "env_vars": {"SHEAF_WORKER_LOG_BYTES": str(SMALL)}}


@pytest.fixture(scope="module")
def cluster():
    there = {**NODE, "num_cpus": 2, "resources": {"there": 100}}
    with joined_cluster({**NODE, "num_cpus": 1}, there) as made:
        yield made


@pytest.fixture(scope="module")
def url(cluster):
    with dashboard_of(cluster.head_node.session) as (_, where):
        yield where


@pytest.fixture
def there(cluster):
    return cluster.worker_nodes[0]


@sheaf.remote(num_cpus=0, resources={"there": 1})
class Writer:
    def write(self, text, count=1, fd=1):
        data = text.encode() if isinstance(text, str) else text
        for _ in range(count):
            rest = data
            while rest:
                rest = rest[os.write(fd, rest) :]
        return os.getpid()


def log_of(node, pid, suffix="out"):
    (row,) = [row for row in state.list_workers() if row.pid == pid]
    number = int(row.worker_id[-8:], 16)
    return pathlib.Path(node.session, "logs", f"worker-{node.node_number}.{number}.{suffix}")


class Followed:
    """The lines of a generator, as they come, on a thread of its own."""

    def __init__(self, lines):
        self._lines = queue.Queue()
        self._thread = threading.Thread(target=self._run, args=(lines,), daemon=True)
        self._thread.start()

    def _run(self, lines):
        for line in lines:
            self._lines.put(line)
        self._lines.put(None)

    def next(self):
        """The next line; None: there are no more."""
        return self._lines.get(timeout=WAIT_S)

    def rest(self):
        return list(iter(self.next, None))


def command(cluster, *words, status=0):
    done = subprocess.run(
        [_program(), "logs", *words, f"--address={cluster.head_node.session}"],
        capture_output=True,
        timeout=WAIT_S,
    )
    assert done.returncode == status, done
    return done.stdout.decode() if status == 0 else done.stderr.decode()


def fetch(url, path, **parameters):
    """(status, bytes)"""
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{url}/api/v0/{path}?{query}", timeout=WAIT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_logs_of_the_other_node_are_listed_and_read_in_all_three_ways(cluster, url, there):
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote("hello from there\n"))
    sheaf.get(writer.write.remote("wrong\n", fd=2))
    name = log_of(there, pid).name
    assert name in state.list_logs(node_id=there.node_id)["worker_out"]
    assert list(state.get_log(node_id=there.node_id, filename=name)) == ["hello from there\n"]
    assert state.list_logs(node_id=there.node_id, glob_filter="node.log") == {
        "raylet": ["node.log"]
    }
    assert name not in state.list_logs().get("worker_out", [])  # Of this node.
    assert list(state.get_log(pid=pid)) == ["hello from there\n"]
    assert list(state.get_log(actor_id=writer._actor_id.hex(), suffix="err")) == ["wrong\n"]

    status, listed = fetch(url, "logs", node_id=there.node_id, glob="worker-*")
    assert status == 200
    groups = json.loads(listed)["data"]["result"]
    assert name in groups["worker_out"] and "raylet" not in groups
    assert fetch(url, "logs/file", node_id=there.node_id, filename=name) == (
        200,
        b"hello from there\n",
    )
    assert fetch(url, "logs/file", pid=pid, suffix="err") == (200, b"wrong\n")

    table = command(cluster, "worker-*.out")
    assert name in table or table == "hello from there\n"
    assert command(cluster, name) == "hello from there\n"
    assert command(cluster, "worker", str(pid), "--err") == "wrong\n"
    assert command(cluster, "actor", "--id", writer._actor_id.hex()) == "hello from there\n"
    rows = json.loads(command(cluster, "cluster", "node.log", "--json"))
    assert [row["node"] for row in rows["logs"]] == [1, there.node_number]
    assert rows["late_nodes"] == []


def test_a_task_that_has_run_is_found_by_its_id(cluster, url, there):
    @sheaf.remote(num_cpus=0, resources={"there": 1})
    def speak():
        print("once", flush=True)
        return sheaf.get_runtime_context().get_task_id()

    task = sheaf.get(speak.remote(), timeout=WAIT_S)
    wait_until(lambda: state.get_task(task) is not None)
    wait_until(lambda: "once\n" in list(state.get_log(task_id=task)))
    assert b"once\n" in fetch(url, "logs/file", task_id=task)[1]
    assert "once\n" in command(cluster, "task", task)
    with pytest.raises(ValueError, match="attempt 7"):
        list(state.get_log(task_id=task, attempt_number=7))
    assert fetch(url, "logs/file", task_id=task, attempt_number=7)[0] == 404


def test_what_is_no_log_of_the_node_is_refused(cluster, url, there):
    folder = pathlib.Path(there.session, "logs")
    os.symlink("/etc/passwd", folder / "link.log")
    os.mkfifo(folder / "pipe.log")
    for name in ("../node", "/etc/passwd", "..", ".hidden", "", "link.log", "pipe.log", "no.log"):
        with pytest.raises(ValueError, match="name of a log|there is no log"):
            list(state.get_log(node_id=there.node_id, filename=name))
        status, _ = fetch(url, "logs/file", node_id=there.node_id, filename=name)
        assert status in (400, 404)
    assert not any(
        "link" in name
        for names in state.list_logs(node_id=there.node_id).values()
        for name in names
    )
    with pytest.raises(ValueError, match="no such node"):
        state.list_logs(node_id=f"{77:056x}")
    assert "no node 77" in command(cluster, "node.log", "--node", "77", status=4)
    assert "has a log" in command(cluster, "nothing-*", status=4)
    assert "want hexadecimal" in command(cluster, "node.log", "--node-id", "xyz", status=2)
    assert "wants an id" in command(cluster, "actor", status=2)


def test_a_log_is_followed_until_its_process_ends(cluster, url, there):
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote("old\nfirst\n"))
    lines = Followed(state.get_log(pid=pid, follow=True, tail=1))
    assert lines.next() == "first\n"
    with (
        urllib.request.urlopen(
            f"{url}/api/v0/logs/stream?pid={pid}&lines=1", timeout=WAIT_S
        ) as answer,
        subprocess.Popen(
            [
                _program(),
                "logs",
                "worker",
                str(pid),
                "-f",
                "--tail=1",
                f"--address={cluster.head_node.session}",
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as shell,
    ):
        assert answer.readline() == b"first\n"
        assert shell.stdout.readline() == "first\n"
        sheaf.get(writer.write.remote("second\n"))
        assert lines.next() == answer.readline().decode() == shell.stdout.readline() == "second\n"
        sheaf.get(writer.write.remote("without an end"))
        sheaf.kill(writer)
        rest = ["without an end\n", "[sheaf: who wrote this log has ended]\n"]
        assert lines.rest() == rest
        assert answer.read().decode() == shell.stdout.read() == "".join(rest)
        assert shell.wait(WAIT_S) == 0


def test_a_log_that_shrinks_is_read_from_its_beginning_with_a_note(there):
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote("before\n"))
    # The process may have run a task before.
    lines = Followed(state.get_log(pid=pid, follow=True, tail=1))
    assert lines.next() == "before\n"
    os.truncate(log_of(there, pid), 0)
    assert lines.next() == "[sheaf: this log was begun anew]\n"
    sheaf.get(writer.write.remote("after\n"))
    assert lines.next() == "after\n"
    sheaf.kill(writer)


def test_a_log_that_is_rotated_while_it_is_followed_comes_whole(there):
    """The writer pauses before each rotation: of older parts there is one, and where the file system
    cannot cut off the front of a file, what is written while it is emptied lacks."""
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote("begin\n"))
    log = log_of(there, pid)
    lines = Followed(state.get_log(pid=pid, follow=True, tail=1))
    assert lines.next() == "begin\n"
    for round in range(4):
        wanted = [f"{round} " + "x" * 997 + "\n"] * 210
        sheaf.get(writer.write.remote(wanted[0], 210))
        wait_until(lambda: log.stat().st_size <= BLOCK, "the log is not rotated")
        assert [lines.next() for _ in wanted] == wanted  # Of older parts there is one.
    assert pathlib.Path(f"{log}.1").stat().st_size > SMALL - BLOCK
    # The end of it, beyond what is in the file of its name, which has less than a block now.
    assert list(state.get_log(pid=pid, tail=9)) == wanted[-9:]
    rest = "".join(state.get_log(node_id=there.node_id, filename=log.name))
    assert len(rest) <= BLOCK and "".join(wanted).endswith(rest)
    sheaf.kill(writer)


def test_long_lines_and_bytes_that_are_no_text(url, there):
    writer = Writer.remote()
    line = "é" * 1_500_000 + "\n"
    pid = sheaf.get(writer.write.remote(b"\x00\xff\xfe\x1b[31m\xc3\n"))
    with pytest.raises(UnicodeDecodeError):
        list(state.get_log(pid=pid))
    assert list(state.get_log(pid=pid, errors="replace")) == ["\0��\x1b[31m�\n"]
    assert list(state.get_log(pid=pid, encoding=None)) == [b"\x00\xff\xfe\x1b[31m\xc3\n"]
    assert list(state.get_log(pid=pid, encoding=None, filter_ansi_code=True)) == [
        b"\x00\xff\xfe\xc3\n"
    ]
    assert fetch(url, "logs/file", pid=pid) == (200, b"\x00\xff\xfe\x1b[31m\xc3\n")
    sheaf.get(writer.write.remote(line))
    assert "".join(state.get_log(pid=pid, tail=1)) == line
    assert fetch(url, "logs/file", pid=pid, lines=1) == (200, line.encode())
    sheaf.kill(writer)


def test_a_node_that_is_stopped_or_dies_ends_its_logs_with_words(cluster, url):
    doomed = cluster.add_node(**NODE, num_cpus=1, resources={"doomed": 1})
    cluster.wait_for_nodes()
    writer = Writer.options(resources={"doomed": 1}).remote()
    pid = sheaf.get(writer.write.remote("alive\n"), timeout=WAIT_S)
    lines = Followed(state.get_log(pid=pid, follow=True))
    assert lines.next() == "alive\n"
    answer = urllib.request.urlopen(f"{url}/api/v0/logs/stream?pid={pid}", timeout=WAIT_S)
    assert answer.readline() == b"alive\n"
    # Others are served meanwhile.
    stop(doomed.os_pid)
    assert fetch(url, "logs/file", filename="node.log")[0] == 200
    cluster.remove_node(doomed, allow_graceful=False)
    words = f"[sheaf: node {doomed.node_number} has died"
    assert lines.rest()[-1].startswith(words)
    assert answer.readline().decode().startswith(words)
    with pytest.raises(ValueError, match="has died"):
        state.list_logs(node_id=doomed.node_id)
    assert fetch(url, "logs", node_id=doomed.node_id)[0] == 404
    assert "has died" in command(cluster, "x", "--node", str(doomed.node_number), status=4)


def test_many_followers_cost_a_node_nothing_that_grows(cluster, url, there):
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote("x" * 99 + "\n", 1_000))

    def resident(pid):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise AssertionError(pid)

    before = resident(there.os_pid)
    answers = [
        urllib.request.urlopen(f"{url}/api/v0/logs/stream?pid={pid}&lines=1000", timeout=WAIT_S)
        for _ in range(40)  # Of 48 that may be at a time.
    ]
    for answer in answers:  # Each gets all of it; nobody reads what comes then.
        assert len(answer.read(100_000)) == 100_000
    sheaf.get(writer.write.remote("y" * 9_999 + "\n", 1_000))
    wait_until(lambda: answers[0].read(1) == b"y")
    assert resident(there.os_pid) < before + (32 << 20)
    for answer in answers:
        answer.close()
    sheaf.kill(writer)

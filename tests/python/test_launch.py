# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf run --nproc: one program in several processes, with the environment that torchrun gives."""

import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import WAIT_S
from sheaf import _core
from sheaf.cluster_utils import Cluster

SHEAF = os.path.join(os.path.dirname(_core.__file__), "bin", "sheaf")

PROGRAM = """
import atexit, json, os, signal, sys, threading, time

assert __name__ == "__main__" and threading.current_thread() is threading.main_thread()
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT OMP_NUM_THREADS TORCHELASTIC_RUN_ID"
print(json.dumps([os.environ[name] for name in names.split()]), sys.argv[1:], os.path.basename(os.getcwd()))
how = sys.argv[1]
if how != "end":
    if os.environ["RANK"] == "1" and how != "wait":
        exec(how)
    time.sleep(3600)
atexit.register(print, "bye")
sys.stdout.write("a line without its end")
"""


def command(tmp_path, *arguments, count=3):
    (tmp_path / "program.py").write_text(PROGRAM)
    return [
        SHEAF,
        "run",
        "--nproc",
        str(count),
        "--python",
        sys.executable,
        "program.py",
        *arguments,
    ]


def run(tmp_path, *arguments, count=3, environment=None):
    made = command(tmp_path, *arguments, count=count)
    return subprocess.run(
        made,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        env={**os.environ, **(environment or {})},
    )


def test_processes_find_what_torchrun_sets(tmp_path):
    done = run(tmp_path, "end", "--flag")
    assert done.returncode == 0, done.stderr
    said = {
        rank: [line[4:] for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        for rank in range(3)
    }
    assert sum(map(len, said.values())) == len(done.stdout.splitlines()) == 6
    rest = set()
    for rank, (first, last) in said.items():
        found = re.fullmatch(
            r'\["(\d)", "(\d)", "3", "3", "0", (.*)\] \[\'end\', \'--flag\'\] (.*)', first
        )
        assert (
            found
            and found.group(1, 2) == (str(rank), str(rank))
            and found.group(4) == tmp_path.name
        )
        assert last == "a line without its endbye"
        rest.add(found.group(3))
    (shared,) = rest
    assert re.fullmatch(r'"127.0.0.1", "\d+", "1", "[0-9a-f]+"', shared)


def test_processes_on_two_nodes_find_what_torchrun_sets_there(tmp_path):
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 64 << 20}
    )
    try:
        cluster.add_node(num_cpus=2, object_store_memory=64 << 20)
        there = {"count": 4, "environment": {"SHEAF_ADDRESS": cluster.address}}
        done = run(tmp_path, "end", **there)
        assert done.returncode == 0, done.stderr
        found = re.findall(r'\["(\d)", "(\d)", "4", "2", "(\d)", ("127.0.0.1", "\d+")', done.stdout)
        assert sorted(row[:3] for row in found) == [
            ("0", "0", "0"),
            ("1", "1", "0"),
            ("2", "0", "1"),
            ("3", "1", "1"),
        ], done.stdout
        assert (
            len({row[3] for row in found}) == 1
            and done.stdout.count("a line without its endbye") == 4
        ), done.stdout
        died = run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", **there)
        assert died.returncode == 137 and "rank 1 failed" in died.stderr, died.stderr
    finally:
        cluster.shutdown()


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ("sys.exit(7)", 7, "rank 1 failed (exit status 7)"),
        ("raise KeyError('key')", 1, "[1] KeyError: 'key'"),
        ("os._exit(9)", 9, "exited with status 9"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
    ],
)
def test_the_first_failure_ends_all_with_its_status(tmp_path, how, status, words):
    done = run(tmp_path, how)
    assert done.returncode == status and words in done.stderr, done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all(tmp_path, number, status):
    process = subprocess.Popen(
        command(tmp_path, "wait", count=2),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() and process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(WAIT_S) == status
        finally:
            process.kill()


def test_wrong_command_lines_are_refused(tmp_path):
    assert "there is no such file" in run_words(
        ["run", "--nproc", "2", "--python", sys.executable, "nowhere.py"]
    )
    assert "--nproc" in run_words(["run", "--nproc", "0", "nowhere.py"])


def run_words(arguments):
    done = subprocess.run([SHEAF, *arguments], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode != 0
    return done.stderr

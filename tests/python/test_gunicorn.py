# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Servers that fork: gunicorn imports the program in a master process, and its workers call."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, is_running, python_with, wait_until

PROGRAM = """
import json
import os

import sheaf as ray


@ray.remote
def double(x):
    return 2 * x


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


def application(environ, start_response):
    if environ["PATH_INFO"] == "/counter":
        value = ray.get(Counter.options(name="counter", get_if_exists=True, lifetime="detached").remote().add.remote())
    else:
        value = ray.get(double.remote(int(environ["PATH_INFO"][1:])))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"value": value, "pid": os.getpid()}).encode()]
"""
AT_IMPORT = "\nray.init(num_cpus=1, log_to_driver=False)\n"
AFTER_FORK = """
def post_fork(server, worker):
    import sheaf

    sheaf.init(num_cpus=1, log_to_driver=False)
"""


@contextlib.contextmanager
def served(folder, program, configuration, *options):
    """Gives (the master, a function that asks for a path)."""
    python = python_with("gunicorn", "nanobind_backend", "cloudpickle", "numpy")
    (folder / "program.py").write_text(program)
    (folder / "configuration.py").write_text(configuration)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with open(folder / "log", "wb") as log:
        master = subprocess.Popen(
            [python, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", *options]
            + ["-c", "configuration.py", "program:application"],
            cwd=folder,
            stdout=log,
            stderr=log,
        )

    def ask(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
            return json.load(answer)

    def answers():
        assert master.poll() is None, (folder / "log").read_text()
        with contextlib.suppress(OSError):
            return ask("/1")

    try:
        wait_until(answers, lambda: (folder / "log").read_text())
        yield master, ask
    finally:
        master.kill()
        master.wait()


def descendants(pid):
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    direct = [int(child) for file in children for child in file.read_text().split()]
    return direct + [one for child in direct for one in descendants(child)]


def of_both(ask, path):
    """What was answered until both workers had answered."""
    said = []

    def both():
        said.append(ask(path))
        return len({one["pid"] for one in said}) == 2

    wait_until(both, "one worker of two takes all requests")
    return said


@pytest.mark.parametrize(
    ("program", "configuration", "options"),
    [
        (PROGRAM, AFTER_FORK, ["--preload"]),
        (PROGRAM, AFTER_FORK, ["--preload", "--threads", "3"]),
        (PROGRAM + AT_IMPORT, "", []),
        (PROGRAM, "", ["--preload"]),
    ],
    ids=["post_fork", "threads", "at_import", "by_the_first_call"],
)
def test_each_worker_of_gunicorn_is_a_driver(tmp_path, program, configuration, options):
    with served(tmp_path, program, configuration, *options) as (master, ask):
        said = of_both(ask, "/21")
        assert {one["value"] for one in said} == {42}
        assert master.pid not in {one["pid"] for one in said}
        started = descendants(master.pid)
        # The master reloads: new workers take the place of the old ones.
        before = {one["pid"] for one in said}
        master.send_signal(signal.SIGHUP)
        wait_until(lambda: ask("/3")["pid"] not in before, "no new worker answers")
        started += descendants(master.pid)
        assert len(started) > 4  # Two drivers, and the processes of their nodes.
        master.terminate()
        assert master.wait(WAIT_S) == 0, (tmp_path / "log").read_text()
    wait_until(lambda: not any(map(is_running, started)), lambda: f"still there: {started}")


def test_a_session_of_the_master_says_in_the_workers_that_it_is_not_theirs(tmp_path):
    program = PROGRAM + AT_IMPORT
    program += """
inner = application
def application(environ, start_response):
    try:
        return inner(environ, start_response)
    except RuntimeError as error:
        start_response("200 OK", [])
        return [json.dumps(str(error)).encode()]
"""
    with served(tmp_path, program, "", "--preload") as (_, ask):
        assert "forked" in ask("/1")


def test_workers_share_an_actor_of_a_node_that_runs(tmp_path):
    with sheaf.init(num_cpus=2, log_to_driver=False) as context:
        joins = f"address={context['address']!r}, namespace='shop'"
        configuration = AFTER_FORK.replace("num_cpus=1", joins)
        with served(tmp_path, PROGRAM, configuration, "--preload") as (_, ask):
            said = of_both(ask, "/counter")
            assert [one["value"] for one in said] == list(range(1, len(said) + 1))

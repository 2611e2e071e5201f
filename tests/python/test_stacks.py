# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf stack` and its routes: what threads of real processes do, also of those that cannot say."""

import asyncio
import concurrent.futures
import ctypes
import json
import linecache
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, is_running, joined_cluster, stop, wait_until
from sheaf.cluster_utils import _program


def command(*arguments, code=0):
    done = subprocess.run(
        [_program(), *map(str, arguments)], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    said = json.loads(
        command(
            *("start", "--head", "--json", "--port=0", "--num-cpus=4", "--dashboard-port=0"),
            *("--object-store-memory=64MiB", f"--dir={tmp_path_factory.mktemp('head')}"),
        )
    )
    sheaf.init(address=said["session"], log_to_driver=False)
    yield said
    sheaf.shutdown()
    command("stop", "--address", said["session"])


class Asker:
    def __init__(self, head):
        self._session, self._url = head["session"], head["dashboard_url"]

    def stacks(self, *what):
        """The processes, as `sheaf stack --json` has them."""
        answer = json.loads(command("stack", "--json", "--address", self._session, *what))
        assert answer["truncated"] is False
        return answer["stacks"]

    def process(self, what):
        (found,) = self.stacks(what)
        return found

    def text(self, *what):
        return command("stack", "--address", self._session, *what)

    def refused(self, *what, code):
        return command("stack", "--address", self._session, *what, code=code)

    def get(self, path):
        try:
            with urllib.request.urlopen(self._url + path, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def ask(head):
    return Asker(head)


def functions(process):
    """The names of all functions that its threads are in."""
    return [frame["function"] for thread in process["threads"] for frame in thread["frames"]]


@sheaf.remote(num_cpus=0)
class Gate:
    """Waits until its file is there."""

    def __init__(self, path):
        self._path = path

    def pid(self):
        return os.getpid()

    def wait(self):
        def inner():
            while not os.path.exists(self._path):
                time.sleep(0.01)  # Here.

        inner()

    def hold_the_gil(self, seconds):
        ctypes.PyDLL(None).sleep(seconds)


class Waiting:
    """A Gate whose process waits in `wait`."""

    def __init__(self, path):
        self._path = path
        self.actor = Gate.remote(str(path))
        self.pid = sheaf.get(self.actor.pid.remote())
        self.call = self.actor.wait.remote()

    def open(self):
        self._path.touch()
        sheaf.get(self.call)


@pytest.fixture
def gate(head, tmp_path):
    made = Waiting(tmp_path / "go")
    yield made
    made.open()


def names_in(ask, pid, name):
    """Waits until some thread of that process is in a function of that name."""
    wait_until(
        lambda: any(found.split(".")[-1] == name for found in functions(ask.process(pid))),
        f"{name} is not seen in {pid}",
    )
    return True


def test_frames_are_listed_from_the_innermost_with_their_lines(ask, gate):
    assert names_in(ask, gate.pid, "inner")
    process = ask.process(gate.pid)
    assert (process["os_pid"], process["kind"]) == (gate.pid, "worker")
    assert process["words"] is None
    (main,) = [thread for thread in process["threads"] if thread["name"] == "MainThread"]
    assert main["os_thread"] == gate.pid
    names = [frame["function"] for frame in main["frames"]]
    inner = names.index("Gate.wait.<locals>.inner")
    assert names[inner + 1] == "Gate.wait"
    assert main["frames"][inner]["file"] == __file__
    line = linecache.getline(__file__, main["frames"][inner]["line"])
    assert line.strip() == "time.sleep(0.01)  # Here."
    text = ask.text(gate.pid)
    assert f"pid {gate.pid}, worker of node 1" in text
    assert f'Thread {gate.pid} "MainThread"\n' in text
    assert "    Gate.wait (" in text


def test_a_process_is_found_by_its_name_its_actor_and_its_task(ask, gate):
    assert names_in(ask, gate.pid, "inner")
    process = ask.process(gate.pid)["process"]
    assert ask.process(process)["os_pid"] == gate.pid
    assert ask.process(gate.actor._actor_id.hex())["os_pid"] == gate.pid
    assert ask.process(gate.call.task_id().hex())["os_pid"] == gate.pid
    assert [found["os_pid"] for found in ask.stacks(gate.pid, process)] == [gate.pid] * 2


def test_all_processes_of_a_node_tell_their_stacks_the_driver_too(ask, gate):
    for all_of in (ask.stacks(), ask.stacks("--node", 1)):
        kinds = {found["os_pid"]: found["kind"] for found in all_of}
        assert kinds[gate.pid] == "worker"
        assert kinds[os.getpid()] == "driver"
    (driver,) = [found for found in ask.stacks() if found["os_pid"] == os.getpid()]
    assert "test_all_processes_of_a_node_tell_their_stacks_the_driver_too" in functions(driver)


def test_native_code_that_holds_the_interpreter_hides_nothing(ask, tmp_path):
    gate = Gate.remote("")
    pid = sheaf.get(gate.pid.remote())
    call = gate.hold_the_gil.remote(5)
    held = wait_until(lambda: (found := ask.process(pid))["words"] and found)
    assert held["words"] == "native code holds the interpreter (GIL)"
    assert "hold_the_gil" in functions(held)
    sheaf.get(call)
    assert ask.process(pid)["words"] is None


def test_a_stopped_process_is_said_to_be_stopped(ask, gate):
    stop(gate.pid)
    try:
        process = ask.process(gate.pid)
    finally:
        os.kill(gate.pid, signal.SIGCONT)
    assert process["words"] == "it does not answer; it is stopped by a signal"
    main = process["threads"][0]
    assert main["os_thread"] == gate.pid
    assert main["words"].startswith("is stopped by a signal")
    assert names_in(ask, gate.pid, "inner")  # And is well afterwards.


def test_all_threads_of_a_threaded_actor_are_seen(ask):
    @sheaf.remote(num_cpus=0, max_concurrency=3)
    class Threaded:
        def __init__(self):
            self._over = threading.Event()

        def pid(self):
            return os.getpid()

        def one(self):
            self._over.wait(WAIT_S)

        def two(self):
            self._over.wait(WAIT_S)

        def end(self):
            self._over.set()

    actor = Threaded.remote()
    pid = sheaf.get(actor.pid.remote())
    calls = [actor.one.remote(), actor.two.remote()]
    for name in ("one", "two"):
        assert names_in(ask, pid, name)
    sheaf.get([actor.end.remote(), *calls])


def test_calls_of_an_async_actor_that_wait_are_seen_as_coroutines(ask):
    @sheaf.remote(num_cpus=0)
    class Async:
        def __init__(self):
            self._over = asyncio.Event()

        async def pid(self):
            return os.getpid()

        async def outer(self):
            await self._inner()

        async def _inner(self):
            await self._over.wait()

        async def end(self):
            self._over.set()

    actor = Async.remote()
    pid = sheaf.get(actor.pid.remote())
    call = actor.outer.remote()
    assert names_in(ask, pid, "_inner")
    chains = [
        [frame["function"].split(".")[-1] for frame in thread["frames"]]
        for thread in ask.process(pid)["threads"]
        if thread["coroutine"]
    ]
    (chain,) = [chain for chain in chains if "_inner" in chain]
    assert chain.index("wait") < chain.index("_inner") < chain.index("outer")
    assert "Coroutine " in ask.text(pid)
    sheaf.get([actor.end.remote(), call])


def test_who_asks_at_the_same_time_hears_of_his_process_alone(ask, tmp_path):
    gates = [Waiting(tmp_path / f"go{i}") for i in range(3)]
    for gate in gates:
        assert names_in(ask, gate.pid, "inner")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        asked = [gate.pid for gate in gates for _ in range(4)]
        for pid, process in zip(asked, pool.map(ask.process, asked)):
            assert process["os_pid"] == pid
            assert functions(process).count("Gate.wait") == 1
    for gate in gates:
        gate.open()


def test_what_is_not_there_is_said_not_to_be_there(ask, gate):
    pid = gate.pid
    dead = Gate.remote("")
    dead_pid = sheaf.get(dead.pid.remote())
    os.kill(dead_pid, signal.SIGKILL)
    wait_until(lambda: not is_running(dead_pid))
    wait_until(lambda: dead_pid not in [found["os_pid"] for found in ask.stacks()])
    assert f"no worker with pid {dead_pid}" in ask.refused(dead_pid, code=4)
    assert "there is no process 1.999999 now" in ask.refused("1.999999", code=4)
    assert "there is no node 99 now" in ask.refused("--node", 99, code=4)
    assert "want a pid" in ask.refused("nonsense", code=2)
    assert "is named" in ask.refused("f" * 32, code=4)
    assert is_running(pid)


def test_routes_say_the_same(ask, gate):
    assert names_in(ask, gate.pid, "inner")
    process = ask.process(gate.pid)["process"]
    status, text = ask.get(f"/worker/traceback?pid={gate.pid}&ip=127.0.0.1&native=0")
    assert status == 200
    assert "Gate.wait.<locals>.inner" in text
    task = gate.call.task_id().hex()
    status, text = ask.get(f"/task/traceback?task_id={task}&attempt_number=0")
    assert status == 200
    assert "Gate.wait" in text
    status, text = ask.get(f"/api/sheaf/stacks/{process}")
    assert status == 200
    assert json.loads(text)["stacks"][0]["os_pid"] == gate.pid
    status, text = ask.get("/api/sheaf/stacks?node=1")
    assert gate.pid in [found["os_pid"] for found in json.loads(text)["stacks"]]
    for path, wanted in {
        "/worker/traceback": 400,
        "/worker/traceback?pid=x": 400,
        "/worker/traceback?pid=1": 404,
        f"/worker/traceback?pid={gate.pid}&ip=10.9.8.7": 404,
        "/task/traceback": 400,
        f"/task/traceback?task_id={'f' * 32}": 404,
        "/api/sheaf/stacks/7": 400,
        "/api/sheaf/stacks/1.999999": 404,
        "/api/sheaf/stacks?node=x": 400,
        "/api/sheaf/stacks?node=99": 404,
    }.items():
        assert ask.get(path)[0] == wanted, path


def test_processes_of_other_nodes_are_asked_through_any_node(tmp_path):
    with joined_cluster({"num_cpus": 0}, {"num_cpus": 1, "resources": {"there": 1}}) as cluster:
        ask = Asker({"session": cluster.address, "dashboard_url": None})
        actor = Gate.options(resources={"there": 1}).remote(str(tmp_path / "go"))
        pid = sheaf.get(actor.pid.remote())
        call = actor.wait.remote()
        assert names_in(ask, pid, "inner")
        node = ask.process(pid)["process"].partition(".")[0]
        assert node != "1"
        assert pid in [found["os_pid"] for found in ask.stacks("--node", node)]
        assert pid not in [found["os_pid"] for found in ask.stacks("--node", 1)]
        assert "no worker with pid" in ask.refused("--node", 1, pid, code=4)
        stop(pid)
        try:
            words = ask.process(pid)["words"]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert words == "it does not answer; it is stopped by a signal"
        (tmp_path / "go").touch()
        sheaf.get(call)

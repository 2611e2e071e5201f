# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf profile` and its routes: where the time of real calls went."""

import ctypes
import gzip
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf import _core, cross_language
from sheaf.cluster_utils import _program

LIBRARY = pathlib.Path(_core.__file__).resolve().parents[2] / "tests/python/libcross_language.so"


def command(*arguments, code=0, env=None):
    done = subprocess.run(
        [_program(), *map(str, arguments)],
        capture_output=True,
        timeout=WAIT_S,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr.decode()


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


class Profile:
    def __init__(self, head):
        self.session, self._url = head["session"], head["dashboard_url"]

    def of(self, *arguments):
        return command("profile", "--address", self.session, *arguments)

    def seconds_below(self, function):
        """By stack below `function`, as a list of names: how long was spent at its end."""
        stacks = {}
        for line in self.of("--format", "folded", "--function", function).decode().splitlines():
            path, _, microseconds = line.rpartition(" ")
            names = tuple(re.sub(r" \(\S+?(:\d+)?\)$", "", name) for name in path.split(";"))
            stacks[names] = stacks.get(names, 0) + int(microseconds) / 1e6
        return stacks

    def seconds(self, function):
        return sum(self.seconds_below(function).values())

    def get(self, path):
        try:
            with urllib.request.urlopen(self._url + path, timeout=WAIT_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()


@pytest.fixture
def profile(head):
    return Profile(head)


def burn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def test_time_is_where_it_was_spent(profile):
    @sheaf.remote
    def mostly_inner():
        def inner():
            burn(1.2)

        inner()
        burn(0.4)

    sheaf.get(mostly_inner.remote())
    stacks = wait_until(
        lambda: (
            (found := profile.seconds_below("mostly_inner")) and sum(found.values()) > 1 and found
        )
    )
    assert 1.2 < sum(stacks.values()) < 3
    inner = sum(
        time for path, time in stacks.items() if any(n.split(".")[-1] == "inner" for n in path)
    )
    assert inner > 0.5 * sum(stacks.values())
    assert all(path[0].split(".")[-1] == "mostly_inner" for path in stacks)


def test_calls_that_wait_are_seen_as_well(profile):
    @sheaf.remote
    def waits():
        time.sleep(1.5)

    sheaf.get(waits.remote())
    wait_until(lambda: profile.seconds("waits") > 1)
    assert profile.seconds("waits") < 3


def test_functions_of_compiled_code_are_named(profile):
    cross_language.load(LIBRARY)
    sheaf.get(cross_language.cpp_function("app::Burn").remote(1.0), timeout=WAIT_S)
    stacks = wait_until(
        lambda: (
            (found := profile.seconds_below("app::Burn")) and sum(found.values()) > 0.3 and found
        )
    )
    assert sum(stacks.values()) < 2
    named = sum(time for path, time in stacks.items() if path[:2] == ("app::Burn", "app::Turn"))
    assert named > 0.9 * sum(stacks.values()), stacks


def test_many_short_calls_are_not_missed(profile):
    @sheaf.remote
    def short_one():
        sum(range(20_000))

    begun = time.monotonic()
    while time.monotonic() - begun < 2:
        sheaf.get([short_one.remote() for _ in range(200)])
    assert wait_until(lambda: profile.seconds("short_one") > 0.5)


def test_native_code_that_holds_the_interpreter_is_named(profile):
    @sheaf.remote
    def holds():
        ctypes.PyDLL(None).sleep(1)
        burn(0.1)

    sheaf.get(holds.remote())
    held = wait_until(
        lambda: sum(
            seconds
            for path, seconds in profile.seconds_below("holds").items()
            if path[-1] == "(native code holds the GIL)"
        )
    )
    assert 0.5 < held < 2


def test_what_async_actors_compute_is_seen(profile):
    @sheaf.remote
    class Async:
        async def computes(self):
            for _ in range(10):
                burn(0.1)

    actor = Async.remote()

    def seen():  # On a busy machine samples are left out, so it computes until there are enough.
        sheaf.get([actor.computes.remote(), actor.computes.remote()])
        return profile.seconds("computes") > 1

    assert wait_until(seen)


def test_it_is_there_also_for_a_process_that_was_killed(profile):
    @sheaf.remote(max_retries=0)
    def dies():
        burn(1)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(sheaf.exceptions.WorkerCrashedError):
        sheaf.get(dies.remote())
    assert wait_until(lambda: profile.seconds("dies") > 0.5)


def test_every_format_has_the_function(profile):
    @sheaf.remote
    def formatted():
        burn(0.5)
        return sheaf.get_runtime_context().get_job_id()

    job = int(sheaf.get(formatted.remote()), 16)
    wait_until(lambda: profile.seconds("formatted") > 0.2)
    some = ("--function", "formatted", "--seconds", 600)
    text = profile.of(*some).decode()
    assert re.search(r"\d\.\d\d 100\.0%  .*formatted \(test_profile\.py:\d+\)", text)
    parsed = json.loads(profile.of(*some, "--json"))
    (root,) = [row for row in parsed["functions"] if row["parent"] is None]
    assert root["function"].endswith("formatted")
    assert root["job"] == job
    speedscope = json.loads(profile.of(*some, "--format", "speedscope"))
    assert any(f["name"].endswith("formatted") for f in speedscope["shared"]["frames"])
    assert sum(speedscope["profiles"][0]["weights"]) == speedscope["profiles"][0]["endValue"]
    assert profile.of(*some, "--format", "svg").startswith(b"<svg")
    pprof = gzip.decompress(profile.of(*some, "--format", "pprof"))
    assert b"formatted" in pprof
    assert b"microseconds" in pprof
    assert profile.of(*some, "--job", job + 999).startswith(b"No Python call")
    assert profile.of("--function", "no_such_function").startswith(b"No Python call")
    assert "want one of" in command("profile", "--format", "x", code=2)
    assert "there is no node 99" in command(
        "profile", "--address", profile.session, "--node", 99, code=4
    )


def test_routes_give_it_too(profile):
    @sheaf.remote
    class Routed:
        def work(self):
            burn(0.5)
            return os.getpid()

    actor = Routed.remote()
    pid = sheaf.get(actor.work.remote())
    wait_until(lambda: profile.seconds("work") > 0.2)
    status, body = profile.get("/api/sheaf/profile?function=work&from=-600")
    assert status == 200
    assert any(row["function"].endswith("Routed.work") for row in json.loads(body)["functions"])
    status, body = profile.get("/api/sheaf/profile?function=work&to=1000")
    assert json.loads(body)["functions"] == []
    status, body = profile.get(f"/worker/cpu_profile?pid={pid}&ip=127.0.0.1&duration=5&native=0")
    assert (status, body[:4]) == (200, b"<svg")
    assert b"Routed.work" in body
    status, body = profile.get(f"/worker/cpu_profile?pid={pid}&format=raw")
    assert b"Routed.work" in body
    for path, wanted in {
        "/api/sheaf/profile?format=x": 400,
        "/api/sheaf/profile?from=x": 400,
        "/api/sheaf/profile?job=x": 400,
        "/api/sheaf/profile?node=99": 404,
        "/worker/cpu_profile?pid=1": 404,
        "/task/cpu_profile": 400,
        f"/task/cpu_profile?task_id={'f' * 32}": 404,
    }.items():
        assert profile.get(path)[0] == wanted, path


THREADS = """
import os, time, sheaf
sheaf.init(num_cpus=1, object_store_memory=64 << 20)
@sheaf.remote
def names_of_threads():
    time.sleep(0.1)
    folder = "/proc/self/task/"
    return {open(f"{folder}{thread}/comm").read().strip() for thread in os.listdir(folder)}
print("sheaf-profile" in sheaf.get(names_of_threads.remote()))
"""


@pytest.mark.parametrize("rate, has_thread", [("0", "False"), ("20", "True")])
def test_a_rate_of_0_switches_it_off(rate, has_thread):
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "SHEAF_PROFILE_HZ": rate},
    )
    assert done.stdout.split() == [has_thread], done.stderr

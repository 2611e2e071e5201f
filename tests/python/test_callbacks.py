# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a program's callbacks may do, and what they cannot hold up."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import sheaf
from conftest import WAIT_S
from sheaf import _core

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
def after(seconds, value=None):
    time.sleep(seconds)
    return value


@sheaf.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.open_now = asyncio.Event()

    async def wait(self):
        await self.open_now.wait()
        return "open"

    async def open(self):
        self.open_now.set()


@sheaf.remote(num_cpus=0)
class Echo:
    """Whose calls end in their order."""

    def echo(self, late, number):
        return number


def test_a_callback_may_call_the_runtime_while_the_main_thread_waits():
    gate = Gate.remote()
    waits = gate.wait.remote()
    done = []

    def callback(future):
        done.append(future.result())
        done.append(sheaf.get(after.remote(0, 2), timeout=WAIT_S / 3))
        ready, _ = sheaf.wait([after.remote(0, 3)], timeout=WAIT_S / 3)
        done.append(sheaf.get(ready[0], timeout=0))
        done.append(sheaf.get(sheaf.put(4), timeout=0))
        gate.open.remote()

    after.remote(0.3, 1).future().add_done_callback(callback)
    assert sheaf.get(waits, timeout=WAIT_S) == "open"  # Which the callback alone brings about.
    assert done == [1, 2, 3, 4]


def test_a_callback_that_does_not_return_holds_up_nothing_else():
    release = threading.Event()
    begun = threading.Event()

    def stuck(future):
        begun.set()
        release.wait(4 * WAIT_S)

    async def awaits():
        return await after.remote(0, 5)

    try:
        after.remote(0.3).future().add_done_callback(stuck)
        assert sheaf.get(after.remote(0.6, 1), timeout=WAIT_S) == 1
        assert begun.is_set()
        assert sheaf.wait([after.remote(0)], timeout=WAIT_S)[0]
        assert after.remote(0, 2).future().result(timeout=WAIT_S) == 2  # Another future.
        assert asyncio.run(asyncio.wait_for(awaits(), WAIT_S)) == 5
        results = []
        thread = threading.Thread(
            target=lambda: results.append(sheaf.get(after.remote(0, 3), timeout=WAIT_S))
        )
        thread.start()
        thread.join(WAIT_S)
        assert results == [3]
        with pytest.raises(sheaf.exceptions.GetTimeoutError):  # Time limits count, too.
            sheaf.get(after.remote(WAIT_S), timeout=0.2)
    finally:
        release.set()


def test_callbacks_come_in_the_order_of_what_they_wait_for():
    echo = Echo.remote()
    late = after.remote(0.3)  # None is ready when it is given its callback.
    order = []
    last = threading.Event()

    def note(future):
        order.append(future.result())
        if len(order) == 300:
            last.set()

    for future in [echo.echo.remote(late, number).future() for number in range(300)]:
        future.add_done_callback(note)
    assert last.wait(WAIT_S)
    assert order == list(range(300))


def test_what_a_callback_raises_is_printed(monkeypatch):
    seen = []
    heard = threading.Event()

    def hook(unraisable):
        seen.append(unraisable.exc_value)
        heard.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)

    def fail():
        raise KeyError("of a callback")

    _core.on_ready(after.remote(0.2), fail)
    sheaf.get(after.remote(0.3), timeout=WAIT_S)
    assert heard.wait(WAIT_S)
    assert [repr(error) for error in seen] == ["KeyError('of a callback')"]


def test_a_submission_that_waits_for_room_stops_no_other_thread():
    @sheaf.remote(num_cpus=0)
    class Sink:
        def pid(self):
            return os.getpid()

        def take(self, data):
            return len(data)

    sink = Sink.remote()
    pid = sheaf.get(sink.pid.remote(), timeout=WAIT_S)
    refs = []
    over = threading.Event()

    def submit():
        for index in range(1600):  # 96 MB.
            refs.append(sink.take.remote(bytes(60_000)))
            if index % 500 == 0:
                sheaf.wait(refs[-1:], timeout=0)
        over.set()

    os.kill(pid, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=submit)
        thread.start()
        longest, last, count, grew = 0.0, time.monotonic(), 0, time.monotonic()
        while last - grew < 1.5 and longest < 2:  # Until it has been waiting for a while.
            time.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if len(refs) != count:
                count, grew = len(refs), now
    finally:
        os.kill(pid, signal.SIGCONT)
    thread.join(2 * WAIT_S)
    assert 800 < count < 1600 and over.is_set() and longest < 2
    assert sheaf.get(refs, timeout=2 * WAIT_S) == [60_000] * 1600


def start(program, **more):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], **more)


def test_a_program_ends_while_a_callback_does_not():
    program = start(
        """
        import threading, time
        import sheaf

        sheaf.init(num_cpus=1, log_to_driver=False)
        begun = threading.Event()

        def stuck(future):
            begun.set()
            threading.Event().wait()

        sheaf.remote(lambda: time.sleep(0.2)).remote().future().add_done_callback(stuck)
        begun.wait()
        sheaf.shutdown()
        """
    )
    assert program.wait(WAIT_S) == 0


def test_lines_of_workers_that_nobody_reads_hold_up_no_call():
    program = start(
        """
        import sys
        import sheaf

        sheaf.init(num_cpus=1)

        @sheaf.remote
        def talk():
            for i in range(5000):
                print(i, "x" * 200)

        @sheaf.remote
        def one():
            return 1

        sheaf.get(talk.remote())
        for _ in range(20):  # Until the lines have come, and the pipe is full.
            assert sheaf.get([one.remote() for _ in range(20)], timeout=30) == [1] * 20
            sheaf.wait([sheaf.remote(lambda: __import__("time").sleep(0.1)).remote()])
        print("went on", file=sys.stderr, flush=True)
        """,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    reader = threading.Thread(target=lambda: said.append(program.stderr.readline()))
    reader.start()
    reader.join(2 * WAIT_S)
    try:
        assert said == ["went on\n"]
        lines = program.stdout.read()
        assert program.wait(WAIT_S) == 0
        assert len(lines) > 65536  # More than a pipe holds.
    finally:
        program.kill()

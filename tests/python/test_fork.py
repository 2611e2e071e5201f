# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""User code that forks, in drivers and workers: no child hangs, harms its parent's place in the
cluster, or acts as its parent. The short form of fault row 31."""

import os
import subprocess
import sys
import textwrap

from conftest import WAIT_S, wait_until

PROGRAM = """
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import sheaf

BOUND_S = 60


@sheaf.remote
def double(x):
    return 2 * x


@sheaf.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


def status_of(pid):
    # The exit status of a child, which is killed if it hangs.
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


def forked(child):
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = child() or 0
        finally:
            os._exit(status)
    return status_of(pid)


def in_child(refs, array):
    # Drops what it shares with its parent, and is told that it may not call.
    import gc

    if sheaf.is_initialized() or array[-1] != array.size - 1:
        return 1
    calls = [lambda: sheaf.get(refs[0]), lambda: sheaf.put(1), lambda: double.remote(1), lambda: sheaf.wait(refs), lambda: sheaf.nodes(), sheaf.init]
    for call in calls:
        try:
            call()
            return 2
        except RuntimeError as error:
            if "forked" not in str(error):
                return 3
    refs.clear()
    del array
    gc.collect()
    return 0


def storm(times):
    # Children of all sorts while another thread makes calls. Gives what went wrong.
    stop, wrong, calls = threading.Event(), [], [0]
    counter = Counter.remote()

    def hammer():
        while not stop.is_set():
            if sheaf.get([double.remote(21), counter.add.remote()], timeout=BOUND_S)[0] != 42:
                wrong.append("a wrong value")
            calls[0] += 1

    array = sheaf.get(sheaf.put(np.arange(100_000)))
    thread = threading.Thread(target=hammer)
    thread.start()
    for i in range(times):
        if i % 20 == 19:
            with multiprocessing.get_context("fork").Pool(1) as pool:
                if pool.map_async(abs, [-9]).get(BOUND_S) != [9]:
                    wrong.append("fork pool")
        elif i % 5 == 4:
            done = subprocess.run(["echo", "7"], capture_output=True, text=True, timeout=BOUND_S)
            if done.stdout != "7\\n":
                wrong.append(f"subprocess: {done}")
        else:
            # A child that drops the last handles of its copy: the parent's objects stay.
            status = forked(lambda: in_child([sheaf_ref, kept], array)) if i % 2 else forked(lambda: None)
            if status != 0:
                wrong.append(f"child {i}: {status}")
        if i == 0:
            sheaf_ref = kept = None
        sheaf_ref, kept = sheaf.put(np.full(20_000, i)), double.remote(i)
        if not (array == np.arange(100_000)).all():
            wrong.append("the array changed under its reader")
        if sheaf.get(kept, timeout=BOUND_S) != 2 * i:
            wrong.append("a wrong value after a child")
    stop.set()
    thread.join(BOUND_S)
    if thread.is_alive() or calls[0] == 0 or sheaf.get(counter.add.remote(), timeout=BOUND_S) != calls[0] + 1:
        wrong.append(f"the calls beside it: {calls[0]}")
    return wrong
"""


def run(body, bound=8 * WAIT_S):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=bound,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_driver_has_children_under_calls():
    body = """
        sheaf.init(num_cpus=2, object_store_memory=128 << 20)
        print(storm(200))
    """
    assert run(body) == ["[]"]


def test_a_worker_has_children_under_calls():
    body = """
        sheaf.init(num_cpus=3, object_store_memory=128 << 20)

        @sheaf.remote(max_retries=0)
        def task():
            return storm(100), os.getpid()

        @sheaf.remote
        class Actor:
            def storm(self):
                return storm(100), os.getpid()

        actor = Actor.remote()
        print([wrong for wrong, _ in sheaf.get([task.remote(), actor.storm.remote()])])
    """
    assert run(body) == ["[[], []]"]


def test_a_spawned_child_is_a_program_of_its_own(tmp_path):
    program = tmp_path / "spawn.py"
    program.write_text(
        PROGRAM
        + textwrap.dedent("""
        def spawned():
            sheaf.init(num_cpus=1, log_to_driver=False)
            return sheaf.get(double.remote(4))

        @sheaf.remote
        def spawn():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return pool.apply_async(abs, [-25]).get(BOUND_S)

        if __name__ == "__main__":
            sheaf.init(num_cpus=1)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply_async(spawned).get(BOUND_S), sheaf.get(spawn.remote()), sheaf.get(double.remote(6)))
    """)
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=8 * WAIT_S
    )
    assert done.stdout == "8 25 12\n", done.stderr


def test_a_child_that_returns_from_a_task_does_not_answer_for_its_parent():
    body = """
        sheaf.init(num_cpus=1)

        @sheaf.remote(max_retries=0)
        def task(how):
            pid = os.fork()
            if pid:
                return status_of(pid), os.getpid()
            if how == "raises":
                raise ValueError("in the child")
            if how == "exits":
                sys.exit(5)
            return "the child's answer"

        answers = [sheaf.get(task.remote(how)) for how in ("returns", "exits", "raises")]
        print([status for status, _ in answers], len({pid for _, pid in answers}))
    """
    lines = run(body)
    assert lines[-1] == "[0, 5, 1] 1", lines


def test_a_driver_s_child_that_ends_by_itself_ends_nothing_else():
    body = """
        sheaf.init(num_cpus=1)
        pid = os.fork()
        if pid == 0:
            sys.exit(4)  # Runs exit functions and destructors.
        print(status_of(pid), sheaf.get(double.remote(3)))
    """
    assert run(body) == ["4 6"]


def test_forked_workers_share_no_descriptor_and_no_randomness():
    body = """
        sheaf.init(num_cpus=3)

        @sheaf.remote
        class Looker:
            def look(self):
                import random, stat

                shared = []
                for fd in map(int, os.listdir("/proc/self/fd")):
                    try:
                        status = os.fstat(fd)
                    except OSError:
                        continue  # The listing's own.
                    if stat.S_ISSOCK(status.st_mode):
                        shared.append(os.readlink(f"/proc/self/fd/{fd}"))
                inherited = [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}") and os.get_inheritable(fd)]
                return os.getppid(), shared, inherited, random.random(), float(np.random.random())

        seen = sheaf.get([looker.look.remote() for looker in [Looker.remote() for _ in range(3)]])
        parents, sockets, inherited, first, second = zip(*seen)
        every = [name for names in sockets for name in names]
        print(len(every) == len(set(every)), inherited, len(set(first)), len(set(second)))
    """
    assert run(body) == ["True ([], [], []) 3 3"]


def test_processes_of_ended_programs_are_gone():
    body = """
        sheaf.init(num_cpus=1)

        @sheaf.remote
        def leave_one():
            return subprocess.Popen(["sleep", "1000"]).pid

        print(sheaf.get(leave_one.remote()))
    """
    pid = int(run(body)[0])
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "a child of a worker outlives its job")

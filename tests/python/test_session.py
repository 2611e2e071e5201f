# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How programs begin and end: each in a process of its own."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import WAIT_S, is_running, wait_until


def program(text):
    return [sys.executable, "-c", textwrap.dedent(text)]


# A program that hangs says where.
WATCH = f"import faulthandler; faulthandler.dump_traceback_later({WAIT_S - 3}, exit=True)\n"


def run(text, **more):
    command = [sys.executable, "-c", WATCH + textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    heavy = "numpy cloudpickle asyncio inspect subprocess"
    assert (
        run(f"import sys, sheaf; print([m for m in '{heavy}'.split() if m in sys.modules])") == "[]"
    )


def test_the_command_of_a_worker_has_the_flags_of_this_interpreter_and_takes_none_to_know():
    text = """
        import sys
        from sheaf.lifecycle import worker_command
        command = worker_command()
        loaded = "subprocess" in sys.modules
        import subprocess
        wanted = subprocess._args_from_interpreter_flags()
        assert command[1 : len(wanted) + 1] == wanted, (command, wanted)
        print(loaded, *wanted)
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    plain["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    assert run(text, env=plain) == "False"
    for flags in ("-O", "-B", "-s", "-X dev", "-W error::FutureWarning", "-X importtime"):
        command = [sys.executable, *flags.split(), "-c", textwrap.dedent(text)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        assert done.stdout.replace("-W ", "-W").startswith("True -"), (
            flags + done.stdout + done.stderr
        )


def test_the_first_worker_does_not_wait_for_numpy_and_the_others_have_it():
    text = """
        import numpy, sheaf, sys
        sheaf.init(num_cpus=2)
        @sheaf.remote(num_cpus=0)
        class Has:
            def numpy(self):
                return "numpy" in sys.modules
            def sum(self):
                import numpy
                return int(numpy.ones(3).sum())
        actors = [Has.remote() for _ in range(4)]
        print(sorted(sheaf.get([actor.numpy.remote() for actor in actors])))
        print(sheaf.get([actor.sum.remote() for actor in actors]))
    """
    assert run(text).splitlines() == ["[False, True, True, True]", "[3, 3, 3, 3]"]


def test_free_threaded_python_is_refused_in_words():
    text = """
        import sys
        sys.abiflags = "t"
        try:
            import sheaf
        except ImportError as error:
            print(error)
    """
    assert "does not support free-threaded Python" in run(text)


def test_a_call_without_init_starts_a_node():
    assert (
        run(
            "import sheaf; print(sheaf.get(sheaf.remote(lambda: 3).remote()), "
            "sheaf.is_initialized())"
        )
        == "3 True"
    )


def test_init_twice_and_after_shutdown():
    text = """
        import sheaf
        with sheaf.init(num_cpus=1):
            try:
                sheaf.init()
            except RuntimeError as error:
                print("twice")
            sheaf.init(ignore_reinit_error=True)
            f = sheaf.remote(lambda: 1)
            assert sheaf.get(f.remote()) == 1
        assert not sheaf.is_initialized()
        sheaf.shutdown()
        sheaf.init(num_cpus=1)
        print(sheaf.get(f.remote()))
    """
    assert run(text).split() == ["twice", "1"]


@pytest.mark.parametrize(
    "call, kind, words",
    [
        ("sheaf.init('auto')", "ConnectionError", ""),
        ("sheaf.init(num_cpu=1)", "RuntimeError", "did you mean num_cpus"),
        ("sheaf.init('/nowhere', num_cpus=1)", "ValueError", "num_cpus"),
        ("sheaf.init(num_cpus=-1)", "ValueError", "num_cpus=-1"),
    ],
)
def test_wrong_inits_say_why(call, kind, words, tmp_path):
    text = f"""
        import sheaf
        try:
            {call}
        except {kind} as error:
            print(error)
    """
    assert words in run(text, env={**os.environ, "SHEAF_DIR": str(tmp_path / "none")})


def test_functions_of_modules_beside_the_script(tmp_path):
    (tmp_path / "beside.py").write_text("def triple(x):\n    return 3 * x\n")
    (tmp_path / "script.py").write_text(
        "import beside, sheaf\nprint(sheaf.get(sheaf.remote(beside.triple).remote(2)))\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd="/",
    )
    assert done.stdout.strip() == "6", done.stderr


def test_output_of_workers_reaches_the_driver():
    text = """
        import sheaf, time
        @sheaf.remote
        def speak():
            print("hello from a worker")
        sheaf.get(speak.remote())
        time.sleep(1)
    """
    done = subprocess.run(program(text), capture_output=True, text=True, timeout=WAIT_S)
    assert "(speak pid=" in done.stdout and "hello from a worker" in done.stdout


@pytest.mark.parametrize("call", ["sheaf.get(slow)", "sheaf.wait([slow])", "next(stream)"])
def test_ctrl_c_ends_a_wait(call):
    text = f"""
        import sheaf, time
        sheaf.init(num_cpus=2)
        @sheaf.remote
        def sleep():
            time.sleep(100)
        @sheaf.remote
        def items():
            time.sleep(100)
            yield 1
        slow, stream = sleep.remote(), items.remote()
        print("waiting", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen(program(text), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.1)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < 10
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_request_that_nothing_can_satisfy_is_told_at_once():
    text = """
        import sheaf
        sheaf.init(num_cpus=2)
        @sheaf.remote(num_cpus=99)
        def f():
            pass
        assert sheaf.wait([f.remote()], timeout=0.5)[0] == []  # It keeps waiting.
        input()
    """
    process = subprocess.Popen(
        program(text), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stderr.readline()
        assert "99 CPU" in line and "more than 2 CPU" in line and line.startswith("(sheaf pid=")
    finally:
        process.communicate("\n", timeout=WAIT_S)
    assert process.returncode == 0


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_is_left_when_the_driver_ends(end):
    text = f"""
        import os, sheaf
        print(*sheaf.get([sheaf.remote(os.getpid).remote() for _ in range(4)]), flush=True)
        {end}
    """
    done = subprocess.run(program(text), stdout=subprocess.PIPE, text=True, timeout=WAIT_S)
    pids = set(map(int, done.stdout.split()))
    assert pids
    wait_until(lambda: not any(map(is_running, pids)), f"workers {pids} outlive their driver")


def test_a_forked_child_does_no_harm():
    text = """
        import os, sheaf
        sheaf.init(num_cpus=2)
        f = sheaf.remote(lambda x: x)
        ref = sheaf.put(5)
        pid = os.fork()
        if pid == 0:
            del ref
            os._exit(0 if not sheaf.is_initialized() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        print(sheaf.get([ref, f.remote(6)]))
    """
    assert run(text) == "[5, 6]"


def test_multiprocessing_and_subprocesses_in_tasks():
    text = """
        import multiprocessing, subprocess, sys, sheaf
        @sheaf.remote
        def children():
            with multiprocessing.get_context("fork").Pool(2) as pool:
                squares = pool.map(abs, [-1, -2])
            out = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout
            return squares, out.strip()
        print(sheaf.get([children.remote() for _ in range(2)])[1])
    """
    assert run(text) == "([1, 2], '7')"


def test_random_numbers_differ_between_workers():
    text = """
        import random, time, numpy, sheaf
        sheaf.init(num_cpus=4)
        @sheaf.remote
        def draw():
            time.sleep(0.2)
            return random.random(), numpy.random.random()
        drawn = sheaf.get([draw.remote() for _ in range(4)])
        print(len(set(drawn)), len({d[0] for d in drawn}), len({d[1] for d in drawn}))
    """
    assert run(text) == "4 4 4"


def test_a_waiting_thread_leaves_when_another_shuts_down():
    text = """
        import sheaf, threading, time
        sheaf.init(num_cpus=2)
        @sheaf.remote
        def sleep():
            time.sleep(100)
        slow = sleep.remote()
        def wait(call):
            try:
                call()
            except sheaf.exceptions.RaySystemError as error:
                told.append(str(error))
        told = []
        threads = [threading.Thread(target=wait, args=(c,)) for c in (lambda: sheaf.get(slow), lambda: sheaf.wait([slow]))]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        sheaf.shutdown()
        for thread in threads:
            thread.join(5)
        print(*told, sep="\\n")
    """
    assert run(text).splitlines() == ["sheaf.shutdown() was called meanwhile"] * 2


@pytest.mark.parametrize("call", ["sheaf.get(same.remote(1))", "sheaf.put(1)", "sheaf.wait([1])"])
def test_threads_that_call_without_a_pause_leave_when_another_shuts_down(call):
    """All that call meanwhile hear the same error. A put that no thread was at is no such call."""
    call = call.replace("[1]", "[slow]")
    text = f"""
        import sheaf, threading, time
        sheaf.init(num_cpus=2)
        @sheaf.remote
        def same(value):
            return value
        slow = same.remote(1)
        def loop():
            try:
                {call}
                begun.release()
                while not over.is_set():
                    {call}
            except sheaf.exceptions.RaySystemError as error:
                told.append(str(error))
            except ValueError:  # The reference is of the earlier session.
                told.append("sheaf.shutdown() was called meanwhile")
        for _ in range(3):
            told, begun, over = [], threading.Semaphore(0), threading.Event()
            threads = [threading.Thread(target=loop) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                assert begun.acquire(timeout={WAIT_S})
            before = time.monotonic()
            sheaf.shutdown()
            took = time.monotonic() - before
            over.set()
            for thread in threads:
                thread.join({WAIT_S})
            sheaf.shutdown()  # One that came to no call meanwhile may have begun a session since.
            print(took < 2, sheaf.is_initialized(), *set(told))
            sheaf.init(num_cpus=2)
            slow = same.remote(1)
    """
    told = "True False sheaf.shutdown() was called meanwhile"
    for line in run(text).splitlines():
        assert line == told or (line == "True False" and "put" in call)


def test_the_first_calls_of_many_threads_start_one_node():
    text = f"""
        import sheaf
        from concurrent.futures import ThreadPoolExecutor
        @sheaf.remote
        def same(value):
            return value
        def call(value):
            return sheaf.get(same.remote(value), timeout={WAIT_S})
        def join(value):
            return sheaf.init(ignore_reinit_error=True).address_info["session_dir"] != ""
        with ThreadPoolExecutor(8) as threads:
            print(list(threads.map(call, range(8))) == list(range(8)))
            sheaf.shutdown()
            print(len(set(threads.map(join, range(8)))), list(threads.map(call, range(8))) == list(range(8)))
    """
    assert run(text).splitlines() == ["True", "1 True"]


def test_a_signal_handler_may_shut_down_while_the_main_thread_waits():
    """As services end that get SIGTERM."""
    text = """
        import os, signal, sheaf, sys, threading, time
        sheaf.init(num_cpus=1)
        @sheaf.remote
        def sleep():
            time.sleep(100)
        def end(*_):
            begin = time.monotonic()
            sheaf.shutdown()
            print(time.monotonic() - begin < 4)
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        ref = sleep.remote()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        sheaf.get(ref)
    """
    assert run(text) == "True"


def test_a_signal_handler_may_call_while_the_program_joins():
    """As a timer does that reports progress: one node, whoever was first."""
    text = """
        import os, signal, sheaf, subprocess
        @sheaf.remote
        def same(value):
            return value
        sheaf.get(same.remote(0))  # A handler that comes during an import sees half a module.
        sheaf.shutdown()
        seen = []
        def report(*_):
            seen.append(sheaf.get(same.remote(len(seen))))
        signal.signal(signal.SIGALRM, report)
        def nodes():
            found = subprocess.run(["pgrep", "-c", "-P", str(os.getpid())], capture_output=True)
            return int(found.stdout)
        for delay in range(1, 40):
            signal.setitimer(signal.ITIMER_REAL, delay / 1000)
            sheaf.init(num_cpus=1, ignore_reinit_error=True)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert sheaf.get(same.remote(delay)) == delay
            assert nodes() <= 2, "more than a node, and pgrep itself"
            sheaf.shutdown()
        print(seen == list(range(len(seen))))
    """
    assert run(text) == "True"


def test_a_child_that_is_forked_while_a_thread_shuts_down_can_end():
    text = """
        import os, sheaf, threading
        for _ in range(5):
            sheaf.init(num_cpus=1)
            thread = threading.Thread(target=sheaf.shutdown)
            thread.start()
            while sheaf.is_initialized():
                pass
            child = os.fork()
            if child == 0:
                sheaf.shutdown()
                os._exit(0)
            thread.join()
            assert os.waitpid(child, 0)[1] == 0
        print("done")
    """
    assert run(text) == "done"


def test_a_daemon_thread_that_waits_at_the_end_says_nothing():
    text = f"""
        import sheaf, threading, time
        sheaf.init(num_cpus=1)
        @sheaf.remote
        def sleep():
            time.sleep(100)
        begun = threading.Event()
        def wait():
            ref = sleep.remote()
            begun.set()
            sheaf.get(ref)
        threading.Thread(target=wait, daemon=True).start()
        begun.wait({WAIT_S})
        time.sleep(0.05)
    """
    done = subprocess.run(program(text), capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_references_and_handles_of_an_earlier_session_are_refused():
    text = """
        import sheaf
        sheaf.init(num_cpus=1)
        f = sheaf.remote(lambda x: x)
        @sheaf.remote
        class Actor:
            def call(self):
                return 1
        ref, actor = sheaf.put(1), Actor.remote()
        sheaf.get(actor.call.remote())
        sheaf.shutdown()
        sheaf.init(num_cpus=1)
        calls = [lambda: sheaf.get(ref), lambda: sheaf.get([ref]), lambda: sheaf.wait([ref]), lambda: f.remote(ref),
                 lambda: f.remote([ref]), lambda: sheaf.put({1: {ref}}), lambda: actor.call.remote(), lambda: sheaf.kill(actor)]
        refused = 0
        for call in calls:
            try:
                call()
            except ValueError as error:
                refused += "session that has ended" in str(error)
        print(refused, len(calls), sheaf.get(f.remote(2)))
    """
    assert run(text) == "8 8 2"


def test_environment_of_all_tasks():
    text = """
        import os, sheaf
        sheaf.init(num_cpus=1, runtime_env={"env_vars": {"OF_ALL": "1", "OWN": "a"}})
        read = sheaf.remote(lambda: (os.environ.get("OF_ALL"), os.environ.get("OWN")))
        print(*sheaf.get(read.remote()), *sheaf.get(read.options(runtime_env={"env_vars": {"OWN": "b"}}).remote()))
    """
    assert run(text) == "1 a 1 b"


def test_arrays_outlive_shutdown():
    text = """
        import numpy as np, sheaf
        sheaf.init(num_cpus=1)
        array = sheaf.get(sheaf.put(np.arange(1_000_000)))
        sheaf.shutdown()
        print(array.sum(), array.flags.writeable)
    """
    assert run(text) == "499999500000 False"


def test_ctrl_c_is_not_lost_while_the_lines_of_a_worker_are_printed():
    program = """if True:
        import os, signal
        import sheaf
        from sheaf._internal import log_lines

        struck = []

        def strike(*lines):
            if not struck:
                struck.append(True)
                os.kill(os.getpid(), signal.SIGINT)

        log_lines.print_lines = strike
        sheaf.init(num_cpus=1)

        @sheaf.remote
        def talk():
            import time

            while True:
                print("line", flush=True)
                time.sleep(0.01)

        try:
            sheaf.get(talk.remote(), timeout=%d)
        except KeyboardInterrupt:
            print("interrupted", bool(struck))
    """
    done = subprocess.run(
        [sys.executable, "-c", program % WAIT_S], capture_output=True, text=True, timeout=3 * WAIT_S
    )
    assert done.stdout == "interrupted True\n", done.stdout + done.stderr


def test_nodes_are_waited_for_before_there_is_a_driver():
    run("""
        import sheaf
        from sheaf.cluster_utils import Cluster

        cluster = Cluster()
        try:
            nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
            cluster.wait_for_nodes()
            assert not sheaf.is_initialized()
            sheaf.init(address=cluster.address)
            assert {row["NodeID"] for row in sheaf.nodes() if row["Alive"]} == {node.node_id for node in nodes}
        finally:
            sheaf.shutdown()
            cluster.shutdown()
    """)


def test_a_named_actor_whose_creation_is_interrupted_leaves_its_name_free():
    run("""
        import os, signal, time
        import sheaf
        from sheaf.cluster_utils import Cluster

        @sheaf.remote(num_cpus=0)
        class Named:
            def ping(self):
                return "pong"

        def stop(pid):  # A thread may answer until the signal has reached it.
            os.kill(pid, signal.SIGSTOP)
            tasks = f"/proc/{pid}/task"
            while any(
                open(f"{tasks}/{task}/stat").read().rsplit(")", 1)[1].split()[0] != "T"
                for task in os.listdir(tasks)
            ):
                time.sleep(0.001)

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        try:
            sheaf.init(address=cluster.address)
            sheaf.get(Named.remote().ping.remote())
            for lifetime in (None, "detached"):
                stop(cluster.head_node.os_pid)
                signal.signal(signal.SIGALRM, signal.default_int_handler)
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                try:
                    Named.options(name="name", lifetime=lifetime).remote()
                    raise SystemExit("the node is stopped: nobody can have answered")
                except KeyboardInterrupt:
                    pass
                os.kill(cluster.head_node.os_pid, signal.SIGCONT)
                end = time.monotonic() + 10
                while True:
                    try:
                        actor = Named.options(name="name").remote()
                        break
                    except ValueError:  # Taken, for a moment.
                        assert time.monotonic() < end
                        time.sleep(0.01)
                assert sheaf.get(actor.ping.remote(), timeout=10) == "pong"
                sheaf.kill(actor)
                del actor
                while True:
                    try:
                        sheaf.get_actor("name")
                        assert time.monotonic() < end
                    except ValueError:
                        break
        finally:
            sheaf.shutdown()
            cluster.shutdown()
    """)


ENDED_WHILE_PICKLED = """
import sys, threading
import sheaf

class Ends:
    def __reduce__(self):
        if how == "another thread":
            pickles.set()
            assert ended.wait({wait})
        else:
            sheaf.shutdown()
        return int, (1,)

@sheaf.remote
def same(x):
    return x

@sheaf.remote
class Counter:
    calls = 0
    def __init__(self, *_):
        pass
    def call(self, *_):
        self.calls += 1
        return self.calls

def make(counter):
    large = bytes(1 << 20)
    return [lambda: sheaf.put([Ends()]), lambda: sheaf.put([large, Ends()]), lambda: same.remote(Ends()), lambda: same.remote([large, Ends()]),
            lambda: counter.call.remote(large, Ends()), lambda: Counter.remote(Ends())]

for how in ("another thread", "itself"):
    for index in range(6):
        sheaf.init(num_cpus=1, log_to_driver=False)
        counter = Counter.remote()
        assert sheaf.get(counter.call.remote()) == 1
        pickles, ended, said = threading.Event(), threading.Event(), []
        def begin():
            try:
                make(counter)[index]()
            except sheaf.exceptions.RaySystemError as error:
                said.append("shutdown() was called meanwhile" in str(error))
        caller = threading.Thread(target=begin)
        caller.start()
        if how == "another thread":
            assert pickles.wait({wait})
            sheaf.shutdown()
            sheaf.init(num_cpus=1, log_to_driver=False)  # Its first actor has the number that the other's first one had.
            counter = Counter.remote()
            assert sheaf.get(counter.call.remote()) == 1
            ended.set()
        caller.join()
        assert said == [True], (how, index, said)
        if how == "another thread":
            assert sheaf.get(counter.call.remote()) == 2, "the call of the earlier session reached an actor of this one"
        sheaf.shutdown()
print("done")
"""


def test_a_session_that_ends_while_arguments_are_pickled():
    """By another thread, with a new session after it, or by what is pickled: a typed error, and the
    call reaches nobody."""
    assert run(ENDED_WHILE_PICKLED.replace("{wait}", str(WAIT_S))) == "done"


CALLS_AT_THE_END = {
    "get": "sheaf.get(same.remote(1))",
    "put": "sheaf.put(bytes(300_000))",
    "callback": "same.remote(1).future().add_done_callback(lambda _: None)",
    "wait": "sheaf.wait([same.remote(i) for i in range(10)], num_returns=10)",
    "again": "sheaf.shutdown(), sheaf.init(num_cpus=1), sheaf.get(same.remote(1))",
}


@pytest.mark.parametrize("call", CALLS_AT_THE_END)
def test_a_program_ends_while_daemon_threads_of_it_call(call):
    text = f"""
        import threading
        import sheaf
        sheaf.init(num_cpus=1, log_to_driver=False)
        called = threading.Event()
        @sheaf.remote
        def same(x):
            return x
        def calls():
            while True:
                try:
                    {CALLS_AT_THE_END[call]}
                except Exception:
                    pass
                called.set()
        for _ in range(3):
            threading.Thread(target=calls, daemon=True).start()
        assert called.wait({WAIT_S})
        print("end")
    """
    for _ in range(2):
        assert run(text) == "end"


def test_nothing_is_begun_by_what_runs_after_the_end():
    """A handler that was registered before the import runs after sheaf's own: it would start a node
    that outlives the program."""
    text = """
        import atexit
        def late():
            for begin in (lambda: sheaf.put(1), sheaf.init):
                try:
                    begin()
                except sheaf.exceptions.RaySystemError as error:
                    print("is ending" in str(error))
        atexit.register(late)
        import sheaf
        sheaf.init(num_cpus=1)
    """
    assert run(text) == "True\nTrue"


def test_exit_functions_of_the_program_may_still_call():
    text = """
        import atexit, sheaf
        @atexit.register
        def save():
            print("saved", sheaf.get(best.remote()))
        @sheaf.remote
        def best():
            return 7
        sheaf.init(num_cpus=1)
        kept = best.remote()
    """
    assert run(text) == "saved 7"

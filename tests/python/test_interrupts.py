# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A few tries of interrupts.py: Ctrl-C ends a program in one clean traceback, and leaves
nothing."""

import subprocess
import sys

import interrupts
from conftest import WAIT_S

# Of each kind of wait one, and what went wrong once.
PROGRAMS = [
    "submit",
    "get",
    "wait",
    "put",
    "actors",
    "await",
    "async generator that pauses",
    "sessions",
    "unknown head",
]


def test_programs_end_by_ctrl_c_at_any_moment():
    done = interrupts.run(tries=len(PROGRAMS), seed=11, programs=PROGRAMS, jobs=2)
    wrong = [one for one in done if one.wrong]
    assert not wrong, "\n".join(
        f"{one.program}, {one.after_s:.3f} s after '{one.mark}': {one.wrong}\n{one.output}"
        for one in wrong
    )


def test_ctrl_c_is_not_lost_while_the_package_is_imported():
    # As one that comes while the library is opened: the next Python that runs is nanobind's.
    text = """if True:
        import signal, sys, _signal

        class Strike:
            def find_spec(self, name, path=None, target=None):
                if name == "nanobind_backend" or name.endswith("._core"):
                    signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Strike())
        try:
            import sheaf
        except KeyboardInterrupt:
            print("interrupted", "sheaf._core" in sys.modules, _signal.getsignal(2) is _signal.default_int_handler)
    """
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.stdout == "interrupted True True\n", done.stdout + done.stderr


def test_waits_of_the_main_thread_end_where_another_thread_has_joined():
    text = """if True:
        import os, threading, time
        import sheaf

        joining = threading.Thread(target=sheaf.init, kwargs={"num_cpus": 1})
        joining.start()
        joining.join()

        @sheaf.remote
        def nap():
            time.sleep(%d)

        threading.Timer(0.2, os.kill, (os.getpid(), 2)).start()
        try:
            sheaf.get(nap.remote())
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", text % (4 * WAIT_S)],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.stdout == "interrupted\n", done.stdout + done.stderr


def test_ctrl_c_in_a_callback_of_a_future_reaches_the_program():
    text = """if True:
        import os, threading
        import sheaf

        sheaf.init(num_cpus=1)
        main = threading.main_thread()

        def strike(future):
            if threading.current_thread() is main:
                os.kill(os.getpid(), 2)
                for _ in range(1000):  # Until Python looks.
                    pass
            else:
                os.kill(os.getpid(), 2)

        @sheaf.remote
        def one():
            return 1

        @sheaf.remote
        def nap():
            import time

            time.sleep(%d)

        try:
            one.remote().future().add_done_callback(strike)
            sheaf.get(nap.options(num_cpus=0).remote())
        except KeyboardInterrupt:
            print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", text % (4 * WAIT_S)],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.stdout == "interrupted\n", done.stdout + done.stderr

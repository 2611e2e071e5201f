# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Small programs that run on Sheaf and on Ray and say what they saw: `programs/AREA.py` are scripts
of functions marked @program, which peer.py runs and compares. One runs alone, too:

    PYTHONPATH=tests/peer python tests/peer/programs/tasks.py NAME      # on Ray, where it is installed
    ./do peer --say tasks.NAME                                         # on Sheaf

What a program says is made the same on each run: ids, addresses, process numbers and paths are
replaced by words. What is left to chance (times, order of what runs at once) a program keeps to
itself, or says in a form that is sure: `took(call) < 1`."""

import argparse
import builtins
import json
import os
import re
import signal
import sys
import threading
import time
import traceback

import ray

CPUS = 4  # Of the node that programs share.
LONGEST = int(os.environ.get("PEER_LONGEST", "60"))  # Seconds of a program; then it "hangs".

_programs = {}
_lines = []  # What the program that runs has said.

_REPLACED = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "<id>"),
    (re.compile(r"\bpid=\d+"), "pid=<pid>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(:\d+)?\b"), "<ip>"),
    (re.compile(r'File "[^"]*/([^"/]+)", line \d+'), r'File "\1", line <line>'),
    (re.compile(r"/tmp/[^\s'\")]+"), "<path>"),
]


def canonical(text):
    """`text` without what differs from run to run."""
    for pattern, word in _REPLACED:
        text = pattern.sub(word, text)
    return text


def program(function=None, *, alone=False):
    """Marks a program. It finds a node of 4 CPUs, initialized; alone=True: it finds none, and may
    call init or make a Cluster itself."""
    if function is None:
        return lambda f: program(f, alone=alone)
    function.alone = alone
    assert function.__name__ not in _programs, f"two programs {function.__name__}"
    _programs[function.__name__] = function
    return function


def say(*values):
    """One line of what the program saw: text as it is, anything else by its repr."""
    _lines.append(canonical(" ".join(v if isinstance(v, str) else repr(v) for v in values)))


def kinds(error):
    """The name of the exception's class and the public classes that it can be caught by: those of
    ray.exceptions and the builtin ones."""
    names = []
    for kind in type(error).__mro__:
        public = getattr(ray.exceptions, kind.__name__, None) is kind
        if kind not in (object, BaseException, Exception) and (
            public or getattr(builtins, kind.__name__, None) is kind
        ):
            names.append(kind.__name__)
    return f"{type(error).__name__} <{', '.join(names)}>"


def outcome(call, *args, words=(), **kwargs):
    """Says what `call(*args, **kwargs)` returns or raises, and of `words` which its message has."""
    try:
        value = call(*args, **kwargs)
    except BaseException as error:
        if isinstance(error, (Hangs, KeyboardInterrupt)):
            raise
        said = "".join(f"; {word!r}: {'yes' if word in str(error) else 'no'}" for word in words)
        say(f"raises {kinds(error)}{said}")
        return error
    say("returns", value)
    return value


def took(call, *args, **kwargs):
    """Seconds that a call took, whatever its end."""
    begun = time.monotonic()
    try:
        call(*args, **kwargs)
    except Exception:
        pass
    return time.monotonic() - begun


def eventually(condition, seconds=20):
    """Whether `condition()` becomes true within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Hangs(BaseException):
    pass


def _on_alarm(signum, frame):
    raise Hangs


def _run(name):
    function = _programs[name]
    _lines.clear()
    if function.alone:
        if ray.is_initialized():
            ray.shutdown()
    elif not ray.is_initialized():
        ray.init(num_cpus=CPUS, log_to_driver=False, logging_level="error", include_dashboard=False)
    begun = time.monotonic()
    signal.alarm(LONGEST)
    try:
        function()
    except Hangs:
        _lines.append("hangs")
    except BaseException as error:
        _lines.append(f"ends in {kinds(error)}")
        traceback.print_exc()
    finally:
        signal.alarm(0)
    answer = {"lines": list(_lines), "seconds": round(time.monotonic() - begun, 2)}
    if function.alone:
        ray.shutdown()
    return answer


def _note(path, row):
    if path:
        with open(path, "a") as out:
            print(json.dumps(row), file=out)


def main():
    """Runs the programs of the script that calls it."""
    parser = argparse.ArgumentParser(
        description="Runs programs of this file and says what they saw."
    )
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--out", help="a file for the answers, one JSON object a line")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(_programs))
        return
    names = arguments.names or list(_programs)
    signal.signal(signal.SIGALRM, _on_alarm)
    for name in sorted(names, key=lambda n: (_programs[n].alone, names.index(n))):
        _note(arguments.out, {"begins": name})
        answer = _run(name)
        _note(arguments.out, {"name": name, **answer})
        if not arguments.out:
            print(f"-- {name} ({answer['seconds']} s)", *answer["lines"], sep="\n   ")
    if ray.is_initialized():
        ray.shutdown()
    if threading.active_count() > 1:
        sys.stdout.flush()
        os._exit(0)  # Threads of programs that hang.

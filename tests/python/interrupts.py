# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at random moments of many programs: each ends, says so in one traceback, and leaves
nothing.

    ./do python tests/python/interrupts.py --tries 200 [--program get] [--jobs 2]

Each try starts a program in a process group and a session directory of its own, and sends SIGINT to
the group (as a terminal does) or to the process alone, at a random moment after its first line. It
shall end with KeyboardInterrupt, as Python ends programs (by SIGINT); its standard error holds one
short traceback that begins in the program; and no process, socket or session is left. Prints how
long the prompt took (until the program's own `except KeyboardInterrupt`) and the end of the
process. Exit status 1: a try went wrong. test_interrupts.py runs a few tries.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid

WAIT_S = 60  # For what should take a tenth of a second.
_MARK = "INTERRUPTS_TRY"  # A variable that all processes of a try inherit.
_LONGEST_TRACEBACK = 100  # Lines; pickling a function has frames.
_UNCLEAN = re.compile(
    r"Exception ignored|Fatal Python|SystemError|terminate "
    r"called|Segmentation|absl::|std::|sheaf::|\.cc\b|\.h:\d|Error: "
)

# A callback of any import, where Python prints what Ctrl-C raises, and drops it.
_PYTHONS_OWN = "_get_module_lock"

_BEGIN = """\
import asyncio, os, time
import numpy
os.write(1, b"started\\n")
try:
    import sheaf
    from sheaf.util import state

    def init(**more):
        sheaf.init(num_cpus=2, object_store_memory=512 << 20, log_to_driver=%(log)s, **more)
        os.write(1, b"joined\\n")

    @sheaf.remote(num_cpus=0.1)
    def one(x=0):
        print("line", x)
        return x + 1

    @sheaf.remote(num_cpus=0)
    def nap():
        time.sleep(1000)

    @sheaf.remote(num_cpus=0)
    def items(pause):
        x = 0
        while True:
            time.sleep(pause)
            x += 1
            yield x

    @sheaf.remote(num_cpus=0)
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self):
            self.value += 1
            return self.value

    @sheaf.remote(num_cpus=0)
    class Async:
        async def add(self):
            await asyncio.sleep(0.001)
            return 1

%(body)s
    os.write(1, b"over\\n")
except KeyboardInterrupt:
    os.write(1, b"caught\\n")
    raise
"""

PROGRAMS = {
    "submit": """
        init()
        refs = []
        while True:
            refs.append(one.remote(len(refs)))
            if len(refs) > 2000:
                sheaf.get(refs.pop(0))
                refs.clear()
    """,
    "get": """
        init()
        sheaf.get(nap.remote())
    """,
    "get many": """
        init()
        while True:
            sheaf.get([one.remote(x) for x in range(100)])
    """,
    "get in turn": """
        init()
        while True:
            sheaf.get(one.remote())
    """,
    "wait": """
        init()
        while True:
            sheaf.wait([nap.remote(), one.remote()], num_returns=2, timeout=0.3)
    """,
    "put": """
        init()
        array = numpy.zeros(100 << 20, numpy.uint8)
        while True:
            ref = sheaf.put(array)
    """,
    "arrays": """
        init()
        array = numpy.zeros(1 << 20, numpy.uint8)
        while True:
            sheaf.get(sheaf.put([array, "text", {"x": array, "f": lambda: 1}]))
    """,
    "actors": """
        init()
        while True:
            counters = [Counter.remote() for _ in range(3)]
            sheaf.get([counter.add.remote() for counter in counters])
    """,
    "named actors": """
        init(namespace="names")
        while True:
            Counter.options(name="counter", lifetime="detached").remote()
            sheaf.get(sheaf.get_actor("counter").add.remote())
            sheaf.kill(sheaf.get_actor("counter"))
            while True:
                try:
                    sheaf.get_actor("counter")
                except ValueError:
                    break
    """,
    "async actor": """
        init()
        actor = Async.remote()
        while True:
            sheaf.get([actor.add.remote() for _ in range(10)])
    """,
    "await": """
        init()

        async def main():
            while True:
                await one.remote()
                await asyncio.gather(*[one.remote(x) for x in range(10)])

        asyncio.run(main())
    """,
    "await a nap": """
        init()

        async def main():
            await nap.remote()

        asyncio.run(main())
    """,
    "generator": """
        init()
        for ref in items.remote(0.005):
            sheaf.get(ref)
    """,
    "async generator": """
        init()

        async def main():
            async for ref in items.remote(0.02):
                await ref

        asyncio.run(main())
    """,
    "async generator that pauses": """
        init()

        async def main():
            async for ref in items.remote(1000):
                await ref

        asyncio.run(main())
    """,
    "future": """
        init()
        while True:
            one.remote().future().result()
    """,
    "state": """
        init()
        while True:
            sheaf.nodes(), sheaf.cluster_resources(), state.list_tasks(limit=5)
            group = sheaf.util.placement_group([{"CPU": 1}])
            group.wait(30)
            sheaf.util.remove_placement_group(group)
    """,
    "sleep": """
        init()
        refs = [one.remote(x) for x in range(50)]
        while True:
            time.sleep(1000)
    """,
    "sessions": """
        while True:
            init()
            sheaf.get(one.remote())
            sheaf.shutdown()
    """,
    "end": """
        init()
        sheaf.get(one.remote())
    """,
    "unknown head": """
        os.environ["SHEAF_TOKEN"] = "0" * 64
        sheaf.init(address="192.0.2.1:6379")
    """,
}  # fmt: skip
# Where asyncio.run makes KeyboardInterrupt of the CancelledError that the program got, in two
# tracebacks.
_ASYNCIO = ("await", "await a nap", "async generator", "async generator that pauses")


@dataclasses.dataclass
class Try:
    """What one program did."""

    program: str
    mark: str  # The signal was sent so long after the program had written this.
    after_s: float
    group: bool
    wrong: str = ""
    prompt_s: float | None = None  # From the signal to the program's `except`.
    end_s: float = 0
    gone_s: float = 0  # Until nothing was left.
    was_over: bool = False  # The program had come to its end by itself.
    output: str = ""


def text_of(program: str, log: bool) -> str:
    return _BEGIN % {
        "body": textwrap.indent(textwrap.dedent(PROGRAMS[program]).strip(), "    "),
        "log": log,
    }


def marked(mark: str) -> list[int]:
    """The processes, zombies aside, that inherited this variable."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in pathlib.Path(
                f"/proc/{entry}/environ"
            ).read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            continue
    return found


def attempt(program: str, mark_line: str, after_s: float, group: bool, log: bool) -> Try:
    """One program that is interrupted once."""
    result = Try(program, mark_line, after_s, group)
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="sheaf-interrupts-") as directory:
        script = pathlib.Path(directory) / "program.py"
        script.write_text(text_of(program, log))
        sessions = pathlib.Path(directory) / "sessions"
        sessions.mkdir(mode=0o700)
        with open(
            pathlib.Path(directory) / "errors", "w+", encoding="utf-8", errors="replace"
        ) as errors:
            process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                env={**os.environ, _MARK: mark, "SHEAF_DIR": str(sessions)},
            )  # fmt: skip
            try:
                said = _interrupt(process, result)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                assert process.stdout is not None
                process.stdout.close()
            errors.seek(0)
            words = errors.read()
        result.output = words
        if _PYTHONS_OWN in words:
            result.wrong, result.was_over = "", True
        elif not result.wrong:
            result.wrong = _judge(program, said, process.returncode, words)
        begin = time.monotonic()
        while marked(mark) and time.monotonic() - begin < WAIT_S:
            time.sleep(0.01)
        result.gone_s = result.end_s + time.monotonic() - begin
        left = [f"process {pid}: {_command(pid)}" for pid in marked(mark)] + [
            str(path) for path in sessions.rglob("*") if path.name not in _KEPT
        ]
        if left and not result.wrong:
            result.wrong = f"left: {left}"
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):  # It may be ending.
                os.kill(pid, signal.SIGKILL)
    return result


_KEPT = ("token",)


def _command(pid: int) -> str:
    try:
        return (
            pathlib.Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")[:200]
        )
    except OSError:
        return "?"


def _interrupt(process: subprocess.Popen[bytes], result: Try) -> bytes:
    """Sends the signal and waits for the end; what the program printed."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    said, sent_at, started_at, last = b"", None, None, time.monotonic() + WAIT_S
    while True:
        now = time.monotonic()
        due = None if started_at is None or sent_at is not None else started_at + result.after_s
        if due is not None and now >= due:
            result.was_over = b"over\n" in said
            sent_at = time.monotonic()
            last = sent_at + WAIT_S
            try:
                (os.killpg if result.group else os.kill)(process.pid, signal.SIGINT)
            except ProcessLookupError:
                result.was_over = True
            continue
        if now > last:
            result.wrong = "it runs on" if sent_at else "it never began"
            return said
        ready, _, _ = select.select([fd], [], [], min(last, due or last) - now)
        if not ready:
            continue
        more = os.read(fd, 1 << 16)
        if not more:
            break
        said += more
        if started_at is None and f"{result.mark}\n".encode() in said:
            started_at = time.monotonic()
        if sent_at is not None and result.prompt_s is None and b"caught\n" in said:
            result.prompt_s = time.monotonic() - sent_at
    if sent_at is None:  # It was faster.
        result.was_over, sent_at = True, time.monotonic()
    try:
        process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        result.wrong = "it does not end"
    result.end_s = time.monotonic() - sent_at
    return said


def _judge(program: str, said: bytes, status: int, words: str) -> str:
    """What is wrong with the end of a program; empty: nothing."""
    if (
        b"over\n" in said and b"caught\n" not in said
    ):  # What comes too late ends nothing, and says nothing.
        return (
            "" if status in (0, -signal.SIGINT) and not words else f"after its end: status {status}"
        )
    if status != -signal.SIGINT:
        return f"status {status}"
    if not words and b"caught\n" not in said:
        return "no traceback"
    lines = words.splitlines()
    if lines[:1] != ["Traceback (most recent call last):"] or lines[-1] != "KeyboardInterrupt":
        return "not one traceback"
    if (
        words.count("in <module>") > 1
    ):  # In an import, which is Python's: it may chain errors of its own.
        return ""
    tracebacks = [index for index, line in enumerate(lines) if line == lines[0]]
    if "program.py" not in lines[tracebacks[-1] + 1]:
        return "the traceback does not begin in the program"
    if len(tracebacks) > (2 if program in _ASYNCIO else 1):
        return "more than one traceback"
    if _UNCLEAN.search(words):
        return f"unclean words: {_UNCLEAN.search(words)}"
    if len(lines) > _LONGEST_TRACEBACK * len(tracebacks):
        return "a long traceback"
    return ""


def plan(tries: int, seed: int, programs: list[str]) -> list[tuple[str, str, float, bool, bool]]:
    """For each try: program, when, to the group or the process alone, with workers' output or
    without."""
    source = random.Random(seed)
    out = []
    for number in range(tries):
        program = programs[number % len(programs)]
        mark, longest = source.choice(
            (("started", 0.05), ("started", 0.5), ("joined", 0.1), ("joined", 1.5))
        )
        if mark == "joined" and program == "unknown head":
            mark, longest = "started", 2
        out.append(
            (
                program,
                mark,
                source.uniform(0, longest),
                source.random() < 0.5,
                source.random() < 0.5,
            )
        )
    return out


def run(tries: int, seed: int, programs: list[str], jobs: int = 1, show: bool = False) -> list[Try]:
    """All tries, in the order of their ends."""
    done = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed(
            [pool.submit(attempt, *row) for row in plan(tries, seed, programs)]
        ):
            one = future.result()
            done.append(one)
            if show and one.wrong:
                to = "group" if one.group else "process"
                print(
                    f"--- {one.program}, {one.after_s:.3f} s after '{one.mark}', to "
                    f"the {to}: {one.wrong}\n{one.output}",
                    flush=True,
                )
    return done


def _distribution(name: str, values: list[float]) -> str:
    if not values:
        return f"{name}: none"
    values = sorted(values)
    at = [values[min(len(values) - 1, int(part * len(values)))] for part in (0.5, 0.9, 0.99)]
    return (
        f"{name}: median {at[0] * 1e3:.0f} ms, 90 % {at[1] * 1e3:.0f} ms, 99 % "
        f"{at[2] * 1e3:.0f} ms, longest {values[-1] * 1e3:.0f} ms"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--program", action="append", choices=list(PROGRAMS))
    arguments = parser.parse_args()
    done = run(
        arguments.tries,
        arguments.seed,
        arguments.program or list(PROGRAMS),
        arguments.jobs,
        show=True,
    )
    wrong = [one for one in done if one.wrong]
    struck = [one for one in done if not one.was_over and not one.wrong]
    print(
        f"{len(done)} tries, seed {arguments.seed}: {len(wrong)} wrong, "
        f"{len(struck)} struck a program that ran"
    )
    print(
        _distribution("to the prompt", [one.prompt_s for one in struck if one.prompt_s is not None])
    )
    print(_distribution("to the end of the process", [one.end_s for one in struck]))
    print(_distribution("until nothing was left", [one.gone_s for one in struck]))
    for name in sorted({one.program for one in struck}):
        print(
            " ",
            _distribution(
                name,
                [
                    one.prompt_s
                    for one in struck
                    if one.program == name and one.prompt_s is not None
                ],
            ),
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

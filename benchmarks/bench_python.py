# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What calls and objects cost from Python: one row per figure, and --json FILE for programs.

    ./do bench python [--json FILE] [--seconds N] [--only WORD] [--profile]
    ./do bench python --peer ray [--rounds N] [--only WORD,WORD...] [...]   the rows of `ray
    microbenchmark`, beside Ray in the same run (peer_rows.py)

`--profile` prints what one unit of each row costs instead: CPU, switches of threads, system calls,
reads of the clock, instructions (call_costs.py).

Ray is installed into build/peers/ray, or $SHEAF_PEERS/ray, when it is not there.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.request

import numpy as np
import sheaf
from sheaf import _core


@sheaf.remote
def nothing():
    return None


@sheaf.remote
def echo(x):
    return x


@sheaf.remote
def zeros(n):
    return bytes(n)


@sheaf.remote(num_cpus=0)
class Actor:
    def nothing(self):
        return None

    def echo(self, x):
        return x


@sheaf.remote(num_cpus=0)
class AsyncActor:
    async def nothing(self):
        return None


BATCH = 1000
THREADS = 4


def rows():
    """(name, unit, how many one run does, the run)."""
    get, put = sheaf.get, sheaf.put
    actor, coroutines = Actor.remote(), AsyncActor.remote()
    small, array = put(1), np.ones(12_500_000)  # 100 MB.
    block = put(array)
    many = [put(i) for i in range(BATCH)]
    yield "task, sync", "/s", 1, lambda: get(nothing.remote())
    yield "task with an int, sync", "/s", 1, lambda: get(echo.remote(1))
    yield (
        "tasks, 1,000 in flight",
        "/s",
        BATCH,
        lambda: get([nothing.remote() for _ in range(BATCH)]),
    )
    yield "actor call, sync", "/s", 1, lambda: get(actor.nothing.remote())
    yield "actor call with an int, sync", "/s", 1, lambda: get(actor.echo.remote(1))
    yield (
        "actor calls, 1,000 in flight",
        "/s",
        BATCH,
        lambda: get([actor.nothing.remote() for _ in range(BATCH)]),
    )
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:

        def by_threads(run):
            return lambda: list(threads.map(lambda _: run(), range(THREADS)))

        yield (
            f"actor calls, sync, {THREADS} threads in sum",
            "/s",
            THREADS * 250,
            by_threads(lambda: [get(actor.nothing.remote()) for _ in range(250)]),
        )
        yield (
            f"actor calls, 250 in flight each of {THREADS} threads",
            "/s",
            THREADS * 250,
            by_threads(lambda: get([actor.nothing.remote() for _ in range(250)])),
        )
    yield "async actor call, sync", "/s", 1, lambda: get(coroutines.nothing.remote())
    yield (
        "async actor calls, 1,000 in flight",
        "/s",
        BATCH,
        lambda: get([coroutines.nothing.remote() for _ in range(BATCH)]),
    )
    yield "put of an int", "/s", 1, lambda: put(1)
    yield "get of an int", "/s", 1, lambda: get(small)
    yield "wait on 1,000 references", "/s", 1, lambda: sheaf.wait(many, num_returns=BATCH)
    kilobytes, part = np.ones(1250), np.ones(100_000)
    yield "put of 10 kB (NumPy)", "/s", 1, lambda: put(kilobytes)
    yield "put of 800 kB (NumPy)", "GB/s", part.nbytes / 1e9, lambda: put(part)
    yield "floor: copy of 800 kB", "GB/s", part.nbytes / 1e9, _copier(part)
    for n in (10_000, 64_000, 200_000):
        yield (
            f"tasks that give {n // 1000} kB, 200 in flight",
            "/s",
            200,
            lambda n=n: get([zeros.remote(n) for _ in range(200)]),
        )
    yield "put of 100 MB (NumPy)", "GB/s", array.nbytes / 1e9, lambda: put(array)
    yield "get of 100 MB (NumPy)", "/s", 1, lambda: get(block)
    yield "floor: copy of 100 MB", "GB/s", array.nbytes / 1e9, _copier(array)


CHAIN = 1_000_000


def freeing():
    """Of a chain of references, each inside the value of the next, that is let go of: seconds until
    it is freed, and the longest put beside that."""
    outermost = None
    for _ in range(CHAIN):
        outermost = sheaf.put([outermost])
    while _owned_objects() < CHAIN:
        time.sleep(0.05)
    begin = time.perf_counter()
    del outermost
    longest = 0
    while _owned_objects() > CHAIN // 100:  # The node's page is a fifth of a second old at most.
        end = time.perf_counter() + 0.05
        while (now := time.perf_counter()) < end:
            sheaf.put(1)
            longest = max(longest, time.perf_counter() - now)
    return time.perf_counter() - begin, longest


def _owned_objects():
    with urllib.request.urlopen(_core.metrics_url(), timeout=30) as answer:
        return next(
            float(line.split()[1])
            for line in answer.read().decode().splitlines()
            if line.startswith("sheaf_owned_objects")
        )


def _copier(array):
    to = np.empty_like(array)
    return lambda: np.copyto(to, array)


def measure(run, amount, seconds):
    """The median rate of rounds that take about a tenth of the time each."""
    run()
    rates, end = [], time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < end:
        begin, count = time.perf_counter(), 0
        while True:
            run()
            count += 1
            spent = time.perf_counter() - begin
            if spent > seconds / 10:
                break
        rates.append(count * amount / spent)
    return sorted(rates)[len(rates) // 2]


# What a bare ring between two Python processes allows, or the part of a row that cannot go away
# (docs/evidence/benchmarks_python.md).
FLOORS = {
    "single client get calls": 33_800_000,
    "single client put calls": 28_900_000,
    "single client tasks sync": 1_000_000,
    "single client tasks async": 5_300_000,
    "1:1 actor calls sync": 1_000_000,
    "1:1 actor calls async": 5_300_000,
    "1:1 async-actor calls sync": 1_000_000,
    "1:1 async-actor calls async": 5_300_000,
}
PEER_VERSIONS = ("ray[default]==2.60.*", "ray[default]")  # As its users install it.


def peer_python(name):
    """The interpreter of the peer's own virtual environment; makes it."""
    root = (
        pathlib.Path(
            os.environ.get("SHEAF_PEERS") or pathlib.Path(__file__).parents[1] / "build" / "peers"
        )
        / name
    )
    python = root / "bin" / "python"
    if (
        subprocess.run([python, "-c", f"import {name}, numpy"], capture_output=True).returncode
        if python.exists()
        else True
    ):
        subprocess.run(["/usr/bin/python3", "-m", "venv", root], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"]
        if all(subprocess.run([*pip, version]).returncode for version in PEER_VERSIONS):
            raise SystemExit(f"pip could not install {name} into {root}")
    return python


class Side:
    """One package, in a process of its own that waits for the names of rows."""

    def __init__(self, python, package):
        environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
        command = [python, pathlib.Path(__file__).with_name("peer_rows.py"), package]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.start = self.answer()

    def answer(self):
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(
            f"the benchmark's process ended: {self.process.args[-1]} (status {self.process.wait()})"
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()


def compare(peer, seconds, only, rounds):
    """Rows of {name, unit, better, sheaf, floor, <peer>, runs}: medians of rounds in which both
    take turns. Who needs longer than a second for one run has one round: the peer's runs of 40,000
    tasks take half a minute each. `runs` says how many there were of each."""
    import peer_rows

    sides = {"sheaf": Side(sys.executable, "sheaf"), peer: Side(peer_python(peer), peer)}
    found = []
    for name, (unit, _, _) in peer_rows.ROWS.items():
        if not any(word in name for word in only.split(",")):
            continue
        rates, runs = {side: [] for side in sides}, dict.fromkeys(sides, 0)
        for _ in range(rounds):
            for side, process in sides.items():
                if len(rates[side]) == runs[side] > 0:  # One run each.
                    continue
                answer = process.ask(f"{name} {seconds}")
                if "error" in answer:
                    print(f"{side}: {name}: {answer['error']}", file=sys.stderr)
                else:
                    rates[side].append(answer["rate"])
                    runs[side] += answer["runs"]
        medians = {side: statistics.median(some) if some else None for side, some in rates.items()}
        found.append(
            {
                "name": name,
                "unit": unit,
                "better": "higher",
                "floor": FLOORS.get(name),
                "runs": runs,
                **medians,
            }
        )
        if unit == "GB/s":
            array = np.ones(12_500_000)
            found[-1]["floor"] = measure(_copier(array), array.nbytes / 1e9, 0.5)
        print_row(found[-1], peer)
    for key, unit, name in (
        ("import", "s", "import"),
        ("init", "s", "init"),
        ("first result", "s", "init to first result"),
        ("PSS", "MB", "idle node, PSS"),
    ):
        found.append(
            {
                "name": name,
                "unit": unit,
                "better": "lower",
                "floor": None,
                **{s: p.start[key] for s, p in sides.items()},
            }
        )
    ends = {side: process.ask("end 0")["shutdown"] for side, process in sides.items()}
    found.append({"name": "shutdown", "unit": "s", "better": "lower", "floor": None, **ends})
    for row in found[-5:]:
        print_row(row, peer)
    return found


def print_row(row, peer):
    def show(value):
        return "-" if value is None else f"{value:,.4f}" if value < 10 else f"{value:,.0f}"

    both = row["sheaf"] and row[peer]
    ratio = (
        (row["sheaf"] / row[peer] if row["better"] == "higher" else row[peer] / row["sheaf"])
        if both
        else None
    )
    cells = [
        row["name"],
        show(row["sheaf"]),
        show(row[peer]),
        show(ratio),
        show(row["floor"]),
        row["unit"],
        " / ".join(map(str, row["runs"].values())) if "runs" in row else "",
    ]
    print(TABLE.format(*cells), flush=True)


TABLE = "| {:44} | {:>12} | {:>10} | {:>8} | {:>11} | {:4} | {:>14} |"


def profile(only, seconds):
    import call_costs

    with call_costs.Meter() as meter:
        call_costs.print_head()
        for name, unit, amount, run in rows():
            if only in name and unit == "/s":
                call_costs.print_costs(name, meter.measure(run, amount, seconds))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--peer", choices=["ray"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.peer:
        print(
            TABLE.format(
                "row", "Sheaf", options.peer.title(), "ratio", "floor", "unit", "runs of each"
            )
        )
        print("|---|---|---|---|---|---|---|")
        found = compare(options.peer, options.seconds, options.only, options.rounds)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"rows": found}, indent=1))
        return
    sheaf.init(num_cpus=2, object_store_memory=1 << 30)
    if options.profile:
        profile(options.only, options.seconds)
        sheaf.shutdown()
        return
    figures = {}
    for name, unit, amount, run in rows():
        if options.only not in name:
            continue
        figures[name] = {"rate": measure(run, amount, options.seconds), "unit": unit}
        print(f"{name:38} {figures[name]['rate']:14,.1f} {unit}", flush=True)
    if options.only in "1,000,000 chained references":
        seconds, longest = freeing()
        for name, value, unit in (
            ("1,000,000 chained references freed", seconds, "s"),
            ("longest put beside that", longest * 1e3, "ms"),
        ):
            figures[name] = {"value": value, "unit": unit}
            print(f"{name:38} {value:14,.3f} {unit}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    sheaf.shutdown()


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tasks, actors, objects and crashes for some minutes, and whether memory, descriptors and
processes stay where they were.

    ./do python tests/python/churn.py --minutes 10

A round does some of everything, then drops all of it; after each round the processes below this one
are counted and measured. The first fifth of the time is for warming up. Exit status 1: a value was
wrong, or something grew. test_churn.py runs a few rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import numpy
import sheaf
from sheaf.exceptions import ActorDiedError, RayActorError, TaskCancelledError, WorkerCrashedError
from sheaf.util import state

WAIT_S = 120


@sheaf.remote(num_cpus=0.5)
def double(x):
    return 2 * x


@sheaf.remote(num_cpus=0.1)
def nested(n):
    return sum(sheaf.get([double.remote(i) for i in range(n)]))


@sheaf.remote(num_cpus=0.5, max_retries=0)
def crash():
    os._exit(1)


@sheaf.remote(num_cpus=0.5, max_retries=3)
def crash_once(mark):
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return True


@sheaf.remote(num_cpus=0.5)
def nap():
    time.sleep(WAIT_S)


@sheaf.remote(num_cpus=0.5)
def items(n):
    for i in range(n):
        yield numpy.full(1000, i)


@sheaf.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, n):
        self.value += n
        return self.value

    def crash(self):
        os._exit(1)


@sheaf.remote(num_cpus=0)
class Async:
    async def add(self, a, b):
        await asyncio.sleep(0.001)
        return a + b


def failed(ref, *kinds):
    try:
        sheaf.get(ref, timeout=WAIT_S)
    except kinds:
        return True
    return False


def round_of_all(scratch: pathlib.Path, seed: random.Random) -> None:
    """Some of everything; AssertionError: something came out wrong. Nothing of it is left but
    garbage."""
    count = seed.randrange(50, 400)
    assert sheaf.get([double.remote(i) for i in range(count)], timeout=WAIT_S) == [
        2 * i for i in range(count)
    ]
    assert sheaf.get(nested.remote(20), timeout=WAIT_S) == 380
    counters = [Counter.remote() for _ in range(seed.randrange(1, 4))]
    for counter in counters:
        assert sheaf.get([counter.add.remote(1) for _ in range(50)], timeout=WAIT_S)[-1] == 50
    assert failed(counters[0].crash.options(max_task_retries=0).remote(), RayActorError)
    assert sheaf.get(counters[0].add.remote(1), timeout=WAIT_S) == 1  # Restarted.
    sheaf.kill(counters[-1])
    assert failed(counters[-1].add.remote(1), ActorDiedError)
    asynchronous = Async.remote()
    assert sheaf.get([asynchronous.add.remote(i, 1) for i in range(50)], timeout=WAIT_S) == list(
        range(1, 51)
    )
    arrays = [
        sheaf.put(numpy.full(seed.randrange(1 << 10, 1 << 20), i)) for i in range(20)
    ]  # Up to 160 MB; the store has 128.
    assert [int(sheaf.get(ref, timeout=WAIT_S)[0]) for ref in arrays] == list(range(20))
    assert sheaf.get([double.remote(ref) for ref in arrays[:5]], timeout=WAIT_S)[4][0] == 8
    assert [int(sheaf.get(ref, timeout=WAIT_S)[0]) for ref in items.remote(20)] == list(range(20))
    next(items.remote(20))  # The others are not taken.
    assert failed(crash.remote(), WorkerCrashedError)
    mark = scratch / f"{seed.random()}"
    assert sheaf.get(crash_once.remote(mark), timeout=WAIT_S)
    mark.unlink()
    sleeping = [nap.remote() for _ in range(12)]  # Running and waiting.
    for ref in sleeping:
        sheaf.cancel(ref, force=seed.random() < 0.2)
    assert all(failed(ref, TaskCancelledError, WorkerCrashedError) for ref in sleeping)
    group = sheaf.util.placement_group([{"CPU": 1}, {"CPU": 1}])
    assert group.wait(WAIT_S)
    sheaf.util.remove_placement_group(group)


def processes() -> list[int]:
    """This process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found


def own_mib(pid: int) -> float:
    """Memory that is no file's and not shared with other processes, as far as it is this one's."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss_Anon:")) / 1024
    except OSError:
        return 0


def descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def measure() -> dict[str, float]:
    """When nothing is pending any more: what the node holds, and what its processes cost."""
    deadline = time.monotonic() + WAIT_S

    def goes_on(row: state.Row) -> bool:
        return row.state not in ("FINISHED", "FAILED")

    while any(map(goes_on, state.list_tasks(limit=1))) or any(  # Those stand first.
        row.state != "DEAD" for row in state.list_actors(limit=1 << 30)
    ):
        assert time.monotonic() < deadline, (state.list_tasks(), state.list_actors())
        time.sleep(0.02)
    found = processes()
    node = found[1] if len(found) > 1 else 0
    return {
        "processes": len(found),
        "descriptors of the driver": descriptors(found[0]),
        "descriptors of the node": descriptors(node),
        "MiB of the driver": own_mib(found[0]),
        "MiB of the node": own_mib(node),
        "objects": len(state.list_objects(limit=1 << 30)),
    }


# What the median of the last third may lie above that of the first. Of processes: as many as there
# are CPUs may be idle, once there was work for so many at one time.
ALLOWED = {
    "processes": 4, "descriptors of the driver": 2, "descriptors of the node": 8, "MiB of the driver": 4, "MiB of the node": 8, "objects": 0,
}  # fmt: skip


def grown(samples: list[dict[str, float]]) -> tuple[list[str], list[str]]:
    """(a line for each figure, those that grew more than they may)."""
    third = max(1, len(samples) // 3)
    lines, wrong = [], []
    for name, allowed in ALLOWED.items():
        begin, end = (
            statistics.median(sample[name] for sample in part)
            for part in (samples[:third], samples[-third:])
        )
        lines.append(
            f"{name}: {begin:.1f}, at the end {end:.1f}, at most "
            f"{max(sample[name] for sample in samples):.1f}"
        )
        if end > begin + allowed:
            wrong.append(f"{name} grew from {begin:.1f} to {end:.1f}; {allowed} more would do")
    return lines, wrong


def run(seconds: float, seed: int) -> tuple[int, list[str], list[str]]:
    """(rounds, a line for each figure, what grew); needs a session."""
    source = random.Random(seed)
    samples: list[tuple[float, dict[str, float]]] = []
    begin, rounds = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.monotonic() - begin < seconds or len(samples) < 3:
            round_of_all(pathlib.Path(scratch), source)
            rounds += 1
            if time.monotonic() - begin >= seconds / 5:
                samples.append((time.monotonic(), measure()))
    return rounds, *grown([sample for _, sample in samples])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    sheaf.init(num_cpus=4, object_store_memory=128 << 20, log_to_driver=False)
    rounds, lines, wrong = run(60 * arguments.minutes, arguments.seed)
    print(
        f"{rounds} rounds in {arguments.minutes:g} minutes, seed {arguments.seed}",
        *lines,
        *wrong,
        sep="\n",
    )
    sheaf.shutdown()
    left = processes()[1:]
    if left:
        wrong.append(f"processes {left} are left after shutdown")
        print(wrong[-1])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

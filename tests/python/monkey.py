# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Random legal programs from the whole API against a plain sequential model, with faults, on one
and three nodes.

    ./do python tests/python/monkey.py --seconds 60 --nodes 3
    ./do python tests/python/monkey.py --replay 17-4             # the fourth program of seed 17, as
    it was drawn ./do python tests/python/monkey.py --only nested_references  # one extreme step
    again and again

Each program is a driver of its own that joins a cluster which stays. It draws ordinary steps
(monkey_steps.py) and extreme ones (monkey_extremes.py); its model (monkey_world.py) says what each
reference must be. Beside it, as the seed says, workers are killed, processes stand still, or a node
crashes. A program fails when a result is wrong, a wait has no end, its process crashes, or when
something of it is held 30 s after its end; memory of the nodes' daemons shall stay flat. With
RUNTIME=ray the programs run on Ray, which tells whether the model is right. Exit status 1: a
program failed; its seed is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

STORE_BYTES = 200 << 20
PROGRAM_S = 240  # No program takes longer.
QUIET_S = 30
FAULTS = ("none", "none", "pauses", "workers")
FAULTS_OF_NODES = (*FAULTS, "nodes")
FLAT_MIB = 16  # What the median of a daemon's memory in the last third may lie above the first.


def play(
    program: str, faults: str, nodes: int, address: str, only: str, without: list[str]
) -> None:
    """One program, in this process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    import monkey_extremes
    import monkey_steps
    from monkey_remote import ray
    from monkey_world import World

    if address:
        ray.init(address=address, log_to_driver=False, namespace=program)
    else:
        ray.init(
            num_cpus=4, object_store_memory=STORE_BYTES, log_to_driver=False, namespace=program
        )
    monkey_steps.STEPS[:] = [one for one in monkey_steps.STEPS if one[1].__name__ not in without]
    world = World(program, faults, STORE_BYTES, nodes)
    if only:
        monkey_extremes.draw(world, only)
    else:
        extreme_at = world.rng.randrange(30)  # In about half of the programs.
        for i in range(world.rng.randrange(5, 30)):
            if i == extreme_at:
                monkey_extremes.draw(world)
            monkey_steps.draw(world)
    world.say("the end: look at all")
    world.look_all(list(world.items))
    for actor in world.actors:
        if actor.detached:
            ray.kill(actor.handle)
    world.say(f"over; {world.ended} results were taken by faults")
    ray.shutdown()


class Nodes:
    """The cluster that stays, and what happens to it."""

    def __init__(self, count: int):
        from sheaf.cluster_utils import Cluster

        self.count = count
        self.cluster = Cluster()
        for _ in range(count):
            self.add()

    def add(self) -> None:
        self.cluster.add_node(num_cpus=4 if self.count == 1 else 2, object_store_memory=STORE_BYTES)

    def sessions(self) -> dict[int, str]:
        return {node.os_pid: node.session for node in self.cluster.list_all_nodes()}

    def below(self, pid: int) -> list[int]:
        """The processes below one."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError, IndexError):
                    fields = (
                        pathlib.Path(f"/proc/{entry}/stat")
                        .read_text(errors="replace")
                        .rpartition(")")[2]
                        .split()
                    )
                    if fields[0] != "Z":
                        children.setdefault(int(fields[1]), []).append(int(entry))
        found = [pid]
        for one in found:
            found += children.get(one, [])
        return found[1:]

    def disturb(self, faults: str, rng: random.Random, trace: list[str]) -> None:
        """One fault."""
        nodes = self.cluster.list_all_nodes()
        workers = [pid for node in nodes for pid in self.below(node.os_pid)]
        if faults == "nodes" and len(nodes) == self.count and rng.random() < 0.1:
            node = rng.choice(self.cluster.worker_nodes)
            trace.append(f"{time.strftime('%T')} node {node.node_number} crashes")
            below = self.below(node.os_pid)
            self.cluster.remove_node(node, allow_graceful=False)
            for pid in below:
                _signal(pid, signal.SIGKILL)
            self.add()
        elif faults in ("workers", "nodes") and workers:
            pid = rng.choice(workers)
            trace.append(f"{time.strftime('%T')} process {pid} is killed")
            _signal(pid, signal.SIGKILL)
        elif faults == "pauses":
            pid = rng.choice([*workers, *self.sessions()])
            trace.append(f"{time.strftime('%T')} process {pid} stands still")
            _signal(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0.05, 1.5))
            _signal(pid, signal.SIGCONT)

    def held(self) -> list[str]:
        """What is held though no driver is there."""
        from monkey_world import status

        words = []
        for session in self.sessions().values():
            told = status(session)
            words += [
                f"{session}: {name} {told['store'][name]}"
                for name in ("objects", "pinned_bytes", "spilled_bytes")
                if told["store"][name]
            ]
            words += [
                f"{session}: node {row['node']} has {row['available']} of {row['total']}"
                for row in told["nodes"] if row["state"] == "ALIVE" and row["available"] != row["total"]
            ]  # fmt: skip
        return words

    def memory(self) -> dict[str, float]:
        from monkey_world import own_mib

        return {
            f"node {node.node_number}": own_mib(node.os_pid)
            for node in self.cluster.list_all_nodes()
        }


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def run_program(
    nodes: Nodes, program: str, faults: str, only: str, without: str
) -> tuple[str, str]:
    """(what went wrong or "", what the program said)."""
    rng = random.Random(f"faults of {program}")
    trace: list[str] = []
    with tempfile.NamedTemporaryFile("w+", prefix="monkey-", suffix=".log") as log:
        command = [
            sys.executable,
            os.path.abspath(__file__),
            "--play",
            program,
            "--faults",
            faults,
            "--nodes",
            str(nodes.count),
            # fmt: skip
            "--address",
            nodes.cluster.address,
            "--only",
            only,
            "--without",
            without,
        ]
        child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        begin = time.monotonic()
        try:
            next_fault = begin + rng.uniform(0.3, 1.5)
            while child.poll() is None and time.monotonic() < begin + PROGRAM_S:
                if faults != "none" and time.monotonic() > next_fault:
                    nodes.disturb(faults, rng, trace)
                    next_fault = time.monotonic() + rng.uniform(0.1, 2)
                time.sleep(0.01)
            wrong = ""
            if child.poll() is None:
                wrong = f"does not end within {PROGRAM_S} s"
                _signal(child.pid, signal.SIGUSR1)
                time.sleep(1)
            elif child.returncode < 0:
                wrong = f"ended by {signal.Signals(-child.returncode).name}"
            elif child.returncode > 0:
                wrong = f"exit status {child.returncode}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said = pathlib.Path(log.name).read_text(errors="replace")
    gone = [
        session for pid, session in nodes.sessions().items() if not os.path.exists(f"/proc/{pid}")
    ]
    if gone and not wrong:
        wrong = f"the node at {gone[0]} died"
    if not wrong:
        deadline = time.monotonic() + QUIET_S
        while words := nodes.held():
            if time.monotonic() > deadline:
                wrong = f"still held {QUIET_S} s after its end: {'; '.join(words)}"
                break
            time.sleep(0.05)
    return wrong, said + "".join(f"  fault: {line}\n" for line in trace)


def programs(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(id, faults) of each in turn."""
    number = 0
    while True:
        program = arguments.replay or f"{arguments.seed}-{number}"
        drawn = random.Random(f"kind of {program}").choice(
            FAULTS_OF_NODES if arguments.nodes > 1 else FAULTS
        )
        yield program, arguments.faults or drawn
        number += 1


def supervise(arguments: argparse.Namespace) -> int:
    print(
        f"monkey: seed {arguments.seed}, {arguments.nodes} "
        f"node{'s' if arguments.nodes > 1 else ''}",
        flush=True,
    )
    from sheaf.lifecycle import executable

    os.environ.setdefault("SHEAF_EXECUTABLE", executable())
    begin, count, failed = time.monotonic(), 0, []
    memory: list[dict[str, float]] = []
    nodes = Nodes(arguments.nodes)
    os.environ["MONKEY_SESSION"] = nodes.cluster.address
    try:
        for program, faults in programs(arguments):
            late = count > 0 and time.monotonic() - begin > arguments.seconds
            if count >= arguments.programs if arguments.programs else late:
                break
            wrong, said = run_program(nodes, program, faults, arguments.only, arguments.without)
            count += 1
            if arguments.verbose:
                print(f"program {program}, faults {faults}:\n{said}", flush=True)
            if wrong:
                failed.append(program)
                print(
                    f"FAILED: program {program}, faults {faults}: "
                    f"{wrong}\n{said[-arguments.tail :]}",
                    flush=True,
                )
                print(
                    f"again: ./do python tests/python/monkey.py --replay {program} "
                    f"--faults {faults} --nodes {arguments.nodes}",
                    flush=True,
                )
                if not arguments.keep_going:
                    break
                nodes.cluster.shutdown()
                nodes = Nodes(arguments.nodes)
                os.environ["MONKEY_SESSION"] = nodes.cluster.address
                memory.clear()
            else:
                memory.append(nodes.memory())
            if arguments.replay:
                break
    finally:
        nodes.cluster.shutdown()
    grown = _grown(memory)
    for line in grown:
        print(line, flush=True)
    seconds = time.monotonic() - begin
    print(
        f"monkey: {count} programs in {seconds:.0f} s, seed {arguments.seed}, "
        f"{arguments.nodes} nodes, {len(failed)} failed {' '.join(failed)}",
        flush=True,
    )
    return 1 if failed or any("GREW" in line for line in grown) else 0


def _grown(memory: list[dict[str, float]]) -> list[str]:
    """A line for each daemon that was there from begin to end."""
    warm = memory[len(memory) // 5 :]
    third = len(warm) // 3
    if third < 3:
        return []
    lines = []
    for name in warm[-1]:
        samples = [sample[name] for sample in warm if name in sample]
        if len(samples) == len(warm):
            first, last = statistics.median(samples[:third]), statistics.median(samples[-third:])
            word = "GREW" if last > first + FLAT_MIB else "flat"
            lines.append(
                f"monkey: memory of {name}: {first:.0f} MiB, at the end {last:.0f} "
                f"MiB, at most {max(samples):.0f}: {word}"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30, help="how long new programs are begun")
    parser.add_argument(
        "--programs", type=int, default=0, help="how many programs are run, however long they take"
    )
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--faults",
        choices=sorted(set(FAULTS_OF_NODES)),
        help="for all programs; default: drawn for each",
    )
    parser.add_argument("--only", default="", help="an extreme step: nothing else")
    parser.add_argument(
        "--without", default="", help="ordinary steps that are not drawn, with commas"
    )
    parser.add_argument("--replay", default="", help="one program, SEED-NUMBER")
    parser.add_argument(
        "--keep-going", action="store_true", help="after a failure too, on a new cluster"
    )
    parser.add_argument(
        "--tail",
        type=int,
        default=6000,
        help="how many characters of a failed program's words are printed",
    )
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--play", default="", help=argparse.SUPPRESS)
    parser.add_argument("--address", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        play(
            arguments.play,
            arguments.faults or "none",
            arguments.nodes,
            arguments.address,
            arguments.only,
            arguments.without.split(","),
        )
        return 0
    return supervise(arguments)


if __name__ == "__main__":
    sys.exit(main())

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows `programs` and `ports`: the C++ programs of the main job on three nodes, and what a node listens on."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, is_running, wait_until
from packet_switch import Missing

SOURCE = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = pathlib.Path(shutil.which(SHEAF) or SHEAF).resolve().parents[1] / "examples"
LIMIT_S = 150


def answers(output: str) -> list:
    """What a program computed: its lines but for times, places and speeds."""
    kept = []
    for line in output.replace("\r", "\n").splitlines():
        line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).strip()
        if re.match(r"(actor|actors|tasks|calls|steps|one by one)\b", line) or re.search(r"^\d+ of|\.\.\.", line):
            continue
        line = re.sub(r",? in [\d.]+ m?s\b.*", "", line)
        if re.match(r"(input|words|state|images|accuracy|check) ", line) or "█" in line:
            kept.append(re.sub(r"\s+", " ", line))
    return kept


class Program:
    """One of the examples, in the namespace of a node, or with a node of its own."""

    def __init__(self, name, arguments, cluster=None, place=2):
        program = EXAMPLES / name
        if not program.exists():
            raise Missing(f"the program {program} is not built")
        environment = {key: value for key, value in os.environ.items() if key not in ("SHEAF_ADDRESS", "SHEAF_DIR")}
        environment["SHEAF_EXECUTABLE"] = os.path.abspath(shutil.which(SHEAF))
        command = [str(program), *arguments]
        if cluster is not None:
            environment |= {"SHEAF_ADDRESS": cluster.nodes[place].session, "SHEAF_DIR": cluster.directory}
            command = [*cluster.network.within(place), *command]
        else:
            environment["SHEAF_DIR"] = os.environ["SHEAF_DIR"] + "-alone"
        self.name = name
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def answers(self):
        try:
            output, _ = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.name} did not end within {LIMIT_S} s: {self.process.communicate()[0][-3000:]}") from None
        assert self.process.returncode == 0, f"{self.name} ended with {self.process.returncode}: {output[-3000:]}"
        return answers(output)


def texts(cluster, run):
    """A folder of sources that nobody edits meanwhile."""
    folder = os.path.join(cluster.scratch, "texts")
    files = sorted((SOURCE / "raylet").glob("*.cc")) + sorted((SOURCE / "worker").glob("*.cc"))
    for copy in range(run.count(4, 20)):
        target = os.path.join(folder, str(copy))
        os.makedirs(target)
        for file in files:
            shutil.copy(file, target)
    return folder


STATEFUL = ("Counter", "ParameterServer")  # Actors that nobody could make again.


def node_to_lose(cluster, program, name):
    """A node that the program can lose: not its own, nor that of an actor with state. It hosts work of the program, but for
    `counter`, which is one actor alone. None: the program has ended."""
    while program.process.poll() is None:
        actors = [row for row in cluster.ask(2, "list", "actors")["actors"] if row["state"] == "ALIVE"]
        home = {int(row["process"].split(".")[0]) for row in actors if any(word in row["class_name"] for word in STATEFUL)}
        if not home and name != "word_count":
            continue  # It is not made yet.
        for place in (4, 3):
            workers = cluster.ask(place, "list", "workers")["workers"]
            if cluster.nodes[place].number not in home and (name == "counter" or any(row["state"] in ("LEASED", "ACTOR") for row in workers)):
                return place
    return None


def row_programs(run):
    """word_count, counter and digits give the same answers alone, on three nodes, and when one of them dies meanwhile."""
    words = []
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        programs = {"word_count": [texts(cluster, run)], "counter": [str(run.count(100_000, 1_000_000))], "digits": []}
        for name, arguments in programs.items():
            alone = Program(name, arguments).answers()
            assert alone, "nothing was computed"
            assert Program(name, arguments, cluster).answers() == alone
            program = Program(name, arguments, cluster)
            victim = node_to_lose(cluster, program, name)
            assert victim is not None, f"{name} ended before another node had work of it"
            cluster.crash(victim)
            assert program.answers() == alone
            cluster.start(victim, 2)
            words.append(f"{name}: node {victim}")
        run.figures("the same answers alone, on three nodes, and with a node killed in the middle (" + ", ".join(words) + ")")


def listeners(pids) -> set:
    """(address in hexadecimal, port) of what these processes listen on, TCP of both kinds."""
    owned = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                    if target.startswith("socket:["):
                        owned.add(target[8:-1])
    found = set()
    for pid in pids:
        for kind in ("tcp", "tcp6"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{kind}", encoding="ascii") as file:
                for line in list(file)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[9] in owned:
                        address, port = fields[1].split(":")
                        found.add((address, int(port, 16)))
    return found


def is_loopback(address: str) -> bool:
    return address.endswith("7F") if len(address) == 8 else address == "00000000000000000000000001000000"


def row_ports(run):
    """Beyond loopback a node of a cluster listens on one port, and a node of one program on none; with work running."""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)

        @sheaf.remote(num_cpus=0.1)
        def there(array):
            return int(array.sum())

        import numpy as np

        array = sheaf.put(np.ones(1 << 20))
        assert sheaf.get([there.options(resources={f"n{place}": 1}).remote(array) for place in (2, 3, 3)], timeout=WAIT_S) == [1 << 20] * 3
        counted = []
        addresses = {row["node"]: row["address"] for row in cluster.ask(1, "status")["nodes"]}
        for place, node in cluster.nodes.items():
            heard = listeners(cluster.processes(place))
            beyond = [port for address, port in heard if not is_loopback(address)]
            assert beyond == [int(addresses[node.number].rsplit(":", 1)[1])], heard
            inside = [port for address, port in heard if is_loopback(address)]
            assert inside == [int(re.search(r":(\d+)/", node.metrics_url).group(1))], heard
            counted.append(len(heard))
        # A program that starts a node of its own.
        program = ("import sheaf, sys; sheaf.init(num_cpus=1); f = sheaf.remote(lambda: 1); assert sheaf.get(f.remote()) == 1; "
                   "print('up', flush=True); sys.stdin.read()")
        alone = subprocess.Popen([*cluster.network.within(3), sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env=os.environ | {"SHEAF_DIR": cluster.directory + "-alone"})
        assert alone.stdout.readline() == "up\n"
        mark = f"SHEAF_DIR={cluster.directory}-alone".encode()
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and is_running(int(entry)) and mark in environment_of(entry)]
        assert len(pids) >= 3, pids  # Program, node, worker.
        beyond = [port for address, port in listeners(pids) if not is_loopback(address)]
        assert not beyond, beyond
        alone.send_signal(signal.SIGTERM) if run.random.random() < 0.5 else alone.stdin.close()
        alone.wait(WAIT_S)
        alone.stdout.close()
        wait_until(lambda: not [pid for pid in pids if is_running(pid)], what="the program's node has ended")
        run.figures(f"three nodes with work: one port each beyond loopback and the page of metrics on it ({counted} in all); a program with its own "
                    "node: none beyond loopback")


def environment_of(pid) -> list:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")
    return []

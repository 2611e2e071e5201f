# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows `programs` and `ports`: the C++ programs of the main job on three nodes, and what a node
listens on."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

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
        if (
            re.match(r"\d+ workers?\b", line)
            or re.match(r"(actor|actors|tasks|calls|steps|one by one)\b", line)
            or re.search(r"^\d+ of|\.\.\.", line)
        ):
            continue
        line = re.sub(r",? in [\d.]+ m?s\b.*", "", line)
        line = re.sub(
            r"(the weights of one process) to \S+", r"\1", line
        )  # To rounding, which the program judges.
        if re.match(r"(input|words|state|images|accuracy|check) ", line) or "█" in line:
            kept.append(re.sub(r"\s+", " ", line))
    return kept


class Program:
    """One of the examples, in the namespace of a node, or with a node of its own."""

    def __init__(self, name, arguments, cluster=None, place=2):
        program = EXAMPLES / name
        if not program.exists():
            raise Missing(f"the program {program} is not built")
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("SHEAF_ADDRESS", "SHEAF_DIR")
        }
        environment["SHEAF_EXECUTABLE"] = os.path.abspath(shutil.which(SHEAF))
        command = [str(program), *arguments]
        if cluster is not None:
            environment |= {
                "SHEAF_ADDRESS": cluster.nodes[place].session,
                "SHEAF_DIR": cluster.directory,
            }
            command = [*cluster.network.within(place), *command]
        else:
            environment["SHEAF_DIR"] = os.environ["SHEAF_DIR"] + "-alone"
        self.name, self.said = name, ""
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        with self.process.stdout as lines:
            for line in lines:
                self.said += line

    def is_running(self):
        return self.process.poll() is None

    def await_line(self, label):
        wait_until(
            lambda: re.search(rf"^ *{label} ", self.said, flags=re.M) or not self.is_running(),
            LIMIT_S,
            f"{self.name} says '{label}'",
        )

    def answers(self):
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"{self.name} did not end within {LIMIT_S} s: {self.said[-3000:]}"
            ) from None
        self.reader.join(WAIT_S)
        assert self.process.returncode == 0, (
            f"{self.name} ended with {self.process.returncode}: {self.said[-3000:]}"
        )
        return answers(self.said)


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
RANKS = 4  # Of train_digits.
WORKS = {
    "word_count": "input",
    "counter": "actor",
    "digits": "actors",
    "train_digits": "images",
}  # The last line before the work.


def busy_workers(cluster, place) -> list:
    """Of the node there, those that run a task or have an actor."""
    rows = cluster.ask(2, "list", "workers")["workers"]  # Of all nodes.
    return [
        row
        for row in rows
        if int(row["process"].split(".")[0]) == cluster.nodes[place].number
        and row["state"] in ("LEASED", "ACTOR")
    ]


def node_to_lose(cluster, program):
    """A node that the program can lose: not its own, nor that of an actor with state. It hosts work
    of the program, but for `counter`, which is one actor alone. None: the program has ended, or it
    has no such node."""
    begin = time.monotonic()
    while program.is_running() and time.monotonic() - begin < WAIT_S:
        actors = [
            row for row in cluster.ask(2, "list", "actors")["actors"] if row["state"] == "ALIVE"
        ]
        home = {
            int(row["process"].split(".")[0])
            for row in actors
            if any(word in row["class_name"] for word in STATEFUL)
        }
        if not home and program.name in ("counter", "digits"):
            continue  # It is not made yet.
        states = {
            place: [row["state"] for row in busy_workers(cluster, place)] for place in (2, 3, 4)
        }
        if (
            program.name == "train_digits"
            and sum(words.count("ACTOR") for words in states.values()) < RANKS
        ):
            continue  # What is leased until then may be of no use in the end.
        for place in (4, 3):
            works = (
                "ACTOR" in states[place]
                or "LEASED" in states[place]
                and program.name != "train_digits"
            )
            if cluster.nodes[place].number not in home and (program.name == "counter" or works):
                return place
    return None


def cpu_seconds(pid) -> float:
    """That a process has used. 0: there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def lose_a_node(cluster, run, name, arguments):
    """Runs the program, and one of the nodes that work for it dies. What the program computed, and
    which node that was."""
    for _ in range(5):  # It may be over before we are ready.
        program = Program(name, arguments, cluster)
        program.await_line(WORKS[name])
        if name == "digits":  # A second is all that it takes: it waits until the node is found.
            program.process.send_signal(signal.SIGSTOP)
        victim = node_to_lose(cluster, program)
        if name == "digits":
            program.process.send_signal(signal.SIGCONT)
            time.sleep(run.random.uniform(0, 0.1))
        if victim is None:
            program.answers()
            continue
        if name == "train_digits":  # In some step: the ranks have to meet first.
            ranks = [row["os_pid"] for row in busy_workers(cluster, victim)]
            begin = sum(map(cpu_seconds, ranks))
            wait_until(
                lambda: sum(map(cpu_seconds, ranks)) > begin + 0.1 or not program.is_running(),
                LIMIT_S,
                "the ranks compute",
            )
        cluster.crash(victim)
        in_the_middle = program.is_running()
        result = program.answers()
        cluster.start(victim, 2)
        wait_until(
            lambda: (
                len([row for row in cluster.ask(2, "status")["nodes"] if row["state"] == "ALIVE"])
                == 4
            ),
            what="the new node is seen",
        )
        if name == "train_digits":
            in_the_middle = (
                program.said.count("s after the loss") >= 2
            )  # The worker that it kills itself, and ours.
        if in_the_middle:
            return result, victim
    raise AssertionError(
        f"{name} always ended before a node that worked for it could die: {program.said}"
    )


def row_programs(run):
    """The C++ programs of the main job give the same answers alone, on three nodes, and when one of
    them dies meanwhile. Each compares its words, or weights, with those of one process by itself,
    and ends with an error if they differ; the long form compares runs as well."""
    words = []
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        programs = {"word_count": [texts(cluster, run)], "digits": [], "train_digits": ["160"]}
        if run.long:
            programs["counter"] = ["1000000"]
        for name, arguments in programs.items():
            result, victim = lose_a_node(cluster, run, name, arguments)
            assert result, "nothing was computed"
            if run.long:
                assert answers_alone(name, arguments) == result
                assert Program(name, arguments, cluster).answers() == result
            words.append(f"{name}: node {victim}")
        same = (
            "the same answers alone, on three nodes, and with"
            if run.long
            else "right answers on three nodes with"
        )
        run.figures(f"{same} a node killed in the middle ({', '.join(words)})")


def answers_alone(name, arguments):
    return Program(name, arguments).answers()


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
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/net/{kind}", encoding="ascii") as file,
            ):
                for line in list(file)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and fields[9] in owned:
                        address, port = fields[1].split(":")
                        found.add((address, int(port, 16)))
    return found


def is_loopback(address: str) -> bool:
    return (
        address.endswith("7F")
        if len(address) == 8
        else address == "00000000000000000000000001000000"
    )


def row_ports(run):
    """Beyond loopback a node of a cluster listens on one port, and a node of one program on none;
    with work running."""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)

        @sheaf.remote(num_cpus=0.1)
        def there(array):
            return int(array.sum())

        import numpy as np

        array = sheaf.put(np.ones(1 << 20))
        assert (
            sheaf.get(
                [there.options(resources={f"n{place}": 1}).remote(array) for place in (2, 3, 3)],
                timeout=WAIT_S,
            )
            == [1 << 20] * 3
        )
        counted = []
        addresses = {row["node"]: row["address"] for row in cluster.ask(1, "status")["nodes"]}
        for place, node in cluster.nodes.items():
            heard = listeners(cluster.processes(place))
            beyond = [port for address, port in heard if not is_loopback(address)]
            assert beyond == [int(addresses[node.number].rsplit(":", 1)[1])], heard
            # Inside: its metrics, and on the head the dashboard.
            inside = {port for address, port in heard if is_loopback(address)}
            urls = [node.metrics_url]
            if place == 1:
                urls.append((pathlib.Path(node.session) / "dashboard").read_text().strip() + "/")
            assert inside == {int(re.search(r":(\d+)/", url).group(1)) for url in urls}, heard
            counted.append(len(heard))
        # A program that starts a node of its own.
        program = (
            "import sheaf, sys; sheaf.init(num_cpus=1); f = sheaf.remote(lambda: "
            "1); assert sheaf.get(f.remote()) == 1; "
            "print('up', flush=True); sys.stdin.read()"
        )
        alone = subprocess.Popen(
            [*cluster.network.within(3), sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"SHEAF_DIR": cluster.directory + "-alone"},
        )
        assert alone.stdout.readline() == "up\n"
        mark = f"SHEAF_DIR={cluster.directory}-alone".encode()
        pids = [
            int(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit() and is_running(int(entry)) and mark in environment_of(entry)
        ]
        assert len(pids) >= 3, pids  # Program, node, worker.
        beyond = [port for address, port in listeners(pids) if not is_loopback(address)]
        assert not beyond, beyond
        alone.send_signal(signal.SIGTERM) if run.random.random() < 0.5 else alone.stdin.close()
        alone.wait(WAIT_S)
        alone.stdout.close()
        wait_until(
            lambda: not [pid for pid in pids if is_running(pid)],
            what="the program's node has ended",
        )
        run.figures(
            "three nodes with work: one port each beyond loopback and the page of "
            f"metrics on it ({counted} in all); a program with its own "
            "node: none beyond loopback"
        )


def environment_of(pid) -> list:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")
    return []

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the fault rows of several nodes share: nodes in namespaces of a Network, and the oracle of
every row.

O1  each call ends in one value or typed error in bounded time: `outcome` has a bound, and running
out of it fails O2  a value is F(seed, id): `expected`, `array_of`
O4  `close`: with no driver left nothing is held on any node: no objects, pins, leases or spilled
files, and all resources
    free; after the nodes' end no process of theirs and nothing in /dev/shm is left
O5  a call without retries ran at most once: `Marks`
O6  daemons live that the row does not end
"""

import collections
import contextlib
import glob
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import numpy as np
import sheaf
from packet_switch import Network, address_of

WAIT_S = 30  # The bound of what should come at once, on a machine that may be busy.
SHEAF = os.environ.get("SHEAF_EXECUTABLE", "sheaf")
HELD_STATES = ("LEASED", "BLOCKED", "ACTOR")


def expected(seed: int, number: int) -> int:
    x = (seed * 0x9E3779B97F4A7C15 + number) & ((1 << 64) - 1)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        x = ((x ^ (x >> 30)) * factor) & ((1 << 64) - 1)
    return x ^ (x >> 31)


def array_of(seed: int, number: int, size_bytes: int) -> np.ndarray:
    return np.random.default_rng(expected(seed, number)).integers(
        0, 1 << 62, size_bytes // 8, dtype=np.int64
    )


def wait_until(condition, seconds: float = WAIT_S, what: str = "") -> float:
    """The seconds that it took."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds} s: {what or condition}")
        time.sleep(0.02)
    return time.monotonic() - begin


def outcome(reference, seconds: float = WAIT_S):
    """(value, None) or (None, typed error). AssertionError: neither came in time."""
    try:
        return sheaf.get(reference, timeout=seconds), None
    except sheaf.exceptions.GetTimeoutError:
        raise AssertionError(
            f"neither a value nor an error within {seconds} s: {reference}"
        ) from None
    except sheaf.exceptions.RayError as error:
        return None, error


class Marks:
    """Counts executions across processes: a file to which each run appends its call's number, who
    runs it and when."""

    RECORD = struct.Struct("<qqq")

    def __init__(self, directory: str, name: str = "marks"):
        self.path = os.path.join(directory, name)
        with open(self.path, "wb"):
            pass

    @staticmethod
    def add(path: str, call: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, Marks.RECORD.pack(call, os.getpid(), time.monotonic_ns()))
        os.close(descriptor)

    def all(self) -> list:
        """(call, process, monotonic ns) in the order in which they were written."""
        with open(self.path, "rb") as file:
            return list(self.RECORD.iter_unpack(file.read()))

    def counts(self) -> dict:
        return collections.Counter(call for call, _, _ in self.all())


class Node:
    def __init__(self, place: int, said: dict, is_head: bool):
        self.place, self.is_head = place, is_head  # Its namespace.
        self.session, self.pid, self.number = said["session"], said["os_pid"], said["node"]
        self.address, self.metrics_url = said["address"], said["metrics_url"]

    @property
    def node_id(self) -> str:
        return f"{self.number:056x}"

    def is_running(self) -> bool:
        return is_running(self.pid)

    def log(self) -> str:
        """Of its daemon, and of a head's GCS behind it."""
        text = ""
        for name in ("node.log", "gcs.log"):
            with (
                contextlib.suppress(FileNotFoundError),
                open(
                    os.path.join(self.session, "logs", name), encoding="utf-8", errors="replace"
                ) as file,
            ):
                text += file.read()
        return text


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def stop(pid: int) -> None:
    """SIGSTOP, and all threads have stopped: on a busy machine others run on until the one that
    takes the signal is scheduled."""
    os.kill(pid, signal.SIGSTOP)

    def has_stopped():
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] not in "TZX":
                        return False
        except OSError:  # It ended between the two.
            return False
        return True

    wait_until(has_stopped, what=f"all threads of {pid} have stopped")


class Cluster:
    """A head and more nodes, each in a namespace of its own. Place 1 is the head's.

    A node at place N has the resource nN, 100 of it. Ends with `close`, or in a `with` statement.
    """

    def __init__(
        self,
        cpus=(0, 2, 2),
        store_mib: int = 64,
        seed: int = 0,
        mtu: int = 16000,
        head_flags=(),
        head_environment=None,
        node_flags=(),
    ):
        self._scratch = tempfile.TemporaryDirectory(prefix="sheaf-fault-")
        self.directory = os.path.join(self._scratch.name, "sheaf")
        self.scratch = self._scratch.name
        os.environ["SHEAF_DIR"] = self.directory  # Marks all processes of this cluster.
        os.environ["SHEAF_STATE_IN_MEMORY"] = "1"  # As /tmp may be.
        self._shared_memory = set(os.listdir("/dev/shm"))
        self.store_mib = store_mib
        self.nodes = {}
        self.head_address = f"{address_of(1)}:6379"  # What nodes that join dial.
        self.network = Network(len(cpus), seed, mtu)
        try:
            for place, count in enumerate(cpus, 1):
                head = place == 1
                self.start(
                    place,
                    count,
                    [*(head_flags if head else ()), *node_flags],
                    head_environment if head else None,
                )
        except BaseException:
            self.kill_all()
            self.network.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
            return
        try:
            sheaf.shutdown()
        finally:
            self._show_logs()
            self.kill_all()
            self.network.close()
            self._scratch.cleanup()

    def start(
        self, place: int, cpus: float, flags=(), environment=None, prefix=(), head=None
    ) -> Node:
        """RuntimeError: it did not start, and what it said."""
        done = self.try_start(place, cpus, flags, environment, prefix, head)
        if done.returncode != 0:
            raise RuntimeError(f"the node at {place} did not start: {done.stderr.strip()}")
        self.nodes[place] = Node(
            place, json.loads(done.stdout), place == 1 if head is None else head
        )
        return self.nodes[place]

    def try_start(
        self, place: int, cpus: float, flags=(), environment=None, prefix=(), head=None
    ) -> subprocess.CompletedProcess:
        command = [
            *self.network.within(place),
            *prefix,
            SHEAF,
            "start",
            "--json",
            f"--dir={self.directory}",
            f"--num-cpus={cpus}",
            f"--host={address_of(place)}",
            f"--resources=n{place}:100",
            f"--object-store-memory={self.store_mib}MiB",
        ]
        if place == 1 if head is None else head:
            command += ["--head", "--port=6379"]
        else:
            command += [f"--address={self.head_address}", "--port=0"]
        return subprocess.run(
            [*command, *flags],
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def connect(self, place: int, **options) -> None:
        sheaf.init(
            address=self.nodes[place].session, log_to_driver=False, namespace="faults", **options
        )
        wait_until(
            lambda: self.alive() >= {node.node_id for node in self.nodes.values()},
            what="the driver sees all nodes",
        )

    def alive(self) -> set:
        """As the connected driver sees it."""
        return {row["NodeID"] for row in sheaf.nodes() if row["Alive"]}

    def is_alive(self, place: int) -> bool:
        return self.nodes[place].node_id in self.alive()

    def ask(self, place: int, *words) -> dict:
        """What the command line prints as JSON, of the node at `place`."""
        done = subprocess.run(
            [SHEAF, *words, "--json", f"--address={self.nodes[place].session}"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"sheaf {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def metric(self, place: int, name: str, label: str = "") -> float:
        """The sum over all lines of a metric of one node that contain `label`."""
        done = subprocess.run(
            [*self.network.within(place), "curl", "-s", self.nodes[place].metrics_url],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        lines = [
            line
            for line in done.stdout.splitlines()
            if line.startswith((name + " ", name + "{")) and label in line
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def processes(self, place: int | None = None) -> dict:
        """pid: command line of all living processes of this cluster, or of those in one
        namespace."""
        mark = f"SHEAF_DIR={self.directory}".encode()
        space = None if place is None else self._space(place)
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == os.getpid() or not is_running(int(entry)):
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if mark not in file.read().split(b"\0"):
                        continue
                if space is not None and os.stat(f"/proc/{entry}/ns/net").st_ino != space:
                    continue
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace")
        return found

    def _space(self, place: int) -> int:
        return os.stat(self.network.within(place)[1].split("=", 1)[1]).st_ino

    def crash(self, place: int) -> Node:
        """All of a node's processes die at once, as when a machine loses its power."""
        node = self.nodes.pop(place)
        for _ in range(3):  # A fork may be under way.
            for pid in self.processes(place):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return node

    def expect_end(self, place: int, seconds: float = WAIT_S) -> float:
        """The node ends by itself, with all its processes."""
        node = self.nodes.pop(place)
        return wait_until(
            lambda: not node.is_running() and not self.processes(place),
            seconds,
            f"{node.pid} and its processes end",
        )

    def kill_all(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def held(self) -> list:
        """What is held on any node, in words; empty when all is quiet."""
        words = []
        for place, node in self.nodes.items():
            status = self.ask(place, "status")
            store = status["store"]
            words += [
                f"node {node.number}: {name} {store[name]}"
                for name in ("objects", "pinned_bytes", "spilled_bytes")
                if store[name]
            ]
            for row in status["nodes"]:
                if row["state"] == "ALIVE" and row["available"] != row["total"]:
                    words.append(
                        f"node {row['node']} as node {node.number} sees it: "
                        f"{row['available']} of {row['total']}"
                    )
            words += [
                f"node {node.number}: worker {row}"
                for row in self.ask(place, "list", "workers")["workers"]
                if row["state"] in HELD_STATES
            ]
            words += [
                f"node {node.number}: {name}"
                for name in os.listdir(os.path.join(node.session, "spill"))
            ]
        return words

    def close(self) -> None:
        """O4 and O6, then the end of all nodes."""
        sheaf.shutdown()
        try:
            died = [str(node.pid) for node in self.nodes.values() if not node.is_running()]
            assert not died, f"daemons that died: {died}"
            words = []

            def quiet():
                words[:] = self.held()
                return not words

            try:
                took = wait_until(quiet, 45)
            except AssertionError:
                raise AssertionError(
                    "still held 45 s after the last driver:\n" + "\n".join(words)
                ) from None
            for node in sorted(self.nodes.values(), key=lambda node: (node.is_head, -node.place)):
                done = subprocess.run(
                    [SHEAF, "stop", f"--address={node.session}"],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                assert done.returncode == 0, done.stderr
            left = {}

            def gone():
                left.clear()
                left.update(self.processes())
                return not left

            try:
                wait_until(gone, 15)
            except AssertionError:
                raise AssertionError(f"processes that outlived their nodes: {left}") from None
            more = {
                name for name in os.listdir("/dev/shm") if "sheaf" in name
            } - self._shared_memory
            assert not more, f"left in /dev/shm: {more}"
            print(f"quiet {took:.2f} s after the last driver; nothing left", flush=True)
        except BaseException:
            self._show_logs()
            raise
        finally:
            self.kill_all()
            self.network.close()
            self._scratch.cleanup()

    def _show_logs(self) -> None:
        kept = os.environ.get("FAULT_LOGS")
        if not kept:
            print("FAULT_LOGS=FOLDER keeps the nodes' logs there", flush=True)
            return
        for session in glob.glob(os.path.join(self.directory, "session-*")):
            shutil.copytree(
                os.path.join(session, "logs"),
                os.path.join(kept, os.path.basename(session)),
                dirs_exist_ok=True,
            )
        print(f"the nodes' logs are in {kept}", flush=True)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Several nodes on this machine, for trying out programs and what happens to them when a node goes
away."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any

import sheaf
from sheaf._internal import absent
from sheaf.lifecycle import _executable, flag_of

_START_S = 30
_FLAGS = {
    "num_cpus": "--num-cpus",
    "num_gpus": "--num-gpus",
    "memory": "--memory",
    "object_store_memory": "--object-store-memory",
    "port": "--port",
}
_IGNORED = {"include_dashboard", "dashboard_port", "_system_config", "env_vars"}


class ClusterNode:
    """One node of a Cluster.

    Args:
        session: its session directory.
        os_pid: the process of its daemon.
        address: its HOST:PORT.
        number: its number in the cluster.
    """

    def __init__(self, session: str, os_pid: int, address: str, number: int):
        self.session = session
        self.os_pid = os_pid
        self.address = address
        self.node_number = number

    @property
    def node_id(self) -> str:
        """As sheaf.nodes() and the runtime context name it."""
        return f"{self.node_number:056x}"

    unique_id = node_id

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_number}, pid={self.os_pid})"


class Cluster:
    """A head and any number of further nodes, each a daemon of its own, in a temporary directory.

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        node = cluster.add_node(num_cpus=1, resources={"disk": 1})
        sheaf.init(address=cluster.address)
        cluster.remove_node(node)          # allow_graceful=False kills it
        cluster.shutdown()

    `address` names the head's session on this machine, `join_address` is its HOST:PORT. Not
    thread-safe.

    Args:
        initialize_head: whether the head is started at once.
        connect: whether this process joins it then, as sheaf.init does.
        head_node_args: what add_node takes, for the head.
        shutdown_at_exit: whether the nodes end with this process, however that ends.

    Raises:
        RuntimeError: the head does not start; with what it said.
        TypeError: an argument of the head is unknown.
        FileNotFoundError: the program `sheaf` is neither in this package nor in PATH.
    """

    def __init__(
        self,
        initialize_head: bool = False,
        connect: bool = False,
        head_node_args: dict[str, Any] | None = None,
        shutdown_at_exit: bool = True,
    ):
        self._directory = tempfile.mkdtemp(prefix="sheaf-cluster-")
        self._watch = _end_with_this_process(self._directory) if shutdown_at_exit else None
        self.head_node: ClusterNode | None = None
        self.worker_nodes: list[ClusterNode] = []
        self.join_address = ""
        if shutdown_at_exit:
            atexit.register(self.shutdown)
        if initialize_head:
            self.add_node(**(head_node_args or {}))
            if connect:
                self.connect()

    @property
    def address(self) -> str:
        """The session directory of the head. RuntimeError: there is none yet."""
        if self.head_node is None:
            raise RuntimeError("this cluster has no node yet; call add_node first")
        return self.head_node.session

    gcs_address = address

    def remaining_processes_alive(self) -> bool:
        """Returns whether the daemons of all nodes that were not removed are alive."""
        return all(_is_alive(node.os_pid) for node in self.list_all_nodes())

    @property
    def token_file(self) -> str:
        """What a program or node needs that joins by `join_address`: set SHEAF_TOKEN_FILE to it."""
        return os.path.join(self._directory, "token")

    def connect(self, namespace: str | None = None) -> None:
        """Joins this cluster, as sheaf.init does.

        Args:
            namespace: where named actors are made and found; None: one of this job's own.

        Raises:
            RuntimeError: the cluster has no head, or the process has joined one already.
        """
        sheaf.init(address=self.address, namespace=namespace)

    def add_node(self, wait: bool = True, **arguments: Any) -> ClusterNode:
        """Starts a node. The first one is the head.

        Args:
            wait: returns when the connected driver sees it alive, if there is one.
            arguments: num_cpus, num_gpus, resources, labels, memory (bytes), object_store_memory
                (bytes), port.

        Returns:
            The node.

        Raises:
            RuntimeError: it does not start; with what it said.
            TypeError: an argument is unknown.
            TimeoutError: it is not seen within 30 s.
        """
        command = [_program(), "start", "--json", f"--dir={self._directory}"]
        command += ["--head"] if self.head_node is None else [f"--address={self.join_address}"]
        if "port" not in arguments:
            command.append("--port=0")
        for name, value in arguments.items():
            if name in _IGNORED or value is None:
                continue
            if name == "resources":
                command.append(flag_of("resources", value, ":"))
            elif name == "labels":
                command.append(flag_of("labels", value, "="))
            elif name in _FLAGS:
                command.append(f"{_FLAGS[name]}={int(value) if 'memory' in name else value}")
            else:
                raise TypeError(
                    f"add_node() knows no argument {name!r}; it knows "
                    f"{', '.join([*_FLAGS, 'labels', 'resources'])}"
                )
        # Its directory, which goes with it, may lie in memory.
        environment = {**os.environ, "SHEAF_STATE_IN_MEMORY": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_START_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"the node did not start: {done.stderr.strip()}")
        said = json.loads(done.stdout)
        node = ClusterNode(said["session"], said["os_pid"], said["address"], said["node"])
        if self.head_node is None:
            self.head_node = node
            self.join_address = said["address"]
        else:
            self.worker_nodes.append(node)
        if wait and sheaf.is_initialized():
            self._wait({node.node_id}, exactly=False, timeout=_START_S)
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node with all its processes.

        Args:
            node: which one.
            allow_graceful: False ends it as a crash does.
        """
        if allow_graceful:
            subprocess.run(
                [_program(), "stop", f"--address={node.session}"],
                capture_output=True,
                timeout=_START_S,
            )
        else:
            os.kill(node.os_pid, signal.SIGKILL)
        _await_end(node.os_pid)
        if node is self.head_node:
            self.head_node = None
        else:
            self.worker_nodes.remove(node)

    def list_all_nodes(self) -> list[ClusterNode]:
        """Returns the nodes, the head first."""
        return ([self.head_node] if self.head_node else []) + self.worker_nodes

    def wait_for_nodes(self, timeout: float = 30) -> None:
        """Waits until exactly these nodes are seen alive: by the connected driver, or before there
        is one by the head.

        Args:
            timeout: seconds at most.

        Raises:
            TimeoutError: they are not seen in time; with those that are.
        """
        self._wait({node.node_id for node in self.list_all_nodes()}, True, timeout)

    def _wait(self, wanted: set[str], exactly: bool, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            alive = self._alive()
            if wanted == alive or (wanted < alive and not exactly):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"after {timeout} s these nodes are alive: {sorted(alive)}, "
                    f"wanted: {sorted(wanted)}"
                )
            time.sleep(0.02)

    def _alive(self) -> set[str]:
        if sheaf.is_initialized():
            return {row["NodeID"] for row in sheaf.nodes() if row["Alive"]}
        done = subprocess.run(
            [_program(), "list", "nodes", "--json", f"--address={self.address}"],
            capture_output=True,
            text=True,
            timeout=_START_S,
        )
        if done.returncode != 0:  # The head is not there yet, or no more.
            return set()
        return {
            f"{row['node']:056x}"
            for row in json.loads(done.stdout)["nodes"]
            if row["state"] == "ALIVE"
        }

    def shutdown(self) -> None:
        """Ends all nodes and removes their files. Idempotent."""
        for node in reversed(self.list_all_nodes()):
            try:
                self.remove_node(node)
            except (OSError, subprocess.TimeoutExpired):
                continue
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._watch is not None and self._watch.stdin is not None:
            self._watch.stdin.close()
            self._watch.wait()


# Reads until all ends of the pipe are closed, by shutdown or by the end of the process, however
# that came about.
_WATCH = """while read -r _; do :; done
"$1" stop --force --address="$2"
rm -rf "$2" """


def _end_with_this_process(directory: str) -> subprocess.Popen[bytes]:
    """Ends the nodes in `directory` if this process is killed."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sheaf-cluster", _program(), directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def _program() -> str:
    program = os.environ.get("SHEAF_EXECUTABLE") or _executable() or shutil.which("sheaf")
    if not program:
        raise FileNotFoundError(
            "the program sheaf is neither in this package nor in PATH; set SHEAF_EXECUTABLE to it"
        )
    return program


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.005)


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


AutoscalingCluster = absent.a_class(
    "cluster_utils.AutoscalingCluster", "Cluster adds and removes nodes by hand"
)

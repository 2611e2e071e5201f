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
import sys
import tempfile
import time
from typing import Any

import sheaf
from sheaf._internal import absent
from sheaf._internal.program import command as _program
from sheaf.lifecycle import CLUSTER_VARIABLE, flag_of

_START_S = 30
_FLAGS = {
    "num_cpus": "--num-cpus",
    "num_gpus": "--num-gpus",
    "memory": "--memory",
    "object_store_memory": "--object-store-memory",
    "port": "--port",
}
_DEFAULTS = {"num_cpus": 1, "num_gpus": 0}
# What nodes of Ray take, and what means nothing here.
_IGNORED = set(
    """_system_config autoscaling_config cluster_id dashboard_agent_listen_port dashboard_host
    dashboard_port enable_object_reconstruction external_addresses gcs_address gcs_server_port
    huge_pages include_dashboard include_log_monitor log_to_stderr max_worker_port
    metrics_agent_port metrics_export_port min_worker_port no_monitor node_id node_ip_address
    node_manager_port node_name num_redis_shards object_manager_port object_spilling_directory
    plasma_directory plasma_store_socket_name proxy_server_url ray_client_server_port
    ray_debugger_external raylet_socket_name redirect_output redis_address redis_max_clients
    redis_password redis_port redis_shard_ports redis_username resource_isolation_config
    runtime_env_agent_port runtime_env_dir_name session_name setup_worker_path temp_dir webui
    worker_path worker_port_list""".split()  # noqa: SIM905
)


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

    def kill_raylet(self, check_alive: bool = True) -> None:
        """Ends the node's daemon as a crash does. Cluster.remove_node forgets the node, too.

        Args:
            check_alive: without effect.
        """
        del check_alive
        try:
            os.kill(self.os_pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        _await_end(self.os_pid)

    def remaining_processes_alive(self) -> bool:
        """Returns whether its daemon runs."""
        return _runs(self.os_pid)

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
        RuntimeError: the head does not start, with what it said; or `connect` without a head.
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
        if connect and not initialize_head:
            raise RuntimeError("Cannot connect to uninitialized cluster: pass initialize_head=True")
        self.connected = False
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
    def address(self) -> str | None:
        """The session directory of the head, or None: there is none."""
        return self.head_node and self.head_node.session

    gcs_address = address

    @property
    def token_file(self) -> str:
        """What a program or node needs that joins by `join_address`: set SHEAF_TOKEN_FILE to it."""
        return os.path.join(self._directory, "token")

    def connect(self, namespace: str | None = None) -> None:
        """Joins this cluster, as sheaf.init does.

        Args:
            namespace: where named actors are made and found; None: one of this job's own.

        Raises:
            AssertionError: the cluster has no head, or this was called already.
        """
        assert self.address is not None, "this cluster has no node yet; call add_node first"
        assert not (self.connected and sheaf.is_initialized()), (
            "this process has joined the cluster already"
        )
        sheaf.init(address=self.address, namespace=namespace, ignore_reinit_error=True)
        self.connected = True

    def add_node(self, wait: bool = True, **arguments: Any) -> ClusterNode:
        """Starts a node. The first one is the head.

        Args:
            wait: returns when the connected driver sees it alive, if there is one.
            arguments: num_cpus (default: 1), num_gpus (0), resources, labels, memory (bytes),
                object_store_memory (bytes), port, env_vars (of the node and its workers); others
                of Ray have no effect.

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
        environment = {**os.environ, **(arguments.pop("env_vars", None) or {})}
        for name, value in {**_DEFAULTS, **arguments}.items():
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
                    f"{', '.join([*_FLAGS, 'env_vars', 'labels', 'resources'])}"
                )
        # Its directory, which goes with it, may lie in memory.
        environment["SHEAF_STATE_IN_MEMORY"] = "1"
        environment.setdefault("SHEAF_PYTHON", sys.executable)  # Prepares environments of jobs.
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
            os.environ[CLUSTER_VARIABLE] = node.session  # Of children, too.
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

        Raises:
            ValueError: this process has joined that node; it leaves it.
        """
        if sheaf.is_initialized() and sheaf.get_runtime_context().get_node_id() == node.node_id:
            sheaf.shutdown()
            raise ValueError(
                "Removing a node that is connected to this Ray client is not allowed: it would "
                "take this process with it, which has left the cluster now"
            )
        self._end(node, allow_graceful)

    def _end(self, node: ClusterNode, gracefully: bool) -> None:
        if gracefully:
            subprocess.run(
                [_program(), "stop", f"--address={node.session}"],
                capture_output=True,
                timeout=_START_S,
            )
        else:
            node.kill_raylet()
        _await_end(node.os_pid)
        if node is self.head_node:
            self.head_node = None
            if os.environ.get(CLUSTER_VARIABLE) == node.session:
                del os.environ[CLUSTER_VARIABLE]
        else:
            self.worker_nodes.remove(node)

    def list_all_nodes(self) -> list[ClusterNode]:
        """Returns the nodes, the head first."""
        return ([self.head_node] if self.head_node else []) + self.worker_nodes

    def remaining_processes_alive(self) -> bool:
        """Returns whether all nodes run."""
        return all(node.remaining_processes_alive() for node in self.list_all_nodes())

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
                self._end(node, True)
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


def _await_end(pid: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.005)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


AutoscalingCluster = absent.a_class(
    "cluster_utils.AutoscalingCluster", "Cluster adds and removes nodes by hand"
)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Commands about nodes and programs: most become the command `sheaf` that does the same."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from sheaf._internal import fields_file, greeting, job_server, program
from sheaf._ray.scripts import shared_secret
from sheaf._ray.scripts.options import Meaningless, parser_of, truth

_PORT = 6379
_ENDS_S = 10.0
_LOCAL = {"localhost": "127.0.0.1"}  # Listeners are named by numeric addresses.
_DRAIN_REASONS = ("DRAIN_NODE_REASON_IDLE_TERMINATION", "DRAIN_NODE_REASON_PREEMPTION")


def _become(*words: str) -> int:
    """Does not return: the process is `sheaf` then, with its exit status."""
    command = program.command()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(command, [command, *words])


def _resources(text: str) -> dict[str, float]:
    try:
        amounts = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid JSON: {error}") from None
    if not isinstance(amounts, dict):
        raise argparse.ArgumentTypeError(
            f'{text!r}: want a JSON object, as {{"special": 1}}, of names and amounts'
        )
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise argparse.ArgumentTypeError(f"{name}={amount!r}: want a number")
    return amounts


def _start_parser() -> tuple[argparse.ArgumentParser, Meaningless]:
    parser = parser_of("start", "Starts a node on this machine.")
    parser.add_argument("--head", action="store_true", help="be the first node of a cluster")
    parser.add_argument("--address", help="HOST:PORT of the head of the cluster to join")
    parser.add_argument("--node-ip-address", help="the address that this node listens on")
    parser.add_argument("--port", type=int, help="the port for all other nodes (0: a free one)")
    parser.add_argument("--num-cpus", help="CPUs that tasks may use")
    parser.add_argument("--num-gpus", help="GPUs")
    parser.add_argument("--memory", help="bytes of memory for tasks that ask for some")
    parser.add_argument("--object-store-memory", help="bytes of the object store")
    parser.add_argument(
        "--resources", type=_resources, default={}, help="further amounts, as a JSON object"
    )
    parser.add_argument("--labels", default="", help="KEY=VALUE,...")
    parser.add_argument("--labels-file", help="YAML or JSON with labels")
    parser.add_argument(
        "--include-dashboard", type=truth, nargs="?", const=True, help="true or false"
    )
    parser.add_argument("--dashboard-host", help="where the dashboard listens")
    parser.add_argument("--dashboard-port", type=int, help="its port")
    parser.add_argument("--metrics-export-port", type=int, help="the port of the metrics")
    parser.add_argument(
        "--dashboard-agent-listen-port", type=int, help="a port that tells whether the node is well"
    )
    parser.add_argument("--temp-dir", help="where session directories go")
    parser.add_argument("--block", action="store_true", help="stay in the foreground")
    without = Meaningless(parser)
    without.add(
        "--node-name",
        "--redis-username",
        "--redis-password",
        "--redis-shard-ports",
        "--object-manager-port",
        "--node-manager-port",
        "--min-worker-port",
        "--max-worker-port",
        "--worker-port-list",
        "--ray-client-server-port",
        "--dashboard-agent-grpc-port",
        "--runtime-env-agent-port",
        "--plasma-directory",
        "--object-spilling-directory",
        "--autoscaling-config",
        "--system-config",
        "--tracing-startup-hook",
        "--include-log-monitor",
        "--system-reserved-cpu",
        "--system-reserved-memory",
        "--cgroup-path",
        "--proxy-server-url",
    )
    without.add(
        "--no-redirect-output",
        "--enable-object-reconstruction",
        "--no-monitor",
        "--ray-debugger-external",
        "--disable-usage-stats",
        "--enable-resource-isolation",
        values=False,
    )
    return parser, without


def start(arguments: list[str]) -> int:
    """Becomes `sheaf start`."""
    parser, without = _start_parser()
    given = parser.parse_args(arguments)
    without.name_given(given)
    words = ["start"]
    words += ["--head"] if given.head else []
    words += ["--block"] if given.block else []
    labels = [
        f"{key}={value}" for key, value in shared_secret.group_label(_labels_of(given)).items()
    ]
    host = given.dashboard_host
    own = _LOCAL.get(given.node_ip_address, given.node_ip_address)
    listens = (
        shared_secret.listening(own, not given.head) if shared_secret.take() else {"host": own}
    )
    for name, value in (
        ("address", given.address),
        *listens.items(),
        ("port", given.port),
        ("health-port", given.dashboard_agent_listen_port),
        ("num-cpus", given.num_cpus),
        ("num-gpus", given.num_gpus),
        ("memory", given.memory),
        ("object-store-memory", given.object_store_memory),
        ("resources", ",".join(f"{key}:{amount}" for key, amount in given.resources.items())),
        ("labels", ",".join(labels)),
        ("include-dashboard", _text(given.include_dashboard)),
        ("dashboard-host", _LOCAL.get(host, host)),
        ("dashboard-port", given.dashboard_port),
        ("metrics-port", given.metrics_export_port),
        ("dir", given.temp_dir),
    ):
        if value is not None and value != "":
            words.append(f"--{name}={value}")
    return _become(*words)


def _text(flag: bool | None) -> str | None:
    return None if flag is None else str(flag).lower()


def _labels_of(given: argparse.Namespace) -> dict[str, Any]:
    labels: dict[str, Any] = fields_file.read(given.labels_file) if given.labels_file else {}
    for entry in filter(None, given.labels.split(",")):
        key, equals, value = entry.partition("=")
        if not equals:
            raise ValueError(f"--labels {given.labels!r}: {entry!r} is no KEY=VALUE")
        labels[key] = value
    return labels


def stop(arguments: list[str]) -> int:
    """Becomes `sheaf stop`."""
    parser = parser_of("stop", "Ends the nodes of this user on this machine.")
    parser.add_argument("-f", "--force", action="store_true", help="kill at once")
    parser.add_argument(
        "-g", "--grace-period", type=float, default=16, help="seconds after which nodes are killed"
    )
    given = parser.parse_args(arguments)
    return _become("stop", f"--timeout={given.grace_period:g}", *["--force"] * given.force)


def job(arguments: list[str]) -> int:
    """As `sheaf job`, but for Ray's exit code when nobody answers."""
    from sheaf import job_cli  # For this command alone.

    code = job_cli.main(arguments)
    return 1 if code == job_cli.NO_NODE else code


def timeline(arguments: list[str]) -> int:
    """Writes a file, and says which."""
    parser = parser_of("timeline", "Writes when calls ran, for chrome://tracing and Perfetto.")
    parser.add_argument("--address", help="session directory of a node (default: the newest)")
    given = parser.parse_args(arguments)
    import sheaf  # The whole of it: a driver asks.

    with sheaf.init(given.address or "auto", log_to_driver=False):
        name = f"/tmp/ray-timeline-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}.json"
        sheaf.timeline(name)
    print(f"Trace file written to {name}.")
    print("You can open this with chrome://tracing or with https://ui.perfetto.dev.")
    return 0


def stack(arguments: list[str]) -> int:
    """Becomes `sheaf stack`."""
    parser_of("stack", "Shows what the workers of this machine are doing.").parse_args(arguments)
    return _become("stack")


def drain_node(arguments: list[str]) -> int:
    """Becomes `sheaf drain`."""
    parser = parser_of("drain-node", "Lets a node take no new work; what runs there goes on.")
    parser.add_argument("--address", help="session directory of a node (default: the newest)")
    parser.add_argument("--node-id", help="as `ray list nodes` has it (default: the node asked)")
    parser.add_argument("--reason", choices=_DRAIN_REASONS, required=True, help="for Ray")
    parser.add_argument("--reason-message", required=True, help="for Ray")
    parser.add_argument(
        "--deadline-remaining-seconds", type=int, help="when the caller ends the node by itself"
    )
    given = parser.parse_args(arguments)
    if (given.deadline_remaining_seconds or 0) < 0:
        parser.error("--deadline-remaining-seconds: want a number that is not negative")
    where = [f"--address={given.address}"] if given.address not in (None, "auto") else []
    node = _node_number(given.node_id) if given.node_id else _node_here(given.address)
    return _become("drain", str(node), *where)


def _node_number(text: str) -> int:
    try:
        number = int(text, 16)
    except ValueError:
        number = 0
    if not 0 < number < 1 << 32:
        raise ValueError(f"--node-id {text!r}: want an id as `ray list nodes` has it")
    return number


def _node_here(address: str | None) -> int:
    where = address or os.environ.get("SHEAF_ADDRESS") or os.environ.get("RAY_ADDRESS")
    try:
        with open(os.path.join(where or "", "node"), encoding="utf-8") as file:
            return int(file.read())
    except (OSError, ValueError):
        raise ValueError(
            "which node? Give --node-id, or the node's session directory with --address"
        ) from None


def health_check(arguments: list[str]) -> int:
    """0: a node answers at that address, as those do that join a cluster; 1: none does."""
    parser = parser_of("health-check", "Tells by its exit status whether a head answers.")
    parser.add_argument(
        "--address", help=f"HOST:PORT of a head, port {_PORT} unless named; or a session directory"
    )
    parser.add_argument("--component", help=argparse.SUPPRESS)
    parser.add_argument("--skip-version-check", action="store_true", help="for Ray")
    given = parser.parse_args(arguments)
    if given.component:
        raise ValueError(f"--component={given.component}: Sheaf has no such component")
    where = given.address or os.environ.get("RAY_ADDRESS") or os.environ.get("SHEAF_ADDRESS")
    if not where or where == "auto" or os.sep in where:
        # Its jobs are known to the GCS alone, which must answer.
        words = [f"--address={where}"] if where and where != "auto" else []
        return _quiet("list", "jobs", "--limit=1", f"--timeout={greeting.ANSWER_S:g}", *words)
    host, _, port = where.rpartition(":") if ":" in where else (where, "", str(_PORT))
    greeting.greet(host.strip("[]"), int(port))
    return 0


def _quiet(*words: str) -> int:
    import subprocess  # For this command alone.

    done = subprocess.run([program.command(), *words], stdout=subprocess.DEVNULL)
    return 1 if done.returncode else 0


def kill_actor(arguments: list[str]) -> int:
    """Ends an actor as a driver would."""
    parser = parser_of("kill-actor", "Ends a named actor.")
    parser.add_argument("--address", help="session directory of a node (default: the newest)")
    parser.add_argument("--name", help="of the actor")
    parser.add_argument("--namespace", help="where the name was given")
    parser.add_argument("--force", action="store_true", help="kill it; else it is asked to leave")
    parser.add_argument("--no-restart", action="store_true", help="with --force: for good")
    given = parser.parse_args(arguments)
    if not given.name:
        parser.error("say which actor with --name")
    if given.no_restart and not given.force:
        print("ray kill-actor: --no-restart counts with --force only", file=sys.stderr)
    import sheaf  # The whole of it: a driver kills.

    with sheaf.init(given.address or "auto", namespace=given.namespace, log_to_driver=False):
        try:
            actor = sheaf.get_actor(given.name, namespace=given.namespace)
        except ValueError:
            raise ValueError(
                f"No named actor found: {given.name} (namespace={given.namespace})"
            ) from None
        if given.force:
            sheaf.kill(actor, no_restart=given.no_restart)
            print(f"Actor killed (force): {given.name}")
        else:
            # With this driver goes what it has not sent.
            sheaf.wait([actor.__ray_terminate__.remote()], timeout=_ENDS_S)
            print(f"Requested graceful termination for actor: {given.name}")
    return 0


def get_auth_token(arguments: list[str]) -> int:
    """Prints the token that clients send, without an end of line."""
    parser = parser_of("get-auth-token", "Prints the token that requests over HTTP carry.")
    parser.add_argument(
        "--generate", action="store_true", help="for Ray: a head of Sheaf makes its token"
    )
    parser.parse_args(arguments)
    token = job_server.saved_token()
    if not token:
        return _become("token", "--http")
    print(token, end="", flush=True)
    print(file=sys.stderr)
    return 0

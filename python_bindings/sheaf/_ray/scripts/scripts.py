# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf ray COMMAND`, or the program sheaf called by the name `ray`: commands and options as those
of Ray 2.60, done by Sheaf."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from sheaf import _version

_LOGGING = ("--logging-level", "--logging-format")  # Of Ray itself, before the command.
_COMMANDS = {  # Name -> where it is, and what it does.
    "start": ("node_commands", "starts a node on this machine"),
    "stop": ("node_commands", "ends the nodes of this user on this machine"),
    "status": ("status", "shows nodes, resources and what waits for some"),
    "job": ("node_commands", "submits, stops, deletes or lists jobs, or shows their logs"),
    "list": ("state_commands", "lists actors, nodes, tasks and so on"),
    "get": ("state_commands", "shows one of them"),
    "summary": ("state_commands", "counts tasks, actors or objects"),
    "logs": ("logs", "shows the logs of a node, an actor, a worker, a task or a job"),
    "memory": ("memory", "shows the objects that processes hold"),
    "timeline": ("node_commands", "writes when calls ran, for chrome://tracing and Perfetto"),
    "stack": ("node_commands", "shows what the workers of this machine are doing"),
    "drain-node": ("node_commands", "lets a node take no new work"),
    "health-check": ("node_commands", "tells by its exit status whether a head answers"),
    "kill-actor": ("node_commands", "ends a named actor"),
    "get-auth-token": ("node_commands", "prints the token that requests over HTTP carry"),
}
_ABSENT = {
    "up": "start nodes with `sheaf start` on each machine",
    "down": "end nodes with `sheaf stop` on each machine",
    "submit": "`ray job submit` runs a command on a cluster",
    "exec": "`ray job submit` runs a command on a cluster",
    "attach": "Sheaf starts no machines: use ssh",
    "rsync-down": "Sheaf starts no machines: use rsync",
    "rsync-up": "Sheaf starts no machines: use rsync",
    "monitor": "`ray status` says what waits, `ray logs` has the logs",
    "get-head-ip": "`ray list nodes` has the addresses",
    "get-worker-ips": "`ray list nodes` has the addresses",
    "dashboard": "`sheaf dashboard` serves it on a port of this machine",
    "debug": "sheaf.util.debugpy and sheaf.util.rpdb debug tasks",
    "kuberay-autoscaler": "Sheaf has no autoscaler",
    "microbenchmark": "Sheaf's benchmarks are part of its source",
    "local-dump": "`ray logs` has the logs",
    "cluster-dump": "`ray logs` has the logs",
    "global-gc": "references are counted: nothing waits for a collection",
    "metrics": "`sheaf status` prints the address that Prometheus reads",
    "cpp": "the C++ API is installed by CMake",
    "enable-usage-stats": "Sheaf sends nobody anything",
    "disable-usage-stats": "Sheaf sends nobody anything",
    "serve": "Sheaf has no Serve",
    "sanity-check": "`ray health-check` asks a node",
}


def _help() -> str:
    width = max(map(len, _COMMANDS))
    return "usage: ray COMMAND ...\n\ncommands, by Sheaf:\n" + "".join(
        f"  {name:{width}}  {what}\n" for name, (_, what) in _COMMANDS.items()
    )


def _command(name: str) -> Callable[[list[str]], int]:
    module = importlib.import_module(f"sheaf._ray.scripts.{_COMMANDS[name][0]}")
    function: Callable[[list[str]], int] = getattr(
        module, {"list": "list_rows", "get": "get_row"}.get(name, name.replace("-", "_"))
    )
    return function


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: those of the command line; None: this process's.

    Returns:
        The exit status: 0 done, 1 it failed, 2 the command line means nothing.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    while words and words[0].split("=")[0] in _LOGGING:
        del words[: 1 if "=" in words[0] else 2]
    if not words or words[0] in ("--help", "-h", "help"):
        print(_help(), end="")
        return 0
    name = words[0]
    if name == "--version":
        print(f"ray, version {_version.__ray_version__} (Sheaf {_version.__version__})")
        return 0
    if name.replace("_", "-") in _ABSENT:
        print(f"ray {name}: not in Sheaf; {_ABSENT[name.replace('_', '-')]}", file=sys.stderr)
        return 2
    if name not in _COMMANDS:
        print(f"ray: there is no command {name!r}\n\n{_help()}", end="", file=sys.stderr)
        return 2
    try:
        return _command(name)(words[1:])
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        print(f"ray {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

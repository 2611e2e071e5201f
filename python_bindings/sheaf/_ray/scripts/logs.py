# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`ray logs`: what a node, an actor, a worker, a task or a job has written."""

from __future__ import annotations

import argparse
import codecs
import sys
import urllib.parse
from typing import Any

from sheaf._internal import job_server
from sheaf._ray.scripts import rows
from sheaf._ray.scripts.options import add_address, parser_of

_LINES = 1000
# What names a log -> its parameter in the request, by the subcommand.
_KINDS = {
    "cluster": {},
    "actor": {"id": "actor_id", "pid": "pid"},
    "worker": {"pid": "pid"},
    "job": {"id": "submission_id"},
    "task": {"id": "task_id"},
}


def _codec(text: str) -> str:
    try:
        return codecs.lookup(text).name
    except LookupError:
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such encoding") from None


def _parser(kind: str) -> argparse.ArgumentParser:
    parser = parser_of(f"logs {kind}", "Shows logs.")
    add_address(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="go on while it grows")
    parser.add_argument(
        "--tail", type=int, default=_LINES, help=f"of the last lines so many ({_LINES}; -1: all)"
    )
    parser.add_argument("--interval", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--timeout", type=float, help=argparse.SUPPRESS)
    parser.add_argument("-ip", "--node-ip", help="of the node with this address")
    parser.add_argument("-id", "--node-id", help="of this node")
    parser.add_argument("--encoding", type=_codec, default="utf-8", help="of the file")
    parser.add_argument("--encoding-errors", default="replace", help="as codecs has it")
    if kind == "cluster":
        parser.add_argument("glob", nargs="?", default="*", help="of the names (*)")
    if kind in ("actor", "worker", "task"):
        parser.add_argument("--err", action="store_true", help="the error stream")
    if "id" in _KINDS[kind]:
        parser.add_argument("--id", *["-a"] * (kind == "actor"), help=f"of the {kind}")
    if "pid" in _KINDS[kind]:
        parser.add_argument("--pid", *["-pid"], type=int, help="of the process")
    if kind == "task":
        parser.add_argument("--attempt-number", "-a", type=int, default=0, help="of the call")
    return parser


def logs(arguments: list[str]) -> int:
    """Prints one log, or the names of those that there are."""
    words = list(arguments)
    kind = words.pop(0) if words and words[0] in _KINDS else "cluster"
    parser = _parser(kind)
    given = parser.parse_args(words)
    wanted: dict[str, Any] = {"node_ip": given.node_ip, "node_id": given.node_id}
    named = {
        parameter: getattr(given, option)
        for option, parameter in _KINDS[kind].items()
        if getattr(given, option) is not None
    }
    if kind != "cluster" and len(named) != 1:
        parser.error("say which with " + " or ".join(f"--{option}" for option in _KINDS[kind]))
    server = job_server.Server(given.address, {}, {}, True)
    if kind == "cluster":
        names = _names(server, given.glob, wanted)
        if len(names) != 1 and given.glob not in names:
            return 0 if names else 1
        wanted["filename"] = given.glob if given.glob in names else names[0]
    wanted |= named
    if getattr(given, "err", False):
        wanted["suffix"] = "err"
    if kind == "task":
        wanted["attempt_number"] = given.attempt_number
    wanted["lines"] = given.tail
    _print(server, "stream" if given.follow else "file", wanted, given)
    return 0


def _query(wanted: dict[str, Any]) -> str:
    return urllib.parse.urlencode({k: v for k, v in wanted.items() if v is not None})


def _names(server: job_server.Server, glob: str, wanted: dict[str, Any]) -> list[str]:
    """Prints them by group unless one alone fits."""
    groups = server.ask("GET", f"/api/v0/logs?{_query({**wanted, 'glob': glob})}")["data"]["result"]
    names = [name for entries in groups.values() for name in entries]
    if not names:
        print(f"There is no log that fits {glob!r}.", file=sys.stderr)
    elif len(names) > 1 and glob not in names:
        print(rows.yaml({group: entries for group, entries in groups.items() if entries}), end="")
    return names


def _print(server: job_server.Server, route: str, wanted: dict[str, Any], given: Any) -> None:
    decoder = codecs.getincrementaldecoder(given.encoding)(given.encoding_errors)
    for piece in server.stream(f"/api/v0/logs/{route}?{_query(wanted)}"):
        sys.stdout.write(decoder.decode(piece))
        sys.stdout.flush()
    sys.stdout.write(decoder.decode(b"", True))
    sys.stdout.flush()

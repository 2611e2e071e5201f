# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`ray list`, `ray get` and `ray summary`: they ask a dashboard."""

from __future__ import annotations

import argparse
import datetime
import sys
import urllib.parse
from typing import Any

from sheaf._internal import job_server
from sheaf._ray.scripts import rows
from sheaf._ray.scripts.options import add_address, parser_of

_TIMEOUT_S = 30
_IDS = {  # What `ray get` knows, and the column of its id.
    "actors": "actor_id",
    "nodes": "node_id",
    "objects": "object_id",
    "placement-groups": "placement_group_id",
    "tasks": "task_id",
    "workers": "worker_id",
}
_KINDS = (*_IDS, "cluster-events", "jobs", "runtime-envs")


def _filter(text: str) -> tuple[str, str, str]:
    for predicate in ("!=", "="):
        key, found, value = text.partition(predicate)
        if found and key:
            return key.strip(), predicate, value.strip()
    raise argparse.ArgumentTypeError(f"{text!r}: want KEY=VALUE or KEY!=VALUE")


def _seconds(text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: want a number of seconds above 0")
    return max(1, int(seconds))


def _parser(command: str, description: str) -> argparse.ArgumentParser:
    parser = parser_of(command, description)
    add_address(parser)
    parser.add_argument(
        "--timeout", type=_seconds, default=_TIMEOUT_S, help="seconds that an answer may take"
    )
    return parser


def _ask(given: argparse.Namespace, path: str, **parameters: Any) -> Any:
    server = job_server.Server(given.address, {}, {}, True)
    query = urllib.parse.urlencode({**parameters, "timeout": given.timeout}, doseq=True)
    return server.ask("GET", f"/api/v0/{path}?{query}")["data"]["result"]


def _warn(answer: dict[str, Any]) -> None:
    for words in (answer.get("partial_failure_warning"), *(answer.get("warnings") or ())):
        if words:
            print(f"Warning: {words}", file=sys.stderr)


def list_rows(arguments: list[str]) -> int:
    """Prints rows of one kind."""
    parser = _parser("list", "Lists rows of one kind.")
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("--format", choices=rows.FORMATS, default="default")
    parser.add_argument(
        "-f", "--filter", type=_filter, action="append", default=[], help="KEY=VALUE or KEY!=VALUE"
    )
    parser.add_argument("--limit", type=int, default=100, help="rows at most (100)")
    parser.add_argument("--detail", action="store_true", help="all columns")
    given = parser.parse_args(arguments)
    answer = _ask(
        given,
        given.kind.replace("-", "_"),
        limit=given.limit,
        detail=given.detail,
        filter_keys=[key for key, _, _ in given.filter],
        filter_predicates=[predicate for _, predicate, _ in given.filter],
        filter_values=[value for _, _, value in given.filter],
    )
    found = answer["result"]
    _warn(answer)
    if given.format in ("default", "table"):
        left = answer["num_filtered"] - len(found)
        if left > 0:
            print(f"Warning: {left} more rows; give a higher --limit", file=sys.stderr)
    form = "yaml" if given.detail and given.format == "default" else given.format
    if not found and form != "json":
        print("No resource in the cluster")
    else:
        print(rows.listing(found, form))
    return 0


def get_row(arguments: list[str]) -> int:
    """Prints one row, or those of one object, as YAML."""
    parser = _parser("get", "Shows one of a kind.")
    parser.add_argument("kind", choices=sorted(_IDS))
    parser.add_argument("id", help="as `ray list` has it")
    given = parser.parse_args(arguments)
    answer = _ask(
        given,
        given.kind.replace("-", "_"),
        detail=True,
        filter_keys=_IDS[given.kind],
        filter_predicates="=",
        filter_values=given.id,
    )
    _warn(answer)
    if not answer["result"]:
        print(f"Resource with id={given.id} not found in the cluster.")
        return 0
    print(rows.listing(answer["result"], "yaml"))
    return 0


def summary(arguments: list[str]) -> int:
    """Prints how many there are, by name and state."""
    parser = _parser("summary", "Counts tasks, actors or objects.")
    parser.add_argument("kind", choices=("tasks", "actors", "objects"))
    given = parser.parse_args(arguments)
    answer = _ask(given, f"{given.kind}/summarize")
    _warn(answer)
    cluster = answer["result"]["node_id_to_summary"]["cluster"]
    groups = cluster.pop("summary")
    by = cluster.pop("summary_by")
    lines = [
        {"name": name, **group} if "func_or_class_name" not in group else group
        for name, group in groups.items()
    ]
    headers = sorted({header for line in lines for header in line})
    print(
        f"\n======== {given.kind.capitalize()} Summary: {datetime.datetime.now()} ========\n"
        f"Stats:\n{'-' * 36}\n{rows.yaml(cluster)}\n\nTable (group by {by}):\n{'-' * 36}\n"
        + rows.table(
            [header.upper() for header in headers],
            [[line.get(header) for header in headers] for line in lines],
        )
        + "\n"
    )
    return 0

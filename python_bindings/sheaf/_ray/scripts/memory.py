# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`ray memory`: the objects that processes hold."""

from __future__ import annotations

import sys
from typing import Any

from sheaf._internal import job_server
from sheaf._ray.scripts import rows
from sheaf._ray.scripts.options import add_address, parser_of

_LIMIT = 10_000  # Of a listing.
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_GROUPS = {"NODE_ADDRESS": "ip", "STACK_TRACE": "call_site"}
_ORDERS = {"PID": "pid", "OBJECT_SIZE": "object_size", "REFERENCE_TYPE": "reference_type"}
_COLUMNS = ("ip", "pid", "type", "call_site", "object_size", "reference_type", "object_id")


def memory(arguments: list[str]) -> int:
    """Prints them by group, with sums."""
    parser = parser_of("memory", "Shows the objects that processes hold.")
    add_address(parser)
    parser.add_argument("--group-by", choices=_GROUPS, default="NODE_ADDRESS", type=str.upper)
    parser.add_argument("--sort-by", choices=_ORDERS, default="OBJECT_SIZE", type=str.upper)
    parser.add_argument("--units", choices=_UNITS, default="B", type=str.upper)
    parser.add_argument("--no-format", action="store_true", help="for Ray")
    parser.add_argument("--stats-only", action="store_true", help="the sum alone")
    parser.add_argument("--num-entries", "--n", "-n", type=int, help="rows at most of each group")
    given = parser.parse_args(arguments)
    server = job_server.Server(given.address, {}, {}, True)
    answer = server.ask("GET", f"/api/v0/objects?detail=True&limit={_LIMIT}")["data"]["result"]
    found = answer["result"]
    unit = _UNITS[given.units]
    if not given.stats_only:
        for title, group in sorted(_grouped(found, _GROUPS[given.group_by]).items()):
            _print_group(title, _sorted(group, _ORDERS[given.sort_by]), given, unit)
    print("--- Aggregate object store stats across all nodes ---")
    print(f"{_size(found, unit)} {given.units}, {len(found)} objects")
    if answer["total"] > len(found):
        print(f"Warning: {answer['total'] - len(found)} more are not counted", file=sys.stderr)
    return 0


def _grouped(found: list[dict[str, Any]], column: str) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault(str(row[column] or "unknown"), []).append(row)
    return groups


def _sorted(group: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    if column == "reference_type":
        return sorted(group, key=lambda row: str(row[column]))
    return sorted(group, key=lambda row: row[column] or 0, reverse=column == "object_size")


def _size(group: list[dict[str, Any]], unit: int) -> str:
    amount = sum(row["object_size"] or 0 for row in group) / unit
    return f"{amount:g}" if unit == 1 else f"{amount:.3f}"


def _print_group(title: str, group: list[dict[str, Any]], given: Any, unit: int) -> None:
    kept = group if given.num_entries is None else group[: max(0, given.num_entries)]
    print(
        f"\n======== Objects of {title} ({len(group)}, {_size(group, unit)} {given.units}) ========"
    )
    lines = [
        [_size([row], unit) if column == "object_size" else row[column] for column in _COLUMNS]
        for row in kept
    ]
    print(rows.table([column.upper() for column in _COLUMNS], lines))
    print()

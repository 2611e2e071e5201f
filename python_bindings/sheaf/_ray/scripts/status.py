# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`ray status`: nodes, resources and what waits for some, in Ray's form."""

from __future__ import annotations

import datetime
from typing import Any

from sheaf._internal import job_server
from sheaf._ray.scripts.options import add_address, parser_of

_MEMORY = ("memory", "object_store_memory")


def status(arguments: list[str]) -> int:
    """Prints it."""
    parser = parser_of("status", "Shows nodes, resources and what waits for some.")
    add_address(parser)
    given = parser.parse_args(arguments)
    server = job_server.Server(given.address, {}, {}, True)
    report = server.ask("GET", "/api/cluster_status")["data"]["clusterStatus"]
    print("\n".join(_lines(report, given.verbose)))
    return 0


def _lines(report: dict[str, Any], verbose: bool) -> list[str]:
    nodes, load = report["autoscalerReport"], report["loadMetricsReport"]
    head = f"======== Autoscaler status: {datetime.datetime.now()} ========"
    rule = "-" * len(head)
    failed = [f" {ip}: NodeTerminated ({kind})" for ip, kind in nodes["failedNodes"]]
    out = [head, "Node status", rule, "Active:"]
    out += _counts(nodes["activeNodes"]) or [" (no active nodes)"]
    out += ["Idle:", *(_counts(nodes["idleNodes"]) or [" (no idle nodes)"])]
    out += ["Pending:", " (no pending nodes)", "Recent failures:"]
    out += failed or [" (no failures)"]
    out += ["", "Resources", rule, "Total Usage:", *_usage(load["usage"], " "), ""]
    out += ["From request_resources:"]
    out += [
        f" {shape}: {count} from request_resources()" for shape, count in load["requestDemand"]
    ] or [" (none)"]
    demands = [
        f" {shape}: {count}+ pending tasks/actors" for shape, count in load["resourceDemand"]
    ]
    demands += [
        f" {_group(group)}: {count}+ pending placement groups" for group, count in load["pgDemand"]
    ]
    out += ["Pending Demands:", *(demands or [" (no resource demands)"])]
    if verbose:
        for name, usage in load["usageByNode"].items():
            kind = nodes["nodeTypeMapping"].get(name, "node")
            out += ["", f"Node: {name} ({kind})", f" Id: {name}", " Usage:", *_usage(usage, "  ")]
            reasons = nodes["nodeActivities"].get(name, [None, []])[1]
            out += [" Activity:", *(f"  {reason}" for reason in reasons or ["(no activity)"])]
    return out


def _counts(kinds: dict[str, int]) -> list[str]:
    return [f" {count} {kind}" for kind, count in kinds.items()]


def _usage(usage: dict[str, list[float]], pad: str) -> list[str]:
    return [
        f"{pad}{_bytes(used)}/{_bytes(total)} {name}"
        if name in _MEMORY
        else f"{pad}{float(used)}/{float(total)} {name}"
        for name, (used, total) in sorted(usage.items())
        if not name.startswith("node:")
    ]


def _group(group: dict[str, Any]) -> str:
    bundles = " + ".join(f"{shape} * {count}" for shape, count in group["bundles"])
    return f"{bundles} ({group['strategy']})"


def _bytes(size: float) -> str:
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.2f}{unit}"
    return f"{int(size)}B"

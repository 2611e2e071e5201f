# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Writes deploy/grafana/*.json, the boards of Grafana, from what docs/metrics.md says of metrics.

    grafana_boards.py            writes them
    grafana_boards.py --check    fails if one differs from what would be written

A panel names metrics; their types, units and labels are the catalog's. UNSHOWN has the metrics that
are on no board, with the reason.
"""

import dataclasses
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "grafana"
CATALOG = ROOT / "docs" / "metrics.md"

# Metric -> why no board has it.
UNSHOWN: dict[str, str] = {}

PICK = 'cluster=~"$cluster", node=~"$node"'
RATE = "[$__rate_interval]"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {
    "bytes": "bytes",
    "seconds": "s",
    "ratio": "percentunit",
    "bytes a second": "Bps",
    "CPUs": "none",
    "processors": "none",
}


@dataclasses.dataclass(frozen=True)
class Metric:
    """A row of the catalog."""

    name: str
    type: str
    unit: str
    label: str  # Empty: none.
    help: str


def read_catalog(text: str) -> dict[str, Metric]:
    """The metrics that the table of docs/metrics.md has."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and (name := re.fullmatch(r"`(sheaf_\w+)`", cells[0])):
            label = re.match(r"`(\w+)`", cells[3])
            found[name[1]] = Metric(
                name[1], cells[1], cells[2], label[1] if label else "", cells[4]
            )
    return found


METRICS = read_catalog(CATALOG.read_text())


@dataclasses.dataclass(frozen=True)
class Query:
    """One expression of a panel, and how its lines are called."""

    expression: str
    legend: str


@dataclasses.dataclass(frozen=True)
class Panel:
    """A chart, or with `kind` "stat" one number."""

    title: str
    queries: list[Query]
    unit: str
    words: str
    kind: str = "timeseries"
    stacked: bool = False
    most: float | None = None  # The upper end of its axis.
    red_from: float | None = None


def _sum(inner: str, by: str) -> str:
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def _queries(metric: Metric, by: str, legend: str) -> list[Query]:
    label = legend or (f"{{{{{by}}}}}" if by else metric.name.removeprefix("sheaf_"))
    if metric.type == "counter":
        return [Query(_sum(f"rate({metric.name}{{{PICK}}}{RATE})", by), label)]
    if metric.type == "gauge":
        return [Query(_sum(f"{metric.name}{{{PICK}}}", by), label)]
    buckets = f"sum by (le) (rate({metric.name}_bucket{{{PICK}}}{RATE}))"
    return [
        Query(f"histogram_quantile({quantile}, {buckets})", f"{legend} {name}".strip())
        for quantile, name in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
    ]


def _unit(metric: Metric) -> str:
    if metric.type == "counter":
        return {"bytes": "Bps", "seconds": "percentunit"}.get(metric.unit, "ops")
    return UNITS.get(metric.unit, "short")


def chart(title: str, *names: str, by: str | None = None, **options) -> Panel:
    """A chart of metrics: rates of counters, sums of gauges by their label (or `by`), quantiles of
    histograms. Several metrics are told apart by their names."""
    metrics = [METRICS[name] for name in names]
    queries = []
    for metric in metrics:
        label = metric.label if by is None else by
        legend = "" if len(metrics) == 1 else _short(metric.name)
        if legend and label:
            legend = f"{legend} {{{{{label}}}}}"
        queries += _queries(metric, label, legend)
    words = "\n\n".join(f"`{metric.name}`: {metric.help}" for metric in metrics)
    return Panel(title, queries, _unit(metrics[0]), words, **options)


def _short(name: str) -> str:
    return re.sub(r"^sheaf_|_total$|_seconds$|_bytes$|_ratio$", "", name).replace("_", " ")


def stat(
    title: str, expression: str, unit: str, words: str, red_from: float | None = None
) -> Panel:
    """One number with a line below it."""
    return Panel(title, [Query(expression, "")], unit, words, kind="stat", red_from=red_from)


def of(name: str, more: str = "") -> str:
    """The selector of a metric, for expressions."""
    assert name.removesuffix("_bucket") in METRICS, name
    return f"{name}{{{PICK}{', ' + more if more else ''}}}"


def total(name: str, more: str = "") -> str:
    """The sum over all nodes."""
    return f"sum({of(name, more)})"


def grown(name: str, over: str, more: str = "") -> str:
    """How much a counter has grown, on all nodes."""
    return f"sum(increase({of(name, more)}[{over}]))"


def calls(more: str) -> str:
    """Tasks and actor calls a second."""
    return " + ".join(
        f"sum(rate({of(name, more)}{RATE}))"
        for name in ("sheaf_tasks_total", "sheaf_actor_calls_total")
    )


def share(used: str, all_of: str, by: str = "") -> str:
    """Part of one of the other, between 0 and 1."""
    return f"{_sum(used, by)} / {_sum(all_of, by)}"


OVERVIEW = [
    stat("Nodes", total("sheaf_nodes", 'state="alive"'), "short", "Nodes that live."),
    stat(
        "CPUs in use",
        "1 - " + share(of("sheaf_cpus", 'kind="available"'), of("sheaf_cpus", 'kind="total"')),
        "percentunit",
        "Of those that nodes lease to tasks and actors.",
    ),
    stat(
        "Calls a second", calls('state="finished"'), "ops", "Tasks and actor calls that finished."
    ),
    stat(
        "Failures a second",
        calls('state="failed"'),
        "ops",
        "Tasks and actor calls that ended in an error.",
        red_from=0.001,
    ),
    stat(
        "Requests that wait",
        total("sheaf_scheduler_queue_length"),
        "short",
        "Worker leases that are asked for and not granted.",
    ),
    stat(
        "Store in use",
        share(of("sheaf_store_used_bytes"), of("sheaf_store_capacity_bytes")),
        "percentunit",
        "Of the object stores of all nodes.",
        red_from=0.95,
    ),
    stat("Jobs", total("sheaf_jobs_running"), "short", "Drivers that live."),
    stat(
        "Deaths of workers",
        grown("sheaf_worker_deaths_total", "10m", 'cause!~"left|exited"'),
        "short",
        "That crashed, were killed, or did not start, in the last ten minutes.",
        red_from=1,
    ),
    chart("Tasks", "sheaf_tasks_total"),
    chart("Actor calls", "sheaf_actor_calls_total"),
    chart("Latency of tasks", "sheaf_task_latency_seconds"),
    chart("What waits, by what it asks for", "sheaf_demand", stacked=True),
    chart("Workers", "sheaf_workers", stacked=True),
    chart("Processors", "sheaf_host_cpu_ratio", by="node", most=1),
    Panel(
        "Memory of the machines",
        [
            Query(
                share(
                    of("sheaf_host_memory_bytes", 'state="used"'),
                    of("sheaf_host_memory_bytes", 'state="total"'),
                    "node",
                ),
                "{{node}}",
            )
        ],
        "percentunit",
        METRICS["sheaf_host_memory_bytes"].help,
        most=1,
    ),
    Panel(
        "Object stores",
        [
            Query(
                share(of("sheaf_store_used_bytes"), of("sheaf_store_capacity_bytes"), "node"),
                "{{node}}",
            )
        ],
        "percentunit",
        METRICS["sheaf_store_used_bytes"].help,
        most=1,
    ),
    chart("Workers that ended", "sheaf_worker_deaths_total"),
]

NODES = [
    chart("Processors at work", "sheaf_host_cpu_ratio", by="node", most=1),
    chart("Load", "sheaf_host_load", by="node"),
    chart("Time that a hypervisor gave to others", "sheaf_host_cpu_steal_ratio", by="node"),
    chart("Time that processors waited for a disk", "sheaf_host_cpu_io_wait_ratio", by="node"),
    chart("Stalls", "sheaf_host_stall_ratio", by="node, resource"),
    chart("Memory of the machine", "sheaf_host_memory_bytes", by="node, state"),
    chart("File system of the session", "sheaf_host_disk_bytes", by="node, state"),
    chart("Disks", "sheaf_host_disk_bytes_per_second", by="node, direction"),
    chart("Network", "sheaf_host_network_bytes_per_second", by="node, direction"),
    chart("Processes of nodes", "sheaf_node_processes", by="node"),
    chart("Processors that they use", "sheaf_node_processes_cpus", by="node"),
    chart("Memory that they use", "sheaf_node_processes_memory_bytes", by="node"),
    chart("CPUs to lease", "sheaf_cpus", by="node, kind"),
    chart("GPUs to lease", "sheaf_gpus", by="node, kind"),
    chart("GPUs at work", "sheaf_host_gpu_ratio", by="node", most=1),
    chart("Memory of GPUs", "sheaf_host_gpu_memory_bytes", by="node, state"),
    chart("Up for", "sheaf_uptime_seconds", by="node"),
    Panel(
        "Days until certificates expire",
        [
            Query(
                f"({of('sheaf_certificate_expires_seconds')} > 0) / 86400 - time() / 86400",
                "{{node}} {{use}}",
            )
        ],
        "short",
        METRICS["sheaf_certificate_expires_seconds"].help,
    ),
    chart("Versions", "sheaf_build_info", by="version", stacked=True),
]

TASKS = [
    chart("Tasks", "sheaf_tasks_total"),
    chart("Actor calls", "sheaf_actor_calls_total"),
    chart("Executions", "sheaf_executed_total"),
    chart("Latency of tasks", "sheaf_task_latency_seconds"),
    chart("Latency of actor calls", "sheaf_actor_call_latency_seconds"),
    chart("Time that user code runs", "sheaf_task_run_seconds"),
    chart("Tasks that wait at their owners", "sheaf_queued_tasks", by="node"),
    chart("Requests that wait", "sheaf_scheduler_queue_length", "sheaf_scheduler_starved"),
    chart("What waits and no node could take", "sheaf_scheduler_infeasible"),
    chart("What waits, by what it asks for", "sheaf_demand", stacked=True),
    chart("Wait for a lease", "sheaf_lease_wait_seconds"),
    chart("Leases", "sheaf_leases_total"),
    chart("Leases held", "sheaf_leases_held", by="node"),
    chart("Pushes", "sheaf_pushes_total"),
    chart("Demands handed to other nodes", "sheaf_demands_handed_on_total", by="node"),
    chart("Placement groups", "sheaf_placement_groups", "sheaf_placement_groups_pending"),
    chart("Workers", "sheaf_workers", stacked=True),
    chart("Workers started", "sheaf_workers_started_total", by="node"),
    chart("Start of a worker", "sheaf_worker_start_seconds"),
    chart("Workers that ended", "sheaf_worker_deaths_total"),
    chart("Actors", "sheaf_actors", stacked=True),
    chart("Restarts of actors", "sheaf_actor_restarts_total"),
    chart("Lines that workers print", "sheaf_log_lines_total"),
    chart("Output that came too fast", "sheaf_log_left_out_bytes_total", by="node"),
    chart("Calls that listings miss", "sheaf_events_lost_total", by="node"),
    chart("Spans that were exported", "sheaf_spans_exported_total", by="node"),
    chart("Spans that are lost", "sheaf_spans_dropped_total", by="node"),
]

OBJECTS = [
    chart(
        "Object stores",
        "sheaf_store_capacity_bytes",
        "sheaf_store_used_bytes",
        "sheaf_store_pinned_bytes",
        "sheaf_store_spilled_bytes",
        "sheaf_store_populated_bytes",
    ),
    chart("Used, by node", "sheaf_store_used_bytes", by="node"),
    chart("Objects", "sheaf_store_objects", "sheaf_owned_objects"),
    chart("Values put", "sheaf_object_puts_total"),
    chart("Bytes put", "sheaf_object_put_bytes_total", by="node"),
    chart("Sizes of values", "sheaf_object_size_bytes"),
    chart("Values read", "sheaf_object_gets_total"),
    chart("Private to their owners", "sheaf_private_bytes", by="node"),
    chart("Freed and adopted", "sheaf_objects_freed_total", "sheaf_objects_adopted_total"),
    chart("Spilled and restored", "sheaf_spills_total", "sheaf_restores_total"),
    chart("Bytes spilled and restored", "sheaf_spilled_bytes_total", "sheaf_restored_bytes_total"),
    chart("Failures", "sheaf_spill_failures_total", "sheaf_store_full_total"),
    chart("Between nodes", "sheaf_object_pulls_total", "sheaf_object_pull_failures_total"),
    chart(
        "Bytes between nodes", "sheaf_object_pulled_bytes_total", "sheaf_object_served_bytes_total"
    ),
    chart("Waiting for room", "sheaf_object_pulls_queued", by="node"),
    chart("Computed again", "sheaf_reconstructions_total", by="node"),
]

JOBS = [
    stat("Running", total("sheaf_jobs_running"), "short", "Drivers that live."),
    stat(
        "Submitted jobs that wait",
        total("sheaf_submissions", 'state="pending"'),
        "short",
        METRICS["sheaf_submissions"].help,
    ),
    stat(
        "Failed in the last hour",
        grown("sheaf_submissions_total", "1h", 'state="failed"'),
        "short",
        METRICS["sheaf_submissions_total"].help,
        red_from=1,
    ),
    stat("Drivers", total("sheaf_drivers"), "short", METRICS["sheaf_drivers"].help),
    chart("Jobs", "sheaf_jobs_total"),
    chart("Jobs that run", "sheaf_jobs_running", by=""),
    chart("Submitted jobs that have not ended", "sheaf_submissions", stacked=True),
    chart("Submitted jobs", "sheaf_submissions_total"),
    chart("Drivers, by node", "sheaf_drivers", by="node"),
    chart("Processes attached", "sheaf_processes", by="node"),
]

# Of sheaf.train (python_bindings/sheaf/train/run_metrics.py), by run.
OF_RUNS = "sum by (run) ({})"
TRAIN = [
    stat(
        "Workers that train",
        f"sum(ray_train_workers{{{PICK}}})",
        "short",
        "Workers of the groups of all training runs.",
    ),
    stat(
        "Steps a second",
        f"sum(rate(ray_train_steps{{{PICK}}}{RATE}))",
        "ops",
        "Steps that training runs record.",
    ),
    stat(
        "Groups formed",
        f"sum(increase(ray_train_groups_formed{{{PICK}}}[1h]))",
        "short",
        "In the last hour; more than there were runs: workers were lost, or groups grew.",
    ),
    Panel(
        "Workers, by run",
        [Query(OF_RUNS.format(f"ray_train_workers{{{PICK}}}"), "{{run}}")],
        "short",
        "Workers of the group of each run; 0 while it is formed anew, and when it has ended.",
    ),
    Panel(
        "Steps, by run",
        [Query(OF_RUNS.format(f"rate(ray_train_steps{{{PICK}}}{RATE})"), "{{run}}")],
        "ops",
        "Steps that each run records a second.",
    ),
    Panel(
        "Time of a step",
        [
            Query(
                f"histogram_quantile({quantile}, sum by (le) "
                f"(rate(ray_train_step_seconds_bucket{{{PICK}}}{RATE})))",
                name,
            )
            for quantile, name in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
        ],
        "s",
        "From one step to the next, over all runs.",
    ),
    Panel(
        "Groups formed, by run",
        [Query(OF_RUNS.format(f"ray_train_groups_formed{{{PICK}}}"), "{{run}}")],
        "short",
        "How often the group of each run was formed; each after the first cost the run a pause.",
    ),
    chart("Processors at work", "sheaf_host_cpu_ratio", by="node", most=1),
    chart("GPUs at work", "sheaf_host_gpu_ratio", by="node", most=1),
    chart("Memory of GPUs", "sheaf_host_gpu_memory_bytes", by="node, state"),
]

CONTROL_PLANE = [
    chart("Nodes", "sheaf_nodes", stacked=True),
    chart("Deaths of nodes", "sheaf_node_deaths_total"),
    chart("Operations", "sheaf_gcs_operations_total"),
    chart("Commits", "sheaf_gcs_commits_total", "sheaf_gcs_errors_total"),
    chart("Time of a commit", "sheaf_gcs_commit_seconds"),
    chart("Not answered yet", "sheaf_gcs_operations_in_progress", by=""),
    chart("Read only, or recovering", "sheaf_gcs_read_only", "sheaf_gcs_recovering", most=1),
    chart("Key-value store", "sheaf_gcs_key_value_bytes", by=""),
    chart("Frames between nodes", "sheaf_node_frames_total"),
    chart("Bytes between nodes", "sheaf_link_bytes_total"),
    chart("Not acknowledged by others yet", "sheaf_link_queued_bytes", by="node"),
    chart(
        "Connections lost and refused",
        "sheaf_link_reconnects_total",
        "sheaf_link_refused_handshakes_total",
        "sheaf_link_resent_messages_total",
    ),
    chart("Frames within nodes", "sheaf_ring_frames_total"),
    chart("Bytes within nodes", "sheaf_ring_bytes_total", by="node"),
    chart("Rings", "sheaf_rings", by="node"),
    chart(
        "Frames that waited or were malformed",
        "sheaf_ring_queued_frames_total",
        "sheaf_bad_frames_total",
    ),
    chart("Sleeps and wakes", "sheaf_doorbell_sleeps_total", "sheaf_doorbell_wakes_total"),
    chart("HTTP requests", "sheaf_http_requests_total"),
    chart("Answers over HTTP", "sheaf_http_request_seconds"),
    chart("HTTP connections", "sheaf_http_connections", by="node"),
    chart("HTTP connections turned away", "sheaf_http_connections_turned_away_total", by="node"),
]

BOARDS = {
    "overview": ("Sheaf", "What a cluster does, on one page.", OVERVIEW),
    "nodes": ("Sheaf: nodes", "The machines, and what nodes take of them.", NODES),
    "tasks": ("Sheaf: tasks and actors", "Calls, and the workers that run them.", TASKS),
    "objects": ("Sheaf: objects", "The object stores and what moves between them.", OBJECTS),
    "jobs": ("Sheaf: jobs", "Drivers, and commands that were submitted.", JOBS),
    "train": ("Sheaf: training", "Runs of sheaf.train, and what they use.", TRAIN),
    "control_plane": (
        "Sheaf: control plane",
        "The control store, links between nodes, rings within them, HTTP.",
        CONTROL_PLANE,
    ),
}


def _field(panel: Panel) -> dict:
    steps = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults: dict = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 60 if panel.stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        }
    return {"defaults": defaults, "overrides": []}


def _options(panel: Panel) -> dict:
    if panel.kind == "stat":
        return {
            "colorMode": "value" if panel.red_from is not None else "none",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "showPercentChange": False,
            "textMode": "auto",
            "wideLayout": True,
        }
    return {
        "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _panels(panels: list[Panel]) -> list[dict]:
    """Numbers eight to a row, charts three, in their order."""
    out, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        width, tall = (3, 4) if panel.kind == "stat" else (8, 8)
        if x + width > 24 or (height and tall != height):
            x, y, height = 0, y + height, 0
        out.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "description": panel.words,
                "datasource": DATASOURCE,
                "gridPos": {"h": tall, "w": width, "x": x, "y": y},
                "fieldConfig": _field(panel),
                "options": _options(panel),
                "targets": [
                    {
                        "refId": chr(ord("A") + place),
                        "datasource": DATASOURCE,
                        "expr": query.expression,
                        "legendFormat": query.legend or "__auto",
                        "range": True,
                    }
                    for place, query in enumerate(panel.queries)
                ],
            }
        )
        x, height = x + width, tall
    return out


def _variable(name: str, label: str, query: str) -> dict:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 7,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def board(name: str) -> dict:
    """One board, as Grafana imports it."""
    title, words, panels = BOARDS[name]
    return {
        "uid": f"sheaf-{name.replace('_', '-')}",
        "title": title,
        "description": words,
        "tags": ["sheaf"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [
            {
                "title": "Sheaf",
                "type": "dashboards",
                "tags": ["sheaf"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                    "refresh": 1,
                    "current": {"selected": False, "text": "", "value": ""},
                    "options": [],
                },
                _variable("cluster", "Cluster", "label_values(sheaf_build_info, cluster)"),
                _variable(
                    "node", "Node", 'label_values(sheaf_build_info{cluster=~"$cluster"}, node)'
                ),
            ]
        },
        "panels": _panels(panels),
    }


def metrics_of(expression: str) -> set[str]:
    """The metrics of the catalog that an expression names."""
    names = set(re.findall(r"\bsheaf_\w+", expression))
    return {
        name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name) for name in names
    }


def not_on_boards() -> list[str]:
    """What is wrong: a metric that no board has and that UNSHOWN does not name, or the opposite."""
    shown = set()
    for _, _, panels in BOARDS.values():
        for panel in panels:
            for query in panel.queries:
                shown |= metrics_of(query.expression)
    wrong = [f"{name} is on no board" for name in METRICS if name not in shown | set(UNSHOWN)]
    wrong += [f"{name}: UNSHOWN names it, and a board has it" for name in shown & set(UNSHOWN)]
    return wrong + [f"{name} is no metric" for name in (shown | set(UNSHOWN)) - set(METRICS)]


def main() -> None:
    wrong = not_on_boards()
    for name in BOARDS:
        file = FOLDER / f"{name}.json"
        text = json.dumps(board(name), indent=1) + "\n"
        if sys.argv[1:] == ["--check"]:
            if not file.exists() or file.read_text() != text:
                wrong.append(f"{file.relative_to(ROOT)} differs: python3 tools/grafana_boards.py")
        else:
            file.write_text(text)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

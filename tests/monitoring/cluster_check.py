# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A real Prometheus, with the files of deploy/prometheus, over a real cluster of three nodes whose
workload (workload.py) makes the metrics move. Checked: every metric of the catalog moves, every
expression of every panel of deploy/grafana has an answer, variables resolve, alerts that the workload
causes fire and the others do not, and Ray's names are served. What cannot be had here is listed below
with the reason.

Usage: cluster_check.py SHEAF    (`./do monitoring` runs it); prints rows for docs/evidence
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import grafana_boards  # noqa: E402
from sheaf.job_submission import JobSubmissionClient  # noqa: E402

WAIT_S = 120

# Metric -> why it may stand still here.
MAY_REST = {
    "sheaf_bad_frames_total": "wants a process that writes garbage (tests/integration)",
    "sheaf_build_info": "is 1 for ever",
    "sheaf_certificate_expires_seconds": "stays as it is until certificates are renewed",
    "sheaf_gcs_operations_in_progress": "operations are answered faster than a scrape sees them",
    "sheaf_gcs_read_only": "wants a full disk (tests/python/test_full_disks.py)",
    "sheaf_gcs_recovering": "is over before the next scrape",
    "sheaf_gpus": "the nodes are told of no GPU",
    "sheaf_host_cpu_steal_ratio": "wants a hypervisor that gives time to others",
    "sheaf_host_cpu_io_wait_ratio": "wants a disk that is slow",
    "sheaf_host_disk_bytes_per_second": "wants a machine that tells of its disks",
    "sheaf_host_gpu_memory_bytes": "there is no GPU",
    "sheaf_host_gpu_ratio": "there is no GPU",
    "sheaf_host_network_bytes_per_second": "leaves out loopback, over which these nodes speak",
    "sheaf_host_stall_ratio": "wants a kernel that tells of stalls (PSI)",
    "sheaf_link_queued_bytes": "is acknowledged faster than a scrape sees it",
    "sheaf_link_reconnects_total": "wants a network that fails (tests/python/test_node_faults.py)",
    "sheaf_link_resent_messages_total": "wants a network that fails",
    "sheaf_object_pull_failures_total": "wants an object whose last copy goes while it is fetched",
    "sheaf_object_pulls_queued": "is over before a scrape sees it",
    "sheaf_scheduler_starved": "is a fault wherever it lasts",
    "sheaf_spans_dropped_total": "wants a receiver of spans that fails (tests/python/test_tracing.py)",
    "sheaf_spans_exported_total": "wants a receiver of spans (tests/python/test_tracing.py)",
    "sheaf_store_capacity_bytes": "stays as it is while nodes live",
    "sheaf_spill_failures_total": "wants a disk that fails (tests/python/test_full_disks.py)",
}
# Alerts that the workload causes; of the others that need no time none may fire.
CAUSED = {"SheafNodeDown", "SheafJobFailed"}
MAY_FIRE = {"SheafOomKills", "SheafWorkerCrashLoop"}

# Part of an expression of Ray's board -> why it has no answer.
RAY_LEFT_OUT = {
    "gpus": "there is no GPU",
    "gram": "there is no GPU",
    'IsRetry!="0"': "retries are not told apart",
    'Name="memory"': "the metrics do not have the memory that tasks ask for",
}
RAY_NAMES = [
    "ray_tasks",
    "ray_actors",
    "ray_resources",
    "ray_object_store_memory",
    "ray_node_cpu_utilization",
    "ray_node_cpu_count",
    "ray_node_mem_used",
    "ray_node_mem_total",
    "ray_node_disk_usage",
    "ray_node_disk_free",
    "ray_node_network_receive_speed",
    "ray_node_network_send_speed",
    "ray_node_gpus_utilization",
    "ray_node_gpus_available",
    "ray_node_gram_used",
    "ray_node_gram_available",
    "ray_placement_groups",
    "ray_component_cpu_percentage",
    "ray_component_rss_bytes",
]


def until(condition, what: str, seconds: float = WAIT_S):
    """The first true value of `condition`; OSError counts as not yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except OSError:
            value = None
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Cluster:
    """A head and two more nodes, with TLS, a token for metrics, and Ray's names."""

    def __init__(self, program: str, folder: pathlib.Path):
        self.program, self.folder = program, folder
        self.environment = {
            **os.environ,
            "SHEAF_TOKEN": "7" * 64,
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_EXECUTABLE": program,
        }
        self.token = folder / "metrics-token"
        self.token.write_text("a-token-that-is-long-enough\n")
        self.token.chmod(0o600)
        self.tls = folder / "tls"
        self.run("cert", "init", self.tls, "--host", "127.0.0.1", "--host", "localhost")
        self.nodes: list[dict] = []
        self.nodes.append(
            self.start(
                "--head", f"--sd-file={folder}/prometheus_sd.json", "--include-dashboard=true"
            )
        )
        self.nodes.append(self.start(f"--address={self.nodes[0]['address']}"))
        self.nodes.append(
            self.start(f"--address={self.nodes[0]['address']}", "--resources=victim:1")
        )

    def run(self, *arguments) -> str:
        done = subprocess.run(
            [self.program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=self.environment,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def start(self, *flags: str) -> dict:
        number = len(self.nodes) + 1
        return json.loads(
            self.run(
                *("start", "--json", f"--dir={self.folder}/{number}", "--port=0", "--num-cpus=2"),
                *("--object-store-memory=96MiB", "--dashboard-port=0", f"--tls-dir={self.tls}"),
                *(f"--metrics-token-file={self.token}", "--metrics-ray-names", *flags),
                *(f"--dashboard-tls-cert={self.tls}/node.pem",),
                *(f"--dashboard-tls-key={self.tls}/node.key",),
            )
        )

    def driver(self, *arguments: str) -> subprocess.Popen:
        """A part of the workload; what it says of errors is in workload.err."""
        return subprocess.Popen(
            [sys.executable, str(HERE / "workload.py"), *arguments],
            env={**self.environment, "SHEAF_ADDRESS": self.nodes[0]["session"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.folder / "workload.err", "w"),  # noqa: SIM115
            text=True,
        )

    def finish(self, driver: subprocess.Popen, expect: str = "done\n"):
        out, _ = driver.communicate(timeout=WAIT_S)
        errors = (self.folder / "workload.err").read_text()[-2000:]
        assert out.endswith(expect), f"{driver.args}: {out[-500:]}{errors}"

    def metrics(self, number: int) -> str:
        request = urllib.request.Request(
            self.nodes[number - 1]["metrics_url"],
            headers={"Authorization": f"Bearer {self.token.read_text().strip()}"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.read().decode()

    def stop(self):
        for node in reversed(self.nodes):
            subprocess.run(
                [self.program, "stop", f"--address={node['session']}"],
                capture_output=True,
                timeout=WAIT_S,
                env=self.environment,
                check=False,
            )


class Prometheus:
    """A server with the shipped configuration, but for places and its periods."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path):
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        for old, new in (
            ("/etc/prometheus/sheaf-metrics-token", str(cluster.token)),
            ("/run/sheaf/prometheus_sd.json", f"{folder}/prometheus_sd.json"),
            ("scrape_interval: 15s", "scrape_interval: 1s"),
            ("evaluation_interval: 15s", "evaluation_interval: 1s"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        (folder / "prometheus.yml").write_text(text)
        shutil.copy(ROOT / "deploy/prometheus/alerts.yml", folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.base = f"http://127.0.0.1:{port}/api/v1/"
        self.began = time.time()
        self.log = open(folder / "prometheus.log", "w")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                tool("prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def ask(self, path: str, **query: str):
        url = self.base + path + "?" + urllib.parse.urlencode(query, doseq=True)
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]

    def points(self, expression: str, step: str = "1s") -> list[list[float]]:
        """The numbers of each series since the start; NaN is left out."""
        found = self.ask(
            "query_range", query=expression, start=str(self.began), end=str(time.time()), step=step
        )["result"]
        lines = [[float(value) for _, value in one["values"]] for one in found]
        return [kept for line in lines if (kept := [x for x in line if not math.isnan(x)])]

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=WAIT_S)
        self.log.close()


def tool(name: str) -> str:
    found = shutil.which(
        name, path=os.pathsep.join([os.environ["PATH"], str(ROOT / "build/prometheus/usr/bin")])
    )
    if found is None:
        sys.exit(f"{name} is not installed (Debian package prometheus)")
    return found


def submit_jobs(cluster: Cluster):
    client = JobSubmissionClient(
        cluster.nodes[0]["dashboard_url"], verify=str(cluster.tls / "ca.pem")
    )
    # What waits for resources that come when others end is seen as waiting.
    ids = [
        client.submit_job(entrypoint=command, **more)
        for command, more in (
            ("true", {}),
            ("false", {}),
            ("sleep 60", {"entrypoint_num_cpus": 2}),
            ("cat package.json", {"runtime_env": {"working_dir": str(HERE / "types")}}),
            ("true", {"entrypoint_resources": {"tape": 1}}),
        )
    ]
    states = {"SUCCEEDED", "FAILED", "RUNNING", "PENDING"}
    until(
        lambda: states <= {str(client.get_job_status(one).value) for one in ids},
        "jobs of all states",
    )
    time.sleep(3)  # Seen by two scrapes at least.
    for one in (ids[2], ids[4]):
        client.stop_job(one)
    until(lambda: client.get_job_status(ids[2]).value == "STOPPED", "a job is stopped")


def run_workload(cluster: Cluster):
    refused = subprocess.run(
        [
            *(cluster.program, "start", f"--address={cluster.nodes[0]['address']}", "--port=0"),
            *(f"--dir={cluster.folder}/stranger", f"--tls-dir={cluster.tls}"),
        ],
        env={**cluster.environment, "SHEAF_TOKEN": "8" * 64},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert refused.returncode != 0
    submit_jobs(cluster)
    cluster.finish(cluster.driver("crash"), expect="")
    flood = cluster.driver("flood")
    assert flood.stdout.readline() == "ready\n"
    node = cluster.nodes[0]["os_pid"]
    os.kill(node, signal.SIGSTOP)  # Calls go on without their raylet.
    try:
        flood.stdin.write("go\n")
        flood.stdin.flush()
        time.sleep(1.5)
    finally:
        os.kill(node, signal.SIGCONT)
    cluster.finish(flood)
    hold_connections(cluster)
    cluster.finish(cluster.driver("waiting"))
    cluster.finish(cluster.driver("training", str(cluster.folder / "training")))
    everything = cluster.driver("all", str(cluster.folder / "marker"))
    if any(line == "now\n" for line in everything.stdout):
        os.kill(cluster.nodes[2]["os_pid"], signal.SIGKILL)
        everything.stdin.write("dead\n")
        everything.stdin.flush()
    cluster.finish(everything)


def hold_connections(cluster: Cluster):
    """More than an endpoint takes."""
    at = urllib.parse.urlparse(cluster.nodes[1]["metrics_url"])
    with contextlib.ExitStack() as held:
        for _ in range(270):
            held.enter_context(socket.create_connection((at.hostname, at.port), timeout=WAIT_S))
        time.sleep(0.2)


def still(prometheus: Prometheus) -> list[str]:
    """Metrics that did not move and have no reason for it."""
    resting = []
    for name, metric in grafana_boards.METRICS.items():
        selector = f"{name}_count" if metric.type == "histogram" else name
        lines = prometheus.points(f"sum without (instance) ({selector})")
        if name not in MAY_REST and not any(max(line) > min(line) for line in lines):
            resting.append(name)
    return resting


def never_infeasible(prometheus: Prometheus) -> set[str]:
    """Kinds of what waits, of which none was ever told to be more than the cluster could take: each is
    counted elsewhere, and the alert is on their sum."""
    kinds = {"lease", "group", "actor", "submission"}
    name = "sheaf_scheduler_infeasible"
    return {
        kind
        for kind in kinds
        if not any(
            max(line) > 0
            for line in prometheus.points(f'sum without (instance) ({name}{{kind="{kind}"}})')
        )
    }


def empty_panels(prometheus: Prometheus) -> tuple[int, list[str]]:
    """How many expressions there are, and those without an answer."""
    count, empty = 0, []
    for name in grafana_boards.BOARDS:
        for panel in json.loads((grafana_boards.FOLDER / f"{name}.json").read_text())["panels"]:
            for target in panel["targets"]:
                count += 1
                expression = (
                    target["expr"]
                    .replace("$cluster", ".*")
                    .replace("$node", ".*")
                    .replace("$__rate_interval", "5s")
                )
                if not prometheus.points(expression):
                    empty.append(f"{name}: {panel['title']}: {expression}")
    return count, empty


def unanswered_of_ray(prometheus: Prometheus) -> tuple[int, list[str]]:
    """The same of the expressions of Ray's default board that name only what is served here; without
    a Ray (`./do peer` installs one) there are none."""
    peers = pathlib.Path(os.environ.get("SHEAF_PEERS", ROOT / "build" / "peers"))
    count, empty = 0, []
    for file in sorted(peers.glob("ray/**/dashboards/default_dashboard_panels.py"))[:1]:
        for expression in re.findall(r"expr=['\"](.*?)['\"],\n", file.read_text()):
            names = set(re.findall(r"\bray_\w+", expression))
            left_out = any(part in expression for part in RAY_LEFT_OUT)
            if not names or not names <= set(RAY_NAMES) or left_out:
                continue
            asked = expression.replace("{global_filters}", "").replace("{{", "{").replace("}}", "}")
            asked = re.sub(r"\$(Instance|RayNodeType)", ".*", asked)
            count += 1
            if not prometheus.points(asked):
                empty.append(asked)
    return count, empty


def unresolved_variables(prometheus: Prometheus) -> list[str]:
    missing = []
    for variable in grafana_boards.board("overview")["templating"]["list"]:
        if variable["type"] != "query":
            continue
        metric, label = re.fullmatch(
            r"label_values\((.*), (\w+)\)", variable["query"]["query"]
        ).groups()
        values = prometheus.ask(
            f"label/{label}/values", **{"match[]": metric.replace("$cluster", ".*")}
        )
        if not values:
            missing.append(variable["name"])
    return missing


def fired(prometheus: Prometheus) -> set[str]:
    states = prometheus.ask(
        "query_range",
        query='ALERTS{alertstate="firing"}',
        start=str(prometheus.began),
        end=str(time.time()),
        step="1s",
    )["result"]
    broken = [
        rule["name"]
        for group in prometheus.ask("rules")["groups"]
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]
    assert not broken, f"alerts that cannot be evaluated: {broken}"
    return {one["metric"]["alertname"] for one in states}


def check(prometheus: Prometheus, cluster: Cluster) -> list[str]:
    """Prints what was found; what is wrong."""
    wrong = [f"did not move: {name}" for name in still(prometheus)]
    wrong += [f"never infeasible: {kind}" for kind in never_infeasible(prometheus)]
    count, empty = empty_panels(prometheus)
    wrong += [f"no answer: {panel}" for panel in empty]
    wrong += [f"variable without values: {name}" for name in unresolved_variables(prometheus)]
    alerts = fired(prometheus)
    wrong += [f"alert did not fire: {name}" for name in CAUSED - alerts]
    wrong += [f"alert fired: {name}" for name in alerts - CAUSED - MAY_FIRE]
    wrong += [f"not served: {name}" for name in RAY_NAMES if not prometheus.points(name)]
    of_ray, empty_of_ray = unanswered_of_ray(prometheus)
    wrong += [f"no answer of Ray's board: {expression}" for expression in empty_of_ray]
    if prometheus.points("min_over_time(sheaf_scheduler_starved[10s]) > 0"):
        wrong.append("for ten seconds a node had room for what waited there")
    text = cluster.metrics(1)
    promtool = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    # It advises on names, which are Ray's.
    wrong += [
        f"promtool: {line}" for line in promtool.stderr.splitlines() if line.startswith("error")
    ]
    moved = len(grafana_boards.METRICS) - len(MAY_REST)
    print(
        f"| metrics that moved | {moved} of {len(grafana_boards.METRICS)}, {len(MAY_REST)} listed |"
    )
    print(f"| expressions of panels answered | {count - len(empty)} of {count} |")
    print(f"| alerts that fired | {', '.join(sorted(alerts))} |")
    print(f"| names of Ray served | {len(RAY_NAMES)} |")
    if of_ray:
        print(
            "| expressions of Ray's default board that name these, answered | "
            f"{of_ray - len(empty_of_ray)} of {of_ray}; GPUs, retries and memory resources left out |"
        )
    return wrong


def main():
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        cluster = Cluster(sys.argv[1], folder)
        stack.callback(cluster.stop)
        until((folder / "prometheus_sd.json").exists, "the list of nodes")
        until(
            lambda: len(json.loads((folder / "prometheus_sd.json").read_text())) == 3, "three nodes"
        )
        prometheus = Prometheus(cluster, folder)
        stack.callback(prometheus.stop)
        until(lambda: len(prometheus.points("up == 1")) == 3, "three nodes are scraped")
        run_workload(cluster)
        until(lambda: fired(prometheus) >= CAUSED, "the alerts that the workload causes", 30)
        wrong = check(prometheus, cluster)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

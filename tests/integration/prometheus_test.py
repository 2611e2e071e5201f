# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""promtool accepts what an endpoint serves, and a real Prometheus scrapes it.

Usage: prometheus_test.py ENDPOINT_PROGRAM SHEAF NODE_DRIVER [FOLDER_OF_PROMETHEUS]
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt.
PROGRAM, SHEAF, DRIVER = "", "", ""


def tool(name: str) -> str | None:
    folders = os.pathsep.join([os.environ["PATH"], *sys.argv[4:5]])
    return shutil.which(name, path=folders)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def until(condition, what: str, seconds: float = 30):
    """The first true value of `condition`, asked again every 50 ms; OSError counts as not yet."""
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
        time.sleep(0.05)


def stop(program: subprocess.Popen):
    program.terminate()
    program.communicate(timeout=10)


def check_with_promtool(test: unittest.TestCase, text: str):
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=text, text=True, capture_output=True
    )
    test.assertEqual((0, ""), (result.returncode, result.stdout + result.stderr))


@contextlib.contextmanager
def scraped(url: str):
    """The address of a Prometheus that scrapes `url`; its log is printed when the body fails."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(
            "scrape_configs:\n"
            "  - job_name: sheaf\n"
            "    scrape_interval: 200ms\n"
            "    scrape_timeout: 200ms\n"
            f"    static_configs: [{{targets: ['{urllib.parse.urlparse(url).netloc}']}}]\n"
        )
        with open(pathlib.Path(folder) / "log", "w+") as log:
            prometheus = subprocess.Popen(
                [
                    tool("prometheus"),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
            try:
                yield f"http://127.0.0.1:{port}"
            except AssertionError:
                log.seek(0)
                print(log.read())
                raise
            finally:
                stop(prometheus)


class Endpoint(unittest.TestCase):
    def setUp(self):
        self.program = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(stop, self.program)
        self.url = self.program.stdout.readline().strip()
        self.assertTrue(self.url.startswith("http://127.0.0.1:"), self.url)

    def test_promtool_accepts_the_text(self):
        check_with_promtool(self, get(self.url))

    def test_prometheus_scrapes_it(self):
        with scraped(self.url) as base:
            self.check_scrape(base)

    def check_scrape(self, base: str):
        def value(query: str) -> float | None:
            found = json.loads(get(f"{base}/api/v1/query?query={urllib.parse.quote(query)}"))[
                "data"
            ]["result"]
            return float(found[0]["value"][1]) if found else None

        self.assertEqual(
            1, until(lambda: value('up{job="sheaf"}'), "Prometheus reaches the endpoint")
        )
        self.assertEqual(
            1001, until(lambda: value('sheaf_tasks_total{state="finished"}'), "a counter arrives")
        )
        self.assertEqual(2000, value("sheaf_queued_tasks"))
        self.assertEqual(1, value("sheaf_task_latency_seconds_count"))
        self.assertAlmostEqual(0.001, value("sheaf_task_latency_seconds_sum"))
        quantile = value("histogram_quantile(0.5, sheaf_task_latency_seconds_bucket)")
        self.assertTrue(0.0005 < quantile < 0.0011, quantile)
        self.assertEqual(1, value('sheaf_build_info{version="0.0.0-test"}'))
        types = {
            target["type"]
            for target in json.loads(
                get(f"{base}/api/v1/targets/metadata?match_target={{job=%22sheaf%22}}")
            )["data"]
            if target["metric"].startswith("sheaf_")
        }
        self.assertEqual({"counter", "gauge", "histogram"}, types)


class Node(unittest.TestCase):
    """A node at work counts what it does."""

    # Each moves when 200 tasks and 200 actor calls run, values are put and read, and a task prints
    # a line.
    MOVED = [
        'sheaf_tasks_total{state="submitted"}',
        'sheaf_tasks_total{state="finished"}',
        'sheaf_actor_calls_total{state="submitted"}',
        'sheaf_actor_calls_total{state="finished"}',
        'sheaf_pushes_total{result="sent"}',
        'sheaf_executed_total{kind="task"}',
        'sheaf_executed_total{kind="actor_call"}',
        'sheaf_object_puts_total{place="private"}',
        'sheaf_object_puts_total{place="store"}',
        "sheaf_object_put_bytes_total",
        'sheaf_object_gets_total{place="private"}',
        'sheaf_object_gets_total{place="store"}',
        'sheaf_ring_frames_total{lane="work"}',
        'sheaf_ring_frames_total{lane="control"}',
        "sheaf_ring_bytes_total",
        "sheaf_doorbell_sleeps_total",
        "sheaf_doorbell_wakes_total",
        'sheaf_leases_total{event="granted"}',
        "sheaf_workers_started_total",
        'sheaf_log_lines_total{stream="out"}',
        'sheaf_gcs_operations_total{table="job"}',
        "sheaf_task_latency_seconds_count",
        "sheaf_actor_call_latency_seconds_count",
        "sheaf_task_run_seconds_count",
        "sheaf_lease_wait_seconds_count",
        "sheaf_worker_start_seconds_count",
        "sheaf_object_size_bytes_count",
        "sheaf_store_capacity_bytes",
        "sheaf_uptime_seconds",
    ]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = {
            **os.environ,
            "SHEAF_DIR": self.folder.name,
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_EXECUTABLE": SHEAF,
        }
        self.environment.pop("SHEAF_ADDRESS", None)
        started = subprocess.run(
            [SHEAF, "start", "--head", "--num-cpus=2", "--json"],
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=30,
        )
        self.assertEqual(0, started.returncode, started.stderr)
        self.addCleanup(
            subprocess.run, [SHEAF, "stop"], env=self.environment, capture_output=True, timeout=30
        )
        self.url = json.loads(started.stdout)["metrics_url"]

    def test_what_it_does_is_counted_and_scraped(self):
        driver = subprocess.Popen(
            [DRIVER, "work"],
            env={**self.environment, "SHEAF_ADDRESS": "auto"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(stop, driver)
        while (line := driver.stdout.readline()) and line != "done\n":
            pass
        self.assertEqual("done\n", line)

        def unmoved() -> list[str]:
            values = dict(
                line.rsplit(" ", 1)
                for line in get(self.url).splitlines()
                if not line.startswith("#")
            )
            return [name for name in self.MOVED if float(values.get(name, 0)) <= 0]

        try:
            until(lambda: not unmoved(), "every figure moves", 10)
        except AssertionError:
            self.fail(f"never moved: {unmoved()}")
        check_with_promtool(self, get(self.url))
        with scraped(self.url) as base:

            def submitted() -> float:
                query = urllib.parse.quote('sheaf_tasks_total{state="submitted"}')
                found = json.loads(get(f"{base}/api/v1/query?query={query}"))["data"]["result"]
                return float(found[0]["value"][1]) if found else 0

            self.assertGreaterEqual(until(submitted, "Prometheus has scraped the node"), 200)


if __name__ == "__main__":
    PROGRAM, SHEAF, DRIVER = sys.argv[1:4]
    missing = [name for name in ("promtool", "prometheus") if tool(name) is None]
    if missing:
        print(f"SKIPPED: not installed: {' '.join(missing)} (Debian package prometheus)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

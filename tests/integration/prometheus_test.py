# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""promtool accepts what an endpoint serves, and a real Prometheus scrapes it.

Usage: prometheus_test.py ENDPOINT_PROGRAM [FOLDER_OF_PROMETHEUS]
"""

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
PROGRAM = ""


def tool(name: str) -> str | None:
    folders = os.pathsep.join([os.environ["PATH"], *sys.argv[2:3]])
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


class Endpoint(unittest.TestCase):
    def setUp(self):
        self.program = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, self.program)
        self.url = self.program.stdout.readline().strip()
        self.assertTrue(self.url.startswith("http://127.0.0.1:"), self.url)

    @staticmethod
    def stop(program: subprocess.Popen):
        program.terminate()
        program.communicate(timeout=10)

    def test_promtool_accepts_the_text(self):
        result = subprocess.run([tool("promtool"), "check", "metrics"], input=get(self.url), text=True, capture_output=True)
        self.assertEqual((0, ""), (result.returncode, result.stdout + result.stderr))

    def test_prometheus_scrapes_it(self):
        port = free_port()
        target = urllib.parse.urlparse(self.url).netloc
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "prometheus.yml"
            config.write_text(
                "scrape_configs:\n"
                "  - job_name: sheaf\n"
                "    scrape_interval: 200ms\n"
                "    scrape_timeout: 200ms\n"
                f"    static_configs: [{{targets: ['{target}']}}]\n")
            log = open(pathlib.Path(folder) / "log", "w+")
            prometheus = subprocess.Popen(
                [tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
            try:
                self.check_scrape(f"http://127.0.0.1:{port}")
            except AssertionError:
                log.seek(0)
                print(log.read())
                raise
            finally:
                self.stop(prometheus)
                log.close()

    def check_scrape(self, base: str):
        def value(query: str) -> float | None:
            found = json.loads(get(f"{base}/api/v1/query?query={urllib.parse.quote(query)}"))["data"]["result"]
            return float(found[0]["value"][1]) if found else None

        self.assertEqual(1, until(lambda: value('up{job="sheaf"}'), "Prometheus reaches the endpoint"))
        self.assertEqual(1001, until(lambda: value('sheaf_tasks_total{state="finished"}'), "a counter arrives"))
        self.assertEqual(2000, value("sheaf_queued_tasks"))
        self.assertEqual(1, value("sheaf_task_latency_seconds_count"))
        self.assertAlmostEqual(0.001, value("sheaf_task_latency_seconds_sum"))
        quantile = value("histogram_quantile(0.5, sheaf_task_latency_seconds_bucket)")
        self.assertTrue(0.0005 < quantile < 0.0011, quantile)
        self.assertEqual(1, value('sheaf_build_info{version="0.0.0-test"}'))
        types = {target["type"] for target in json.loads(get(f"{base}/api/v1/targets/metadata?match_target={{job=%22sheaf%22}}"))["data"]
                 if target["metric"].startswith("sheaf_")}
        self.assertEqual({"counter", "gauge", "histogram"}, types)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    missing = [name for name in ("promtool", "prometheus") if tool(name) is None]
    if missing:
        print(f"SKIPPED: not installed: {' '.join(missing)} (Debian package prometheus)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

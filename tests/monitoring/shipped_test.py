# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What deploy/prometheus and deploy/grafana have is right by itself: alerts fire when they shall and
not else, each has a runbook, all name metrics that there are, and boards are what their script writes.
`./do monitoring` asks a real Prometheus over a real cluster.

Usage: shipped_test.py [FOLDER_OF_PROMTOOL]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
sys.path.insert(0, str(ROOT / "tools"))

import grafana_boards  # noqa: E402

ALERTS = (PROMETHEUS / "alerts.yml").read_text()
NAMES = re.findall(r"- alert: (\w+)", ALERTS)


def tool(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *sys.argv[1:2]]))


def run(*command: str | pathlib.Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Boards(unittest.TestCase):
    def test_they_are_what_their_script_writes_and_show_every_metric(self):
        run(sys.executable, ROOT / "tools" / "grafana_boards.py", "--check")

    def test_each_panel_has_a_place_of_its_own(self):
        for name in grafana_boards.BOARDS:
            taken = set()
            for panel in grafana_boards.board(name)["panels"]:
                at = panel["gridPos"]
                self.assertLessEqual(at["x"] + at["w"], 24)
                cells = {
                    (x, y)
                    for x in range(at["x"], at["x"] + at["w"])
                    for y in range(at["y"], at["y"] + at["h"])
                }
                self.assertFalse(taken & cells, f"{name}: {panel['title']}")
                taken |= cells


class Alerts(unittest.TestCase):
    def test_each_has_a_severity_and_a_runbook(self):
        sections = re.findall(
            r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), flags=re.MULTILINE
        )
        self.assertEqual(NAMES, sections)
        for rule in ALERTS.split("- alert: ")[1:]:
            name = rule.split("\n", 1)[0]
            self.assertRegex(rule, r"severity: (critical|warning)\b")
            self.assertIn(f"runbook: docs/runbooks.md#{name.lower()}\n", rule)

    def test_each_names_only_metrics_that_there_are(self):
        for expression in re.findall(r"expr: (.*)", ALERTS):
            for metric in grafana_boards.metrics_of(expression):
                self.assertIn(metric, grafana_boards.METRICS)

    def test_each_is_shown_to_fire_and_not_to_fire(self):
        shown = (PROMETHEUS / "alerts_test.yml").read_text()
        for name in NAMES:
            self.assertRegex(shown, rf"alertname: {name}, eval_time: \w+, exp_alerts: \[\]")
            self.assertRegex(shown, rf"- alertname: {name}\n +eval_time: \w+\n +exp_alerts:\n +- ")

    def test_promtool_agrees(self):
        if tool("promtool") is None:
            self.skipTest("promtool is not installed (Debian package prometheus)")
        run(tool("promtool"), "check", "rules", PROMETHEUS / "alerts.yml")
        run(tool("promtool"), "test", "rules", PROMETHEUS / "alerts_test.yml")
        with tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("t")
            config = pathlib.Path(folder) / "prometheus.yml"
            text = (PROMETHEUS / "prometheus.yml").read_text()
            config.write_text(text.replace("/etc/prometheus/sheaf-metrics-token", str(token)))
            shutil.copy(PROMETHEUS / "alerts.yml", folder)
            run(tool("promtool"), "check", "config", config)

    def test_amtool_agrees_and_only_critical_ones_wake_somebody(self):
        if tool("amtool") is None:
            self.skipTest("amtool is not installed (Debian package prometheus-alertmanager)")
        config = PROMETHEUS / "alertmanager.yml"
        run(tool("amtool"), "check-config", config)
        for severity, who in (("critical", "on-call"), ("warning", "working-hours")):
            routed = run(
                *(tool("amtool"), "config", "routes", "test", f"--config.file={config}"),
                f"severity={severity}",
            )
            self.assertEqual(who, routed.strip())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

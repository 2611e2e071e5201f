# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A release of the chart in a Kubernetes, which cases of kube_test.py and upgrades.py ask."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import ssl
import subprocess
import unittest
import urllib.request

from control_plane import ControlPlane, Object, until
from kubelet import ROOT, Image, Images, Kubelet, Pod
from network import GATEWAY, Network

SPACE, RELEASE = "data", "prod"
VERSION, ANOTHER = "0.1.0", "9.9.0"
CHART = ROOT / "deploy/helm/sheaf"
CORE, APPS = f"/api/v1/namespaces/{SPACE}", f"/apis/apps/v1/namespaces/{SPACE}"
HEAD = "prod-sheaf-head-0"
SMALL = ["--object-store-memory=128MiB"]
GROWS = "grows"  # A StorageClass whose volumes may grow.
IMAGES = {"ours": f"sheaf:{VERSION}", "another": f"sheaf:{ANOTHER}"}  # Of which there are programs.
VALUES = {
    "head": {
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "storage": {"className": GROWS, "size": "20Gi"},
        "flags": SMALL,
    },
    "workerGroups": [
        {
            "name": "workers",
            "replicas": 2,
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "flags": SMALL,
        }
    ],
}
# The nodes on which two tasks ran, each in its place on one. They have words as an argument that
# nobody else says: not the command either, as they are put together here.
SPREAD = """
import sheaf
from sheaf.util.placement_group import placement_group
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy
sheaf.init()
@sheaf.remote(num_cpus=2)
def where(words):
    return sheaf.util.get_node_ip_address()
words = "-".join(["what", "tasks", "are", "told"])
group = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
places = [PlacementGroupSchedulingStrategy(group, number) for number in range(2)]
calls = [where.options(scheduling_strategy=place).remote(words) for place in places]
print("tasks ran on", *sheaf.get(calls))
"""
# What has begun when its nodes go, on two of them.
BEGUN = """
import sheaf, time
sheaf.init()
@sheaf.remote(num_cpus=2)
def slow():
    print("the task has begun", flush=True)
    time.sleep(10)
    return "what had begun"
print(sheaf.get(slow.remote()), "has ended")
"""


def is_ready(pod: Object) -> bool:
    """By what its node says of it."""
    said = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return said.get("Ready") == "True"


class Release(unittest.TestCase):
    """One release in one cluster, and what there is to be asked of them. The three paths are those of
    kube_test.py's arguments."""

    program: pathlib.Path
    helm_program: pathlib.Path
    folder: pathlib.Path

    release = RELEASE
    trust: ssl.SSLContext | None = None  # For the job server of the release; None: in plain.

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)
        cls.folder.mkdir(parents=True)
        cls.network = Network()
        cls.plane = ControlPlane(cls.program, cls.folder, GATEWAY)
        cls.addClassCleanup(cls.plane.close)
        cls.api = cls.plane.api()
        node = cls.plane.api("system:node:stand-in")
        cls.kubelet = Kubelet(node, cls.api, cls.network, cls.folder / "pods", cls.images())
        cls.addClassCleanup(cls.kubelet.close)

    @classmethod
    def images(cls) -> Images:
        """Those that there are: of this build, and of the same as another version."""
        ours = Image(ROOT / "build/cli/sheaf", ROOT / "build/python")
        folder = cls.folder / "another"
        another = Image(folder / "sheaf", folder / "python")
        shutil.copytree(ours.packages, another.packages, symlinks=True)
        (module,) = another.packages.glob("sheaf/_core.*.so")
        for source, target in ((ours.program, another.program), (module.resolve(), module)):
            # Instructions write four of its bytes at once: the number is data, and an operand.
            data = source.read_bytes().replace(VERSION[:4].encode(), ANOTHER[:4].encode())
            target.unlink(missing_ok=True)
            target.write_bytes(data)
            target.chmod(0o755)
        done = subprocess.run([another.program, "version"], capture_output=True, text=True)
        assert ANOTHER in done.stdout, done
        return {IMAGES["ours"]: ours, IMAGES["another"]: another}

    def helm(self, *words: str) -> str:
        done = self.helm_says(*words)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def helm_says(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [
                *(
                    self.helm_program,
                    *words,
                    "--namespace",
                    SPACE,
                    "--kube-apiserver",
                    "https://localhost:6443",
                ),
                *("--kube-token", self.plane.tokens["admin"]),
                *("--kube-ca-file", self.plane.certificate),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
        )

    def install(self, verb: str, values: Object = VALUES, chart: pathlib.Path = CHART) -> None:
        self.helm(verb, self.release, str(chart), "-f", self.written(values))

    def written(self, values: Object) -> str:
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        return str(file)

    def everything(self) -> set[str]:
        """Of the namespace, of all kinds that there are."""
        groups = [
            group["preferredVersion"]["groupVersion"] for group in self.api.get("/apis")["groups"]
        ]
        found = set()
        for version in ["/api/v1", *(f"/apis/{group}" for group in groups)]:
            for kind in self.api.get(version)["resources"]:
                if kind["namespaced"] and "list" in kind["verbs"] and kind["name"] != "events":
                    items = self.api.items(f"{version}/namespaces/{SPACE}/{kind['name']}")
                    found |= {f"{kind['name']}/{one['metadata']['name']}" for one in items}
        return found

    def pods(self, component: str) -> list[Object]:
        """Those that are not on their way out."""
        label = f"app.kubernetes.io/component={component}"
        found = self.api.items(f"{CORE}/pods", labelSelector=label)
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def ready(self, component: str) -> list[Object]:
        return [pod for pod in self.pods(component) if is_ready(pod)]

    def workers(self) -> set[str]:
        return {name for name in self.kubelet.pods if name != HEAD}

    def left_in_order(self, pods: dict[str, Pod]) -> None:
        """All of `pods` ended by themselves when they were asked to, workers with nothing to do."""
        for name, pod in pods.items():
            self.assertEqual(0, pod.container.code(), name)
            if name != HEAD:
                self.assertIn("is DRAINED", pod.last_words)

    def head(self) -> Pod:
        return self.kubelet.pods[f"{self.release}-sheaf-head-0"]

    def sheaf(self, *words: str) -> str:
        done = self.head().container.run(["sheaf", *words], 60)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def jobs(self, path: str = "", body: Object | None = None):
        """Of the job server, which is asked at the Service of the head."""
        service = self.api.get(f"{CORE}/services/{self.release}-sheaf-head")
        token = self.sheaf("token", "--http").strip()
        request = urllib.request.Request(
            f"http{'s' if self.trust else ''}://{service['spec']['clusterIP']}:8265/api/jobs/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30, context=self.trust) as answer:
            return json.load(answer)

    def answers(self) -> bool:
        """Whether the Service leads to the job server, which is so soon after its pod is ready."""
        try:
            return isinstance(self.jobs(), list)
        except OSError:
            return False

    def submit(self, program: str, **wanted) -> str:
        """The id of a submitted command."""
        until("the job server answers", self.answers)
        command = {"entrypoint": shlex.join(["python", "-c", program]), **wanted}
        return self.jobs("", command)["submission_id"]

    def says(self, job: str, words: str) -> bool:
        return words in self.jobs(f"{job}/logs")["logs"]

    def job(self, program: str) -> str:
        """What a submitted command prints."""
        name = self.submit(program)
        status = self.outcome(name)
        logs = self.jobs(f"{name}/logs")["logs"]
        self.assertEqual("SUCCEEDED", status, logs)
        return logs

    def outcome(self, job: str) -> str:
        until("the job server answers", self.answers)
        ended = ("SUCCEEDED", "FAILED", "STOPPED")
        until("the job has ended", lambda: self.jobs(job)["status"] in ended)
        return self.jobs(job)["status"]

    def left_behind(self, job: str) -> str:
        """What a job has printed on a worker, which has taken it along."""
        (log,) = self.folder.glob(f"pods/*/volumes/state/sessions/*/logs/job-driver-{job}.log")
        return log.read_text()

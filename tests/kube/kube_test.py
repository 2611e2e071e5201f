# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Helm chart in a Kubernetes: a real API server, real controllers, and a stand-in for its one
node, whose containers are processes of this build (kubelet.py).

Usage: kube_test.py CONTROL_PLANE HELM FOLDER

The API server admits what the chart makes under the strictest of its own rules; controllers make
pods and addresses of it; a cluster comes of them, which takes jobs, loses nodes in order, and its
head. Wants root: the network is one of this test alone. FOLDER gets the logs.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import unittest
import urllib.request

from control_plane import JSON, MERGE, Api, ControlPlane, Object, Refused, until
from kubelet import ROOT, Kubelet, Pod
from network import DOMAIN, GATEWAY, Network, Wire

SPACE, RELEASE, ENCRYPTED = "data", "prod", "safe"
CHART = ROOT / "deploy/helm/sheaf"
CORE, APPS = f"/api/v1/namespaces/{SPACE}", f"/apis/apps/v1/namespaces/{SPACE}"
WORKERS = f"{APPS}/deployments/prod-sheaf-workers"
COST = "controller.kubernetes.io/pod-deletion-cost"
HEAD = "prod-sheaf-head-0"
OURS = "app.kubernetes.io/instance=prod"
LONGER_THAN_NODES_WAIT_S = 12  # By themselves: 10.
SMALL = ["--object-store-memory=128MiB"]
VALUES = {
    "head": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
    "workerGroups": [
        {
            "name": "workers",
            "replicas": 2,
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "flags": SMALL,
        }
    ],
}
VALUES["head"]["flags"] = SMALL
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
WORDS = "what-tasks-are-told"
# Calls on the workers for as long as the head is the one of the beginning, and some more; and an
# actor of the head that outlives it.
LONG = """
import sheaf
sheaf.init(namespace="upgraded")
def head():
    return [node["NodeID"] for node in sheaf.nodes()
            if node["Alive"] and node["Labels"].get("ray.io/node-group") == "head"]
@sheaf.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Keeper:
    def generation(self):
        return sheaf.get_runtime_context().get_node_id()
@sheaf.remote
def double(number):
    return 2 * number
keeper = Keeper.options(name="keeper", lifetime="detached",
                        label_selector={"ray.io/node-group": "head"}).remote()
first, number, more = head(), 0, 50
assert first == [sheaf.get(keeper.generation.remote())]
print("begun", flush=True)
while more:
    assert sheaf.get([double.remote(number + i) for i in range(10)]) == [
        2 * (number + i) for i in range(10)]
    number, more = number + 10, more - (head() not in ([], first))
assert head() == [sheaf.get(keeper.generation.remote())]
print("all calls were right")
"""
FOUND = """
import sheaf
sheaf.init(namespace="upgraded")
print("keeper is on", sheaf.get(sheaf.get_actor("keeper").generation.remote()))
"""
# What has begun when the release goes, on two nodes.
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
# A collective of the head, which lends no CPUs, and of a worker.
COLLECTIVE = """
import sheaf, numpy
from sheaf.util import collective
sheaf.init()
@sheaf.remote(num_cpus=0)
class Rank:
    def sum(self, rank):
        collective.init_collective_group(2, rank, group_name="both")
        found = numpy.full(1000, rank + 1.0)
        collective.allreduce(found, "both")
        return sheaf.util.get_node_ip_address(), found.sum()
ranks = [Rank.options(label_selector={"ray.io/node-group": group}).remote()
         for group in ("head", "workers")]
print("ranks say", *sheaf.get([rank.sum.remote(number) for number, rank in enumerate(ranks)]))
"""


def is_ready(pod: Object) -> bool:
    """By what its node says of it."""
    said = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return said.get("Ready") == "True"


class Kube(unittest.TestCase):
    """One cluster, in the order of the names: what a test leaves is what the next begins with."""

    release = RELEASE
    trust: ssl.SSLContext | None = None  # For the job server of the release; None: in plain.

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        cls.network = Network()
        cls.plane = ControlPlane(PROGRAM, FOLDER, GATEWAY)
        cls.addClassCleanup(cls.plane.close)
        cls.api = cls.plane.api()
        node = cls.plane.api("system:node:stand-in")
        cls.kubelet = Kubelet(node, cls.api, cls.network, FOLDER / "pods")
        cls.addClassCleanup(cls.kubelet.close)

    def helm(self, *words: str) -> str:
        done = subprocess.run(
            [
                *(HELM, *words, "--namespace", SPACE, "--kube-apiserver", "https://localhost:6443"),
                *("--kube-token", self.plane.tokens["admin"]),
                *("--kube-ca-file", self.plane.certificate),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            env={"PATH": os.environ["PATH"], "HOME": str(FOLDER)},
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def install(self, verb: str, values: Object = VALUES, chart: pathlib.Path = CHART) -> None:
        file = FOLDER / "values.json"
        file.write_text(json.dumps(values))
        self.helm(verb, self.release, str(chart), "-f", str(file))

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
        (log,) = FOLDER.glob(f"pods/*/volumes/state/sessions/*/logs/job-driver-{job}.log")
        return log.read_text()

    def test_01_the_chart_is_admitted_where_only_restricted_pods_are(self):
        strict = {"pod-security.kubernetes.io/enforce": "restricted"}
        space = {"metadata": {"name": SPACE, "labels": strict}}
        self.api.post("/api/v1/namespaces", space)
        # The rule is at work.
        pod = {"metadata": {"name": "bad"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        until("the account of the namespace", lambda: self.api.items(f"{CORE}/serviceaccounts"))
        until("what each has", lambda: self.api.items(f"{CORE}/configmaps"))
        type(self).before = self.everything()
        with self.assertRaisesRegex(Refused, "violates PodSecurity"):
            self.api.post(f"{CORE}/pods", pod)

        self.install("install")
        until("the controllers have made the pods", lambda: len(self.pods("worker")) == 2)
        until("the one of the head", lambda: self.pods("head"))
        for pod in [*self.pods("worker"), *self.pods("head")]:
            self.assertEqual("prod-sheaf", pod["spec"]["serviceAccountName"])
            names = {mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
            self.assertNotIn("/var/run/secrets/kubernetes.io/serviceaccount", names)
        policies = f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies"
        (policy,) = self.api.items(policies)
        self.assertEqual(["Ingress"], policy["spec"]["policyTypes"])

    def test_02_an_upgrade_keeps_the_token(self):
        secret = f"{CORE}/secrets/prod-sheaf-token"
        before = self.api.get(secret)["data"]
        self.install("upgrade")
        self.assertEqual(before, self.api.get(secret)["data"])

    def test_03_workers_wait_for_a_head_whose_volume_comes_late(self):
        until(
            "workers wait",
            lambda: all(
                name in self.kubelet.pods
                and self.kubelet.pods[name].container
                and "waits for the head" in self.kubelet.pods[name].container.log.read_text()
                for name in [pod["metadata"]["name"] for pod in self.pods("worker")]
            ),
        )
        time.sleep(LONGER_THAN_NODES_WAIT_S)
        self.assertEqual([], self.ready("worker"))
        (claim,) = self.api.items(f"{CORE}/persistentvolumeclaims")
        volume = {
            "metadata": {"name": "state"},
            "spec": {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "hostPath": {"path": str(FOLDER / "state")},
            },
        }
        self.api.post("/api/v1/persistentvolumes", volume)
        until("the head is ready", lambda: self.ready("head"))
        until("the workers are ready", lambda: len(self.ready("worker")) == 2)
        self.assertEqual({0}, {pod.restarts for pod in self.kubelet.pods.values()})

    def test_04_nodes_announce_their_pods(self):
        nodes = json.loads(self.sheaf("list", "nodes", "--json"))["nodes"]
        found = {node["address"].rsplit(":", 1)[0] for node in nodes if node["state"] == "ALIVE"}
        self.assertEqual({pod.address for pod in self.kubelet.pods.values()}, found)

    def test_05_a_job_of_the_head_runs_on_its_workers(self):
        with Wire() as wire:
            logs = self.job(SPREAD)
        for pod in self.ready("worker"):
            self.assertIn(pod["status"]["podIP"], logs)
        self.assertTrue(wire.has(WORDS))

    def test_06_a_collective_has_a_rank_on_the_head(self):
        logs = self.job(COLLECTIVE)
        self.assertIn(self.head().address, logs)
        self.assertEqual(2, logs.count("3000.0"), logs)

    def test_07_the_account_of_the_pods_may_nothing(self):
        account = f"{CORE}/serviceaccounts/prod-sheaf/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.api.post(account, request)["status"]["token"]
        pods = Api(token, self.plane.certificate)
        name = f"system:serviceaccount:{SPACE}:prod-sheaf"
        worker = self.ready("worker")[0]["metadata"]["name"]
        for method, path in [
            ("GET", f"{CORE}/pods"),
            ("GET", f"{CORE}/secrets/prod-sheaf-token"),
            ("DELETE", f"{CORE}/pods/{worker}"),
            ("POST", f"{CORE}/pods"),
            ("PATCH", f"{WORKERS}/scale"),
            ("GET", "/api/v1/nodes"),
        ]:
            kind = MERGE if method == "PATCH" else JSON
            with self.subTest(f"{method} {path}"), self.assertRaises(Refused) as refused:
                pods.ask(method, path, {} if method in ("POST", "PATCH") else None, kind)
            self.assertEqual(403, refused.exception.status)
            self.assertIn(name, refused.exception.message)

    def test_08_the_budget_lets_one_of_two_workers_go(self):
        policy = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets/prod-sheaf-workers"
        until(
            "the budget is known",
            lambda: self.api.get(policy)["status"].get("disruptionsAllowed") == 1,
        )
        first, second = (pod["metadata"]["name"] for pod in self.ready("worker"))

        def evict(name: str) -> None:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            self.api.post(f"{CORE}/pods/{name}/eviction", eviction)

        evict(first)
        with self.assertRaises(Refused) as refused:
            evict(second)
        self.assertEqual(429, refused.exception.status)
        until("the pod is gone", lambda: first not in self.kubelet.pods)
        self.assertIn("is DRAINED", self.kubelet.ended(first).last_words)
        until("there is another one", lambda: len(self.ready("worker")) == 2)

    def test_09_the_scale_is_a_number_and_the_cheapest_pod_goes(self):
        scale = f"{WORKERS}/scale"
        self.assertEqual(2, self.api.get(scale)["spec"]["replicas"])
        self.api.patch(scale, {"spec": {"replicas": 3}})
        until("there are three", lambda: len(self.ready("worker")) == 3)
        # Without the cost the newest would go.
        oldest, *others = sorted(
            (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"])
            for pod in self.ready("worker")
        )
        cost = {"metadata": {"annotations": {COST: "-100"}}}
        self.api.patch(f"{CORE}/pods/{oldest[1]}", cost)
        self.api.patch(scale, {"spec": {"replicas": 2}})
        until("it is gone", lambda: oldest[1] not in self.kubelet.pods)
        self.assertEqual(
            {name for _, name in others}, {pod["metadata"]["name"] for pod in self.pods("worker")}
        )
        self.assertIn("is DRAINED", self.kubelet.ended(oldest[1]).last_words)

    def test_10_a_head_that_is_taken_away_comes_back_with_its_state(self):
        jobs = {job["submission_id"] for job in self.jobs()}
        self.assertEqual(2, len(jobs))
        before = self.head()
        self.api.ask("DELETE", f"{CORE}/pods/{HEAD}")
        until("another pod is there", lambda: self.kubelet.pods.get(HEAD, before) is not before)
        until("it is ready", lambda: self.ready("head"))
        self.assertNotEqual(before.address, self.head().address)
        self.assertIn("tasks ran on", self.job(SPREAD))
        self.assertLess(jobs, {job["submission_id"] for job in self.jobs()})
        self.assertEqual({0}, {pod.restarts for pod in self.kubelet.pods.values()})

    def test_11_an_upgrade_lets_work_go_on_and_keeps_the_state(self):
        chart = FOLDER / "chart"
        shutil.copytree(CHART, chart)
        about = chart / "Chart.yaml"
        about.write_text(about.read_text().replace("\nversion: 0.", "\nversion: 1000."))
        (group,) = VALUES["workerGroups"]
        values = {**VALUES, "workerGroups": [{**group, "labels": {"generation": "second"}}]}
        values["head"] = {**VALUES["head"], "labels": {"generation": "second"}}
        jobs = {job["submission_id"] for job in self.jobs()}
        secret = self.api.get(f"{CORE}/secrets/prod-sheaf-token")["data"]
        before = self.kubelet.pods

        job = self.submit(LONG, entrypoint_num_cpus=1)
        until("it has begun", lambda: self.says(job, "begun"))
        self.install("upgrade", values, chart)
        until("no pod of before is there", lambda: not before.keys() & self.workers())
        until(
            "nor the head of before",
            lambda: self.kubelet.pods.get(HEAD, before[HEAD]) is not before[HEAD],
        )
        until("the head is ready", lambda: self.ready("head"))
        until("the workers are ready", lambda: len(self.ready("worker")) == 2)

        self.assertEqual("SUCCEEDED", self.outcome(job))
        self.assertIn("all calls were right", self.left_behind(job))
        self.assertIn("keeper is on", self.job(FOUND))
        self.assertLess(jobs, {job["submission_id"] for job in self.jobs()})
        self.assertEqual(secret, self.api.get(f"{CORE}/secrets/prod-sheaf-token")["data"])
        nodes = json.loads(self.sheaf("list", "nodes", "--json"))["nodes"]
        alive = [node for node in nodes if node["state"] == "ALIVE"]
        self.assertEqual(["second"] * 3, [node["labels"].get("generation") for node in alive])
        self.assertEqual({0}, {pod.restarts for pod in self.kubelet.pods.values()})
        self.left_in_order(before)

    def test_12_with_the_release_all_goes_but_the_token_and_the_state(self):
        pods = self.kubelet.pods
        job = self.submit(BEGUN, entrypoint_num_cpus=1)
        until("its task runs", lambda: self.says(job, "the task has begun"))
        self.helm("uninstall", RELEASE)
        kept = {"secrets/prod-sheaf-token", f"persistentvolumeclaims/state-{HEAD}"}
        until("nothing else is left", lambda: self.everything() - self.before == kept)
        self.left_in_order(pods)
        self.assertIn("what had begun has ended", self.left_behind(job))

    def test_13_with_certificates_nodes_say_nothing_in_plain(self):
        type(self).release = ENCRYPTED
        folder = FOLDER / "certificates"
        full = f"{ENCRYPTED}-sheaf"
        names = [f"{full}-head.{SPACE}.{DOMAIN}", f"*.{full}-nodes.{SPACE}.{DOMAIN}", "localhost"]
        make = [ROOT / "build/cli/sheaf", "cert", "init", folder, "--host", *names]
        subprocess.run(make, check=True, capture_output=True, text=True)
        files = {"tls.crt": "node.pem", "tls.key": "node.key", "ca.crt": "ca.pem"}
        data = {
            key: base64.b64encode((folder / file).read_bytes()).decode()
            for key, file in files.items()
        }
        self.api.post(f"{CORE}/secrets", {"metadata": {"name": "certificates"}, "data": data})
        type(self).trust = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self.trust.check_hostname = False  # The Service is asked by its address here.

        head = {**VALUES["head"], "storage": {"enabled": False}}
        tls = {"existingSecret": "certificates"}
        with Wire() as wire:
            self.install("install", {**VALUES, "head": head, "tls": tls})
            until("the head is ready", lambda: self.ready("head"))
            until("the workers are ready", lambda: len(self.ready("worker")) == 2)
            logs = self.job(SPREAD)
        self.assertFalse(wire.has(WORDS))
        for pod in self.ready("worker"):  # Known by names, which certificates are for.
            name = pod["status"]["podIP"].replace(".", "-")
            self.assertIn(f"{name}.{full}-nodes.{SPACE}.{DOMAIN}", logs)
        self.assertNotIn("without encryption", self.head().container.log.read_text())
        self.helm("uninstall", ENCRYPTED)
        until("no pod is left", lambda: not self.api.items(f"{CORE}/pods"))


if __name__ == "__main__":
    PROGRAM, HELM, FOLDER = (pathlib.Path(word).absolute() for word in sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])

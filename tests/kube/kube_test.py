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
import pathlib
import ssl
import subprocess
import sys
import time
import unittest

import upgrades
from control_plane import JSON, MERGE, Api, Refused, until
from kubelet import ROOT
from network import DOMAIN, Wire
from release import APPS, BEGUN, CORE, GROWS, HEAD, RELEASE, SPACE, SPREAD, VALUES

ENCRYPTED = "safe"
WORKERS = f"{APPS}/deployments/prod-sheaf-workers"
COST = "controller.kubernetes.io/pod-deletion-cost"
LONGER_THAN_NODES_WAIT_S = 12  # By themselves: 10.
WORDS = "what-tasks-are-told"
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


class Kube(upgrades.Upgrades):
    """One cluster, in the order of the names: what a test leaves is what the next begins with."""

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

        classes = "/apis/storage.k8s.io/v1/storageclasses"
        one = {"provisioner": "kubernetes.io/no-provisioner", "allowVolumeExpansion": True}
        self.api.post(classes, {"metadata": {"name": GROWS}, **one})
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
                "storageClassName": GROWS,
                "hostPath": {"path": str(self.folder / "state")},
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

    def test_16_with_the_release_all_goes_but_the_token_and_the_state(self):
        pods = self.kubelet.pods
        job = self.submit(BEGUN, entrypoint_num_cpus=1)
        until("its task runs", lambda: self.says(job, "the task has begun"))
        self.helm("uninstall", RELEASE)
        kept = {"secrets/prod-sheaf-token", "persistentvolumeclaims/prod-sheaf-head"}
        until("nothing else is left", lambda: self.everything() - self.before == kept)
        self.left_in_order(pods)
        self.assertIn("what had begun has ended", self.left_behind(job))

    def test_17_with_certificates_nodes_say_nothing_in_plain(self):
        type(self).release = ENCRYPTED
        folder = self.folder / "certificates"
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
    Kube.program, Kube.helm_program, Kube.folder = (
        pathlib.Path(word).absolute() for word in sys.argv[1:4]
    )
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The chart and a real server of Kubernetes' API, with etcd below it, and no machine that runs pods: it is
installed, upgraded and taken away by Helm; the server admits what it makes, pods under its strictest rules.

Usage: kube_test.py --apiserver PROGRAM --helm PROGRAM
"""

import argparse
import base64
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

CHART = pathlib.Path(__file__).parents[2] / "deploy/helm/sheaf"
SETS = sorted((CHART / "ci").glob("*-values.yaml"))
TOOLS = argparse.Namespace(apiserver=None, helm=None)
WAIT_S = 120
ADMIN = "an admin's token"
# Kinds of others, of which the chart makes objects: as much as the server needs to take some.
OTHERS = [
    ("monitoring.coreos.com", "podmonitors", "PodMonitor"),
    ("cert-manager.io", "certificates", "Certificate"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """etcd and an API server, in a folder."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        etcd, peers, port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{port}"
        key, tokens = folder / "key.pem", folder / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n')
        self.processes = [
            self.start(
                *("etcd", "--data-dir", folder / "etcd"),
                *("--listen-client-urls", f"http://127.0.0.1:{etcd}"),
                *("--advertise-client-urls", f"http://127.0.0.1:{etcd}"),
                *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
            ),
            self.start(
                *(TOOLS.apiserver, f"--etcd-servers=http://127.0.0.1:{etcd}"),
                *("--bind-address=127.0.0.1", f"--secure-port={port}"),
                *(f"--cert-dir={folder}/certs", f"--token-auth-file={tokens}"),
                *("--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16"),
                *("--service-account-issuer=https://kubernetes.default.svc",),
                *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            ),
        ]
        self.config = folder / "kubeconfig"
        self.config.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
                    "clusters": [
                        {
                            "name": "here",
                            "cluster": {"server": self.url, "insecure-skip-tls-verify": True},
                        }
                    ],
                    "users": [{"name": "admin", "user": {"token": ADMIN}}],
                }
            )
        )
        self.until(lambda: self.ask("GET", "/readyz")[0] == 200, "the server is not ready")

    def start(self, *words) -> subprocess.Popen:
        name = pathlib.Path(str(words[0])).name
        with open(self.folder / f"{name}.log", "wb") as log:
            return subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)

    def until(self, condition, what: str):
        end = time.monotonic() + WAIT_S
        while not condition():
            for process in self.processes:
                assert process.poll() is None, f"{process.args[0]} has ended: {self.folder}"
            assert time.monotonic() < end, what
            time.sleep(0.1)

    def ask(self, method: str, path: str, body=None, kind="application/json") -> tuple[int, dict]:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": kind},
        )
        context = ssl._create_unverified_context()  # It has made its certificate itself.
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, self.content(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, self.content(error.read())
        except OSError:
            return 0, {}

    def content(self, body: bytes) -> dict:
        return json.loads(body) if body.startswith(b"{") else {}

    def helm(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [TOOLS.helm, *words, "--kubeconfig", self.config],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sk-")
        cls.addClassCleanup(folder.cleanup)
        cls.server = Server(pathlib.Path(folder.name))
        cls.addClassCleanup(cls.server.end)
        for group, plural, kind in OTHERS:
            cls.add_kind(group, plural, kind)

    @classmethod
    def add_kind(cls, group: str, plural: str, kind: str):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True}
        status, said = cls.server.ask(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"plural": plural, "kind": kind},
                    "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
                },
            },
        )
        assert status == 201, said
        cls.server.until(
            lambda: cls.server.ask("GET", f"/apis/{group}/v1/{plural}")[0] == 200, f"no {plural}"
        )

    def namespace(self, name: str) -> str:
        """One that takes no pod that may more than it needs."""
        rule = {"pod-security.kubernetes.io/enforce": "restricted"}
        status, said = self.server.ask(
            "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": rule}}
        )
        self.assertEqual(201, status, said)
        return name

    def helm(self, *words: str) -> str:
        done = self.server.helm(*words)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def there(self, namespace: str, what: str) -> list[dict]:
        group = {
            "deployments": "/apis/apps/v1",
            "statefulsets": "/apis/apps/v1",
            "networkpolicies": "/apis/networking.k8s.io/v1",
            "poddisruptionbudgets": "/apis/policy/v1",
        }.get(what, "/api/v1")
        status, said = self.server.ask("GET", f"{group}/namespaces/{namespace}/{what}")
        self.assertEqual(200, status, said)
        return said["items"]

    def test_it_is_installed_upgraded_and_taken_away(self):
        namespace = self.namespace("data")
        self.helm("install", "prod", str(CHART), "-n", namespace)
        self.assertEqual(1, len(self.there(namespace, "statefulsets")))
        self.assertEqual(1, len(self.there(namespace, "networkpolicies")))
        self.assertEqual(1, len(self.there(namespace, "poddisruptionbudgets")))
        (secret,) = [one for one in self.there(namespace, "secrets") if one["type"] == "Opaque"]
        self.assertEqual(64, len(base64.b64decode(secret["data"]["token"])))

        more = ["--set", "workerGroups[0].replicas=5", "--reuse-values"]
        self.helm("upgrade", "prod", str(CHART), "-n", namespace, *more)
        (group,) = self.there(namespace, "deployments")
        self.assertEqual(5, group["spec"]["replicas"])
        (after,) = [one for one in self.there(namespace, "secrets") if one["type"] == "Opaque"]
        self.assertEqual(secret["data"], after["data"])  # Nodes know each other by it.

        # What takes nodes away asks for fewer here.
        scale = f"/apis/apps/v1/namespaces/{namespace}/deployments/prod-sheaf-workers/scale"
        merge = "application/merge-patch+json"
        status, said = self.server.ask("PATCH", scale, {"spec": {"replicas": 3}}, merge)
        self.assertEqual((200, 3), (status, said["spec"]["replicas"]))

        self.helm("uninstall", "prod", "-n", namespace)
        self.assertEqual([], self.there(namespace, "statefulsets"))
        kept = [one["metadata"]["name"] for one in self.there(namespace, "secrets")]
        self.assertEqual(["prod-sheaf-token"], kept)

    def test_what_all_sets_make_is_admitted_and_their_pods_are(self):
        for file in SETS:
            name = file.stem.removesuffix("-values")
            with self.subTest(name):
                namespace = self.namespace(f"of-{name}")
                self.helm("install", "prod", str(CHART), "-n", namespace, "-f", str(file))
                if name == "open":  # It makes no account of its own, and no controller runs here.
                    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
                    self.server.ask("POST", account, {"metadata": {"name": "default"}})
                owners = self.there(namespace, "statefulsets") + self.there(
                    namespace, "deployments"
                )
                for owner in owners:
                    self.admit(namespace, owner["spec"]["template"])

    def admit(self, namespace: str, template: dict):
        metadata = {"generateName": "pod-", "labels": template["metadata"]["labels"]}
        spec = json.loads(json.dumps(template["spec"]))
        spec.pop("runtimeClassName", None)  # Of the machines' owners.
        volumes = {volume["name"] for volume in spec["volumes"]}
        if "state" not in volumes:  # A StatefulSet adds it, of its claim.
            claim = {"claimName": "state-prod-sheaf-head-0"}
            spec["volumes"].append({"name": "state", "persistentVolumeClaim": claim})
        status, said = self.server.ask(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
            {"metadata": metadata, "spec": spec},
        )
        self.assertEqual(201, status, said.get("message"))

    def test_a_pod_that_may_more_is_not(self):
        namespace = self.namespace("strict")
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.server.ask("POST", account, {"metadata": {"name": "default"}})
        pod = {
            "metadata": {"name": "root"},
            "spec": {"containers": [{"name": "x", "image": "sheaf:0.1.0"}]},
        }
        status, said = self.server.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        self.assertEqual(403, status)
        self.assertIn("restricted", said["message"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for tool in vars(TOOLS):
        parser.add_argument(f"--{tool}", required=True)
    TOOLS, rest = parser.parse_known_args()
    if missing := [tool for tool in ("etcd", "openssl") if not shutil.which(tool)]:
        print(f"skipped: {' '.join(missing)} missing")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest])

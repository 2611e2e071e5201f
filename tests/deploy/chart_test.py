# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Helm chart: each value is described, wrong ones are refused with words, and what it makes of
thirteen sets of values is what Kubernetes' schemas and good manners want.

Usage: chart_test.py [--helm PROGRAM --kubeconform PROGRAM --schemas FOLDER]

Without the three, as ./do test runs it, the schema of the values alone is looked at.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
    from chart_values import CHART, SETS, WRONG, Values  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}: apt-get install python3-yaml python3-jsonschema")
    sys.exit(77)

from pods import HEAD, ROOT, WAIT_S, Pod, free_port  # noqa: E402

TOOLS = argparse.Namespace(helm=None, kubeconform=None, schemas=None)
OLDEST, KUBERNETES = "1.25.0", "1.37.0"
KINDS = "StatefulSet", "Deployment"  # Of a head and of its workers.
TEMPLATE = ["template", "prod", str(CHART), "--kube-version", KUBERNETES]
OF_OTHERS = "PodMonitor,Certificate"  # Their schemas are not Kubernetes'.
# What may change of a StatefulSet that is there; of a Deployment all but its selector may.
CHANGEABLE = {
    *("minReadySeconds", "ordinals", "persistentVolumeClaimRetentionPolicy", "replicas"),
    *("revisionHistoryLimit", "template", "updateStrategy"),
}


class WithHelm(unittest.TestCase):
    """What Helm makes of each set."""

    @classmethod
    def setUpClass(cls):
        if TOOLS.helm is None:
            raise unittest.SkipTest("without --helm: ./do deploy chart runs these")
        cls.texts = {}
        for file in SETS:
            done = cls.helm(*TEMPLATE, "--namespace", "data", "-f", str(file))
            assert done.returncode == 0, f"{file.name}: {done.stderr}"
            cls.texts[file.stem.removesuffix("-values")] = done.stdout
        cls.objects = {
            name: [one for one in yaml.safe_load_all(text) if one]
            for name, text in cls.texts.items()
        }

    @classmethod
    def helm(cls, *words: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run(
            [TOOLS.helm, *words], capture_output=True, text=True, timeout=60, **more
        )

    def of(self, name: str, kind: str) -> list[dict]:
        return [one for one in self.objects[name] if one["kind"] == kind]

    def rendered(self, *words: str) -> list[dict]:
        """What Helm makes of the chart's own values and `words`."""
        done = self.helm(*TEMPLATE, "--namespace", "data", *words)
        self.assertEqual(0, done.returncode, done.stderr)
        return [one for one in yaml.safe_load_all(done.stdout) if one]


class Rendered(WithHelm):
    def pods(self):
        for name, objects in self.objects.items():
            for one in objects:
                if one["kind"] in KINDS:
                    spec = one["spec"]["template"]["spec"]
                    yield f"{name}: {one['metadata']['name']}", spec, spec["containers"][0]

    def test_helm_finds_nothing_wrong(self):
        for file in SETS:
            done = self.helm(
                *("lint", "--strict", "--kube-version", KUBERNETES, str(CHART), "-f", str(file))
            )
            self.assertEqual(0, done.returncode, done.stdout)

    def test_kubernetes_knows_all_that_is_said(self):
        where = (
            f"{TOOLS.schemas}/{{{{.NormalizedKubernetesVersion}}}}-local{{{{.StrictSuffix}}}}"
            "/{{.ResourceKind}}{{.KindSuffix}}.json"
        )
        for version in (OLDEST, KUBERNETES):
            done = subprocess.run(
                [
                    *(TOOLS.kubeconform, "-strict", "-summary", "-skip", OF_OTHERS),
                    *("-kubernetes-version", version, "-schema-location", where),
                ],
                input="\n---\n".join(self.texts.values()),
                capture_output=True,
                text=True,
                timeout=120,
            )
            self.assertEqual(0, done.returncode, f"{version}: {done.stdout}{done.stderr}")
            self.assertRegex(done.stdout, r"Valid: [1-9]\d+, Invalid: 0, Errors: 0")

    def test_wrong_values_are_refused_with_their_names(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "values.yaml")
            for values, _, words in WRONG:
                file.write_text(json.dumps(values))
                done = self.helm(*TEMPLATE, "-f", str(file))
                self.assertNotEqual(0, done.returncode, values)
                self.assertIn("values don't meet the specifications", done.stderr)
                self.assertIn(words, done.stderr)

    def test_no_pod_may_more_than_it_needs(self):
        for name, pod, container in self.pods():
            with self.subTest(name):
                self.assertIs(False, pod["automountServiceAccountToken"])
                self.assertIs(True, pod["securityContext"]["runAsNonRoot"])
                self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & pod.keys())
                context = container["securityContext"]
                self.assertEqual(10001, context["runAsUser"])
                self.assertIs(True, context["runAsNonRoot"])
                self.assertIs(True, context["readOnlyRootFilesystem"])
                self.assertIs(False, context["allowPrivilegeEscalation"])
                self.assertEqual(["ALL"], context["capabilities"]["drop"])
                self.assertEqual("RuntimeDefault", context["seccompProfile"]["type"])
                for volume in pod["volumes"]:
                    self.assertNotIn("hostPath", volume)

    def test_each_pod_has_an_account_that_there_is(self):
        for words, account, made in (
            ([], "prod-sheaf", 1),
            (["--set=serviceAccount.create=false"], "default", 0),
            (["--set=serviceAccount.create=false", "--set=serviceAccount.name=own"], "own", 0),
        ):
            with self.subTest(words):
                done = self.helm(*TEMPLATE, *words, "--set=image.repository=sheaf")
                self.assertEqual(0, done.returncode, done.stderr)
                named = re.findall("serviceAccountName: (.*)", done.stdout)
                self.assertEqual({account}, set(named))
                self.assertEqual(made, done.stdout.count("kind: ServiceAccount\n"))

    def test_each_pod_has_an_image_of_a_version_bounds_and_probes(self):
        for name, _pod, container in self.pods():
            with self.subTest(name):
                image = container["image"]
                self.assertRegex(image, r"@sha256:[0-9a-f]{64}$|:[0-9]+\.[0-9]+\.[0-9]+$")
                self.assertIn("memory", container["resources"]["limits"])
                self.assertIn("cpu", container["resources"]["requests"])
                ports = {port["name"] for port in container["ports"]}
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    self.assertIn(container[probe]["httpGet"]["port"], ports)

    def test_workers_leave_in_order(self):
        for name, pod, container in self.pods():
            if "-head" in name.split(": ")[1]:
                continue
            with self.subTest(name):
                words = container["lifecycle"]["preStop"]["exec"]["command"]
                self.assertEqual(["sheaf", "drain", "self", "--wait"], words[:4])
                self.assertLess(int(words[4]), pod["terminationGracePeriodSeconds"])

    def test_who_takes_nodes_away_leaves_four_of_five(self):
        budgets = self.of("groups", "PodDisruptionBudget")
        self.assertEqual(3, len(budgets))
        for budget in budgets:
            self.assertEqual("20%", budget["spec"]["maxUnavailable"])
            self.assertEqual("worker", self.component(budget["spec"]["selector"]))

    def component(self, selector: dict) -> str:
        return selector["matchLabels"]["app.kubernetes.io/component"]

    def test_selectors_find_their_pods_and_no_others(self):
        for name, objects in self.objects.items():
            labels = {
                one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
                for one in objects
                if one["kind"] in KINDS
            }
            for one in objects:
                if one["kind"] in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
                    wanted = one["spec"]["selector"]["matchLabels"].items()
                    found = [pod for pod, has in labels.items() if wanted <= has.items()]
                    self.assertEqual([one["metadata"]["name"]], found, name)
            services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
            head = services["prod-sheaf-head"]["spec"]["selector"].items()
            found = [pod for pod, has in labels.items() if head <= has.items()]
            self.assertEqual(["prod-sheaf-head"], found)

    def test_only_nodes_clients_and_the_watch_reach_the_cluster(self):
        (policy,) = self.of("monitored", "NetworkPolicy")
        nodes, clients, watch = policy["spec"]["ingress"]
        self.assertNotIn("ports", nodes)
        self.assertEqual([{"port": "dashboard"}], clients["ports"])
        self.assertEqual(
            {"prod-sheaf-client": "true"}, clients["from"][0]["podSelector"]["matchLabels"]
        )
        self.assertEqual([{"port": "metrics"}], watch["ports"])
        self.assertIn("observability", json.dumps(watch["from"]))
        self.assertEqual([], self.of("open", "NetworkPolicy"))

    def test_the_token_is_made_where_none_is_given_and_stays(self):
        (secret,) = self.of("default", "Secret")
        self.assertEqual("keep", secret["metadata"]["annotations"]["helm.sh/resource-policy"])
        self.assertEqual({"token", "metrics-token"}, secret["data"].keys())
        self.assertNotEqual(*secret["data"].values())
        self.assertEqual([], self.of("own-secret", "Secret"))
        self.assertIn("name: my-token, key: token", self.texts["own-secret"])

    def test_another_generation_of_the_token_exchanges_all_pods(self):
        for words in ([], ["--set=token.existingSecret=my-token"]):
            templates = []
            for number in (1, 20270101):
                objects = self.rendered(*words, f"--set=token.generation={number}")
                templates.append(
                    {
                        one["metadata"]["name"]: one["spec"]["template"]
                        for one in objects
                        if one["kind"] in KINDS
                    }
                )
                for secret in objects:
                    if secret["kind"] == "Secret":  # By which Helm knows that it has to make one.
                        said = secret["metadata"]["annotations"]["sheaf.io/token-generation"]
                        self.assertEqual(str(number), said)
            first, second = templates
            self.assertEqual({"prod-sheaf-head", "prod-sheaf-workers"}, first.keys())
            for name in first:
                self.assertNotEqual(first[name], second[name], name)
        (head,) = self.of("placed", "StatefulSet")  # Annotations of one's own are there, too.
        self.assertIn("cluster-autoscaler", str(head["spec"]["template"]["metadata"]))

    def test_no_value_changes_what_kubernetes_lets_nobody_change(self):
        fixed = set()
        for objects in self.objects.values():
            for one in objects:
                if one["kind"] == "StatefulSet":
                    spec = {key: it for key, it in one["spec"].items() if key not in CHANGEABLE}
                    fixed.add(json.dumps(spec, sort_keys=True))
        self.assertEqual(1, len(fixed), fixed)

    def test_a_head_that_never_gets_ready_can_be_exchanged(self):
        for name in self.objects:
            (head,) = self.of(name, "StatefulSet")
            self.assertEqual("Parallel", head["spec"].get("podManagementPolicy"), name)

    def test_the_state_is_kept_in_the_volume_that_is_asked_for(self):
        for words, claim, made in (
            (["--set=head.storage.size=40Gi"], "prod-sheaf-head", ["40Gi"]),
            (["--set=head.storage.existingClaim=mine"], "mine", []),
            (["--set=head.storage.enabled=false"], None, []),
        ):
            with self.subTest(words):
                objects = self.rendered(*words)
                (head,) = [one for one in objects if one["kind"] == "StatefulSet"]
                volumes = head["spec"]["template"]["spec"]["volumes"]
                (state,) = [one for one in volumes if one["name"] == "state"]
                self.assertEqual(claim, state.get("persistentVolumeClaim", {}).get("claimName"))
                self.assertEqual(claim is None, "emptyDir" in state)
                claims = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
                self.assertEqual(
                    made, [one["spec"]["resources"]["requests"]["storage"] for one in claims]
                )
                for one in claims:
                    self.assertEqual(claim, one["metadata"]["name"])
                    kept = one["metadata"]["annotations"]["helm.sh/resource-policy"]
                    self.assertEqual("keep", kept)
        (claim,) = self.of("placed", "PersistentVolumeClaim")
        self.assertEqual("fast", claim["spec"]["storageClassName"])

    def test_two_releases_of_one_name_are_two_clusters_to_who_watches(self):
        (monitor,) = self.of("monitored", "PodMonitor")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        named = {
            rule["replacement"]
            for rule in endpoint["relabelings"]
            if rule["targetLabel"] == "cluster"
        }
        self.assertEqual({"data/prod-sheaf"}, named)

    def test_certificates_carry_the_names_that_nodes_dial(self):
        (certificate,) = self.of("cert-manager", "Certificate")
        names = certificate["spec"]["dnsNames"]
        (head,), (worker,) = (self.of("cert-manager", kind) for kind in KINDS)
        (container,) = worker["spec"]["template"]["spec"]["containers"]
        self.assertIn(f"--address={names[0]}:6379", container["args"])
        # The script gives each pod a name of one label below that domain, and keeps its arguments.
        # A pod of a StatefulSet has its own name there, and no other; that of a Deployment one that
        # is made of its address.
        for one, start, port in [(head, "start --head", 6379), (worker, "start", 0)]:
            (container,) = one["spec"]["template"]["spec"]["containers"]
            script = container["command"][2].replace("exec sheaf", "echo")
            for address, label in [("10.1.2.3", "10-1-2-3"), ("fd00::7", "fd00--7")]:
                done = subprocess.run(
                    ["sh", "-c", script, "sheaf", "--x y"],
                    env={"POD_IP": address, "PATH": "/usr/bin:/bin", "HOSTNAME": "x-head-0"},
                    capture_output=True,
                    text=True,
                )
                name = f"{label if one is worker else 'x-head-0'}{names[2][1:]}:{port}"
                self.assertEqual(f"{start} --x y --advertise-address={name}\n", done.stdout)
        volumes = worker["spec"]["template"]["spec"]["volumes"]
        (tls,) = [volume["secret"] for volume in volumes if volume["name"] == "tls"]
        self.assertEqual(certificate["spec"]["secretName"], tls["secretName"])
        self.assertEqual(
            {"node.pem", "node.key", "ca.pem"}, {item["path"] for item in tls["items"]}
        )

    def test_nodes_announce_the_addresses_of_their_pods(self):
        for values, address in [("default", "$(POD_IP)"), ("ipv6", "[$(POD_IP)]")]:
            for kind, port in zip(KINDS, (6379, 0), strict=True):
                (one,) = self.of(values, kind)
                (container,) = one["spec"]["template"]["spec"]["containers"]
                self.assertIn(f"--advertise-address={address}:{port}", container["command"])

    def test_workers_wait_for_their_head_while_the_startup_probe_does(self):
        (worker,) = self.of("default", "Deployment")
        (container,) = worker["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        (flag,) = [word for word in container["args"] if word.startswith("--timeout=")]
        longest = probe["failureThreshold"] * probe["periodSeconds"]
        self.assertTrue(longest - 30 <= int(flag.split("=")[1]) < longest, flag)

    def test_each_option_is_one_of_sheaf_start(self):
        program = ROOT / "build/cli/sheaf"
        if not program.exists():
            self.skipTest("build/cli/sheaf is not built")
        known = subprocess.run([program, "start", "--help"], capture_output=True, text=True).stdout
        for name, _, container in self.pods():
            words = [*container["command"], *container["args"]]
            for flag in [word.split("=")[0] for word in words if word.startswith("--")]:
                self.assertRegex(known, rf"{flag}\b", name)


class Running(WithHelm):
    """The pods of the chart, run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sh-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def pods(self, values: str, names=None) -> tuple[list[Pod], dict[str, bytes]]:
        """Of a head and of a worker that has joined it; and what the Secret has."""
        (secret,) = self.of(values, "Secret")
        secret = {key: base64.b64decode(value) for key, value in secret["data"].items()}
        port, pods = free_port(), []
        for kind in KINDS:
            (one,) = self.of(values, kind)
            spec = one["spec"]["template"]["spec"]
            pods.append(Pod(spec, self.folder / kind, secret, port, names))
            self.addCleanup(pods[-1].end)
            pods[-1].await_ready()
        return pods, secret

    @unittest.skipUnless(os.geteuid() == 0, "only root can give names to addresses")
    def test_with_certificates_they_know_each_other_by_name(self):
        (certificate,) = self.of("cert-manager", "Certificate")
        program = ROOT / "build/cli/sheaf"
        subprocess.run(
            [
                *(program, "cert", "init", self.folder / "certificates"),
                *(f"--host={name}" for name in certificate["spec"]["dnsNames"]),
            ],
            check=True,
            capture_output=True,
        )
        names = self.folder / "hosts"
        domain = "prod-sheaf-nodes.data.svc.cluster.local"
        known = [f"{label}.{domain}" for label in ("statefulset-0", "127-0-0-1")]
        names.write_text(f"127.0.0.1 localhost {HEAD} {' '.join(known)}\n")
        (head, _), _ = self.pods("cert-manager", names)
        nodes = json.loads(head.run("sheaf", "list", "nodes", "--json"))["nodes"]
        self.assertEqual(known, [node["address"].split(":")[0] for node in nodes])
        self.assertEqual({"ALIVE"}, {node["state"] for node in nodes})

    def test_they_are_a_cluster_and_leave_it_in_order(self):
        (head, worker), secret = self.pods("default")
        nodes = json.loads(head.run("sheaf", "list", "nodes", "--json"))["nodes"]
        # Not the name of the Service, which is "localhost" here.
        self.assertEqual({"127.0.0.1"}, {node["address"].split(":")[0] for node in nodes})
        groups = {node["labels"]["ray.io/node-group"]: node["total"] for node in nodes}
        self.assertEqual({"head", "workers"}, groups.keys())
        # The head's are for nobody, the worker's are what the pod asks for.
        self.assertEqual((0, 2), (groups["head"].get("CPU", 0), groups["workers"]["CPU"]))
        for pod in (head, worker):
            self.assertEqual(401, pod.ask("metrics", "/metrics"))
            token = secret["metrics-token"].decode()
            self.assertEqual(200, pod.ask("metrics", "/metrics", token))
        self.assertEqual(401, head.ask("dashboard", "/api/jobs/"))
        token = head.run("sheaf", "token", "--http").strip()
        self.assertEqual(200, head.ask("dashboard", "/api/jobs/", token))

        left = worker.run(*worker.container["lifecycle"]["preStop"]["exec"]["command"])
        self.assertIn("is DRAINED", left)
        for pod in (worker, head):
            pod.process.terminate()
            self.assertEqual(0, pod.process.wait(WAIT_S))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for tool in vars(TOOLS):
        parser.add_argument(f"--{tool}")
    TOOLS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])

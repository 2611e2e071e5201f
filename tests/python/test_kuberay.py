# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What KubeRay's operator does with an image, done here with processes: the containers of its pods
(kuberay_pods.json), their probes, and the requests of the operator itself."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, is_running, wait_until
from sheaf.cluster_utils import _program

PODS = json.loads(pathlib.Path(__file__).with_name("kuberay_pods.json").read_text())
PACKAGE = pathlib.Path(sheaf.__file__).parent
IMPORTS = f"{PACKAGE.parent}:{PACKAGE / '_ray/_alias'}"  # As the image says.
SECRET = "a secret of this cluster, in any form"
SHARED = ("6379", "8265")  # Ports of the head.
OWN = ("8080", "52365")  # Of each pod.


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def own_address():
    """As others reach this machine; None: they do not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


pytestmark = [
    pytest.mark.skipif(not shutil.which("wget"), reason="KubeRay's probes need wget"),
    pytest.mark.skipif(own_address() is None, reason="pods have an address of their own"),
]


class Kubelet:
    """Runs containers as processes: each with a folder of its own, and ports of this machine in
    place of those of pods."""

    def __init__(self, folder):
        self.folder = folder
        head, worker = free_ports(len(SHARED) + len(OWN)), free_ports(len(OWN))
        self.ports = dict(zip(SHARED + OWN, head, strict=True))
        self.ports_of_worker = {**self.ports, **dict(zip(OWN, worker, strict=True))}
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "ray").symlink_to(_program())
        python = bin_folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        self.path = f"{bin_folder}:/usr/bin:/bin"

    def placed(self, role):
        """The container, with this machine's ports."""
        ports = self.ports_of_worker if role == "worker" else self.ports
        text = json.dumps(PODS[role])
        return json.loads(re.sub("|".join(ports), lambda port: ports[port[0]], text))

    def environment(self, role, group, **over):
        values = {}
        for one in self.placed(role)["env"]:
            source = one.get("valueFrom", {})
            if "secretKeyRef" in source:
                value = SECRET
            elif "fieldRef" in source:
                value = group if "group" in source["fieldRef"]["fieldPath"] else f"pod-{role}"
            else:
                value = one["value"]
            values[one["name"]] = value
        fixed = {
            "PATH": self.path,
            "HOME": str(self.folder),
            "SHEAF_DIR": str(self.folder / role),
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_PYTHON": sys.executable,
        }
        made = {**fixed, **values, **over}
        return {name: value for name, value in made.items() if value is not None}

    def start(self, role, group="headgroup", **over):
        container = self.placed(role)
        return subprocess.Popen(
            [*container["command"], *container["args"]],
            env=self.environment(role, group, **over),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, role, **over):
        """(exit status, output) of a container that ends."""
        process = self.start(role, **over)
        try:
            output, _ = process.communicate(timeout=2 * WAIT_S)
        finally:
            process.kill()
        return process.returncode, output

    def probe(self, role, name):
        """Whether it succeeds, as the kubelet makes it: in the container, or at the pod's address."""
        probe = self.placed(role)[name]
        if "exec" in probe:
            return self.inside(role, probe["exec"]["command"]).returncode == 0
        where = f"http://{own_address()}:{probe['httpGet']['port']}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(where, timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def inside(self, role, command, **over):
        return subprocess.run(
            command,
            env=self.environment(role, "", **over),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def await_health(self, role, process):
        for name in ("livenessProbe", "readinessProbe"):
            wait_until(
                lambda name=name: self.probe(role, name) or process.poll() is not None,
                f"{name} of {role} fails",
            )
            assert process.poll() is None, process.stdout.read()


def ended(process):
    """The output of a process that ends now."""
    output, _ = process.communicate(timeout=WAIT_S)
    return output


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory):
    return Kubelet(tmp_path_factory.mktemp("pods"))


@pytest.fixture(scope="module")
def cluster(kubelet):
    """A head and a worker that waited for it, both ready: their processes."""
    waits = kubelet.start("wait-gcs-ready")
    head = kubelet.start("head")
    worker = None
    try:
        kubelet.await_health("head", head)
        assert "GCS is ready." in ended(waits)
        worker = kubelet.start("worker", group="workers")
        kubelet.await_health("worker", worker)
        yield head, worker
    finally:
        for role, process in (("worker", worker), ("head", head)):
            if process is not None:
                kubelet.inside(role, ["ray", "stop"])
                process.kill()
                process.communicate()
        waits.kill()
        waits.communicate()


def nodes(kubelet):
    done = kubelet.inside("head", [_program(), "list", "nodes", "--json"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["nodes"]


def ask(port, path, **headers):
    """(status, text), asked from another machine."""
    where = f"http://{own_address()}:{port}{path}"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(where, headers=headers), timeout=WAIT_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_pods_are_nodes_of_one_cluster(kubelet, cluster):
    by_group = {node["labels"]["ray.io/node-group"]: node for node in nodes(kubelet)}
    assert by_group.keys() == {"headgroup", "workers"}
    worker = by_group["workers"]
    assert worker["total"]["TPU"] == 4 and worker["total"]["pear"] == 0.5
    assert worker["total"]["GPU"] == 1 and worker["total"]["memory"] == 500_000_000
    assert worker["labels"]["disk"] == "fast"
    # The head is found at the address of its pod, whatever it is called by.
    assert by_group["headgroup"]["address"] == f"{own_address()}:{kubelet.ports['6379']}"


def test_a_job_is_submitted_once_by_a_submitter_that_is_tried_again(kubelet, cluster):
    for _ in range(2):
        status, output = kubelet.run("submitter")
        assert status == 0, output
        assert output.count("counted seven 4.0") == 1
    token = {"X-Ray-Authorization": f"Bearer {SECRET}"}  # As the operator sends it.
    status, text = ask(kubelet.ports["8265"], "/api/jobs/rayjob-x7", **token)
    assert status == 200
    row = json.loads(text)
    assert row["status"] == "SUCCEEDED" and row["metadata"]["owner"] == "me"


@pytest.mark.parametrize("role", ["head", "worker"])
def test_people_in_a_pod_need_no_other_address_than_the_pod_has(kubelet, cluster, role):
    def said(*command):
        done = kubelet.inside(role, command, PYTHONPATH=IMPORTS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    alive = ("--format=json", "--filter=state=ALIVE")
    assert len(json.loads(said("ray", "list", "nodes", *alive))) == 2
    assert "0.0/4.0 TPU" in said("ray", "status")
    assert "raysubmit" not in said("ray", "job", "list")
    script = "import ray; ray.init(); print(ray.cluster_resources()['TPU'])"
    assert said("python", "-c", script).splitlines()[-1] == "4.0"


def test_a_job_is_submitted_from_beside_the_head(kubelet, cluster):
    status, output = kubelet.run("sidecar-submitter")
    assert status == 0, output
    assert "beside the head" in output and "succeeded" in output


def test_who_does_not_know_the_secret_learns_nothing_but_health(kubelet, cluster):
    dashboard, health = kubelet.ports["8265"], kubelet.ports["52365"]
    metrics = [kubelet.ports["8080"], kubelet.ports_of_worker["8080"]]
    for port, path in [(dashboard, "/api/jobs/"), *((port, "/metrics") for port in metrics)]:
        assert ask(port, path)[0] == 401
        assert ask(port, path, Authorization="Bearer another")[0] == 403
        assert ask(port, path, Authorization=f"Bearer {SECRET}")[0] == 200
    for port in (dashboard, health, kubelet.ports_of_worker["52365"], *metrics):
        assert ask(port, "/api/gcs_healthz") == (200, "success")
    assert ask(health, "/metrics")[0] == 401


def test_a_pod_of_another_secret_does_not_join(kubelet, cluster):
    stranger = kubelet.inside(
        "worker",
        ["ray", "start", f"--address=localhost:{kubelet.ports['6379']}", "--block"],
        RAY_AUTH_TOKEN="the secret of another cluster",
        SHEAF_DIR=str(kubelet.folder / "stranger"),
    )
    assert stranger.returncode != 0
    assert "token" in stranger.stderr
    assert len([node for node in nodes(kubelet) if node["state"] == "ALIVE"]) == 2


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None}, "authOptions: {mode: token}"),
        ({"RAY_AUTH_TOKEN": "short"}, "can be guessed"),
        ({"RAY_AUTH_MODE": "kerberos"}, "authOptions: {mode: token}"),
    ],
)
def test_a_pod_without_a_secret_does_not_start(kubelet, variables, words):
    status, output = kubelet.run("head", **variables)
    assert status != 0
    assert words in output


def test_a_pod_that_is_taken_away_leaves_the_cluster(kubelet, cluster):
    _, worker = cluster
    left = kubelet.inside("worker", PODS["worker"]["lifecycle"]["preStop"]["exec"]["command"])
    assert left.returncode == 0, left.stderr
    ended(worker)
    wait_until(lambda: [node["state"] for node in nodes(kubelet)].count("ALIVE") == 1)
    assert not kubelet.probe("worker", "livenessProbe")
    assert kubelet.probe("head", "livenessProbe")


def test_a_head_that_gets_sigterm_ends_with_all_its_processes(kubelet, cluster):
    head, _ = cluster
    children = [
        pid
        for path in pathlib.Path(f"/proc/{head.pid}/task").glob("*/children")
        for pid in path.read_text().split()
    ]
    assert children  # The control store at least.
    os.kill(head.pid, signal.SIGTERM)
    ended(head)
    assert head.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    wait_until(lambda: not any(is_running(int(pid)) for pid in children))
    assert not kubelet.probe("head", "livenessProbe")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Pods of the chart as processes of this machine."""

import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parents[2]
WAIT_S = 60
HEAD = "prod-sheaf-head.data.svc.cluster.local"


class Pod:
    """A container of the chart as a process of this machine: ports, paths and the names of services
    are others here."""

    def __init__(self, spec: dict, folder: pathlib.Path, secret: dict, head_port: int, names=None):
        """`names`: a file for /etc/hosts, by which the names of services are good here, too."""
        self.container = spec["containers"][0]
        self.ports = {
            port["name"]: free_port() if port["name"] != "sheaf" else head_port
            for port in self.container["ports"]
        }
        folder.mkdir()
        token = folder / "metrics-token"
        token.write_bytes(secret["metrics-token"])
        token.chmod(0o600)
        self.places = {
            **({} if names else {HEAD: "localhost"}),
            "$(POD_IP)": "127.0.0.1",
            ":6379": f":{head_port}",
            "--port=6379": f"--port={head_port}",
            "--dashboard-port=8265": f"--dashboard-port={self.ports.get('dashboard')}",
            "=9400": f"={self.ports['metrics']}",
            "=9401": f"={self.ports['health']}",
            "/etc/sheaf/metrics/token": str(token),
            "/etc/sheaf/tls": str(folder.parent / "certificates"),
        }
        self.environment = {"PATH": f"{ROOT / 'build/cli'}:/usr/bin:/bin"}
        for one in self.container["env"]:
            source = one.get("valueFrom", {})
            if "secretKeyRef" in source:
                value = secret[source["secretKeyRef"]["key"]].decode()
            elif "resourceFieldRef" in source:
                value = self.container["resources"]["requests"]["cpu"]
            else:
                value = one.get("value", "127.0.0.1").replace("/var/lib/sheaf", str(folder))
            self.environment[one["name"]] = value
        self.environment["SHEAF_STATE_IN_MEMORY"] = "1"
        self.environment["HOSTNAME"] = f"{folder.name.lower()}-0"  # As Kubernetes names a pod.
        words = [self.placed(word) for key in ("command", "args") for word in self.container[key]]
        mounted = f'mount --bind {names} /etc/hosts && exec "$@"'
        prefix = ["unshare", "--mount", "sh", "-c", mounted, "sh"] if names else []
        self.process = subprocess.Popen(
            [*prefix, *words, "--object-store-memory=64MiB"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def placed(self, word: str) -> str:
        for there, here in self.places.items():
            word = word.replace(there, here)
        return word

    def ask(self, port: str, path: str, token: str = "") -> int:
        """The status of an answer; 0: there is none."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[port]}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def await_ready(self):
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = self.container[name]["httpGet"]
            end = time.monotonic() + WAIT_S
            while self.ask(probe["port"], probe["path"]) != 200:
                assert self.process.poll() is None, self.process.stdout.read()
                assert time.monotonic() < end, f"{name} fails"
                time.sleep(0.1)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self):
        self.process.kill()
        self.process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]

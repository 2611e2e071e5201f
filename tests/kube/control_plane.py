# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A Kubernetes without machines: etcd, the API server and the controller manager, and who asks them."""

from __future__ import annotations

import http.client
import json
import pathlib
import secrets
import ssl
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
WAIT_S = 120
PORT = 6443
SERVICES = "10.96.0.0/16"
NODE = "stand-in"
USERS = {  # -> groups
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    f"system:node:{NODE}": "system:nodes",
}
MERGE, JSON = "application/merge-patch+json", "application/json"


class Refused(Exception):
    """What the API server answers instead: its status, and its words."""

    def __init__(self, status: int, message: str):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


def until(what: str, holds: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    """What `holds` returns as soon as that is true; AssertionError: it was not in time."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found


class Api:
    """The REST interface, as the user of a token. Any thread."""

    def __init__(self, token: str, certificate: pathlib.Path):
        self._header = {"Authorization": f"Bearer {token}", "Accept": JSON}
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = JSON) -> Object:
        """Raises: Refused; OSError."""
        line = http.client.HTTPSConnection("localhost", PORT, timeout=30, context=self._trust)
        try:
            line.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {**self._header, "Content-Type": kind},
            )
            answer = line.getresponse()
            text = answer.read().decode()
        finally:
            line.close()
        found = json.loads(text) if text.startswith("{") else {"message": text}
        if answer.status >= 300:
            raise Refused(answer.status, found.get("message", ""))
        return found

    def get(self, path: str) -> Object:
        return self.ask("GET", path)

    def items(self, path: str, **selectors: str) -> list[Object]:
        """Of a list: `labelSelector` and `fieldSelector` choose."""
        return self.get(f"{path}?{urllib.parse.urlencode(selectors)}")["items"]

    def post(self, path: str, body: Object) -> Object:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: Object) -> Object:
        """Of what is named there the fields of `body`."""
        return self.ask("PATCH", path, body, MERGE)


class ControlPlane:
    """Runs them, with their state in `folder`, until close."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, address: str):
        """`address`: of this machine, where the pods reach it."""
        self.folder = folder
        self.certificate = folder / "apiserver.crt"
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self._program, self._running = program, []
        self._start_etcd()
        self._start_api_server(address)
        self._start_controllers()

    def api(self, user: str = "admin") -> Api:
        return Api(self.tokens[user], self.certificate)

    def _run(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("w") as log:
            self._running.append(subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT))

    def _well(self, path: str) -> Callable[[], bool]:
        def holds() -> bool:
            for one in self._running:
                assert one.poll() is None, f"{one.args[:2]} has ended, see {self.folder}"
            try:
                return bool(self.api().get(path))
            except (OSError, Refused):
                return False

        return holds

    def _start_etcd(self) -> None:
        self._run("etcd", "etcd", "--data-dir", str(self.folder / "etcd"))

    def _start_api_server(self, address: str) -> None:
        key, users = self.folder / "accounts.key", self.folder / "users.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        lines = [f'{self.tokens[user]},{user},{user},"{USERS[user]}"\n' for user in USERS]
        users.write_text("".join(lines))
        self._run(
            "kube-apiserver",
            str(self._program),
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--cert-dir={self.folder}",
            f"--secure-port={PORT}",
            f"--advertise-address={address}",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={users}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
        )
        until("the API server is ready", self._well("/readyz"))

    def _start_controllers(self) -> None:
        access = self.folder / "controllers.json"
        user = "system:kube-controller-manager"
        named = {
            "clusters": {
                "server": f"https://localhost:{PORT}",
                "certificate-authority": str(self.certificate),
            },
            "users": {"token": self.tokens[user]},
            "contexts": {"cluster": "here", "user": "here"},
        }
        kinds = {kind: [{"name": "here", kind[:-1]: one}] for kind, one in named.items()}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "here", **kinds}
        access.write_text(json.dumps(config))
        self._run(
            "kube-controller-manager",
            str(self._program),
            "kube-controller-manager",
            f"--kubeconfig={access}",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.certificate}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            # Of its own it needs none; all that it does is to be seen at the API server.
            "--secure-port=0",
        )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        until("the controllers work", self._well(account))

    def close(self) -> None:
        for one in reversed(self._running):
            one.terminate()
        for one in self._running:
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The client's side of a job server: requests that survive its restarts, uploads, logs."""

from __future__ import annotations

import codecs
import http.client
import json
import os
import secrets
import socket
import ssl
import string
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

from sheaf._internal import greeting

_TIMEOUT_S = 60.0
_REPEAT_S = 30.0  # A request is repeated for so long while nobody answers.
_FOLLOW_S = 60.0
_PAUSE_S = 0.2
_LOCAL_S = 15.0  # What a node of this machine may take to say which nodes there are.
_CHUNK_BYTES = 1 << 16
_UNREACHABLE = (OSError, http.client.HTTPException)
_KEEPALIVE = (  # Options of a socket: asked after 30 s of silence, given up 60 s later.
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 30),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 20),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)
_DASHBOARD_PORT = 8265
_TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
_TOKEN_FILE_VARIABLE = "RAY_AUTH_TOKEN_PATH"
_MODE_VARIABLE = "RAY_AUTH_MODE"


def new_submission_id() -> str:
    """A name that no submission has."""
    letters = string.ascii_letters + string.digits
    return "raysubmit_" + "".join(secrets.choice(letters) for _ in range(16))


def quoted(job_id: str) -> str:
    """`job_id` as one segment of a path. RuntimeError: it is empty, which no job's is."""
    if not job_id:
        raise RuntimeError("Job  does not exist: its id is empty")
    return urllib.parse.quote(job_id, safe="")


def refuses_hook(runtime_env: dict[str, Any] | None) -> bool:
    """Whether its setup hook is a function, which cannot travel."""
    hook = (runtime_env or {}).get("worker_process_setup_hook")
    return hook is not None and not isinstance(hook, str)


class Server:
    """Where it is, and how it is spoken to. Thread-safe.

    Args:
        address: as JobSubmissionClient takes it.
        cookies: by name.
        headers: by name.
        verify: of the server's certificate.
    """

    def __init__(
        self,
        address: str | None,
        cookies: dict[str, Any],
        headers: dict[str, Any],
        verify: str | bool | None,
    ):
        self.url = _url(address)
        self._parts = urllib.parse.urlsplit(self.url)
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise ValueError(f"address={address!r}: want http://HOST:PORT, or a session directory")
        self._headers = {str(name): str(value) for name, value in headers.items()}
        if cookies:
            self._headers["Cookie"] = "; ".join(f"{name}={cookies[name]}" for name in cookies)
        if not any(name.lower() == "authorization" for name in self._headers):
            token = saved_token()
            if token:
                self._headers["Authorization"] = f"Bearer {token}"
        self._context = _context(verify) if self._parts.scheme == "https" else None

    def ask(self, method: str, path: str, body: Any = None, repeats: bool = False) -> Any:
        """The JSON that is answered.

        Args:
            method: of HTTP.
            path: with the query.
            body: bytes, or what JSON can write.
            repeats: whether the request is repeated when its answer is lost; it counts once.

        Raises:
            RuntimeError: the server refuses.
            ConnectionError: nobody answers.
        """
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Idempotency-Key": secrets.token_hex(16)} if repeats else {}
        if content is not None:
            is_json = not isinstance(body, bytes)
            headers["Content-Type"] = "application/json" if is_json else "application/octet-stream"
        patient = repeats or method == "GET"
        deadline = time.monotonic() + _REPEAT_S
        while True:
            try:
                status, answer = self._once(method, path, content, headers)
                if status != 503 or not patient or time.monotonic() > deadline:
                    break
            except ssl.SSLError:
                raise
            except _UNREACHABLE as error:
                # Who refuses the connection is not there, unless it has answered before.
                if not patient or not self._has_answered or time.monotonic() > deadline:
                    raise ConnectionError(
                        f"Failed to connect to Ray at address: {self.url} ({error})"
                    ) from None
            time.sleep(_PAUSE_S)
        if status != 200:
            text = answer.decode("utf-8", "replace").strip()
            text = text.removesuffix(".")
            raise RuntimeError(f"Request failed with status code {status}: {text}.")
        return json.loads(answer) if answer else None

    _has_answered = False

    def _once(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = self._connect()
        try:
            connection.request(
                method, self._parts.path.rstrip("/") + path, content, {**self._headers, **headers}
            )
            response = connection.getresponse()
            answer = response.read()
            self._has_answered = True
            return response.status, answer
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._context is not None:
            return http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_S, context=self._context
            )
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)

    def follow(self, path: str) -> Iterator[str]:
        """Pieces of a text that grows, to its end.

        Args:
            path: without a query.

        Raises:
            RuntimeError: the server refuses.
            ConnectionError: nobody has answered for a minute.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        offset = 0
        deadline = time.monotonic() + _FOLLOW_S
        while True:
            connection = self._connect()
            answered = False
            try:
                query = f"{path}?follow=1&offset={offset}"
                connection.request("GET", self._parts.path.rstrip("/") + query, None, self._headers)
                response = connection.getresponse()
                if response.status != 200 and response.status != 503:
                    text = response.read().decode("utf-8", "replace").strip()
                    raise RuntimeError(f"Request failed with status code {response.status}: {text}")
                answered = response.status == 200
                begin = int(response.getheader("X-Sheaf-Offset") or offset)
                if answered and begin > offset:  # Of a long log the oldest part goes.
                    yield f"[sheaf: {begin - offset} bytes are not kept any more]\n"
                if answered and begin < offset:
                    yield "[sheaf: this log was begun anew]\n"
                if answered and begin != offset:
                    offset = begin
                    decoder.reset()
                while answered and (piece := response.read1(_CHUNK_BYTES)):
                    offset += len(piece)
                    yield decoder.decode(piece)
                if answered and response.isclosed():
                    return
                trouble = f"status code {response.status}"
            except _UNREACHABLE as error:
                trouble = str(error)
            finally:
                connection.close()
            # A job may print nothing for longer than a read waits: that is no silence of the
            # server, which is asked again.
            if answered:
                deadline = time.monotonic() + _FOLLOW_S
            elif time.monotonic() > deadline:
                raise ConnectionError(f"{self.url} does not answer any more: {trouble}")
            time.sleep(_PAUSE_S)

    def stream(self, path: str) -> Iterator[bytes]:
        """Pieces of an answer of any kind as they come, to its end. A server that vanishes while it
        says nothing is noticed within two minutes.

        Args:
            path: with the query.

        Raises:
            RuntimeError: the server refuses.
            ConnectionError: nobody answers, or the answer breaks off.
        """
        connection = self._connect()
        try:
            connection.connect()
            socket_of_it = connection.sock
            for option, value in _KEEPALIVE:
                socket_of_it.setsockopt(*option, value)
            connection.request("GET", self._parts.path.rstrip("/") + path, None, self._headers)
            response = connection.getresponse()
            socket_of_it.settimeout(None)  # What is read may come at any time, its head not.
            if response.status != 200:
                text = response.read().decode("utf-8", "replace").strip()
                raise RuntimeError(f"Request failed with status code {response.status}: {text}")
            while piece := response.read1(_CHUNK_BYTES):
                yield piece
            if response.length:  # Of pieces it is an HTTPException.
                raise ConnectionError(f"the answer of {self.url} broke off")
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer of {self.url} broke off: {error}") from None
        finally:
            connection.close()

    def upload(self, runtime_env: dict[str, Any]) -> dict[str, Any]:
        """The environment with its local directories and modules in the cluster.

        Args:
            runtime_env: as it was given.

        Raises:
            ValueError: one of them is not there, or too large.
        """
        sent = dict(runtime_env)
        excludes = list(sent.pop("excludes", None) or [])
        working_dir = sent.get("working_dir")
        if working_dir is not None and "://" not in os.fspath(working_dir):
            sent["working_dir"] = self._put(os.fspath(working_dir), excludes, module=False)
        if sent.get("py_modules"):
            sent["py_modules"] = [
                entry
                if isinstance(entry, str) and "://" in entry
                else self._put(entry, excludes, module=True)
                for entry in sent["py_modules"]
            ]
        return sent

    def _put(self, path: Any, excludes: list[str], module: bool) -> str:
        from sheaf._internal import runtime_env_package  # For jobs that have some.

        if isinstance(path, str) and path.endswith(".zip") and os.path.isfile(path):
            package = runtime_env_package.of_archive(path)
        elif module:
            package = runtime_env_package.of_module(path, excludes)
        else:
            package = runtime_env_package.of_directory(path, excludes)
        name = package.name + (".whl" if package.name.startswith("whl-") else ".zip")
        where = f"/api/packages/gcs/{name}"
        if self._once("GET", where, None, {})[0] != 200:
            self.ask("PUT", where, package.content(), repeats=True)
        return f"gcs://{name}"


def _context(verify: str | bool | None) -> ssl.SSLContext:
    if isinstance(verify, str):
        if not os.path.exists(verify):
            raise FileNotFoundError(f"Path to CA certificates: '{verify}', does not exist.")
        folder = os.path.isdir(verify)
        return ssl.create_default_context(
            cafile=None if folder else verify, capath=verify if folder else None
        )
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def saved_token(any_mode: bool = False) -> str:
    """The token that this user's clients send, or "".

    Args:
        any_mode: whether the file in the home directory counts without RAY_AUTH_MODE=token.

    Raises:
        OSError: the file that RAY_AUTH_TOKEN_PATH names cannot be read.
    """
    token = os.environ.get(_TOKEN_VARIABLE, "")
    if token:
        return token.strip()
    named = os.environ.get(_TOKEN_FILE_VARIABLE)
    if not named and not any_mode and os.environ.get(_MODE_VARIABLE) != "token":
        return ""  # The file may be of another cluster, and a wrong token is worse than none.
    path = named or os.path.expanduser("~/.ray/auth_token")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        if named:
            raise
        return ""


def _url(address: str | None) -> str:
    if address is None:
        for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "SHEAF_ADDRESS"):
            if os.environ.get(name):
                address = os.environ[name]
                break
    if address is not None and "://" in address:
        return address.rstrip("/")
    from sheaf._internal import dashboard_url  # For nodes of this machine.

    if address and address != "auto" and os.sep not in address and ":" in address:
        if not _is_node(address):
            return f"http://{address.rstrip('/')}"
        if _has_local_node(address):
            return dashboard_url.of_session(None)
        return f"http://{address.rpartition(':')[0]}:{_DASHBOARD_PORT}"
    return dashboard_url.of_session(address)


def _has_local_node(address: str) -> bool:
    """Whether the newest node of this machine is of the cluster that has a node at HOST:PORT."""
    from sheaf._internal import program

    host, _, port = address.rpartition(":")
    try:
        said = subprocess.run(
            [program.command(), "list", "nodes", "--json"], capture_output=True, timeout=_LOCAL_S
        )
        nodes = json.loads(said.stdout)["nodes"] if said.returncode == 0 else []
        wanted = _addresses_of(host.strip("[]"))
        for node in nodes:
            its_host, _, its_port = node["address"].rpartition(":")
            if its_port != port:
                continue
            its = _addresses_of(its_host.strip("[]"))
            # Whoever dials loopback means this machine.
            if wanted & its or (_is_loopback(wanted) and any(map(_is_ours, its))):
                return True
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        pass
    return False


def _addresses_of(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}


def _is_ours(address: str) -> bool:
    """Whether it is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _is_loopback(addresses: set[str]) -> bool:
    return any(one == "::1" or one.startswith("127.") for one in addresses)


def _is_node(address: str) -> bool:
    """Whether HOST:PORT is what nodes join a cluster by, as RAY_ADDRESS names it in pods."""
    host, _, port = address.rpartition(":")
    try:
        greeting.greet(host.strip("[]"), int(port))
    except (OSError, ValueError):
        return False
    return True

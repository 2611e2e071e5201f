# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The network of the stand-in node: a bridge that pods hang on, and the addresses of Services.

What a network plugin, kube-proxy and the cluster's DNS do elsewhere. Policies are not enforced.
"""

from __future__ import annotations

import itertools
import socket
import struct
import subprocess
import threading

from control_plane import Api

BRIDGE, GATEWAY, PODS = "pods0", "10.244.0.1", "10.244.0."
DOMAIN = "svc.cluster.local"
PIECE = 1 << 16
# Of linux/if_ether.h, linux/if_packet.h and asm-generic/socket.h, which Python has no names for.
ETH_P_ALL, SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 3, 263, 6, 33
HEARD_BYTES = 64 << 20

Address = tuple[str, int]


def ip(*words: str) -> None:
    """A command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """In a network namespace that is this test's alone."""

    def __init__(self):
        self._numbers = itertools.count(10)
        self._services: dict[Address, list[Address]] = {}  # -> what answers there.
        self._names: dict[str, str] = {}  # -> the address.
        ip("link", "set", "lo", "up")
        # With an address of its own: else it has that of one of its pods, and another one when that
        # pod goes, while others send to the old one for up to half a minute.
        ip("link", "add", BRIDGE, "address", "02:00:0a:f4:00:01", "type", "bridge")
        ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        questions.bind((GATEWAY, 53))
        threading.Thread(target=self._answer, args=(questions,), daemon=True).start()

    def plug(self, sandbox: int) -> str:
        """Gives the network namespace of a process an address, and returns that."""
        number = next(self._numbers)
        address, end = f"{PODS}{number}", f"pod{number}"
        ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", str(sandbox))
        ip("link", "set", end, "master", BRIDGE, "up")
        inside = ["nsenter", "--target", str(sandbox), "--net", "ip"]
        for words in (
            ["link", "set", "lo", "up"],
            ["address", "add", f"{address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", GATEWAY],
        ):
            subprocess.run([*inside, *words], check=True, capture_output=True, text=True)
        return address

    def follow(self, api: Api) -> None:
        """Brings addresses and names of Services up to date."""
        names = {}
        slices = api.items("/apis/discovery.k8s.io/v1/endpointslices")
        for service in api.items("/api/v1/services"):
            name, space = service["metadata"]["name"], service["metadata"]["namespace"]
            full, address = f"{name}.{space}.{DOMAIN}", service["spec"]["clusterIP"]
            behind = [
                (
                    one["addresses"][0],
                    one["conditions"].get("ready"),
                    part.get("ports") or [],
                    # As CoreDNS: the name that its pod has, else one made of the address.
                    one.get("hostname") or one["addresses"][0].replace(".", "-"),
                )
                for part in slices
                if part["metadata"]["labels"].get("kubernetes.io/service-name") == name
                and part["metadata"]["namespace"] == space
                for one in part.get("endpoints") or []
            ]
            if space == "default":
                continue  # The API server, which pods have no way to.
            if address == "None":
                names |= {f"{label}.{full}": pod for pod, _, _, label in behind}
                continue
            names[full] = address
            for port in service["spec"]["ports"]:
                ready = [
                    (pod, behind_it["port"])
                    for pod, is_ready, ports, _ in behind
                    for behind_it in ports
                    if is_ready and behind_it["name"] == port["name"]
                ]
                self._serve((address, port["port"]), ready)
        self._names = names

    def _answer(self, questions: socket.socket) -> None:
        while True:
            question, asker = questions.recvfrom(PIECE)
            questions.sendto(answer(question, self._names), asker)

    def _serve(self, service: Address, ready: list[Address]) -> None:
        known = self._services.keys()
        if service in known:
            self._services[service] = ready
            return
        if service[0] not in {address for address, _ in known}:
            ip("address", "add", f"{service[0]}/32", "dev", BRIDGE)
        self._services[service] = ready
        listener = socket.create_server(service, backlog=64)
        threading.Thread(target=self._accept, args=(listener, service), daemon=True).start()

    def _accept(self, listener: socket.socket, service: Address) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self._connect, args=(client, service), daemon=True).start()

    def _connect(self, client: socket.socket, service: Address) -> None:
        with client:
            try:
                pod = socket.create_connection(self._services[service][0], timeout=5)
            except (IndexError, OSError):
                return  # Nobody is ready there: the client sees the end of its connection.
            with pod:
                pod.settimeout(None)
                back = threading.Thread(target=pass_on, args=(pod, client), daemon=True)
                back.start()
                pass_on(client, pod)
                back.join()


class Wire:
    """What passes between pods while it is open, as one hears it who has the cables."""

    def __enter__(self) -> Wire:
        self._pieces: list[bytes] = []
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, HEARD_BYTES)
        self._socket.settimeout(0.1)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *unused) -> None:
        self._over.set()
        self._thread.join()
        counts = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self._socket.close()
        _, missed = struct.unpack("II", counts)
        assert missed == 0, f"{missed} packets were not heard"

    def _listen(self) -> None:
        while True:
            try:
                self._pieces.append(self._socket.recv(2 * PIECE))
            except TimeoutError:
                if self._over.is_set():
                    return

    def has(self, words: str) -> bool:
        """Once it is closed."""
        return any(words.encode() in piece for piece in self._pieces)


def answer(question: bytes, names: dict[str, str]) -> bytes:
    """Of DNS (RFC 1035), to one question: names have an IPv4 address, and nothing else."""
    at, labels = 12, []
    while size := question[at]:
        labels.append(question[at + 1 : at + 1 + size].decode())
        at += 1 + size
    address = names.get(".".join(labels).lower())
    wants_one = int.from_bytes(question[at + 1 : at + 3]) == 1
    found = address is not None and wants_one
    code = 0x8580 | (3 if address is None else 0)  # An answer of who knows; 3: no such name.
    text = struct.pack("!2s5H", question[:2], code, 1, int(found), 0, 0) + question[12 : at + 5]
    if found:  # The name of the question, an address of the Internet, for a second.
        text += struct.pack("!HHHIH4s", 0xC00C, 1, 1, 1, 4, socket.inet_aton(address))
    return text


def pass_on(source: socket.socket, target: socket.socket) -> None:
    """Until either is over."""
    try:
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

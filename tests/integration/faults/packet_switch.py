# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A network of network namespaces, whose packets pass through this process: it drops, delays,
doubles and counts them.

`tc netem` is missing on some kernels and blackhole routes know no delay, so each namespace gets a
TUN device instead of a veth pair, and the cable is a program: packets are lost below TCP, as in a
real network. Node N has the address ADDRESS(N). A namespace lives as long as this process and those
in it: nothing is left behind, however a test ends.

    network = Network(3)                        # needs root and /dev/net/tun; Missing says what is
    not there subprocess.run(network.within(2) + command)   # runs a command in the namespace of
    node 2 network.rule(2, 3, loss=1.0)                # from 2 to 3 nothing arrives any more;
    both(2, 3, ...) for both ways network.heal()
    network.bytes(2, 3)                         # how much went that way
"""

import collections
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time

TUN = "/dev/net/tun"
CLONE_NEWNET = 0x40000000
SET_TUN = 0x400454CA
PLAIN_TUN = 0x1001  # IFF_TUN | IFF_NO_PI
QUEUE_BYTES = 1 << 20  # Of a direction with a rate; more is dropped, as by a router.
MOST_AT_ONCE = 64  # Packets of one device before the others have their turn.


class Missing(Exception):
    """What a row needs, and this machine or user does not have."""


def address_of(node: int) -> str:
    return f"10.77.0.{node}"


class Direction:
    """What happens to the packets of one node to another."""

    def __init__(self):
        self.bytes = 0
        self.packets = 0
        self.set()

    def set(self, loss=0.0, delay=0.0, jitter=0.0, duplicate=0.0, rate=0, cut_at=None):
        self.loss, self.delay, self.jitter, self.duplicate, self.rate, self.cut_at = (
            loss,
            delay,
            jitter,
            duplicate,
            rate,
            cut_at,
        )
        self.free_at = 0.0
        self.plain = not (loss or delay or jitter or duplicate or rate or cut_at is not None)


class Switch:
    def __init__(self, seed: int, mtu: int):
        self.random = random.Random(seed)
        self.mtu = mtu
        self.spaces, self.devices, self.node_of = {}, {}, {}
        self.directions = collections.defaultdict(Direction)
        self.held = []  # (when, sequence, node, packet)
        self.sequence = 0

    def add(self, node: int) -> int:
        """Makes a namespace; the descriptor by which others of its user can enter it."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise Missing(f"unshare(CLONE_NEWNET): {os.strerror(ctypes.get_errno())}")
        space = os.open("/proc/self/ns/net", os.O_RDONLY)
        device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, SET_TUN, struct.pack("16sH22x", b"cable", PLAIN_TUN))
        for words in (
            "link set lo up",
            f"link set cable mtu {self.mtu} txqueuelen 4000",
            f"addr add {address_of(node)}/24 dev cable",
            "link set cable up",
        ):
            subprocess.run(["ip", *words.split()], check=True, stdout=subprocess.DEVNULL)
        self.spaces[node], self.devices[node], self.node_of[device] = space, device, node
        return space

    def serve(self):
        poll = select.poll()
        poll.register(0, select.POLLIN)
        print("ready", flush=True)
        registered = set()
        while True:
            for device in self.node_of.keys() - registered:
                poll.register(device, select.POLLIN)
                registered.add(device)
            wait = None
            if self.held:
                wait = max(0, (self.held[0][0] - time.monotonic()) * 1000)
            for descriptor, _ in poll.poll(wait):
                if descriptor == 0:
                    line = sys.stdin.buffer.raw.readline()
                    if not line:
                        return
                    print(json.dumps(self.obey(json.loads(line))), flush=True)
                else:
                    self.take(descriptor)
            now = time.monotonic()
            while self.held and self.held[0][0] <= now:
                _, _, node, packet = heapq.heappop(self.held)
                self.give(node, packet)

    def obey(self, command):
        what = command.pop("do")
        if what == "add":
            return self.add(command["node"])
        direction = self.directions[command.pop("source"), command.pop("target")]
        if what == "rule":
            direction.set(**command)
            if direction.cut_at is not None:
                direction.cut_at += direction.bytes
        return [direction.bytes, direction.packets, direction.loss]

    def take(self, device):
        source = self.node_of[device]
        for _ in range(MOST_AT_ONCE):
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                return
            if (
                packet[0] >> 4 != 4 or packet[19] not in self.devices
            ):  # IPv4 to one of us, or nothing.
                continue
            target = packet[19]
            direction = self.directions[source, target]
            if direction.plain:
                direction.bytes += len(packet)
                direction.packets += 1
                self.give(target, packet)
            else:
                self.mistreat(direction, target, packet)

    def mistreat(self, direction, target, packet):
        if direction.cut_at is not None and direction.bytes >= direction.cut_at:
            direction.cut_at, direction.loss = None, 1.0
        if direction.loss and self.random.random() < direction.loss:
            return
        direction.bytes += len(packet)
        direction.packets += 1
        now = leaves = time.monotonic()
        if direction.rate:
            begins = max(now, direction.free_at)
            if (begins - now) * direction.rate > QUEUE_BYTES:
                return
            leaves = direction.free_at = begins + len(packet) / direction.rate
        for _ in range(
            2 if direction.duplicate and self.random.random() < direction.duplicate else 1
        ):
            delay = direction.delay + self.random.uniform(-direction.jitter, direction.jitter)
            if leaves + delay <= now:
                self.give(target, packet)
            else:
                self.sequence += 1
                heapq.heappush(self.held, (leaves + delay, self.sequence, target, packet))

    def give(self, node, packet):
        try:
            os.write(self.devices[node], packet)
        except (
            OSError
        ):  # Its queue is full, or it is being taken down: a packet is lost, as packets are.
            pass


class Network:
    def __init__(self, nodes: int, seed: int = 0, mtu: int = 16000):
        if os.geteuid() != 0:
            raise Missing("network namespaces need root (or run the test inside `unshare -Ur`)")
        if not os.access(TUN, os.R_OK | os.W_OK):
            raise Missing(f"no {TUN} that this user may open")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        }
        self._switch = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(seed), str(mtu)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment,
        )
        self._spaces = {}
        if self._switch.stdout.readline() != "ready\n":
            raise Missing("the packet switch did not start")
        for _ in range(nodes):
            self.add()

    def add(self) -> int:
        """One more namespace; its number."""
        node = len(self._spaces) + 1
        self._spaces[node] = self._ask(do="add", node=node)
        return node

    def within(self, node: int) -> list:
        """In front of a command: runs it in the namespace of `node`."""
        return ["nsenter", f"--net=/proc/{self._switch.pid}/fd/{self._spaces[node]}"]

    def rule(self, source: int, target: int, **rule):
        """loss, duplicate: parts of 1. delay, jitter: seconds. rate: bytes per second. cut_at: all
        is lost after so many more bytes. A rule replaces the one before."""
        self._ask(do="rule", source=source, target=target, **rule)

    def both(self, one: int, other: int, **rule):
        self.rule(one, other, **rule)
        self.rule(other, one, **rule)

    def isolate(self, node: int, **rule):
        """The rule for all that `node` says or hears."""
        for other in self._spaces:
            if other != node:
                self.both(node, other, **rule)

    def all(self, **rule):
        for one in self._spaces:
            for other in self._spaces:
                if one != other:
                    self.rule(one, other, **rule)

    heal = all

    def bytes(self, source: int, target: int) -> int:
        return self._ask(do="count", source=source, target=target)[0]

    def is_cut(self, source: int, target: int) -> bool:
        return self._ask(do="count", source=source, target=target)[2] >= 1

    def _ask(self, **command):
        self._switch.stdin.write(json.dumps(command) + "\n")
        line = self._switch.stdout.readline()
        if not line:
            raise Missing(
                f"the packet switch ended at {command}: no right to make a "
                "namespace or its device here?"
            )
        return json.loads(line)

    def close(self):
        self._switch.stdin.close()
        self._switch.stdout.close()
        if self._switch.wait(10) not in (0, 1):
            raise RuntimeError(f"the packet switch ended with {self._switch.returncode}")


if __name__ == "__main__":
    Switch(int(sys.argv[1]), int(sys.argv[2])).serve()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a driver has in its environment stays on its machine: neither the connections between nodes
nor any file shows it."""

import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S
from recording_relay import RecordingRelay
from sheaf.lifecycle import executable

NAMED = "a-value-that-the-runtime-env-names"

PROGRAM = """
import os, sys, sheaf

sheaf.init(address=sys.argv[1], runtime_env={"env_vars": {"NAMED": os.environ["TO_BE_NAMED"]}}, log_to_driver=False)
names = ["AWS_SECRET_ACCESS_KEY", "SHEAF_TOKEN", "NAMED", "OF_NODE"]
look = sheaf.remote(lambda: [os.environ.get(name) for name in names])

@sheaf.remote
class Keeper:
    def look(self):
        return [os.environ.get(name) for name in names]

for place in sys.argv[2:]:
    print(place, sheaf.get(look.options(resources={place: 1}).remote(), timeout=60))
    keeper = Keeper.options(resources={place: 1}, lifetime="detached", name=place + sys.argv[1]).remote()
    print(place, sheaf.get(keeper.look.remote(), timeout=60))
sheaf.shutdown()
"""


@pytest.fixture
def nodes(tmp_path):
    """Two nodes that reach each other over relays only, in a cluster whose token is in no file:
    (session, relays, token)."""
    sheaf.shutdown()
    token = secrets.token_hex(32)
    relays = [RecordingRelay(), RecordingRelay()]
    environment = {**os.environ, "SHEAF_TOKEN": token}
    sessions = []
    for place, relay in zip("ab", relays):
        with socket.create_server(("127.0.0.1", 0)) as free:
            relay.target_port = free.getsockname()[1]
        command = [
            executable(),
            "start",
            "--json",
            f"--dir={tmp_path}/{place}",
            "--num-cpus=2",
            f"--resources={place}:2",
            f"--port={relay.target_port}",
            f"--advertise-address={relay.address}",
            "--object-store-memory=64MiB",
        ]
        command.append("--head" if place == "a" else f"--address={relays[0].address}")
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**environment, "OF_NODE": f"node {place}"},
        )
        assert done.returncode == 0, done.stderr
        sessions.append(json.loads(done.stdout)["session"])
    yield sessions[0], relays, token
    for session in reversed(sessions):
        subprocess.run(
            [executable(), "stop", f"--address={session}"], capture_output=True, timeout=WAIT_S
        )
    for relay in relays:
        relay.close()


def files_with(folder: pathlib.Path, mark: bytes):
    return [str(path) for path in folder.rglob("*") if path.is_file() and mark in path.read_bytes()]


def test_no_secret_of_a_driver_leaves_its_machine_or_reaches_a_disk(nodes, tmp_path):
    session, relays, token = nodes
    secret = "the-secret-" + secrets.token_hex(16)
    environment = {
        **os.environ,
        "SHEAF_TOKEN": token,
        "AWS_SECRET_ACCESS_KEY": secret,
        "TO_BE_NAMED": NAMED,
        "OF_NODE": "the driver",
    }
    environment["SHEAF_DIR"] = str(tmp_path / "driver")

    def look(address, places):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, address, *places],
            env=environment,
            capture_output=True,
            text=True,
            timeout=3 * WAIT_S,
        )
        assert done.returncode == 0, done.stderr
        return [(line[0], eval(line[2:])) for line in done.stdout.splitlines()]

    here, there = [secret, None, NAMED, "the driver"], [None, None, NAMED, "node b"]
    assert look(session, "ab") == [("a", here), ("a", here), ("b", there), ("b", there)]
    # A driver that is no node's neighbour is a node of its own, which runs nothing.
    elsewhere = [None, None, NAMED, "node a"]
    assert look(relays[0].address, "ab") == [
        ("a", elsewhere),
        ("a", elsewhere),
        ("b", there),
        ("b", there),
    ]

    passed = b"".join(relay.recorded() for relay in relays)
    assert NAMED.encode() in passed and files_with(tmp_path, NAMED.encode()), (
        "the recording and the files show what they should"
    )
    for mark in (secret, token):
        for form in (
            mark.encode(),
            bytes.fromhex(mark) if mark == token else mark.encode().hex().encode(),
        ):
            assert form not in passed
            assert files_with(tmp_path, form) == []


def test_a_node_that_others_can_reach_in_plain_says_so(tmp_path):
    def start(*flags, **environment):
        done = subprocess.run(
            [
                executable(),
                "start",
                "--head",
                "--port=0",
                "--num-cpus=1",
                "--object-store-memory=64MiB",
                f"--dir={tmp_path}",
                *flags,
            ],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        session = next(line.split()[1] for line in done.stdout.splitlines() if "Session:" in line)
        log = pathlib.Path(session, "logs", "node.log").read_text()
        subprocess.run(
            [executable(), "stop", f"--address={session}"], capture_output=True, timeout=WAIT_S
        )
        return done.stderr, log

    words = "without encryption"
    said, log = start("--host=0.0.0.0", "--advertise-address=127.0.0.1:6380")
    assert said.count(words) == 1 and "--tls-dir" in said and log.count(words) == 1
    said, log = start()
    assert words not in said + log
    subprocess.run(
        [executable(), "cert", "init", f"{tmp_path}/tls"],
        check=True,
        capture_output=True,
        timeout=WAIT_S,
    )
    said, log = start(
        "--host=0.0.0.0", "--advertise-address=127.0.0.1:6380", f"--tls-dir={tmp_path}/tls"
    )
    assert words not in said + log

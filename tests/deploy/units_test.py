# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The units of deploy/systemd: systemd understands them and finds them safe, and a node tells the
service manager what they promise. This is the manager's side, with a real node.

Usage: units_test.py SHEAF_PROGRAM [--long]

--long: also what waits for half a minute; ./do deploy runs it.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from processes import children_of

SHEAF = ""
LONG = "--long" in sys.argv
UNITS = pathlib.Path(__file__).parents[2] / "deploy/systemd"
WORST_EXPOSURE = 3.0  # Of ten; what systemd calls OK.
WAIT_S = 30


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def test_systemd_understands_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in UNITS.glob("*.service"):
                text = unit.read_text().replace("/usr/bin/sheaf", SHEAF)
                self.assertIn("--resume=latest", text)
                path = pathlib.Path(folder, unit.name)
                path.write_text(text)
                said = subprocess.run(
                    ["systemd-analyze", "verify", str(path)], capture_output=True, text=True
                )
                ours = [line for line in said.stderr.splitlines() if folder in line]
                self.assertEqual((0, []), (said.returncode, ours))

    def test_what_runs_in_them_may_little(self):
        for unit in UNITS.glob("*.service"):
            said = subprocess.run(
                ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
                capture_output=True,
                text=True,
            ).stdout
            exposure = float(re.search(r"Overall exposure level .*: ([\d.]+)", said)[1])
            self.assertLessEqual(exposure, WORST_EXPOSURE, said)

    def test_their_user_and_their_folders_can_be_made(self):
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(f"{root}/etc")
            for tool in ("sysusers", "tmpfiles"):
                folder = pathlib.Path(root, f"usr/lib/{tool}.d")
                folder.mkdir(parents=True)
                shutil.copy(UNITS / f"sheaf.{tool}", folder / "sheaf.conf")
            if os.geteuid() != 0:
                self.skipTest("only root can make users")
            for command in (["systemd-sysusers"], ["systemd-tmpfiles", "--create"]):
                done = subprocess.run(
                    [*command, f"--root={root}"], capture_output=True, text=True, timeout=WAIT_S
                )
                self.assertEqual(0, done.returncode, done.stderr)
            passwd = pathlib.Path(root, "etc/passwd").read_text()
            uid = int(re.search(r"^sheaf:[^:]*:(\d+):", passwd, re.M)[1])
            state, tokens = os.stat(f"{root}/var/lib/sheaf"), os.stat(f"{root}/etc/sheaf")
            self.assertEqual((uid, 0o700), (state.st_uid, state.st_mode & 0o777))
            self.assertEqual((0, 0o750), (tokens.st_uid, tokens.st_mode & 0o777))


class Files(unittest.TestCase):
    def test_each_option_in_them_is_one_of_sheaf_start(self):
        known = subprocess.run([SHEAF, "start", "--help"], capture_output=True, text=True).stdout
        for file in [*UNITS.glob("*.service"), *UNITS.glob("*.env")]:
            for line in file.read_text().splitlines():
                if line.startswith(("ExecStart=", "FLAGS=")):
                    for word in shlex.split(line.partition("=")[2]):
                        if word.startswith("--"):
                            self.assertIn(word.split("=")[0], known, f"{file.name}: {line}")

    def test_prometheus_reads_the_list_of_nodes_where_the_head_writes_it(self):
        """As a user of its own: the head's state is for the head alone."""
        unit = (UNITS / "sheaf-head.service").read_text()
        folder = "/run/" + re.search(r"^RuntimeDirectory=(\w+)$", unit, re.M)[1]
        mode = int(re.search(r"^RuntimeDirectoryMode=(\d+)$", unit, re.M)[1], 8)
        self.assertEqual(0o005, mode & 0o007)
        flags = (UNITS / "head.env").read_text().partition("FLAGS=")[2]
        (file,) = re.findall(r"--sd-file=(\S+)", flags)
        self.assertEqual(folder, os.path.dirname(file))
        prometheus = (UNITS.parent / "prometheus/prometheus.yml").read_text()
        self.assertIn(f"- files: [{file}]", prometheus)

    def test_a_node_has_longer_to_end_than_its_drain(self):
        unit = (UNITS / "sheaf-node.service").read_text()
        drain = int(re.search(r"DRAIN_SECONDS=(\d+)", unit)[1])
        self.assertGreater(int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]), drain + 10)

    def test_a_node_gives_up_on_its_head_itself(self):
        unit = (UNITS / "sheaf-node.service").read_text()
        waits = int(re.search(r"--timeout=(\d+)", unit)[1])
        self.assertGreater(int(re.search(r"TimeoutStartSec=(\d+)", unit)[1]), waits)


class Notify(unittest.TestCase):
    """A node that a service manager started."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sn-")
        self.addCleanup(folder.cleanup)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.settimeout(WAIT_S)
        self.manager.bind(f"{folder.name}/notify")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        } | {"SHEAF_DIR": f"{folder.name}/s", "SHEAF_STATE_IN_MEMORY": "1"}
        self.node = subprocess.Popen(
            [
                *(SHEAF, "start", "--head", "--block", "--resume=latest", "--port=0"),
                *("--object-store-memory=64MiB", "--include-dashboard=false"),
            ],
            env=self.environment
            | {"NOTIFY_SOCKET": f"{folder.name}/notify", "WATCHDOG_USEC": "1000000"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.node.communicate)
        self.addCleanup(self.node.kill)

    def heard(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.manager.recv(4096).decode().splitlines())

    def until(self, word: str) -> dict[str, str]:
        """The first datagram with this word; what comes before is what a watchdog wants."""
        while word not in (said := self.heard()):
            self.assertEqual({"WATCHDOG": "1"}, said)
        return said

    def gcs(self) -> int:
        """The pid of its control store."""
        children = children_of(self.node.pid).items()
        (gcs,) = [pid for pid, (_, command) in children if "gcs-serve" in command]
        return gcs

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [SHEAF, *words], env=self.environment, capture_output=True, text=True, timeout=WAIT_S
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_it_says_that_it_is_ready_lives_and_ends(self):
        ready = self.heard()
        self.assertEqual("1", ready["READY"])
        self.assertRegex(ready["STATUS"], r"^node 1 of 127\.0\.0\.1:\d+, session ")
        # Ready means that it can be asked.
        (node,) = json.loads(self.command("list", "nodes", "--json"))["nodes"]
        self.assertEqual("ALIVE", node["state"])
        self.until("WATCHDOG")
        self.until("WATCHDOG")
        self.node.send_signal(signal.SIGTERM)
        self.until("STOPPING")
        self.assertEqual(0, self.node.wait(WAIT_S))

    def test_its_processes_do_not_speak_for_it(self):
        self.heard()
        environment = pathlib.Path(f"/proc/{self.gcs()}/environ").read_bytes()
        self.assertIn(b"SHEAF_DIR=", environment)
        self.assertNotIn(b"NOTIFY_SOCKET", environment)
        self.assertNotIn(b"WATCHDOG", environment)

    @unittest.skipUnless(LONG, "half a minute: with --long")
    def test_a_control_store_that_stands_still_starves_the_watchdog(self):
        self.heard()
        gcs = self.gcs()
        os.kill(gcs, signal.SIGSTOP)
        self.addCleanup(os.kill, gcs, signal.SIGCONT)
        self.manager.settimeout(60)
        self.assertIn("the GCS was not heard for 30 s", self.until("STATUS")["STATUS"])
        self.manager.settimeout(3)
        with self.assertRaises(TimeoutError):
            self.manager.recv(4096)

    def test_a_programs_own_node_does_not_speak_for_the_program(self):
        self.until("READY")
        self.node.send_signal(signal.SIGTERM)
        self.until("STOPPING")
        life, mine = os.pipe()
        ready, said = os.pipe()
        node = subprocess.Popen(
            [
                *(SHEAF, "node", f"--parent-fd={life}", f"--ready-fd={said}"),
                "--object-store-memory=64MiB",
            ],
            env=self.environment
            | {"NOTIFY_SOCKET": self.manager.getsockname(), "WATCHDOG_USEC": "1000000"},
            pass_fds=(life, said),
        )
        self.addCleanup(node.kill)
        os.close(said)
        self.assertTrue(os.read(ready, 4096).startswith(b"ready\t"))
        os.close(mine)
        self.assertEqual(0, node.wait(WAIT_S))
        os.close(life)
        os.close(ready)
        self.manager.setblocking(False)
        with self.assertRaises(BlockingIOError):
            self.manager.recv(4096)

    def test_it_drains_itself(self):
        self.heard()
        self.assertIn("Node 1 is DRAINED", self.command("drain", "self", "--wait", "20"))


if __name__ == "__main__":
    SHEAF = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *(word for word in sys.argv[2:] if word != "--long")])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A node and its processes when they end, in order and by force: nothing may be left.

Usage: node_test.py SHEAF_PROGRAM NODE_DRIVER
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SHEAF = ""
DRIVER = ""
HOLDERS = 2


def process_table() -> dict:
    """Of every living process: its command line and environment."""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            folder = pathlib.Path("/proc") / entry
            if folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                continue
            table[int(entry)] = (
                folder.joinpath("cmdline").read_bytes(),
                folder.joinpath("environ").read_bytes(),
            )
        except OSError:
            pass
    return table


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.base = os.path.join(self.folder.name, "sheaf")
        self.marks = os.path.join(self.folder.name, "marks")
        os.mkdir(self.marks)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        }
        self.environment |= {
            "SHEAF_DIR": self.base,
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_EXECUTABLE": SHEAF,
        }
        self.addCleanup(self.kill_all)

    def processes(self) -> dict:
        """Living processes of this test: all inherit its SHEAF_DIR."""
        mark = f"SHEAF_DIR={self.base}".encode()
        return {
            pid: command
            for pid, (command, environ) in process_table().items()
            if mark in environ.split(b"\0")
        }

    def kill_all(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # It may be ending.
                os.kill(pid, signal.SIGKILL)

    def await_none(self, seconds: float, but: tuple = ()) -> float:
        """Waits until no process is left but those; the seconds that took."""
        begin = time.monotonic()
        while left := {pid: command for pid, command in self.processes().items() if pid not in but}:
            self.assertLess(time.monotonic() - begin, seconds, f"left: {left}")
            time.sleep(0.005)
        return time.monotonic() - begin

    def hold(self, **environment: str) -> subprocess.Popen:
        """A driver whose tasks run, with children in and out of their process groups."""
        driver = self.run_driver("hold", str(HOLDERS), self.marks, **environment)
        # Each task has itself, a child, one that fled, and the child of that.
        while (
            sum(b"node_driver" in command for command in self.processes().values())
            < 1 + 4 * HOLDERS
        ):
            time.sleep(0.005)
        return driver

    def run_driver(self, *arguments: str, **environment: str) -> subprocess.Popen:
        """A driver that says that it runs."""
        driver = subprocess.Popen(
            [DRIVER, *arguments],
            env=self.environment | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, driver)
        self.output = ""
        while not self.output.endswith("running\n"):
            line = driver.stdout.readline()
            self.assertNotEqual("", line, driver.stderr.read() if line == "" else "")
            self.output += line
        return driver

    def end(self, driver: subprocess.Popen):
        driver.kill()
        driver.wait()
        for stream in (driver.stdin, driver.stdout, driver.stderr):
            stream.close()

    def node_pid(self) -> int:
        return next(
            pid for pid, command in self.processes().items() if command.startswith(b"sheaf\0node")
        )

    def sessions(self) -> list:
        """What lies in the base directory but the cluster's token, which stays."""
        return sorted(set(os.listdir(self.base)) - {"token"}) if os.path.exists(self.base) else []


class OwnNode(Case):
    """The node that Init starts."""

    def test_a_driver_that_shuts_down_leaves_nothing(self):
        driver = self.hold()
        driver.stdin.close()
        self.assertEqual(0, driver.wait(10))
        self.await_none(2)
        self.assertEqual([], self.sessions())

    def test_a_killed_driver_leaves_nothing(self):
        driver = self.hold()
        driver.kill()
        driver.wait()
        self.await_none(2)
        self.assertEqual([], self.sessions())

    def test_a_killed_node_takes_its_workers_along(self):
        driver = self.hold()
        os.kill(self.node_pid(), signal.SIGKILL)
        begin = time.monotonic()
        # Strays of tasks are nobody's children then; the workers themselves end.
        while workers := [
            pid
            for pid, command in self.processes().items()
            if pid != driver.pid
            and b"node_driver" in command
            and os.getpgid(pid) == pid
            and os.getsid(pid) != pid
        ]:
            self.assertLess(time.monotonic() - begin, 10, workers)  # Fault row 8 measures it.
            time.sleep(0.005)
        self.kill_all()
        driver.wait()
        self.assertEqual(1, len([name for name in self.sessions() if name.startswith("session-")]))
        done = subprocess.run(
            [DRIVER, "add"], env=self.environment, capture_output=True, text=True, timeout=30
        )
        self.assertEqual("3\n", done.stdout, done.stderr)
        self.await_none(2)
        self.assertEqual([], self.sessions())

    def test_a_killed_node_takes_an_actor_with_threads_along(self):
        driver = self.run_driver("threads", self.marks)
        os.kill(self.node_pid(), signal.SIGKILL)
        begin = time.monotonic()
        while workers := [
            pid
            for pid, command in self.processes().items()
            if pid != driver.pid and b"node_driver" in command
        ]:
            self.assertLess(time.monotonic() - begin, 10, workers)
            time.sleep(0.005)
        # No method went on in an actor that was destroyed.
        self.assertEqual(["0", "1"], sorted(os.listdir(self.marks)))

    def test_workers_without_templates(self):
        driver = self.hold(SHEAF_WORKER_TEMPLATES="0")
        driver.kill()
        driver.wait()
        self.await_none(2)
        self.assertEqual([], self.sessions())

    def test_output_of_tasks_appears_at_the_driver(self):
        driver = self.hold()
        lines = []

        def read():
            while sum("holds" in line for line in lines) < HOLDERS:
                lines.append(driver.stdout.readline())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(10)
        driver.stdin.close()
        output = self.output + "".join(lines)
        for number in range(HOLDERS):
            self.assertRegex(output, rf"\(.*pid=\d+\) task {number} holds\n")


class NodeOfItsOwn(Case):
    """The node that `sheaf start` starts."""

    def start(self) -> int:
        done = subprocess.run(
            [SHEAF, "start", "--head", "--num-cpus", str(HOLDERS), "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)["os_pid"]

    def test_a_killed_driver_takes_its_job_along_and_nothing_else(self):
        node = self.start()
        head = tuple(self.processes())  # The node, and the GCS that is its child.
        self.assertEqual(2, len(head), head)
        first = self.hold(SHEAF_ADDRESS="latest")
        first.kill()
        first.wait()
        self.await_none(2, but=head)
        done = subprocess.run(
            [DRIVER, "add"],
            env=self.environment | {"SHEAF_ADDRESS": "latest"},
            capture_output=True,
            text=True,
            timeout=30,
        )
        self.assertEqual("3\n", done.stdout, done.stderr)
        os.kill(node, signal.SIGTERM)
        self.await_none(3)

    def test_a_stopped_node_leaves_its_logs_alone(self):
        node = self.start()
        driver = self.hold(SHEAF_ADDRESS="latest")
        os.kill(node, signal.SIGTERM)
        self.await_none(5, but=(driver.pid,))
        session = os.path.join(self.base, self.sessions()[0])
        self.assertEqual([session], [os.path.join(self.base, name) for name in self.sessions()])
        self.assertEqual(
            {"gcs.db", "gcs.db-ballast", "gcs.db-reserve", "keep", "lock", "logs", "node"},
            # The last: written a moment after the start.
            set(os.listdir(session)) - {"gcs.db-wal", "gcs.db-shm", "prometheus_sd.json"},
        )


if __name__ == "__main__":
    SHEAF, DRIVER = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

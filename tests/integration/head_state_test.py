# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a head keeps: where it lies, what removes it, what goes on with it, and the process that
serves it.

Usage: head_state_test.py SHEAF_PROGRAM NODE_DRIVER
"""

import contextlib
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import cli_test

SIZE = ["--num-cpus", "1", "--object-store-memory", "64MiB"]


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def is_running(pid: int) -> bool:
    try:
        return (
            pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
        )
    except OSError:
        return False


class Case(cli_test.Case):
    def setUp(self):
        super().setUp()
        self.addCleanup(
            lambda: subprocess.run(
                [cli_test.SHEAF, "stop", "--timeout", "5"],
                env=self.environment,
                capture_output=True,
            )
        )

    def start(self, *arguments: str) -> dict:
        return json.loads(self.sheaf("start", *SIZE, "--json", "--port", "0", *arguments))

    def until(self, condition, what: str, seconds: float = 30):
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)
        return value

    def kill(self, node: dict):
        os.kill(node["os_pid"], signal.SIGKILL)
        self.until(lambda: not is_running(node["os_pid"]), "the node is dead")

    def gcs_of(self, node: dict) -> int:
        """The process of the GCS of this head, 0 if there is none just now."""
        mark = f"--database={node['session']}/gcs.db".encode()
        for folder in glob.glob("/proc/[0-9]*"):
            pid = int(folder[6:])
            if mark in command_of(pid).split(b"\0") and is_running(pid):
                return pid
        return 0

    def nodes(self, *where: str) -> list[dict]:
        return json.loads(self.sheaf("list", "nodes", "--json", *where))["nodes"]

    def sessions(self) -> dict:
        return {
            row["session"]: row for row in json.loads(self.sheaf("sessions", "--json"))["sessions"]
        }

    def foreground(self, *arguments: str) -> subprocess.Popen:
        """A node of which the exit status and the last words are seen."""
        node = subprocess.Popen(
            [cli_test.SHEAF, "start", "--block", *SIZE, "--port", "0", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(lambda: (node.kill(), node.communicate()))
        line = node.stdout.readline()
        self.assertTrue(line.startswith("ready\t"), line + (node.stderr.read() if not line else ""))
        node.session, node.address = line.split("\t")[1], line.split("\t")[3]
        return node


class WhatIsKept(Case):
    def test_starting_nodes_removes_no_state_of_a_head(self):
        head = self.start("--head")
        self.kill(head)
        for number in range(12):  # Heads that ended since, and nodes.
            session = pathlib.Path(self.base, f"session-29990101-0000{number:02}-1")
            session.mkdir(mode=0o700)
            for file in ["lock", "keep", *(["gcs.db"] if number < 6 else [])]:
                session.joinpath(file).touch()
        other = self.start("--head")
        self.assertTrue(os.path.exists(f"{head['session']}/gcs.db"))
        self.assertEqual(6 + 2, sum(row["kind"] == "head" for row in self.sessions().values()))
        self.sheaf("stop", "--address", other["session"])
        again = self.start("--head", f"--resume={head['session']}")
        self.assertEqual((head["session"], 2), (again["session"], again["node"]))

    def test_the_latest_head_goes_on_with_its_state_as_often_as_it_is_killed(self):
        first = self.start("--head", "--resume=latest")  # None has ended: a new one.
        self.assertEqual(1, first["node"])
        for number in range(2, 5):
            self.kill(self.start("--address", first["address"]) if number == 3 else first)
            if number == 3:
                self.kill(first)
            first = self.start("--head", "--resume=latest")
            self.assertEqual(
                1, len([row for row in self.sessions().values() if row["kind"] == "head"])
            )
        self.assertGreater(first["node"], 3)
        self.sheaf("start", "--head", *SIZE, "--resume=latest", code=1)  # It runs.
        self.assertIn("sheaf stop --address", self.errors)

    def test_a_new_cluster_beside_the_state_of_an_old_one_says_so(self):
        old = self.start("--head")
        self.assertIsNone(old["left_behind"])
        self.sheaf("stop")
        self.assertEqual(old["session"], self.start("--head")["left_behind"])
        self.sheaf("stop")
        self.assertIn(
            "sheaf start --head --resume=", self.sheaf("start", "--head", *SIZE, "--port", "0")
        )

    def test_state_goes_when_it_is_removed_by_name(self):
        head = self.start("--head")
        self.sheaf("gcs", "remove", head["session"], code=1)
        self.assertIn("sheaf stop", self.errors)
        self.sheaf("stop")
        self.assertEqual("ENDED", self.sessions()[head["session"]]["state"])
        self.sheaf("gcs", "remove", head["session"])
        self.assertEqual({}, self.sessions())
        self.sheaf("gcs", "remove", head["session"], code=4)

    def test_a_head_refuses_to_keep_its_state_in_memory(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            self.environment["SHEAF_DIR"] = f"{memory}/sheaf"
            del self.environment["SHEAF_STATE_IN_MEMORY"]
            self.sheaf("start", "--head", *SIZE, code=1)
            self.assertIn("--dir", self.errors)
            self.assertIn("SHEAF_STATE_IN_MEMORY=1", self.errors)
            self.environment["SHEAF_STATE_IN_MEMORY"] = "1"
            self.start("--head")
            self.sheaf("stop")

    def test_a_head_whose_state_is_removed_ends_and_says_so(self):
        for what in ["session", "gcs.db", "gcs.db-wal"]:
            with self.subTest(what):
                head = self.foreground("--head")
                path = (
                    pathlib.Path(head.session, what)
                    if what != "session"
                    else pathlib.Path(head.session)
                )
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                # A node that joins is something to write; it gets no number.
                join = subprocess.Popen(
                    [cli_test.SHEAF, "start", *SIZE, "--address", head.address],
                    env=self.environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                _, errors = head.communicate(timeout=20)
                self.assertEqual(1, head.returncode)
                self.assertIn("removed", errors)
                self.assertNotEqual(0, join.wait(30))

    def test_a_socket_that_is_removed_comes_back(self):
        head = self.start("--head")
        os.unlink(os.path.join(head["session"], "raylet.sock"))
        self.until(
            lambda: os.path.exists(os.path.join(head["session"], "raylet.sock")),
            "the socket is there again",
            5,
        )
        self.assertEqual(1, len(self.nodes()))


class TheProcessOfTheGcs(Case):
    def test_it_is_started_anew_and_the_head_goes_on(self):
        head = self.start("--head")
        other = self.start("--address", head["address"])
        marks = pathlib.Path(self.folder.name) / "marks"
        marks.mkdir()
        self.environment["SHEAF_ADDRESS"] = head["session"]
        driver = subprocess.Popen(
            [cli_test.DRIVER, "hold", "2", str(marks)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(lambda: (driver.kill(), driver.communicate()))
        self.until(lambda: len(list(marks.iterdir())) == 2, "two tasks run")
        workers = lambda: sorted(
            (row["process"], row["os_pid"])
            for row in json.loads(self.sheaf("list", "workers", "--json"))["workers"]
            if row["state"] == "LEASED"
        )
        before = workers()
        self.assertEqual(2, len(before))
        for _ in range(2):
            old = self.gcs_of(head)
            os.kill(old, signal.SIGKILL)
            begin = time.monotonic()
            self.until(lambda: self.gcs_of(head) not in (0, old), "there is another")
            self.assertEqual(["ALIVE", "ALIVE"], [node["state"] for node in self.nodes()])
            took = time.monotonic() - begin
        self.assertEqual(before, workers())
        self.assertIsNone(driver.poll())
        jobs = json.loads(self.sheaf("list", "jobs", "--json"))["jobs"]
        self.assertEqual(["RUNNING"], [job["state"] for job in jobs])
        self.assertTrue(is_running(head["os_pid"]) and is_running(other["os_pid"]))
        third = self.start(
            "--address", head["address"]
        )  # It takes new nodes too, with numbers of their own.
        self.assertEqual(3, third["node"])
        print(f"the GCS was killed and answered again after {took * 1000:.0f} ms")

    def test_crashes_in_a_row_are_said_and_come_slower(self):
        head = self.start("--head")
        for _ in range(3):
            gcs = self.until(lambda: self.gcs_of(head), "the GCS runs")
            os.kill(gcs, signal.SIGKILL)
            self.until(lambda: not is_running(gcs), "it has ended")
        log = lambda: pathlib.Path(head["session"], "logs/node.log").read_text()
        self.until(lambda: "time 3 in a row" in log(), "each end is said", 5)
        for words in [
            "time 1 in a row; it is started anew in 0 ms",
            "time 2 in a row; it is started anew in 100 ms",
            "time 3 in a row; it is started anew in 200 ms",
        ]:
            self.assertIn(words, log())
        self.until(self.nodes, "it is back")

    def test_a_head_that_ends_leaves_no_gcs(self):
        for end in [lambda head: self.sheaf("stop"), self.kill]:
            head = self.start("--head")
            self.assertNotEqual(0, self.gcs_of(head))
            end(head)
            self.until(lambda: self.gcs_of(head) == 0, "its GCS has ended", 5)

    def test_a_pause_of_the_head_costs_no_node(self):
        head = self.start("--head")
        self.start("--address", head["address"])
        os.kill(head["os_pid"], signal.SIGSTOP)
        time.sleep(7)  # More than the five seconds after which a silent node is dead.
        os.kill(head["os_pid"], signal.SIGCONT)
        # A head that has just woken may answer late, and without the other node.
        self.until(lambda: len(self.nodes()) == 2, "the head lists both")
        time.sleep(1)  # Who would be declared dead has been by then.
        self.assertEqual(["ALIVE", "ALIVE"], [node["state"] for node in self.nodes()])
        self.assertNotIn(
            "declared dead", pathlib.Path(head["session"], "logs/node.log").read_text()
        )

    def test_a_node_that_has_lost_its_head_ends_by_itself(self):
        head = self.start("--head")
        node = self.foreground("--address", head["address"], "--gcs-lost-timeout", "2")
        begin = time.monotonic()
        self.kill(head)
        _, errors = node.communicate(timeout=20)
        self.assertEqual(1, node.returncode)
        self.assertIn("--gcs-lost-timeout", errors)
        self.assertGreater(time.monotonic() - begin, 1.5)


class Copies(Case):
    def test_a_copy_is_made_while_the_head_works_and_a_head_goes_on_with_it(self):
        self.start("--head")
        copy = os.path.join(self.folder.name, "copy.db")
        said = json.loads(self.sheaf("gcs", "backup", copy, "--json"))
        self.assertEqual((copy, os.path.getsize(copy)), (said["file"], said["bytes"]))
        self.assertEqual(0o600, os.stat(copy).st_mode & 0o777)
        self.sheaf("gcs", "backup", copy, code=1)
        self.assertIn("exists", self.errors)
        self.assertEqual(
            ["copy.db"], [name for name in os.listdir(self.folder.name) if name.startswith("copy")]
        )
        self.sheaf("stop")
        session = json.loads(self.sheaf("gcs", "restore", copy, "--json"))["session"]
        self.assertEqual("head", self.sessions()[session]["kind"])
        again = self.start("--head", "--resume=latest")
        self.assertEqual(session, again["session"])
        self.assertGreater(
            again["node"], 1 << 20
        )  # What was given since the copy is not given again.

    def test_what_is_no_copy_is_refused(self):
        for content in [b"", b"SQLite format 3\0 not at all" * 100]:
            path = os.path.join(self.folder.name, "no copy")
            pathlib.Path(path).write_bytes(content)
            self.sheaf("gcs", "restore", path, code=1)
            self.assertIn("no copy", self.errors)
        self.sheaf("gcs", "restore", "/nowhere", code=4)
        self.assertEqual({}, self.sessions())
        self.sheaf("gcs", "backup", "/tmp/nothing", code=3)


class Addresses(Case):
    def test_a_head_that_listens_everywhere_must_say_where_it_is_found(self):
        for host in ["0.0.0.0", "::"]:
            self.sheaf("start", "--head", *SIZE, "--host", host, code=1)
            self.assertIn("--advertise-address", self.errors)
        self.sheaf(
            "start",
            "--head",
            *SIZE,
            "--host",
            "0.0.0.0",
            "--advertise-address",
            "0.0.0.0:0",
            code=1,
        )
        self.assertIn("names no machine", self.errors)

    def test_a_node_that_listens_everywhere_is_found_on_the_way_to_the_head(self):
        head = self.start("--head", "--host", "0.0.0.0", "--advertise-address", "127.0.0.1:0")
        self.assertTrue(head["address"].startswith("127.0.0.1:"), head)
        self.assertFalse(head["address"].endswith(":0"), head)
        self.start("--address", head["address"], "--host", "0.0.0.0")
        addresses = [node["address"] for node in self.nodes()]
        self.assertEqual(
            ["127.0.0.1", "127.0.0.1"], [address.rsplit(":", 1)[0] for address in addresses]
        )

    def test_a_token_file_that_is_not_there_is_not_made_by_who_joins(self):
        head = self.start("--head")
        missing = os.path.join(self.folder.name, "tokn")
        self.sheaf("start", *SIZE, "--address", head["address"], "--token-file", missing, code=1)
        self.assertIn(missing, self.errors)
        self.assertFalse(os.path.exists(missing))
        self.environment["SHEAF_TOKEN"] = "00" * 32  # Another; the flag counts first.
        self.start("--address", head["address"], "--token-file", os.path.join(self.base, "token"))


class Metrics(Case):
    def get(self, url: str, token: str | None = None, host: str = "") -> str:
        request = urllib.request.Request(
            url,
            headers={
                name: value
                for name, value in [
                    ("Authorization", f"Bearer {token}" if token else ""),
                    ("Host", host),
                ]
                if value
            },
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read().decode()

    def test_beyond_this_machine_they_need_a_token(self):
        token = pathlib.Path(self.folder.name) / "token"
        token.write_text("ab" * 16 + "\n")
        token.chmod(0o644)
        wanted = ["--metrics-address", "0.0.0.0"]
        for arguments, words in [
            ([], "--metrics-token-file"),
            (["--metrics-token-file", str(token)], "chmod 600"),
            (["--metrics-token-file", "/nowhere"], "openssl"),
        ]:
            done = subprocess.run(
                [cli_test.SHEAF, "start", "--head", *SIZE, *wanted, *arguments],
                env=self.environment,
                capture_output=True,
                text=True,
            )
            self.assertNotEqual(0, done.returncode)
            self.assertIn(words, done.stderr)
        token.chmod(0o600)
        head = self.start("--head", *wanted, "--metrics-token-file", str(token))
        url = f"http://127.0.0.1:{head['metrics_url'].rsplit(':', 1)[1]}"
        for wrong, code in [(None, 401), ("ab" * 15, 403)]:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                self.get(url, wrong)
            self.assertEqual(code, refused.exception.code)
        text = self.get(url, "ab" * 16, host="head.example:9400")
        self.assertIn('sheaf_cpus{kind="total"} 1\n', text)

    def test_what_wakes_people_is_there(self):
        head = self.start("--head")
        self.start("--address", head["address"])
        wanted = [
            'sheaf_nodes{state="alive"} 2\n',
            'sheaf_nodes{state="dead"} 0\n',
            "sheaf_gcs_read_only 0\n",
            "sheaf_gcs_recovering 0\n",
            "sheaf_gcs_operations_in_progress 0\n",
            "sheaf_gcs_key_value_bytes ",
            "sheaf_link_queued_bytes ",
        ]
        self.until(
            lambda: all(words in self.get(head["metrics_url"]) for words in wanted),
            f"they are in {self.get(head['metrics_url'])}",
            5,
        )


if __name__ == "__main__":
    cli_test.SHEAF, cli_test.DRIVER = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

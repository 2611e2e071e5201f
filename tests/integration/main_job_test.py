# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The main job's cluster of two nodes is gone when the script ends, also by Ctrl-C. Arguments:
examples/main_job.sh, the sheaf program."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

WAIT_S = 60
SCRIPT, SHEAF = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:3])


def processes_of(folder: str) -> list[str]:
    """Those whose environment or arguments name the folder, but for this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue  # It has ended.
        if folder.encode() in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


class MainJob(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="sheaf-main-job-test-")
        self.addCleanup(scratch.cleanup)
        self.build, self.temporary = (
            pathlib.Path(scratch.name) / "build",
            pathlib.Path(scratch.name) / "tmp",
        )
        for folder in (self.build / "cli", self.build / "examples", self.temporary):
            folder.mkdir(parents=True)
        (self.build / "cli" / "sheaf").symlink_to(SHEAF)

    def start(self, program: str) -> subprocess.Popen:
        """The script, with this shell program instead of the tour in C++, and without Python."""
        path = self.build / "examples" / "main_job"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o700)
        environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHON": "/nonexistent"}
        return subprocess.Popen(
            [SCRIPT, str(self.build)],
            start_new_session=True,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def assert_nothing_is_left(self) -> None:
        self.assertEqual([], list(self.temporary.iterdir()))
        self.assertEqual([], processes_of(str(self.temporary)))

    def test_it_runs_on_two_nodes_and_leaves_nothing(self):
        job = self.start(f"echo $({SHEAF} list nodes --json | grep -o '\"ALIVE\"' | wc -l) nodes")
        said = job.communicate(timeout=WAIT_S)[0]
        self.assertEqual(0, job.returncode)
        self.assertIn("2 nodes\n", said)
        self.assertEqual(2, said.count("/metrics"), said)
        self.assert_nothing_is_left()

    def test_its_status_is_that_of_what_failed(self):
        job = self.start("exit 3")
        job.communicate(timeout=WAIT_S)
        self.assertEqual(3, job.returncode)
        self.assert_nothing_is_left()

    def test_ctrl_c_and_a_kill_end_all_of_it(self):
        for number, status, to_all in (
            (signal.SIGINT, 130, True),
            (signal.SIGTERM, 143, False),
            (signal.SIGHUP, 143, True),
        ):
            with self.subTest(number):
                job = self.start("echo begun; exec sleep 1000")
                self.assertEqual("begun\n", job.stdout.readline())
                (os.killpg if to_all else os.kill)(job.pid, number)
                job.communicate(timeout=WAIT_S)
                self.assertEqual(status, job.returncode)
                self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

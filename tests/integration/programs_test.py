# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A C++ program reaches a node that lacks it, or has another build of it: by content, once.

Usage: programs_test.py SHEAF_PROGRAM NODE_DRIVER. The second node lives in a mount namespace in
which the program's folder is covered. Exits with 77 where that is not allowed.
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

SHEAF = ""
DRIVER = ""
COVERED = ["unshare", "--mount", "--propagation=private"]


class ProgramOfAnotherNode(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sheaf-programs-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.base = self.folder / "nodes"
        self.program = self.folder / "bin" / "program"
        self.program.parent.mkdir()
        shutil.copy(DRIVER, self.program)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        }
        self.environment |= {
            "SHEAF_DIR": str(self.base),
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_EXECUTABLE": SHEAF,
        }
        self.head = self.start(["--head", "--num-cpus=0", "--port=0"])

    def start(self, arguments: list, prefix: list = ()) -> dict:
        done = subprocess.run(
            [*prefix, SHEAF, "start", "--json", f"--dir={self.base}", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        node = json.loads(done.stdout)
        self.addCleanup(self.stop, node)
        return node

    def stop(self, node: dict):
        subprocess.run(
            [SHEAF, "stop", f"--address={node['session']}"],
            env=self.environment,
            capture_output=True,
            timeout=60,
        )
        try:
            os.kill(node["os_pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass

    def start_without(self, instead: str) -> dict:
        """A node on which the program's folder is empty but for what the shell command `instead`
        puts there."""
        script = f'mount -t tmpfs none \'{self.program.parent}\' && {instead} && exec "$0" "$@"'
        return self.start(
            [f"--address={self.head['address']}", "--num-cpus=2", "--port=0"],
            [*COVERED, "sh", "-c", script],
        )

    def run_program(self) -> str:
        done = subprocess.run(
            [self.program, "add"],
            env=self.environment | {"SHEAF_ADDRESS": self.head["session"]},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def kept(self, node: dict) -> dict:
        """Of each program that `node` keeps: when it was written."""
        programs = pathlib.Path(node["session"]) / "programs"
        return (
            {file.name: file.stat().st_mtime_ns for file in programs.iterdir()}
            if programs.exists()
            else {}
        )

    def test_it_is_fetched_once_and_goes_with_the_node(self):
        node = self.start_without("true")
        self.assertEqual("3\n", self.run_program())
        kept = self.kept(node)
        self.assertEqual(
            [hashlib.sha256(pathlib.Path(DRIVER).read_bytes()).hexdigest()], list(kept)
        )
        self.assertEqual("3\n", self.run_program())  # Another job.
        self.assertEqual(kept, self.kept(node))
        self.stop(node)
        self.assertEqual({}, self.kept(node))

    def test_another_build_at_the_same_path_is_not_run(self):
        node = self.start_without(f"cp /bin/false '{self.program}'")
        self.assertEqual("3\n", self.run_program())
        self.assertEqual(1, len(self.kept(node)))

    def test_the_same_file_is_used_where_it_is(self):
        node = self.start([f"--address={self.head['address']}", "--num-cpus=2", "--port=0"])
        self.assertEqual("3\n", self.run_program())
        self.assertEqual({}, self.kept(node))

    def test_a_rebuilt_program_is_another_one(self):
        node = self.start_without("true")
        self.assertEqual("3\n", self.run_program())
        rebuilt = self.program.with_name(
            "rebuilt"
        )  # As a linker does it: the old file may be in use.
        rebuilt.write_bytes(self.program.read_bytes() + b"another build")
        rebuilt.chmod(0o755)
        rebuilt.replace(self.program)
        self.assertEqual("3\n", self.run_program())
        self.assertEqual(2, len(self.kept(node)))


if __name__ == "__main__":
    SHEAF, DRIVER = (os.path.abspath(path) for path in sys.argv[1:3])
    allowed = subprocess.run(
        [*COVERED, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True
    )
    if allowed.returncode != 0:
        print("SKIPPED: a mount namespace is not allowed here:", allowed.stderr.strip())
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

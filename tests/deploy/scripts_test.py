# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The scripts of deploy/slurm and deploy/ssh, with real nodes: tasks of a Slurm step as processes that
have its variables, and machines as sshd on ports of this one.

Usage: scripts_test.py SHEAF_PROGRAM [--long]

--long: all of them, which take half a minute; ./do deploy runs it.
"""

import contextlib
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from processes import children_of

SHEAF = ""
long = unittest.skipUnless("--long" in sys.argv, "takes long: with --long")
DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
SMALL = "--object-store-memory=64MiB"
WAIT_S = 60


class Case(unittest.TestCase):
    def setUp(self):
        # Sockets lie below it, whose paths are short.
        folder = tempfile.TemporaryDirectory(prefix="sd-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("SHEAF_")
        } | {"SHEAF_PROGRAM": SHEAF, "TMPDIR": str(self.folder)}

    def ended(self, process: subprocess.Popen) -> str:
        """What it printed."""
        try:
            return process.communicate(timeout=WAIT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"it does not end: {process.communicate()[0]}")

    def living(self) -> list[str]:
        """Nodes of this test: each has its folder in its environment or its command line."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ")
                mark = str(self.folder).encode()
                if command.startswith(b"sheaf node") and (
                    mark in command or mark in entry.joinpath("environ").read_bytes()
                ):
                    found.append(command.decode())
        return found

    def until(self, condition, what: str):
        end = time.monotonic() + WAIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)


class Slurm(Case):
    def variables(self, task: int, tasks: int) -> dict[str, str]:
        """Of a task of a step."""
        return {
            "SLURM_JOB_ID": "77",
            "SLURM_STEP_ID": "0",
            "SLURM_NTASKS": str(tasks),
            "SLURM_PROCID": str(task),
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_CPUS_PER_TASK": "1",
            "CLUSTER_HOST": "127.0.0.1",
            "CLUSTER_FLAGS": f"{SMALL} --include-dashboard=false",
            "CLUSTER_SECONDS": "30",
        }

    def step(self, *program: str, tasks: int = 3, **more: str) -> list[subprocess.Popen]:
        """As srun --ntasks-per-node=1 starts it."""
        begun = []
        for task in range(tasks):
            variables = self.variables(task, tasks)
            process = subprocess.Popen(
                [DEPLOY / "slurm/sheaf-cluster.sh", *program],
                env=self.environment | variables | more,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self.addCleanup(process.kill)
            begun.append(process)
        return begun

    def test_the_program_runs_once_with_all_nodes_and_its_status_is_the_steps(self):
        tasks = self.step("sh", "-c", f'"{SHEAF}" list nodes --json && exit 3')
        said = [self.ended(task) for task in tasks]
        self.assertEqual([3, 0, 0], [task.returncode for task in tasks], said)
        nodes = json.loads(said[0])["nodes"]
        self.assertEqual(3, len(nodes))
        self.assertEqual([1, 1, 1], [node["total"]["CPU"] for node in nodes])
        self.assertEqual(["", ""], said[1:])
        self.assertEqual([], self.living())
        self.assertEqual([], list(self.folder.iterdir()))

    @long
    def test_the_job_finds_what_lies_beside_it(self):
        for name in ("sheaf-cluster.sh", "sheaf.sbatch"):
            shutil.copy(DEPLOY / "slurm" / name, self.folder)
        (self.folder / "train.py").write_text("print('it trains')")
        # What sbatch does, as far as it is seen from within: the script is run from where it was
        # submitted, and srun starts its words, past the options, once a machine.
        srun = self.folder / "srun"
        srun.write_text(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\n"
            'for task in 0 1 2 3; do SLURM_PROCID=$task "$@" & done; wait'
        )
        srun.chmod(0o755)
        job = subprocess.Popen(
            ["bash", "sheaf.sbatch"],
            cwd=self.folder,
            env=self.environment
            | {"PATH": f"{self.folder}:{os.environ['PATH']}"}
            | self.variables(0, 4),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(job.kill)
        self.assertEqual("it trains\n", self.ended(job))
        self.assertEqual(0, job.returncode)
        self.until(lambda: not self.living(), "nodes are left")

    @long
    def test_a_step_that_is_killed_leaves_no_token(self):
        tasks = self.step("sh", "-c", "echo runs; exec sleep 600", tasks=2)
        self.assertEqual("runs\n", tasks[0].stdout.readline())
        (program,) = [
            pid
            for pid, (_, command) in children_of(tasks[0].pid).items()
            if command.startswith("sleep")
        ]
        self.assertTrue(list(self.folder.glob(".sheaf-*/address")))
        self.assertEqual([], list(self.folder.glob(".sheaf-*/token")))
        tasks[0].kill()  # So nothing of it can tidy up.
        tasks[1].terminate()
        os.kill(program, signal.SIGKILL)
        for session in self.folder.glob("sheaf-*/session-*"):
            stop = [SHEAF, "stop", "--force", "--address", session]
            subprocess.run(stop, timeout=WAIT_S, capture_output=True)
        for task in tasks:
            self.ended(task)
        self.until(lambda: not self.living(), "nodes are left")

    def test_an_address_that_others_do_not_reach_is_not_announced(self):
        # What /etc/hosts of Debian says of a machine's name.
        getent = self.folder / "getent"
        getent.write_text("#!/bin/sh\necho '127.0.1.1 STREAM here'\necho '::1 STREAM'\n")
        getent.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        (task,) = self.step("echo", "never", tasks=1, CLUSTER_HOST="", PATH=path)
        self.assertIn(
            "resolves to no address that others reach: set CLUSTER_HOST", self.ended(task)
        )
        self.assertEqual(1, task.returncode)
        with getent.open("a") as more:
            more.write("echo '192.0.2.7 STREAM'\n")
        late = {"SLURM_PROCID": "1", "CLUSTER_SECONDS": "1"}
        (task,) = self.step("echo", "never", tasks=1, CLUSTER_HOST="", PATH=path, **late)
        self.assertIn("task 1 on 192.0.2.7: the head has not started", self.ended(task))

    @long
    def test_a_step_that_is_cancelled_leaves_nothing(self):
        tasks = self.step("sh", "-c", "echo runs; exec sleep 600", tasks=2)
        self.assertEqual("runs\n", tasks[0].stdout.readline())
        # Slurm signals all processes of the step.
        for pid, (_, command) in children_of(tasks[0].pid).items():
            if command.startswith("sleep"):
                os.kill(pid, signal.SIGTERM)
        for task in tasks:
            task.send_signal(signal.SIGTERM)
        for task in tasks:
            self.ended(task)
            self.assertEqual(143, task.returncode)
        self.until(lambda: not self.living(), "nodes are left")  # Killed ones take a moment.
        self.assertEqual([], list(self.folder.iterdir()))

    @long
    def test_a_machine_that_does_not_come_is_waited_for_so_long(self):
        tasks = self.step("echo", "never", tasks=1, SLURM_NTASKS="2", CLUSTER_SECONDS="3")
        said = self.ended(tasks[0])
        self.assertEqual(1, tasks[0].returncode)
        self.assertIn("not all 2 nodes have joined within 3 s", said)
        self.assertNotIn("never", said)
        self.assertEqual([], self.living())

    @long
    def test_a_head_that_does_not_come_is_named(self):
        (task,) = self.step("echo", "never", tasks=1, SLURM_PROCID="1", CLUSTER_SECONDS="1")
        self.assertIn("task 1 on 127.0.0.1: the head has not started", self.ended(task))
        self.assertEqual(1, task.returncode)

    def test_outside_of_slurm_it_says_so(self):
        done = subprocess.run(
            [DEPLOY / "slurm/sheaf-cluster.sh", "true"], capture_output=True, text=True
        )
        self.assertNotEqual(0, done.returncode)
        self.assertIn("srun", done.stderr)


@long
@unittest.skipUnless(shutil.which("sshd") or os.path.exists("/usr/sbin/sshd"), "sshd is missing")
class Ssh(Case):
    def setUp(self):
        super().setUp()
        for name in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name],
                check=True,
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # Where root's gives up its rights.
        authorized = self.folder / "authorized"
        authorized.write_text((self.folder / "user_key.pub").read_text())
        server = subprocess.Popen(
            [
                *("/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", str(self.port)),
                *("-h", self.folder / "host_key", "-o", "ListenAddress=127.0.0.1"),
                *("-o", f"AuthorizedKeysFile={authorized}", "-o", "StrictModes=no"),
                *("-o", "UsePAM=no", "-o", "PidFile=none", "-o", "PermitRootLogin=yes"),
                *("-o", f"SetEnv=SHEAF_STATE_IN_MEMORY=1 TMPDIR={self.folder}"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.until(self.answers, "sshd does not answer")
        self.environment |= {
            "SSH": f"ssh -p {self.port} -i {self.folder}/user_key -o BatchMode=yes -F /dev/null"
            f" -o StrictHostKeyChecking=no -o UserKnownHostsFile={self.folder}/known"
            " -o LogLevel=ERROR",
            "REMOTE_DIR": f"{self.folder}/%h",
            "HEAD_FLAGS": f"--port=0 --dashboard-port=0 --num-cpus=1 {SMALL}",
            "WORKER_FLAGS": f"--num-cpus=2 {SMALL}",
        }
        # Two names of one machine; each has a folder of its own.
        user = getpass.getuser()
        self.machines = [f"{user}@127.0.0.1", f"{user}@localhost=127.0.0.1"]
        self.addCleanup(self.script, "down", *self.machines)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def script(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [DEPLOY / "ssh/sheaf-ssh.sh", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    def test_a_cluster_comes_up_and_goes_down_and_keeps_its_state(self):
        for _ in range(2):
            up = self.script("up", *self.machines)
            self.assertEqual(0, up.returncode, up.stderr)
            self.assertIn("The head of 2 nodes is 127.0.0.1:", up.stdout)
            status = self.script("status", self.machines[0])
            self.assertIn("3", status.stdout)  # CPUs of both.
            # The token is with the head alone, and on nobody's command line.
            token = (self.folder / "127.0.0.1/token").read_text().strip()
            self.assertFalse((self.folder / "localhost/token").exists())
            self.assertEqual([], [line for line in self.living() if token in line])
            self.assertEqual(2, len(self.living()))
            down = self.script("down", *self.machines)
            self.assertEqual(0, down.returncode, down.stderr)
            self.until(lambda: not self.living(), "nodes are left")
        sessions = list((self.folder / "127.0.0.1").glob("*/gcs.db"))
        self.assertEqual(1, len(sessions))

    def test_nodes_that_others_have_started_stay(self):
        self.assertEqual(0, self.script("up", *self.machines).returncode)
        other = [SHEAF, "start", "--head", "--port=0", "--include-dashboard=false", "--json", SMALL]
        folder = self.folder / "127.0.0.1"
        said = subprocess.check_output([*other, f"--dir={folder}"], env=self.environment, text=True)
        down = self.script("down", *self.machines)
        self.assertEqual(0, down.returncode, down.stderr)
        self.until(lambda: len(self.living()) == 1, "not one node is left")
        again = self.script("down", *self.machines)
        self.assertEqual(1, again.returncode)
        self.assertIn("no node of the cluster of 127.0.0.1 was stopped", again.stderr)
        subprocess.check_output([SHEAF, "stop", "--address", json.loads(said)["session"]])

    def test_a_machine_that_cannot_be_reached_is_named(self):
        up = self.script("up", "nobody@127.0.0.1", *self.machines[1:])
        self.assertEqual(1, up.returncode)
        self.assertIn("nobody@127.0.0.1: the node does not start", up.stderr)

    def test_a_command_line_that_means_nothing_is_explained(self):
        for words in [(), ("up",), ("sideways", "a")]:
            done = self.script(*words)
            self.assertEqual(2, done.returncode)
            self.assertIn("sheaf-ssh.sh up HEAD WORKER...", done.stderr)
            self.assertTrue(done.stderr.endswith("default: what sheaf takes).\n"), done.stderr)


if __name__ == "__main__":
    SHEAF = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *(word for word in sys.argv[2:] if word != "--long")])

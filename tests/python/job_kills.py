# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs, while the processes that they need are killed at random times:

    job_kills.py [--kills 200] [--seed N]

Before each kill some jobs are submitted, from threads of their own, and the dashboard, the control
store, the second node, or a job's own command goes. A submission that was answered is remembered,
no command begins twice, each job ends as its command did or with words of what became of it, and
no process of one is left. Prints how many of each there were.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from conftest import is_running, wait_until
from sheaf.cluster_utils import Cluster, _program
from sheaf.job_submission import JobStatus, JobSubmissionClient
from test_head_state import gcs_of

WAIT_S = 120
MOST_S = 0.4  # A command lasts, and a kill comes after, so long at most.
HEAD = {"num_cpus": 2, "object_store_memory": 64 << 20}
SIDE = {"num_cpus": 1, "resources": {"side": 1000}, "object_store_memory": 64 << 20}
VICTIMS = ("dashboard", "control store", "node", "command")


class Job:
    """A command that notes its process when it begins, and its end, and exits with `code`."""

    def __init__(self, number, draw, folder):
        self.id = f"job-{number}"
        self.code = draw.choice((0, 0, 0, 3))
        self.on_side = draw.random() < 0.5
        self.seconds = draw.random() * MOST_S
        self.begun, self.ended = folder / f"{self.id}.begun", folder / f"{self.id}.ended"
        self.refused = None  # Why its submission was not answered.
        self.may_fail = ""  # What was killed under it.

    def submit(self, url):
        """Returns when the cluster has it."""
        command = (
            f"echo $$ >> {self.begun}; sleep {self.seconds:.3f}; "
            f"echo x >> {self.ended}; exit {self.code}"
        )
        try:
            answer = JobSubmissionClient(url).submit_job(
                entrypoint=command,
                submission_id=self.id,
                entrypoint_resources={"side": 1} if self.on_side else None,
            )
            assert answer == self.id
        except Exception as error:
            self.refused = repr(error)

    def pids(self):
        """Of its command, once for each time that it began."""
        return [int(line) for line in self.begun.read_text().split()] if self.begun.exists() else []

    def check(self, info, killed_nodes):
        """That its end is what became of it."""
        # It may have been sent to a node whose death nobody had noticed yet.
        if not self.may_fail and info.driver_node_id in killed_nodes:
            self.may_fail = "its node, before it came"
        where = f"{self.id} ({self.may_fail or 'nothing killed'}): {info}"
        begins = len(self.pids())
        assert begins <= 1, f"it began {begins} times: {where}"
        assert info.status.is_terminal(), where
        if info.status == JobStatus.SUCCEEDED:
            assert begins == 1 and self.ended.exists() and self.code == 0, where
        else:
            assert info.status == JobStatus.FAILED and info.message, where
            assert self.may_fail or (self.code and f"exit code {self.code}" in info.message), where
        assert not any(map(is_running, self.pids())), f"its command is left: {where}"


class World:
    """A head, a second node, a dashboard on a port that stays the same; and what is killed."""

    def __init__(self, draw, folder):
        self.draw, self.folder = draw, folder
        self.cluster = Cluster(initialize_head=True, head_node_args=HEAD)
        self.side = self.cluster.add_node(**SIDE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.jobs = []
        self.killed = collections.Counter()
        self.killed_nodes = set()
        self.show()

    def show(self):
        """Starts the dashboard, and waits until it answers."""
        self.dashboard = subprocess.Popen(
            [
                _program(),
                "dashboard",
                f"--address={self.cluster.head_node.session}",
                f"--port={self.port}",
            ],
            stdout=subprocess.DEVNULL,
        )

        def answers():
            with contextlib.suppress(Exception):
                return JobSubmissionClient(self.url).list_jobs() is not None

        wait_until(answers, "the dashboard does not answer", WAIT_S)

    def live_jobs(self):
        """Those whose command runs."""
        return [job for job in self.jobs if any(map(is_running, job.pids()))]

    def known_ends(self):
        """The jobs that the cluster knows to have ended; none, while it cannot be asked."""
        with contextlib.suppress(Exception):
            jobs = JobSubmissionClient(self.url).list_jobs()
            return {job.submission_id for job in jobs if job.status.is_terminal()}
        return set()

    def kill(self, victim):
        """Now, and mends what an operator would."""
        if victim == "dashboard":
            self.dashboard.kill()
            self.dashboard.wait()
            self.show()
        elif victim == "control store":
            pid = gcs_of(self.cluster.head_node)
            if pid:
                os.kill(pid, signal.SIGKILL)
        elif victim == "node":
            known = self.known_ends()  # A command may have ended, and its node not have said so.
            for job in self.jobs:
                if job.on_side and job.id not in known:
                    job.may_fail = "its node"
            self.killed_nodes.add(f"{self.side.node_number:056x}")
            self.side.kill_raylet()
            self.cluster.remove_node(self.side, allow_graceful=False)
            self.side = self.cluster.add_node(**SIDE)
        else:
            deadline = time.monotonic() + WAIT_S
            while not (live := self.live_jobs()):
                over = self.known_ends()
                if all(job.id in over for job in self.jobs) or time.monotonic() > deadline:
                    return  # They were too quick.
            job = self.draw.choice(live)
            job.may_fail = "its command"
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pids()[-1], signal.SIGKILL)
        self.killed[victim] += 1

    def turn(self):
        """Some jobs, and a kill amid them."""
        new = [Job(len(self.jobs) + n, self.draw, self.folder) for n in range(3)]
        self.jobs += new
        threads = [threading.Thread(target=job.submit, args=[self.url]) for job in new]
        victim = self.draw.choice(VICTIMS)
        if victim == "node":  # They may be submitted to it, or begin, as it goes.
            for job in new:
                job.may_fail = "its node" if job.on_side else ""
        for thread in threads:
            thread.start()
        time.sleep(self.draw.random() * MOST_S)
        self.kill(victim)
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a submission has no end"

    def check(self):
        """All that was answered is there, and ended as it should."""
        client = JobSubmissionClient(self.url)
        for job in self.jobs:
            assert job.refused is None, f"{job.id} was not taken: {job.refused}"
            wait_until(
                lambda job=job: client.get_job_status(job.id).is_terminal(),
                lambda job=job: f"no end: {client.get_job_info(job.id)}, {job.may_fail}",
                WAIT_S,
            )
        known = {info.submission_id: info for info in client.list_jobs()}
        ends = collections.Counter()
        for job in self.jobs:
            job.check(known[job.id], self.killed_nodes)
            ends[known[job.id].status.value] += 1
        return ends

    def end(self):
        """Nothing is left of it."""
        self.dashboard.kill()
        self.dashboard.wait()
        self.cluster.shutdown()


def run(kills, seed, folder):
    """Returns in words what there was. AssertionError: what went wrong."""
    world = World(random.Random(seed), folder)
    try:
        while sum(world.killed.values()) < kills:
            world.turn()
        ends = world.check()
    finally:
        world.end()
    counts = [
        f"{count} x {what}" for counter in (world.killed, ends) for what, count in counter.items()
    ]
    return f"{kills} kills of {len(world.jobs)} jobs' processes, none lost, none begun twice: " + (
        ", ".join(counts)
    )


def main():
    """Runs it, and prints the seed first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(run(given.kills, given.seed, pathlib.Path(folder)))


if __name__ == "__main__":
    sys.exit(main())

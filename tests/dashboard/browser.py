# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do browser: the page of a real cluster of three nodes under load, used in Chromium by
tests/dashboard/cases.mjs, and the tour of docs/operate.md (tour.py). What they cannot do themselves
they ask this program for, a JSON line each."""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import sheaf
import tour
from sheaf import train
from sheaf.cluster_utils import _program
from sheaf.util import placement_group

HERE = pathlib.Path(__file__).resolve().parent
HOSTILE = '<img src=x onerror="document.title=1">\u202eevil\n'


@sheaf.remote
def prepare(ms):
    end = time.monotonic() + ms / 1000
    while time.monotonic() < end:
        sum(range(500))


@sheaf.remote
def blink():
    return None


@sheaf.remote(max_retries=0)
def breaks(i):
    print("about to break", i)
    raise ValueError(f"the value {i} is <b>wrong</b>")


@sheaf.remote(num_gpus=3)
def needs_gpus():
    pass


@sheaf.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        print("count", self.count, flush=True)
        return os.getpid()


def descends(config):
    """Until the file `until` is there. A worker dies on the way, in the first group."""
    context = train.get_context()
    step = 0
    while not os.path.exists(config["until"]) and step < config["steps"]:
        step += 1
        if (context.epoch, context.get_world_rank(), step) == (0, 1, 5):
            os.kill(os.getpid(), signal.SIGKILL)
        train.report({"loss": 1 / step, "learning_rate": 0.01, "phase": "warm"})
        time.sleep(0.05)


def train_one(name, directory, steps):
    """A run of two workers, which hold little."""
    train.DataParallelTrainer(
        descends,
        train_loop_config={"until": f"{directory}/enough", "steps": steps},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            name=name,
            storage_path=directory,
            failure_config=train.FailureConfig(max_failures=1),
            progress=False,
        ),
    ).fit()


# A program of another job: it calls for a second, and says which job it is.
ANOTHER_JOB = """
import sys, time, sheaf

def sum_up(until):
    while time.monotonic() < until:
        sum(range(500))

@sheaf.remote
def spins_elsewhere():
    sum_up(time.monotonic() + 1)

sheaf.init(address=sys.argv[1], log_to_driver=False)
sheaf.get(spins_elsewhere.remote())
print(int(sheaf.get_runtime_context().get_job_id(), 16))
"""


def sheaf_json(*arguments):
    done = subprocess.run(
        [_program(), *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Load:
    """Calls of all kinds, in a thread, until it shall rest; and runs that train in `directory`."""

    def __init__(self, directory):
        self.going = threading.Event()
        self.resting = threading.Event()
        self.ended = False
        hostile = sheaf.remote(lambda: None).options(name=HOSTILE)
        self.hostile = hostile
        self.counters = [Counter.options(name=f"counter-{i}").remote() for i in range(3)]
        self.spare = Counter.options(name="spare").remote()
        self.kept = [sheaf.put(bytes(1 << 20)) for _ in range(8)]
        self.groups = [
            placement_group([{"CPU": 0.1}, {"CPU": 0.1}], strategy="SPREAD", name="pair"),
            placement_group([{"CPU": 512}], name="too big"),
        ]
        self.waits = [needs_gpus.remote() for _ in range(4)]
        self.going.set()
        self.enough = pathlib.Path(directory) / "enough"
        self.threads = [threading.Thread(target=self.run, daemon=True)]
        for name, steps in (("short", 20), ("endless", 1 << 30)):
            self.threads.append(
                threading.Thread(target=train_one, args=(name, directory, steps), daemon=True)
            )
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ended:
            if not self.going.is_set():
                self.resting.set()
                self.going.wait(1)
                continue
            refs = [prepare.remote(15) for _ in range(12)] + [blink.remote() for _ in range(200)]
            refs += [counter.add.remote() for counter in self.counters[:2] for _ in range(3)]
            refs.append(self.hostile.remote())
            failing = [breaks.remote(i) for i in range(2)]
            sheaf.get(refs)
            for ref in failing:
                try:
                    sheaf.get(ref)
                except ValueError:
                    pass

    def rest(self):
        self.going.clear()
        assert self.resting.wait(60), "the load does not come to rest"

    def go_on(self):
        self.resting.clear()
        self.going.set()

    def end(self):
        self.ended = True
        self.going.set()
        self.enough.touch()
        for thread in self.threads:
            thread.join(60)


class Cluster:
    def __init__(self, directory):
        common = ["--num-cpus=2", "--object-store-memory=64MiB"]
        self.directory = directory
        self.sessions = []
        self.beyond = None
        try:
            head = sheaf_json(
                *["start", "--head", f"--dir={directory}/1", "--port=0", "--dashboard-port=0"],
                *common,
            )
            self.sessions.append(head["session"])
            self.joins = [f"--address={head['address']}", f"--token-file={directory}/1/token"]
            self.grow(3, *common)
        except BaseException:
            self.stop()
            raise
        self.url = head["dashboard_url"]
        self.token_file = f"{directory}/1/token"

    def grow(self, nodes, *flags):
        """Starts nodes until there are so many."""
        while len(self.sessions) < nodes:
            place = f"--dir={self.directory}/{len(self.sessions) + 1}"
            self.sessions.append(sheaf_json("start", *self.joins, place, *flags)["session"])

    def stop_one(self):
        subprocess.run([_program(), "stop", "--address", self.sessions.pop()], timeout=60)

    def serve_beyond(self):
        """The URL and the token of a dashboard that others may reach."""
        token = f"--token-file={self.token_file}"
        where = ["--address", self.sessions[0], "--host=0.0.0.0", "--port=0", token]
        self.beyond = subprocess.Popen(
            [_program(), "dashboard", *where], stdout=subprocess.PIPE, text=True
        )
        port = re.search(r":(\d+)\b(?!.*:\d)", self.beyond.stdout.readline()).group(1)
        said = subprocess.run(
            [_program(), "token", "--http", token], capture_output=True, text=True, timeout=60
        )
        return f"http://127.0.0.1:{port}", said.stdout.strip()

    def stop(self):
        if self.beyond is not None:
            self.beyond.terminate()
            self.beyond.wait(60)
        for session in reversed(self.sessions):
            subprocess.run([_program(), "stop", "--address", session], timeout=60, check=False)


def does(cluster, load):
    """What the cases may ask for."""

    def kill_actor():
        pid = sheaf.get(load.counters[2].add.remote())
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_dashboard():
        mark = cluster.sessions[0].encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"dashboard" in words and mark in words:
                os.kill(int(name), signal.SIGKILL)

    def another_job():
        done = subprocess.run(
            [sys.executable, "-c", ANOTHER_JOB, cluster.sessions[0]],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return {"job": int(done.stdout)}

    def submit(submission_id, entrypoint):
        body = json.dumps({"submission_id": submission_id, "entrypoint": entrypoint}).encode()
        with urllib.request.urlopen(f"{cluster.url}/api/jobs", body, timeout=60) as answer:
            return json.load(answer)

    def shell(line):
        """What a command that the page copies prints."""
        place = {
            "PATH": f"{pathlib.Path(_program()).parent}:{os.environ['PATH']}",
            "SHEAF_ADDRESS": cluster.sessions[0],
        }
        done = subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **place},
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return json.loads(done.stdout)

    return {
        "rest": load.rest,
        "go_on": load.go_on,
        "list": lambda kind, *words: sheaf_json(
            "list", kind, "--address", cluster.sessions[0], *words
        ),
        "status": lambda node: sheaf_json("status", "--address", cluster.sessions[node]),
        "shell": shell,
        "submit": submit,
        "touch": lambda path: pathlib.Path(path).touch(),
        "another_job": another_job,
        "infeasible": lambda: load.waits[0].task_id().hex(),
        "kill_actor": kill_actor,
        "kill_dashboard": kill_dashboard,
        "hostile": lambda: HOSTILE,
        "serve_beyond": cluster.serve_beyond,
        "grow": lambda nodes: cluster.grow(nodes, "--num-cpus=1", "--object-store-memory=16MiB"),
        "stop_one": cluster.stop_one,
    }


class Browser:
    """Runs programs of this folder that use Chromium."""

    def __init__(self, options):
        self.options = options
        self.pictures = pathlib.Path(options.pictures).resolve()

    def drive(self, program, told, answers):
        """Tells `program` what it asks for; its exit status."""
        common = {
            "packages": str(pathlib.Path(self.options.packages).resolve()),
            "pictures": str(self.pictures),
        }
        process = subprocess.Popen(
            ["node", str(HERE / program), json.dumps({**common, **told})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            for line in process.stdout:
                if not line.startswith("?"):
                    print(line, end="", flush=True)
                    continue
                what, *words = json.loads(line[1:])
                try:
                    answer = answers[what](*words)
                except Exception as failure:  # noqa: BLE001 - the case that has asked fails.
                    answer = {"raised": f"{what}: {failure!r}"}
                print(json.dumps(answer), file=process.stdin, flush=True)
            return process.wait(60)
        finally:
            process.kill()  # Of one whose question has no answer; another has ended.

    def keep_heap(self, found):
        """Shows how the page's heap has grown; with --record docs/evidence has it, too."""
        cells = [
            f"task stream, {found['minutes']:g} minutes",
            f"{found['bytes'] / 1e6:.1f}",
            f"{found['bytes_per_minute'] / 1e3:.0f}",
            f"{found['bound'] / 1e3:.0f}",
        ]
        line = f"| {' | '.join(cells)} |"
        print(line, flush=True)
        if self.options.record:
            tool = [sys.executable, HERE.parents[1] / "tools/evidence.py"]
            subprocess.run(
                [*tool, "benchmarks_dashboard.md", "heap"], input=line, text=True, check=True
            )

    def use(self):
        """All cases, or those that are wanted."""
        with tempfile.TemporaryDirectory(prefix="sheaf-browser-") as directory:
            cluster = Cluster(directory)
            try:
                sheaf.init(address=cluster.sessions[0], log_to_driver=False)
                load = Load(directory)
                told = {
                    "url": cluster.url,
                    "nodes": len(cluster.sessions),
                    "scratch": directory,
                    "cases": self.options.cases,
                    "minutes": self.options.minutes,
                }
                answers = {**does(cluster, load), "heap": self.keep_heap}
                status = self.drive("cases.mjs", told, answers)
                load.end()
                return status
            finally:
                sheaf.shutdown()
                cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", help="node_modules of ./do page")
    parser.add_argument("pictures", help="where screenshots go")
    parser.add_argument(
        "cases", nargs="*", help="words of the cases to run, or tour; all of them without"
    )
    parser.add_argument(
        "--minutes", type=float, default=2, help="how long the heap is watched (default 2)"
    )
    parser.add_argument(
        "--record",
        action="store_true",
        help="the tour's pictures become those of docs/operate.md, and the heap a row of docs/evidence",
    )
    options = parser.parse_intermixed_args()  # Words of cases before and behind options.
    browser = Browser(options)
    failed = False
    os.environ["SHEAF_LEAK_AGE"] = "2"  # Of this driver: nobody waits here for ten minutes.
    if options.cases != ["tour"]:
        failed |= browser.use() != 0
    if not options.cases or "tour" in options.cases:
        failed |= (
            tour.take(browser.drive, tour.PICTURES if options.record else browser.pictures) != 0
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

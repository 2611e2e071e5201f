# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the dashboard costs, and how it bears a cluster that is larger than this machine.

    ./do bench dashboard [--json FILE] [--seconds N] [--queued N] [--only WORD]

`load`: the real server process beside a node whose cluster is made up (synthetic_cluster.cc): 1,000
nodes and a million calls that wait, ten viewers with a stream of events each, and all lists.
`server`: the server of a real node that makes as many calls as it can, with one viewer and ten.
`page`: when Chromium shows something, of a node at rest and of one where a million calls wait.
`scroll`: how smoothly the task stream moves while sixteen workers answer 100,000 calls a second.
Each figure stands beside what was wanted of it.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
SHEAF = BUILD / "cli" / "sheaf"
WAIT_S = 60
PAINTS = 5  # First paints, of which the median counts.
LISTS = [
    "/api/sheaf/tasks",
    "/api/sheaf/tasks?ended=false&filter=name%3Dwork_of_kind_3",
    "/api/sheaf/functions?order=-finished",
    "/api/sheaf/actors?order=name",
    "/api/sheaf/nodes",
    "/api/sheaf/nodes?filter=node%3D500",
    "/api/sheaf/objects?order=-size_bytes",
    "/api/sheaf/objects?limit=1&group=owner",
    "/api/sheaf/workers?filter=node%3D500",
    "/api/sheaf/jobs",
    "/api/sheaf/demand",
    "/api/sheaf/events?limit=100",
    "/api/jobs",
]


def series(now_ms, node=""):
    """What Metrics asks for, of the last quarter of an hour."""
    names = (
        "cpu,io_wait,steal,memory_used_bytes,memory_total_bytes,processes_cpus,"
        "processes_memory_bytes,disk_read_bytes_per_second,disk_written_bytes_per_second,"
        "received_bytes_per_second,sent_bytes_per_second,cpu_stall,memory_stall,io_stall,gpu"
    )
    return f"/api/sheaf/series?name={names}&from={now_ms - 900_000}{node}"


class Viewer:
    """A page that watches: reads its stream of events as they come, in a thread."""

    def __init__(self, url, lanes):
        self.address = urllib.parse.urlsplit(url).netloc
        self.digests = []  # When each came.
        host, port = self.address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        asked = f"GET /api/sheaf/live?lanes={lanes} HTTP/1.1\r\nHost: {self.address}\r\n\r\n"
        self._socket.sendall(asked.encode())
        self._stream = self._socket.makefile("rb")
        status = self._stream.readline()
        assert b" 200 " in status, status
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while line := self._stream.readline():  # Each event begins a chunk, and so a line.
                if line == b"event: digest\n":
                    self.digests.append(time.monotonic())
        if not self._ended:
            print(f"{self.address}: a stream has ended by itself", file=sys.stderr)

    def end(self):
        self._ended = True
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)


def get(address, path):
    """How long an answer took, in seconds, and its bytes."""
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    begin = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - begin
    connection.close()
    assert answer.status == 200, f"{path}: {answer.status} {body[:200]}"
    return took, len(body)


class Server:
    """`sheaf dashboard` of a session."""

    def __init__(self, session, *words):
        command = [SHEAF, "dashboard", "--address", session, "--port=0", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line, "sheaf dashboard has not begun"
        self.url = re.search(r"http\S+", line)[0]
        self.address = urllib.parse.urlsplit(self.url).netloc

    def cpu_s(self):
        fields = (
            pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def data_bytes(self):
        """What its limit bounds (RLIMIT_DATA)."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmData:\s+(\d+) kB", status)[1]) * 1024

    def end(self):
        self.process.terminate()
        return self.process.wait(WAIT_S)


class Rows:
    """Figures, printed as they come."""

    def __init__(self):
        self.found = []
        print("| row                                                | figure   | target   | unit |")
        print("|---|---|---|---|")

    def add(self, name, value, target, unit, better="lower"):
        print(f"| {name:50} | {value:8.3g} | {target:8.3g} | {unit:4} |", flush=True)
        self.found.append(
            {"name": name, "sheaf": value, "floor": target, "unit": unit, "better": better}
        )


def load(rows, options):
    """1,000 nodes and a million calls that wait."""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as session:
        cluster = subprocess.Popen(
            [BUILD / "benchmarks" / "synthetic_cluster", session, "1000", "1000000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert cluster.stdout.readline() == "ready\n"
            server = Server(session)
            measured = watch(server, options.seconds)
            took = sorted(one for times in measured.values() for one in times)
            for path, times in measured.items():
                print(
                    f"{len(times):5} {statistics.median(times) * 1000:8.1f} ms"
                    f" {max(times) * 1000:8.1f} ms  {path[:70]}",
                    file=sys.stderr,
                )
            rows.add("1,000 nodes: updates of a page", measured.updates, 1, "/s", "higher")
            p99 = took[int(0.99 * (len(took) - 1))]
            rows.add("1,000 nodes: p99 of a request", p99 * 1000, 200, "ms")
            rows.add("1,000 nodes: memory of the server", server.peak_bytes() / 2**20, 256, "MiB")
            assert server.end() == 0, "the server has failed"
        finally:
            cluster.communicate("\n", WAIT_S)


class Measured(dict):
    """{path: [seconds]}."""

    updates = 0.0  # Of the page that had the fewest, a second.


def watch(server, seconds, viewers=10, lists=None):
    """What `viewers` pages see of `server`: each has a stream, and asks for a list a second."""
    measured = Measured()
    lock = threading.Lock()
    end = time.monotonic() + seconds
    pages = [Viewer(server.url, lanes=32 if i % 2 else 0) for i in range(viewers)]
    wrong = []

    def ask(number):
        at = number
        while time.monotonic() < end and not wrong:
            begin = time.monotonic()
            paths = lists or [*LISTS, series(int(time.time() * 1000), f"&node={500:056x}")]
            path = paths[at % len(paths)]
            try:
                took, _ = get(server.address, path)
            except Exception as failure:
                wrong.append(f"{path}: {failure!r}")
                return
            with lock:
                measured.setdefault(path.partition("&from=")[0], []).append(took)
            at += 1
            time.sleep(max(0.0, min(end, begin + 1) - time.monotonic()))

    askers = [threading.Thread(target=ask, args=(i,)) for i in range(viewers)]
    for thread in askers:
        thread.start()
    for thread in askers:
        thread.join()
    assert not wrong, wrong
    for page in pages:
        page.end()
    # The first comes at once.
    measured.updates = min(
        (len(page.digests) - 1) / (page.digests[-1] - page.digests[0])
        if len(page.digests) > 1
        else 0.0
        for page in pages
    )
    return measured


class Node:
    """A real node with a driver in a process of its own, which calls as much as it can."""

    def __init__(self, folder):
        started = subprocess.run(
            [SHEAF, "start", "--head", f"--dir={folder}", "--port=0", "--dashboard-port=0"]
            + ["--num-cpus=2", "--object-store-memory=64MiB", "--json"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        assert started.returncode == 0, started.stderr
        self.said = json.loads(started.stdout)
        self.session = self.said["session"]
        self.driver = None

    def drive(self, *words):
        """Runs calls(), lanes() or queue() below; returns when it has said that it does."""
        self.driver = subprocess.Popen(
            [sys.executable, __file__, "--drive", self.session, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.driver.stdout.readline() == "ready\n"

    def rest(self):
        if self.driver is not None:
            said, _ = self.driver.communicate("\n", 5 * WAIT_S)
            self.driver = None
            return said
        return ""

    def dashboards(self):
        """How many dashboards it has."""
        mark = self.session.encode()
        count = 0
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    count += b"dashboard" in words and mark in words
        return count

    def stop(self):
        self.rest()
        command = [SHEAF, "stop", "--address", self.session]
        subprocess.run(command, timeout=WAIT_S, check=False, stdout=subprocess.DEVNULL)


def calls():
    """Of a driver: actor calls, a thousand in flight, until its input ends. Prints the rate."""
    import sheaf

    class Actor:
        def nothing(self):
            return None

    sheaf.init(address=sys.argv[2])
    actor = sheaf.remote(num_cpus=0)(Actor).remote()
    sheaf.get(actor.nothing.remote())
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(1), ended.set()), daemon=True).start()
    print("ready", flush=True)
    count, begin = 0, time.perf_counter()
    while not ended.is_set():
        sheaf.get([actor.nothing.remote() for _ in range(1000)])
        count += 1000
    print(count / (time.perf_counter() - begin), flush=True)
    sheaf.shutdown()


def lanes():
    """Of a driver: 100,000 calls a second, if the machine can, of sixteen actors, until its input
    ends. Prints the rate."""
    import sheaf

    class Actor:
        def nothing(self):
            return None

    sheaf.init(address=sys.argv[2])
    actors = [sheaf.remote(num_cpus=0)(Actor).remote() for _ in range(16)]
    sheaf.get([actor.nothing.remote() for actor in actors])
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(1), ended.set()), daemon=True).start()
    print("ready", flush=True)
    count, begin = 0, time.perf_counter()
    while not ended.is_set():
        sheaf.get([actor.nothing.remote() for actor in actors for _ in range(64)])
        count += 1024
        ahead = count / 100_000 - (time.perf_counter() - begin)
        if ahead > 0:
            time.sleep(ahead)
    print(count / (time.perf_counter() - begin), flush=True)
    sheaf.shutdown()


def queue(number):
    """Of a driver: so many calls that wait for what no node has, until its input ends."""
    import sheaf

    @sheaf.remote(resources={"tape": 1})
    def waits():
        pass

    sheaf.init(address=sys.argv[2])
    refs = [waits.remote() for _ in range(number)]
    print("ready", flush=True)
    sys.stdin.read(1)
    del refs
    os._exit(0)  # Nobody asks for what waits.


def server(rows, options):
    """One viewer, and ten, while a node calls."""
    for viewers, most in ((1, 5), (10, 10)):
        with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as folder:
            node = Node(folder)
            try:
                if viewers == 1:
                    rows.add("processes without a viewer", node.dashboards(), 0, "")
                node.drive("calls")
                one = Server(node.session, "--idle-limit=1")
                get(one.address, "/")
                begin, cpu = time.monotonic(), one.cpu_s()
                watch(one, options.seconds, viewers, ["/api/sheaf/demand", "/api/sheaf/functions"])
                share = (one.cpu_s() - cpu) / (time.monotonic() - begin)
                name = f"{viewers} viewer{'s' if viewers > 1 else ''}"
                rows.add(f"{name}: processor of the server", share * 100, most, "%")
                if viewers == 1:
                    rows.add(f"{name}: memory of the server", one.peak_bytes() / 1e6, 80, "MB")
                print(f"{name}: {float(node.rest()):,.0f} calls/s", file=sys.stderr)
                begin = time.monotonic()
                assert one.process.wait(WAIT_S) == 0
                if viewers == 10:
                    rows.add(
                        "the last viewer goes: until the server ends (limit 1 s)",
                        time.monotonic() - begin,
                        3,
                        "s",
                    )
            finally:
                node.stop()


def page(rows, options):
    """When Chromium shows something."""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as folder:
        node = Node(folder)
        try:
            for name, queued in (
                ("at rest", 0),
                (f"{options.queued:,} calls wait", options.queued),
            ):
                if queued > 0:
                    node.drive("queue", str(queued))
                done = subprocess.run(
                    ["node", ROOT / "tests/dashboard/paint.mjs", BUILD / "web/node_modules"]
                    + [node.said["dashboard_url"], str(PAINTS)],
                    capture_output=True,
                    text=True,
                    timeout=5 * WAIT_S,
                )
                assert done.returncode == 0, done.stderr
                paints = json.loads(done.stdout)
                median = {key: statistics.median(one[key] for one in paints) for key in paints[0]}
                rows.add(f"{name}: first paint", median["paint_ms"], 300, "ms")
                rows.add(f"{name}: first figures", median["figures_ms"], 1000, "ms")
        finally:
            node.stop()


def scroll(rows, options):
    """The task stream of sixteen lanes."""
    with tempfile.TemporaryDirectory(prefix="sheaf-bench-") as folder:
        node = Node(folder)
        try:
            node.drive("lanes")
            done = subprocess.run(
                ["node", ROOT / "tests/dashboard/frames.mjs", BUILD / "web/node_modules"]
                + [node.said["dashboard_url"], str(options.seconds)],
                capture_output=True,
                text=True,
                timeout=options.seconds + 2 * WAIT_S,
            )
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            rate = float(node.rest())
            print(f"{rate:,.0f} calls/s, at most {found['longest_ms']:.0f} ms", file=sys.stderr)
            rows.add("stream: work of the page a frame", found["script_ms"], 1000 / 60, "ms")
            rows.add("stream: between two frames", 1000 / found["frames_per_s"], 1000 / 60, "ms")
        finally:
            node.stop()


PARTS = {"load": load, "server": server, "page": page, "scroll": scroll}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", help="writes the figures to this file")
    parser.add_argument("--seconds", type=float, default=30, help="how long the server is watched")
    parser.add_argument("--queued", type=int, default=1_000_000, help="calls that wait")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    options = parser.parse_args()
    rows = Rows()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(rows, options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows.found}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive = {"calls": calls, "lanes": lanes, "queue": queue}[sys.argv[3]]
        drive(*map(int, sys.argv[4:]))
    else:
        main()

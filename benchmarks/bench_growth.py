# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How costs grow: of a call with the number of peers, of a death with that of references, of a get
with that of objects, of a task with that of queued ones; and what each object, task and actor takes
of memory. Each is a curve with its fit.

    ./do bench growth [--json FILE] [--only WORD] [--large]

--large: 3,000 actors and a million tasks and references (some 20 GB of memory, ten minutes).

A point is the median of some runs. The fit is that of cost = a * x^b, by least squares over the
logarithms: b near 0 is flat, near 1 linear. Of a cost for each item, flat is linear in all.
"""

import argparse
import contextlib
import functools
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time
import traceback

import sheaf
from call_costs import processes_below

FLAT, LINEAR = 0.15, 1.15  # Exponents up to which a curve is called so.
ROUNDS = 5


@sheaf.remote(num_cpus=0)
class Actor:
    def nothing(self):
        return None

    def keep(self, references):
        self.references = references
        return os.getpid()


@sheaf.remote(num_cpus=1)
def nothing():
    return None


@sheaf.remote(num_cpus=2)
def block(path):
    while not os.path.exists(path):
        time.sleep(0.005)


@contextlib.contextmanager
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=1 << 30, log_to_driver=False)
    try:
        yield
    finally:
        sheaf.shutdown()


def seconds(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def median(run, rounds=ROUNDS):
    return statistics.median(seconds(run) for _ in range(rounds))


def actors(count):
    """So many that have begun. They come in hundreds: each is a process that has to start."""
    made = []
    while len(made) < count:
        some = [Actor.remote() for _ in range(min(100, count - len(made)))]
        sheaf.get([actor.nothing.remote() for actor in some])
        made += some
    return made


def calls(xs, count, peers_too):
    """Microseconds of a call, with x actors that this driver has called: of one of them again and
    again, or (`peers_too`) of all in turn."""
    with cluster():
        made = []
        for x in xs:
            made += actors(x - len(made))
            called = made if peers_too else made[:1]
            sheaf.get([actor.nothing.remote() for actor in called])

            def run(called=called):
                for i in range(count):
                    sheaf.get(called[i % len(called)].nothing.remote())

            run()
            yield x, median(run) / count * 1e6


def in_flight(xs, count):
    """Microseconds of a call, of many in flight to x actors in turn."""
    with cluster():
        made = []
        for x in xs:
            made += actors(x - len(made))
            called = made * max(1, count // x)  # In turn.

            def run(called=called):
                sheaf.get([actor.nothing.remote() for actor in called])

            run()
            yield x, median(run) / len(called) * 1e6


def deaths(xs, borrowed):
    """Milliseconds until a call says that its actor is dead, of a driver with x references: that
    the actor has nothing to do with, or (`borrowed`) that it holds."""
    with cluster():
        references = []
        for x in xs:
            references += [sheaf.put(i) for i in range(x - len(references))]
            took = []
            for _ in range(ROUNDS):
                actor = Actor.remote()
                pid = sheaf.get(actor.keep.remote(references if borrowed else None))
                os.kill(pid, 9)
                begin = time.perf_counter()
                with contextlib.suppress(sheaf.exceptions.ActorDiedError):
                    while True:
                        sheaf.get(actor.nothing.remote())
                took.append(time.perf_counter() - begin)
            yield x, statistics.median(took) * 1e3


def gets(xs):
    """Microseconds for each of x objects that one get asks for."""
    with cluster():
        references = []
        for x in xs:
            references += [sheaf.put(i) for i in range(x - len(references))]
            sheaf.get(references)
            yield x, median(lambda: sheaf.get(references)) / x * 1e6


def queued(xs):
    """Microseconds for each of x tasks: to submit while none can run, and then to run all."""
    with cluster(), tempfile.TemporaryDirectory() as folder:
        sheaf.get([nothing.remote() for _ in range(1000)])
        for x in xs:
            took = []
            for number in range(3):
                gate = pathlib.Path(folder) / f"{x}-{number}"
                holder = block.remote(str(gate))
                begin = time.perf_counter()
                waiting = [nothing.remote() for _ in range(x)]
                spent = time.perf_counter() - begin
                gate.touch()
                sheaf.get(holder)
                begin = time.perf_counter()
                sheaf.get(waiting)
                took.append(spent + time.perf_counter() - begin)
                del waiting
            yield x, statistics.median(took) / x * 1e6


def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def memory(xs, make):
    """Bytes of the driver for each of x things, beyond what it had before the first."""
    with cluster():
        kept = [make() for _ in range(1000)]
        before, had = resident(), len(kept)
        for x in xs:
            kept += [make() for _ in range(x + had - len(kept))]
            yield x, (resident() - before) / x


def tree_pss():
    """Proportional bytes of the node and its workers."""
    total = 0
    for pid in processes_below(os.getpid()) - {os.getpid()}:
        with contextlib.suppress(OSError, StopIteration):  # It has ended meanwhile.
            lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024


def actor_memory(xs):
    """Bytes of all processes but the driver for each of x actors, beyond those of the first ten."""
    with cluster():
        made = actors(10)
        before = tree_pss()
        for x in xs:
            made += actors(x + 10 - len(made))
            yield x, (tree_pss() - before) / x


def curves(large):
    """(name, unit, what x counts, the points), each made when it is asked for."""
    peers = [1, 10, 100, 1000, *([3000] if large else [])]
    references = [10, 1000, 100_000, *([1_000_000] if large else [])]
    tasks = [1000, 10_000, 100_000, *([1_000_000] if large else [])]
    some = functools.partial
    yield "call of one actor, sync", "us", "actors called before", some(calls, peers, 2000, False)
    yield "call of all actors in turn, sync", "us", "actors", some(calls, peers, 2000, True)
    yield "calls in flight to all in turn", "us", "actors", some(in_flight, peers, 10_000)
    yield "death of an actor", "ms", "references of others", some(deaths, references, False)
    yield "death of an actor that borrows", "ms", "references", some(deaths, references[:3], True)
    yield (
        "get of many",
        "us an object",
        "objects",
        some(gets, [1, *references[:2], 10_000, 100_000]),
    )
    yield "queued task", "us a task", "tasks", some(queued, tasks)
    yield "memory of an object", "B", "objects", some(memory, references[1:], lambda: sheaf.put(1))
    yield "memory of a reference to a result", "B", "results", some(memory, tasks, nothing.remote)
    yield "memory of an actor", "B", "actors", some(actor_memory, peers[2:])


def alone(measured):
    """The points, measured in a process of its own: what one curve has used and given back is not
    there for the next."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            points = []
            for x, cost in measured():
                points.append((x, cost))
                print(f"  {x:>9,}  {cost:12.4g}", flush=True)
            os.write(writer, json.dumps(points).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        sys.exit("the curve was not measured")
    return json.loads(text)


def exponent(points):
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(max(y, 1e-9)) for _, y in points]
    return statistics.linear_regression(xs, ys).slope


def verdict(slope):
    if slope <= FLAT:
        return "flat"
    return "at most linear" if slope <= LINEAR else "MORE THAN LINEAR"


def main():
    parser = argparse.ArgumentParser(
        prog="do bench growth", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--only", metavar="WORD", default="", help="curves whose names have it")
    parser.add_argument("--large", action="store_true", help="further points, for large machines")
    options = parser.parse_args()
    found = []
    for name, unit, counted, measured in curves(options.large):
        if options.only not in name:
            continue
        print(f"{name} ({unit}), by {counted}:", flush=True)
        points = alone(measured)
        slope = exponent(points)
        print(f"  x^{slope:.2f}: {verdict(slope)}\n", flush=True)
        found.append({"name": name, "unit": unit, "by": counted, "points": points})
        found[-1] |= {"exponent": slope, "verdict": verdict(slope)}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": found}, indent=1))


if __name__ == "__main__":
    main()

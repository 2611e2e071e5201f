# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The rows of `ray microbenchmark`, for any package that has the names of Ray Core: same work, same
batch sizes.

`python peer_rows.py PACKAGE` imports PACKAGE, reads the name of a row and a number of seconds from
each line of stdin, and answers with a line of JSON. The first line tells how long the import, init
and first result took, the last one ("end") how long shutdown took.
"""

import importlib
import json
import os
import sys
import time

BEGUN = time.perf_counter()
ray = importlib.import_module(
    sys.argv[1] if __name__ == "__main__" else "sheaf"
)  # bench_python.py reads the names of rows.
IMPORTED = time.perf_counter()
import asyncio  # noqa: E402
import multiprocessing  # noqa: E402

import numpy as np  # noqa: E402


@ray.remote(num_cpus=0)
class Actor:
    def small_value(self):
        return b"ok"

    def small_value_arg(self, x):
        return b"ok"

    def small_value_batch(self, n):
        ray.get([small_value.remote() for _ in range(n)])


@ray.remote(num_cpus=0)
class AsyncActor:
    async def small_value(self):
        return b"ok"

    async def small_value_with_arg(self, x):
        return b"ok"


@ray.remote(num_cpus=0)
class Client:
    def __init__(self, servers):
        self.servers = servers if isinstance(servers, list) else [servers]

    def small_value_batch(self, n):
        ray.get([s.small_value.remote() for s in self.servers for _ in range(n)])

    def small_value_batch_arg(self, n):
        x = ray.put(0)
        ray.get([s.small_value_arg.remote(x) for s in self.servers for _ in range(n)])


@ray.remote
def small_value():
    return b"ok"


@ray.remote
def create_object_containing_refs():
    return [ray.put(1) for _ in range(10_000)]


@ray.remote
def do_put_small():
    for _ in range(100):
        ray.put(0)


@ray.remote
def do_put():
    for _ in range(10):
        ray.put(np.zeros(10 * 1024 * 1024, dtype=np.int64))


@ray.remote
def call_all(actors, n):
    ray.get([actors[i % len(actors)].small_value.remote() for i in range(n)])


HALF = max(1, multiprocessing.cpu_count() // 2)
ROWS = {}  # name: (unit, how much one run does, what makes the run)


def row(name, amount=1, unit="/s"):
    def add(make):
        ROWS[name] = (unit, amount, make)
        return make

    return add


@row("single client get calls")
def _():
    value = ray.put(0)
    return lambda: ray.get(value)


@row("single client put calls")
def _():
    return lambda: ray.put(0)


@row("multi client put calls", 1000)
def _():
    return lambda: ray.get([do_put_small.remote() for _ in range(10)])


@row("single client put gigabytes", 0.8388608, "GB/s")
def _():
    array = np.zeros(100 * 1024 * 1024, dtype=np.int64)
    return lambda: ray.put(array)


@row("multi client put gigabytes", 10 * 0.8388608, "GB/s")
def _():
    return lambda: ray.get([do_put.remote() for _ in range(10)])


@row("single client tasks and get batch")
def _():
    return lambda: ray.get([small_value.remote() for _ in range(1000)])


@row("single client get object containing 10k refs")
def _():
    holder = create_object_containing_refs.remote()
    return lambda: ray.get(holder)


@row("single client wait 1k refs")
def _():
    def run():
        left, fetch = [small_value.remote() for _ in range(1000)], True
        for _ in range(1000):
            _, left = ray.wait(left, fetch_local=fetch)
            fetch = False

    return run


@row("single client tasks sync")
def _():
    return lambda: ray.get(small_value.remote())


@row("single client tasks async", 1000)
def _():
    return lambda: ray.get([small_value.remote() for _ in range(1000)])


@row("multi client tasks async", 40_000)
def _():
    actors = [Actor.remote() for _ in range(4)]
    return lambda: ray.get([a.small_value_batch.remote(10_000) for a in actors])


def _one_actor(name, actor_class, call, **options):
    def sync_run():
        a = actor_class.options(**options).remote() if options else actor_class.remote()
        return lambda: call(a)

    return sync_run


def _sync(a):
    ray.get(a.small_value.remote())


def _batch(a):
    ray.get([a.small_value.remote() for _ in range(1000)])


def _batch_with_argument(a):
    ray.get([a.small_value_with_arg.remote(i) for i in range(1000)])


row("1:1 actor calls sync")(_one_actor("", Actor, _sync))
row("1:1 actor calls async", 1000)(_one_actor("", Actor, _batch))
row("1:1 actor calls concurrent", 1000)(_one_actor("", Actor, _batch, max_concurrency=16))
row("1:1 async-actor calls sync")(_one_actor("", AsyncActor, _sync))
row("1:1 async-actor calls async", 1000)(_one_actor("", AsyncActor, _batch))
row("1:1 async-actor calls with args async", 1000)(_one_actor("", AsyncActor, _batch_with_argument))


def _one_to_many(actor_class):
    def make():
        client = Client.remote([actor_class.remote() for _ in range(HALF)])
        return lambda: ray.get(client.small_value_batch.remote(5000))

    return make


def _many_to_many(actor_class):
    def make():
        actors = [actor_class.remote() for _ in range(HALF)]
        return lambda: ray.get([call_all.remote(actors, 5000) for _ in range(4)])

    return make


row("1:n actor calls async", 5000 * HALF)(_one_to_many(Actor))
row("n:n actor calls async", 20_000)(_many_to_many(Actor))
row("1:n async-actor calls async", 5000 * HALF)(_one_to_many(AsyncActor))
row("n:n async-actor calls async", 20_000)(_many_to_many(AsyncActor))


@row("n:n actor calls with arg async", 1000 * HALF)
def _():
    clients = [Client.remote(Actor.remote()) for _ in range(HALF)]
    return lambda: ray.get([c.small_value_batch_arg.remote(1000) for c in clients])


@row("placement group create/removal", 100)
def _():
    from_util = importlib.import_module(f"{ray.__name__}.util")

    def run():
        groups = [from_util.placement_group(bundles=[{"custom": 0.001}]) for _ in range(100)]
        for group in groups:
            group.wait(timeout_seconds=30)
        for group in groups:
            from_util.remove_placement_group(group)

    return run


def measure(run, amount, seconds):
    """Units per second, the median of three stretches after one run to warm up, and how many runs
    those had; where that one takes longer than all of them should, the stretch is one more run."""
    begun = time.perf_counter()
    run()
    stretches = 1 if time.perf_counter() - begun > seconds else 3
    rates, runs = [], 0
    for _ in range(stretches):
        begun, count = time.perf_counter(), 0
        while True:
            run()
            count += 1
            spent = time.perf_counter() - begun
            if spent >= seconds / 3:
                break
        rates.append(count * amount / spent)
        runs += count
    return sorted(rates)[stretches // 2], runs


def node_pss_mb():
    """Of the processes of this session: those below this one, and their own, by the process
    table."""
    parents, total, wanted = {}, 0.0, {os.getpid()}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in wanted} - wanted
        wanted |= more
        grown = bool(more)
    for pid in wanted - {os.getpid()}:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            continue
    return total / 1024


def main():
    begun = time.perf_counter()
    ray.init(
        num_cpus=2,
        resources={"custom": 100},
        object_store_memory=4 << 30,
        include_dashboard=False,
        logging_level="ERROR",
    )
    started = time.perf_counter()
    ray.get(small_value.remote())
    first = time.perf_counter()
    answer = {"import": IMPORTED - BEGUN, "init": started - begun, "first result": first - begun}
    time.sleep(2)  # Whatever starts beside.
    answer["PSS"] = node_pss_mb()
    made = {}
    while True:
        sys.__stdout__.write(json.dumps(answer) + "\n")
        sys.__stdout__.flush()
        name, _, seconds = sys.stdin.readline().strip().rpartition(" ")
        if name not in ROWS:
            break
        unit, amount, make = ROWS[name]
        if name not in made:
            made.clear()  # Actors of other rows end.
            made[name] = make()
        try:
            rate, runs = measure(made[name], amount, float(seconds))
            answer = {"rate": rate, "unit": unit, "runs": runs}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
    made.clear()
    begun = time.perf_counter()
    ray.shutdown()
    sys.__stdout__.write(json.dumps({"shutdown": time.perf_counter() - begun}) + "\n")
    sys.__stdout__.flush()


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What calls and objects cost from Python: one row per figure, and --json FILE for programs.

    ./do bench python [--json FILE] [--seconds N] [--only WORD]
"""

import argparse
import json
import time

import numpy as np
import sheaf


@sheaf.remote
def nothing():
    return None


@sheaf.remote
def echo(x):
    return x


@sheaf.remote(num_cpus=0)
class Actor:
    def nothing(self):
        return None

    def echo(self, x):
        return x


@sheaf.remote(num_cpus=0)
class AsyncActor:
    async def nothing(self):
        return None


BATCH = 1000


def rows():
    """(name, unit, how many one run does, the run)."""
    get, put = sheaf.get, sheaf.put
    actor, coroutines = Actor.remote(), AsyncActor.remote()
    small, array = put(1), np.ones(12_500_000)  # 100 MB.
    block = put(array)
    many = [put(i) for i in range(BATCH)]
    yield "task, sync", "/s", 1, lambda: get(nothing.remote())
    yield "task with an int, sync", "/s", 1, lambda: get(echo.remote(1))
    yield "tasks, 1,000 in flight", "/s", BATCH, lambda: get([nothing.remote() for _ in range(BATCH)])
    yield "actor call, sync", "/s", 1, lambda: get(actor.nothing.remote())
    yield "actor call with an int, sync", "/s", 1, lambda: get(actor.echo.remote(1))
    yield "actor calls, 1,000 in flight", "/s", BATCH, lambda: get([actor.nothing.remote() for _ in range(BATCH)])
    yield "async actor call, sync", "/s", 1, lambda: get(coroutines.nothing.remote())
    yield "async actor calls, 1,000 in flight", "/s", BATCH, lambda: get([coroutines.nothing.remote() for _ in range(BATCH)])
    yield "put of an int", "/s", 1, lambda: put(1)
    yield "get of an int", "/s", 1, lambda: get(small)
    yield "wait on 1,000 references", "/s", 1, lambda: sheaf.wait(many, num_returns=BATCH)
    yield "put of 100 MB (NumPy)", "GB/s", array.nbytes / 1e9, lambda: put(array)
    yield "get of 100 MB (NumPy)", "/s", 1, lambda: get(block)
    yield "floor: copy of 100 MB", "GB/s", array.nbytes / 1e9, _copier(array)


def _copier(array):
    to = np.empty_like(array)
    return lambda: np.copyto(to, array)


def measure(run, amount, seconds):
    """The median rate of rounds that take about a tenth of the time each."""
    run()
    rates, end = [], time.perf_counter() + seconds
    while len(rates) < 3 or time.perf_counter() < end:
        begin, count = time.perf_counter(), 0
        while True:
            run()
            count += 1
            spent = time.perf_counter() - begin
            if spent > seconds / 10:
                break
        rates.append(count * amount / spent)
    return sorted(rates)[len(rates) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    sheaf.init(num_cpus=2, object_store_memory=1 << 30)
    figures = {}
    for name, unit, amount, run in rows():
        if options.only not in name:
            continue
        figures[name] = {"rate": measure(run, amount, options.seconds), "unit": unit}
        print(f"{name:38} {figures[name]['rate']:14,.1f} {unit}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    sheaf.shutdown()


if __name__ == "__main__":
    main()

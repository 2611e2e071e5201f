# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A program of users that makes the metrics of a cluster move: run as a driver on its head.

workload.py NAME        one of the parts below; what it says goes to its standard output
"""

import os
import signal
import sys
import time

import numpy
import sheaf
from sheaf import train
from sheaf.util import metrics
from sheaf.util.placement_group import placement_group

WAIT_S = 60


@sheaf.remote
def add(a, b):
    return a + b


@sheaf.remote(max_retries=0)
def fail():
    raise ValueError("wanted")


@sheaf.remote(max_retries=2)
def crash_once(marker):
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGSEGV)
    return 1


@sheaf.remote
def chatter():
    for _ in range(1000):
        print("a line")
    print("an error", file=sys.stderr)
    # Faster than it can be handed on.
    line = "x" * 1000
    for _ in range(60_000):
        print(line)


@sheaf.remote(num_cpus=0.5)
def sleep(seconds):
    time.sleep(seconds)


@sheaf.remote
class Counter:
    def __init__(self):
        self.count = metrics.Counter("workload_calls", "Calls", tag_keys=("who",))
        self.value = 0

    def add(self, n=1):
        self.value += n
        self.count.inc(n, {"who": "me"})
        return self.value

    def die(self):
        os._exit(3)

    def hold(self):
        """An object whose owner is this actor."""
        return [sheaf.put(numpy.ones(1 << 20, numpy.uint8))]

    def slow(self, _):
        time.sleep(0.001)


def calls(marker):
    """Tasks and actor calls of all outcomes, on all nodes."""
    sheaf.get([add.remote(i, 1) for i in range(3000)], timeout=WAIT_S)
    failed = [fail.remote() for _ in range(20)]
    for ref in failed:
        try:
            sheaf.get(ref, timeout=WAIT_S)
        except ValueError:
            pass
    sheaf.get(crash_once.remote(marker), timeout=WAIT_S)
    sheaf.get([sleep.options(scheduling_strategy="SPREAD").remote(0.3) for _ in range(24)])
    cancelled = sleep.remote(60)
    sheaf.cancel(cancelled)
    chatter.remote()
    actor = Counter.options(max_restarts=-1, max_task_retries=1, name="counter").remote()
    sheaf.get([actor.add.remote() for _ in range(3000)], timeout=WAIT_S)
    try:  # The name is taken.
        Counter.options(name="counter").remote()
    except ValueError:
        pass
    actor.die.remote()
    sheaf.get(actor.add.remote(), timeout=WAIT_S)
    payload = b"x" * 20_000
    sheaf.get([actor.slow.remote(payload) for _ in range(3000)], timeout=WAIT_S)
    group = placement_group([{"CPU": 0.1}] * 3, strategy="STRICT_SPREAD", name="spread")
    sheaf.get(group.ready(), timeout=WAIT_S)


def objects():
    """More objects than the stores hold, read on other nodes; and some whose owner dies."""

    @sheaf.remote(num_cpus=0.1, scheduling_strategy="SPREAD")
    def make(i):
        return numpy.full(8 << 20, i % 251, numpy.uint8)

    @sheaf.remote(num_cpus=0.1, scheduling_strategy="SPREAD")
    def first(array):
        time.sleep(0.05)
        return int(array[0])

    made = [make.remote(i) for i in range(30)]
    assert sheaf.get([first.remote(ref) for ref in made], timeout=WAIT_S) == list(range(30))
    small = [sheaf.put(b"x" * 50_000) for _ in range(100)]
    held = []
    try:
        while len(held) < 20:  # More than the store has room for, all in use.
            ref = sheaf.put(numpy.zeros(8 << 20, numpy.uint8))
            held.append(sheaf.get(ref, timeout=WAIT_S))
        raise AssertionError("a store of 96 MiB held 160")
    except sheaf.exceptions.ObjectStoreFullError:
        held.clear()
    assert sheaf.get([first.remote(ref) for ref in made], timeout=WAIT_S) == list(range(30))
    owner = Counter.remote()
    (lent,) = sheaf.get(owner.hold.remote(), timeout=WAIT_S)
    sheaf.get(lent, timeout=WAIT_S)
    sheaf.kill(owner)
    time.sleep(1)
    sheaf.get(lent, timeout=WAIT_S)
    assert len(small) == 100 and len(made) == 30


def lost_nodes(announce):
    """What lies on the node with `victim` is made again when that dies: whoever runs this kills it
    when it is told to."""

    @sheaf.remote(num_cpus=0, max_retries=5, resources={"victim": 0.001})
    def there():
        return numpy.ones(4 << 20, numpy.uint8)

    @sheaf.remote(num_cpus=0, max_retries=5)
    def anywhere(array):
        return array.copy()

    refs = [there.remote() for _ in range(4)]
    sheaf.wait(refs, num_returns=4, timeout=WAIT_S, fetch_local=False)
    announce()
    copies = [anywhere.remote(ref) for ref in refs]
    sheaf.wait(copies, num_returns=4, timeout=WAIT_S)


def waiting():
    """What cannot run: no such resource, no room for long enough to be seen."""
    never = add.options(resources={"tape": 1}).remote(1, 2)
    full = [sleep.options(num_cpus=1).remote(4) for _ in range(40)]
    group = placement_group([{"CPU": 2}] * 2, strategy="STRICT_SPREAD")
    vast = placement_group([{"CPU": 512}])
    detached = Counter.options(lifetime="detached", resources={"tape": 2}).remote()
    time.sleep(6)
    sheaf.get(add.remote(1, 2), timeout=WAIT_S)
    sheaf.cancel(never)
    sheaf.util.remove_placement_group(vast)
    sheaf.kill(detached)
    for ref in full:
        sheaf.cancel(ref)
    sheaf.util.remove_placement_group(group)


def training(folder):
    """A run of two workers with some steps."""

    def loop(config):
        for step in range(config["steps"]):
            time.sleep(0.2)
            train.report({"loss": 1.0 / (step + 1)})

    train.DataParallelTrainer(
        loop,
        train_loop_config={"steps": 30},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(name="digits", storage_path=folder),
    ).fit()


def flood():
    """Calls whose node reads nothing meanwhile: whoever runs this stops it when it is told to."""
    actor = Counter.options(num_cpus=0).remote()
    sheaf.get(actor.add.remote())
    print("ready", flush=True)
    sys.stdin.readline()
    sheaf.get([actor.add.remote() for _ in range(200_000)], timeout=WAIT_S)


def main():
    part, *more = sys.argv[1:]
    with sheaf.init(address=os.environ["SHEAF_ADDRESS"], log_to_driver=True):
        if part == "all":
            calls(more[0])
            objects()
            print("kill", flush=True)
            lost_nodes(lambda: (print("now", flush=True), sys.stdin.readline()))
        elif part == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif part == "training":
            training(more[0])
        else:
            {"waiting": waiting, "flood": flood}[part]()
    print("done", flush=True)


if __name__ == "__main__":
    main()

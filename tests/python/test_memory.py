# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What references hold, and for how long: long chains of them, long lineages, values in a process's
own memory, values of dead owners."""

import os
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S
from sheaf.cluster_utils import Cluster

HEAD = """if True:
    import os, threading, time, urllib.request
    import numpy as np
    import sheaf
    from sheaf import _core

    def figure(name):
        with urllib.request.urlopen(_core.metrics_url(), timeout=30) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if line.startswith(name)]
        return sum(float(value) for _, value in lines)

    def until(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)
"""


@pytest.fixture(scope="module", autouse=True)
def no_node_of_another_module():
    sheaf.shutdown()


def run(text, **environment):
    """A driver of its own: what these programs did before was to end the process."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + text],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr


def test_a_long_chain_of_references_is_freed_beside_the_calls():
    run("""
    sheaf.init(num_cpus=1, object_store_memory=256 << 20)
    r = None
    for _ in range(200_000):
        r = sheaf.put([r])
    until(lambda: figure("sheaf_owned_objects") > 199_000)
    del r
    longest = 0
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        begun = time.perf_counter()
        sheaf.put(1)
        longest = max(longest, time.perf_counter() - begun)
    until(lambda: figure("sheaf_owned_objects") < 100)  # Also while nobody calls.
    assert longest < 0.25, longest  # All at once took longer; the machine may be busy.
    """)


def test_a_task_whose_argument_is_a_long_chain_and_an_actor_that_drops_one():
    run("""
    sheaf.init(num_cpus=2, object_store_memory=256 << 20)

    @sheaf.remote
    class Holder:
        def chain(self, length):
            self.r = None
            for _ in range(length):
                self.r = sheaf.put([self.r])
            return length

        def drop(self):
            self.r = None
            return "dropped"

    holder = Holder.options(max_concurrency=2).remote()
    assert sheaf.get(holder.chain.remote(100_000), timeout=60) == 100_000
    assert sheaf.get(holder.drop.remote(), timeout=60) == "dropped"
    until(lambda: figure("sheaf_owned_objects") < 100)
    assert sheaf.get(holder.chain.remote(3), timeout=60) == 3  # Its process lives.
    """)


def test_a_loop_of_tasks_keeps_the_last_array_alone():
    run("""
    sheaf.init(num_cpus=1, object_store_memory=64 << 20)
    step = sheaf.remote(lambda x: x + 1)
    x = sheaf.put(np.zeros(1 << 17))  # 1 MiB
    for i in range(300):
        x = step.remote(x)
        if i % 30 == 0:
            sheaf.wait([x])
    assert sheaf.get(x)[0] == 300
    assert figure("sheaf_spills_total") == 0
    until(lambda: figure("sheaf_store_objects") <= 3)
    """)


def test_items_of_cancelled_generators_are_freed_wherever_the_word_met_them():
    run("""
    import random
    sheaf.init(num_cpus=2, object_store_memory=256 << 20)

    @sheaf.remote(num_returns="streaming")
    def items():
        block = np.zeros(1 << 18)  # 2 MiB: storing it takes a while, in which the word may come.
        for _ in range(50):
            yield block

    for _ in range(100):
        stream = items.remote()
        next(stream)
        time.sleep(random.random() * 0.01)
        sheaf.cancel(stream)
        del stream
    until(lambda: figure("sheaf_store_objects") == 0)
    """)


def test_values_of_a_process_have_a_budget():
    run("""
    def resident():  # Without what it has mapped of the store.
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))

    sheaf.init(num_cpus=1, object_store_memory=64 << 20)
    make = sheaf.remote(lambda i: i.to_bytes(4, "little") * 15_000)
    before = resident()
    refs = [sheaf.put(i.to_bytes(4, "little") * 15_000) for i in range(1500)] + [make.remote(i) for i in range(1500)]  # 60 kB each, 180 MB
    sheaf.wait(refs, num_returns=len(refs))
    assert resident() - before < 80 << 20, resident() - before
    assert figure("sheaf_spills_total") > 0
    for i in (0, 1, 700, 1499):
        assert sheaf.get(refs[i]) == sheaf.get(refs[1500 + i]) == i.to_bytes(4, "little") * 15_000
    """, SHEAF_VALUE_BYTES="16MiB")  # fmt: skip


def test_who_had_many_small_values_in_the_store_leaves_its_table_to_others():
    run("""
    sheaf.init(num_cpus=2, object_store_memory=64 << 20)  # Its table holds 16384 objects.

    @sheaf.remote
    class Other:
        def count(self, refs):
            return len(refs)

        def put(self, count):
            refs = [sheaf.put(np.full(100_000, i % 251, dtype=np.uint8)) for i in range(count)]
            return all(sheaf.get(ref)[-1] == i % 251 for i, ref in enumerate(refs))

    other = Other.remote()
    refs = [sheaf.put(i) for i in range(16_000)]
    for i in range(0, 16_000, 1000):  # What leaves its process lies in the store.
        assert sheaf.get(other.count.remote(refs[i : i + 1000]), timeout=30) == 1000
    until(lambda: figure("sheaf_store_objects") > 15_000)
    del refs
    until(lambda: figure("sheaf_store_objects") < 100)
    assert sheaf.get(other.put.remote(300), timeout=30)
    """)


def test_a_get_of_more_than_the_store_holds_ends_at_once():
    run("""
    sheaf.init(num_cpus=2, object_store_memory=64 << 20)
    make = sheaf.remote(lambda i: np.full(1 << 20, i, dtype=np.float64))  # 8 MiB
    put = [sheaf.put(np.full(1 << 20, i, dtype=np.float64)) for i in range(10)]
    made = [make.remote(i) for i in range(10)]
    sheaf.wait(made, num_returns=10, fetch_local=False)
    for refs in (put, made, put + made):
        begin = time.monotonic()
        try:
            sheaf.get(refs)
            raise SystemExit("twice as much as the store holds was got")
        except sheaf.exceptions.ObjectStoreFullError as error:
            words = str(error)
        assert time.monotonic() - begin < 5, time.monotonic() - begin
        assert f"{len(refs)} objects" in words and str(64 << 20) in words and "--object-store-memory" in words, words
        assert int(words.split(" have ")[1].split()[0]) // (1 << 20) == 8 * len(refs), words
    for refs in (put[:5], made[5:], put[2:4] * 20):  # The same object again takes no more.
        assert [int(value[0]) for value in sheaf.get(refs, timeout=60)] == [int(sheaf.get(ref)[0]) for ref in refs]
    """)


def test_the_first_values_of_a_process_outlive_it():
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 64 << 20}
    )
    try:
        cluster.connect(namespace="n")

        @sheaf.remote
        class Keeper:
            def keep(self, refs):
                self.refs = refs

            def values(self):
                return sheaf.get(self.refs, timeout=WAIT_S)

        keeper = Keeper.options(name="keeper", lifetime="detached").remote()
        sheaf.get(keeper.keep.remote([]), timeout=WAIT_S)
        text = f"""
    sheaf.init(address={cluster.address!r}, namespace="n")
    refs = [sheaf.put(i) for i in range(20)]
    sheaf.get(sheaf.get_actor("keeper").keep.remote(refs), timeout=30)
    time.sleep(0.2)  # A moment of life after it: it need not have been quick.
    os._exit(0)
        """
        run(text)
        assert sheaf.get(keeper.values.remote(), timeout=WAIT_S) == list(range(20))
    finally:
        sheaf.shutdown()
        cluster.shutdown()

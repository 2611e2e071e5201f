# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Back-pressure with real processes: receivers that are stopped, pending, killed or restarted, and
what their callers, their raylets and everybody else see of it."""

import asyncio
import os
import pathlib
import signal
import threading
import time

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until

MIB = 1 << 20
PAIR = 64 * MIB  # What one pair may take in any process.
PAYLOAD = 30_000
CALLERS = int(
    os.environ.get("BACK_PRESSURE_CALLERS", 3)
)  # On each of two nodes, beside the receiver's.


@pytest.fixture(scope="module")
def cluster():
    here = {"num_cpus": 1, "object_store_memory": 64 * MIB}
    with joined_cluster(here, *({**here, "resources": {name: 100}} for name in ("b", "c"))) as made:
        yield made


def rss(pid):
    with open(f"/proc/{pid}/statm") as statm:
        pages = statm.read().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")  # Without shared memory.


def stop(pid):
    """Returns when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(
        lambda: all(
            status.read_text().rpartition(")")[2].split()[0] == "T"
            for status in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
        ),
        "it does not stop",
    )


def until_still(look):
    """Waits until what `look` gives stays the same for half a second, and gives that."""
    deadline = time.monotonic() + WAIT_S
    seen, since = look(), time.monotonic()
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline, "it never stops"
        time.sleep(0.05)
        if (now := look()) != seen:
            seen, since = now, time.monotonic()
    return seen


@sheaf.remote(num_cpus=0, max_concurrency=4)
class Receiver:
    def __init__(self):
        self.taken = 0

    def pid(self):
        return os.getpid()

    def take(self, payload):
        self.taken += 1
        return self.taken

    def count(self):
        return self.taken

    def blob(self, gate):
        while not os.path.exists(gate):
            time.sleep(0.01)
        self.taken += 1
        return bytes(60_000)

    def stream(self, count, size):
        for _ in range(count):
            self.taken += 1
            yield bytes(size)


@sheaf.remote(num_cpus=0, max_concurrency=4)
class Caller:
    def __init__(self):
        self.calls = 0
        self.ended = ""
        self.results = []
        self.stream = None

    def pid(self):
        return os.getpid()

    def call_without_end(self, receiver):
        threading.Thread(target=self._call, args=(receiver,), daemon=True).start()

    def _call(self, receiver):
        payload = bytes(PAYLOAD)
        try:
            while True:
                self.results.append(receiver.take.remote(payload))
                self.calls += 1
                if len(self.results) > 4000:  # Never where somebody waits.
                    sheaf.get(self.results[:1000])
                    del self.results[:1000]
        except Exception as error:
            self.ended = type(error).__name__

    def call(self, receiver, count):
        return len(sheaf.get([receiver.take.remote(bytes(PAYLOAD)) for _ in range(count)]))

    def take(self, payload):
        return None

    def ask(self, source, gate, count):
        sheaf.get(source.count.remote())  # From here on calls leave at once.
        self.results = [source.blob.remote(gate) for _ in range(count)]

    def read(self):
        return sum(len(value) for value in sheaf.get(self.results))

    def counted(self):
        return self.calls

    def why_it_ended(self):
        return self.ended

    def outcomes(self):
        """How the calls that were made have ended: names of errors, and how often."""
        names = {}
        for result in self.results:
            try:
                sheaf.get(result, timeout=WAIT_S)
                name = ""
            except Exception as error:
                name = type(error).__name__
            names[name] = names.get(name, 0) + 1
        return names

    def listen(self, producer, count, size):
        self.stream = producer.stream.options(num_returns="streaming").remote(count, size)
        return sheaf.get(next(self.stream)) is not None


def get(reference):
    return sheaf.get(reference, timeout=WAIT_S)


def on(node, actor, **options):
    return actor.options(resources={node: 1}, **options).remote()


def rate(receiver, seconds=0.4):
    """Calls that are answered a second, many in flight."""
    count, end, begin = 0, time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end:
        get([receiver.take.remote(b"") for _ in range(200)])
        count += 200
    return count / (time.monotonic() - begin)


def raylets(cluster):
    return {node.os_pid: rss(node.os_pid) for node in cluster.list_all_nodes()}


def test_a_stopped_receiver_costs_little_anywhere_and_others_nothing(cluster):
    stopped, other = on("c", Receiver), on("c", Receiver)
    callers = [
        on(node, Caller) if node else Caller.remote() for node in ("", "b") for _ in range(CALLERS)
    ]
    pids = get([caller.pid.remote() for caller in callers])
    pid = get(stopped.pid.remote())
    rate(other)
    rates = [rate(other) for _ in range(4)]
    before = raylets(cluster) | {each: rss(each) for each in pids}
    stop(pid)
    try:
        get([caller.call_without_end.remote(stopped) for caller in callers])
        made = until_still(lambda: get([caller.counted.remote() for caller in callers]))
        slowed = [rate(other)]
        # A machine with other work slows calls down now and then, to half and less; what is asked
        # for is not to be slowed down for good.
        wait_until(lambda: slowed.append(rate(other)) or max(slowed) > 0.4 * max(rates))
        assert all(1000 < calls * PAYLOAD < PAIR for calls in made), made
        grown = {each: rss(each) - bytes_before for each, bytes_before in before.items()}
        print(
            "MiB grown: callers",
            [grown[each] // MIB for each in pids],
            "raylets",
            # fmt: skip
            [grown[node.os_pid] // MIB for node in cluster.list_all_nodes()],
            "others' calls/s",
            max(rates),
            max(slowed),
        )
        assert all(grown[each] < PAIR + 8 * MIB for each in pids), (
            grown
        )  # With what the test itself keeps.
        # A raylet holds what is on its way alone, a few MiB of each pair.
        assert all(
            grown[node.os_pid] < len(callers) * PAIR / 4 for node in cluster.list_all_nodes()
        ), grown
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(
        lambda: min(get([caller.counted.remote() for caller in callers])) > max(made) + 500
    )  # It goes on.
    stop(pid)
    until_still(lambda: get([caller.counted.remote() for caller in callers]))
    os.kill(pid, signal.SIGKILL)  # Those who wait hear of it.
    wait_until(lambda: all(get([caller.why_it_ended.remote() for caller in callers])))
    for caller in callers:
        names = get(caller.outcomes.remote())
        assert names.pop("ActorDiedError") > 1000
        assert set(names) <= {""}
    assert get(other.take.remote(b"")) > 0


def test_an_actor_that_never_starts_holds_its_callers_and_not_their_memory(cluster):
    pending = Receiver.options(resources={"nowhere": 1}).remote()
    before, made, results = rss(os.getpid()), [0], []

    def call():
        while made[0] < 10_000:
            results.append(pending.take.remote(bytes(50_000)))
            made[0] += 1

    thread = threading.Thread(target=call)
    thread.start()
    calls = until_still(lambda: made[0])
    assert 500 < calls < PAIR // 50_000
    assert rss(os.getpid()) - before < PAIR
    quick = Receiver.remote()  # Nobody else waits.
    assert get(quick.take.remote(bytes(50_000))) == 1
    sheaf.kill(pending)
    thread.join(WAIT_S)
    assert made[0] == 10_000  # All later ones end at once.
    for result in results[:: len(results) - 1]:
        with pytest.raises(sheaf.exceptions.RayActorError):
            get(result)


def test_a_coroutine_waits_for_room_with_a_bound(cluster):
    """What it waits for may be for another coroutine of its loop to do."""
    stopped = on("c", Receiver)
    pid = get(stopped.pid.remote())

    async def fill():
        results = []
        with pytest.raises(
            sheaf.exceptions.PendingCallsLimitExceeded, match="answered none for 30 s"
        ):
            while True:
                results.append(stopped.take.remote(bytes(50_000)))
        os.kill(pid, signal.SIGCONT)
        return await asyncio.gather(*results)

    stop(pid)
    try:
        assert len(asyncio.run(fill())) > 500
    finally:
        os.kill(pid, signal.SIGCONT)


def test_max_pending_calls_is_an_error_at_once(cluster):
    pending = Receiver.options(resources={"nowhere": 1}, max_pending_calls=3).remote()
    results = [pending.take.remote(b"") for _ in range(3)]
    with pytest.raises(sheaf.exceptions.PendingCallsLimitExceeded, match="3 calls"):
        pending.take.remote(b"")
    sheaf.kill(pending)
    for result in results:
        with pytest.raises(sheaf.exceptions.RayActorError):
            get(result)


@pytest.mark.parametrize("node", ["b", "c"])
def test_the_stream_of_a_stopped_consumer_waits_and_ends_with_it(cluster, node):
    producer, consumer = on("c", Receiver), on(node, Caller)
    assert get(consumer.listen.remote(producer, 100_000, 20_000))
    pid, producer_pid = get([consumer.pid.remote(), producer.pid.remote()])
    stop(pid)
    before = raylets(cluster) | {producer_pid: rss(producer_pid)}
    made = until_still(lambda: get(producer.count.remote()))  # And it serves others meanwhile.
    assert made < 100_000
    grown = {each: rss(each) - bytes_before for each, bytes_before in before.items()}
    print("MiB grown", {each: more // MIB for each, more in grown.items()}, "after", made)
    assert all(more < 16 * MIB for more in grown.values()), grown
    os.kill(pid, signal.SIGKILL)
    assert (
        get(producer.take.remote(b"")) > made
    )  # It lives: nothing that it uses went with its consumer.
    still = until_still(lambda: get(producer.count.remote()))
    assert still < 100_000
    assert get(producer.pid.remote()) == producer_pid


def test_large_results_for_a_stopped_owner_wait_in_the_store(cluster, tmp_path):
    gate, count = (
        tmp_path / "gate",
        1000,
    )  # Their pushes fit into one ring, so none stays with the owner.
    owner, source = on("b", Caller), on("c", Receiver)
    pid, source_pid = get([owner.pid.remote(), source.pid.remote()])
    get(owner.ask.remote(source, str(gate), count))
    before = raylets(cluster) | {source_pid: rss(source_pid)}
    stop(pid)
    try:
        gate.touch()
        wait_until(lambda: get(source.count.remote()) == count)
        grown = {each: rss(each) - bytes_before for each, bytes_before in before.items()}
        print("MiB grown", {each: more // MIB for each, more in grown.items()})
        assert all(more < PAIR / 2 for more in grown.values()), grown
    finally:
        os.kill(pid, signal.SIGCONT)
    assert get(owner.read.remote()) == count * 60_000


@pytest.mark.parametrize("node", ["b", "c"])
def test_two_actors_that_fill_each_other_go_on(cluster, node):
    one, two = on("c", Caller), on(node, Caller)
    count = 2 * PAIR // PAYLOAD
    assert get([one.call.remote(two, count), two.call.remote(one, count)]) == [count, count]


def test_a_caller_that_dies_leaves_room_for_others(cluster):
    receiver = on("c", Receiver)
    pid = get(receiver.pid.remote())
    stop(pid)
    try:
        dead = on("b", Caller)
        dead_pid = get(dead.pid.remote())
        get(dead.call_without_end.remote(receiver))
        until_still(lambda: get(dead.counted.remote()))
        os.kill(dead_pid, signal.SIGKILL)
    finally:
        os.kill(pid, signal.SIGCONT)
    heir = on("b", Caller)
    count = 2 * PAIR // PAYLOAD
    assert get(heir.call.remote(receiver, count)) == count


def test_calls_that_wait_survive_a_restart_of_their_actor(cluster):
    receiver = on("c", Receiver, max_restarts=1, max_task_retries=-1)
    pid = get(receiver.pid.remote())
    count, results = PAIR // PAYLOAD + 500, []

    def call():
        for _ in range(count):
            results.append(receiver.take.remote(bytes(PAYLOAD)))

    stop(pid)
    thread = threading.Thread(target=call)
    thread.start()
    waits = until_still(lambda: len(results))
    assert waits < count
    os.kill(pid, signal.SIGKILL)
    thread.join(WAIT_S)
    assert len(results) == count
    assert max(get(results)) == count
    assert get(receiver.pid.remote()) != pid

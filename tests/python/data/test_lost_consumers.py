# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Consumers of streaming_split that die amid an epoch: each block is in the record of one consumer
that has done with it, whoever takes the place of the dead one."""

import concurrent.futures
import os
import pathlib
import random
import signal
import time

import pytest
import sheaf
from conftest import wait_until
from sheaf import data
from sheaf.data.executor import ExecutionError
from sheaf.data.streaming.consumer import ConsumerLost
from sheaf.exceptions import RayActorError

BLOCKS, ROWS = 24, 240


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, log_to_driver=False)
    yield
    sheaf.shutdown()


@sheaf.remote(num_cpus=0)
class Consumer:
    """Writes the rows of each block down when it has done with it. Who is the first to get `row`
    dies before that, or waits for a file that says it may go on."""

    def __init__(self, folder, name):
        self._record = pathlib.Path(folder) / name

    def consume(self, part, row=None, gate=None, epochs=1):
        for epoch in range(epochs):
            for batch in part.iter_batches(batch_size=None, prefetch_batches=0):
                ids = batch["id"].tolist()
                time.sleep(0.01)
                reached = self._record.parent / "reached"
                if row in ids and not reached.exists():  # Whoever gets them then goes on.
                    reached.touch()
                    if gate is None:
                        os.kill(os.getpid(), signal.SIGKILL)
                    wait_until(pathlib.Path(gate).exists, "the gate stays shut")
                with self._record.open("a") as file:
                    file.write("".join(f"{epoch} {one}\n" for one in ids))
        return "done"


def rows(silence_s=30.0):
    dataset = data.range(ROWS, override_num_blocks=BLOCKS).map_batches(lambda batch: batch)
    dataset.context.split_silence_s = silence_s
    return dataset


def recorded(folder, epoch=0):
    lines = [line for path in folder.glob("consumer*") for line in path.read_text().splitlines()]
    return sorted(int(line.split()[1]) for line in lines if line.startswith(f"{epoch} "))


def first_row_of(part_rows):
    """A row that somebody gets, well within the epoch."""
    return random.choice(range(part_rows // 4, part_rows // 2))


@pytest.mark.parametrize("equal", [False, True])
def test_the_replacement_of_a_dead_consumer_gets_what_that_one_had_not_done(equal, tmp_path):
    """Both live through two epochs, of which the first is that in which one dies."""
    parts = rows().streaming_split(2, equal=equal)
    row = first_row_of(ROWS)
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(2)]
    calls = [
        consumer.consume.remote(part, row, epochs=2) for consumer, part in zip(consumers, parts)
    ]
    (ended,), (lives,) = sheaf.wait(calls, timeout=60)  # Who has the row, which is one of both.
    with pytest.raises(RayActorError):
        sheaf.get(ended)
    dead = calls.index(ended)
    another = Consumer.remote(str(tmp_path), "consumer-2")
    assert sheaf.get([another.consume.remote(parts[dead], epochs=2), lives], timeout=60)
    assert recorded(tmp_path) == list(range(ROWS)), f"row {row}"
    assert recorded(tmp_path, 1) == list(range(ROWS)), f"row {row}"


def test_others_get_what_a_dead_consumer_had_not_done_where_parts_differ(tmp_path):
    parts = rows().streaming_split(3)
    row = first_row_of(ROWS)
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(3)]
    calls = [consumer.consume.remote(part, row) for consumer, part in zip(consumers, parts)]
    ready, _ = sheaf.wait(calls, num_returns=3, timeout=60)
    assert len(ready) == 3
    died = 0
    for call in calls:
        try:
            sheaf.get(call)
        except RayActorError:
            died += 1
    assert died == 1 and recorded(tmp_path) == list(range(ROWS)), f"row {row}"


def test_others_of_equal_parts_are_told_who_is_lost(tmp_path):
    parts = rows(silence_s=1.0).streaming_split(2, equal=True)
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(2)]
    row = first_row_of(ROWS)
    calls = [
        consumer.consume.remote(part, row, epochs=2) for consumer, part in zip(consumers, parts)
    ]
    errors = []
    for call in calls:
        with pytest.raises((RayActorError, ConsumerLost)) as caught:
            sheaf.get(call, timeout=60)
        errors.append(caught.value)
    (lost,) = [error for error in errors if isinstance(error, ConsumerLost)]
    number = next(i for i, error in enumerate(errors) if error is not lost)
    assert f"consumer {number} of 2 has not" in str(lost) or f"[{number}] of 2 did" in str(lost)


def test_a_slow_consumer_keeps_what_it_has(tmp_path):
    """Others end before it has done with its last block, and take nothing of it."""
    parts = rows().streaming_split(2)
    gate = tmp_path / "gate"
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(2)]
    calls = [
        consumer.consume.remote(part, ROWS // 2, str(gate))
        for consumer, part in zip(consumers, parts)
    ]
    (ended,), (waits,) = sheaf.wait(calls, timeout=60)
    assert sheaf.get(ended) == "done" and (tmp_path / "reached").exists()
    gate.touch()
    assert sheaf.get(waits, timeout=60) == "done"
    assert recorded(tmp_path) == list(range(ROWS))


def test_who_was_replaced_is_told(tmp_path):
    """It comes back from a long pause; both would have the same rows."""
    parts = rows().streaming_split(2)
    gate = tmp_path / "gate"
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(2)]
    calls = [
        consumer.consume.remote(part, ROWS // 2, str(gate))
        for consumer, part in zip(consumers, parts)
    ]
    (ended,), (waits,) = sheaf.wait(calls, timeout=60)
    another = Consumer.remote(str(tmp_path), "other")
    assert sheaf.get(another.consume.remote(parts[calls.index(waits)]), timeout=60) == "done"
    gate.touch()
    with pytest.raises(ConsumerLost, match="has come anew"):
        sheaf.get(waits, timeout=60)
    (tmp_path / "other").read_text()


def test_the_silence_of_consumers_is_a_setting_with_bounds():
    with pytest.raises(ValueError, match="split_silence_s=0: want seconds, above 0"):
        rows(silence_s=0).streaming_split(2)
    assert data.DataContext().split_silence_s == 30.0


@pytest.mark.parametrize("equal", [False, True])
def test_all_consumers_are_told_what_cannot_begin(equal, tmp_path):
    dataset = rows().map_batches(lambda batch: batch, num_gpus=3)
    consumers = [Consumer.remote(str(tmp_path), f"consumer-{number}") for number in range(3)]
    calls = [
        consumer.consume.remote(part)
        for consumer, part in zip(consumers, dataset.streaming_split(3, equal=equal))
    ]
    for call in calls:
        with pytest.raises(ExecutionError, match="GPU: 3 wanted, 0 in the cluster"):
            sheaf.get(call, timeout=60)
    assert recorded(tmp_path) == []


def test_who_wants_the_next_epoch_waits_for_those_that_go_on_with_this_one():
    """For longer than a consumer may be silent."""
    parts, seen = rows(silence_s=1.0).streaming_split(2), []

    def slow():
        for batch in parts[1].iter_batches(batch_size=None):
            seen.extend(batch["id"])
            time.sleep(0.15)
        return len(list(parts[1].iter_rows()))

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        began, ended = time.monotonic(), pool.submit(slow)
        next(iter(parts[0].iter_batches(batch_size=1)))
        count = len(list(parts[0].iter_rows()))
        assert time.monotonic() - began > 2.0
        assert count + ended.result() == ROWS and len(seen) >= ROWS - 3 * ROWS // BLOCKS

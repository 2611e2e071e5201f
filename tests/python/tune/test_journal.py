# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The journal of an experiment: whatever is cut off or damaged, what is before it is read."""

import errno
import os
import random
import threading

import pytest
from conftest import wait_until
from sheaf.tune.execution import journal
from sheaf.tune.execution.journal import Journal, encode_line, read_records
from sheaf.tune.execution.trial_records import pack, unpack


def made(path, records, snapshot=lambda: None):
    book = Journal(str(path), snapshot)
    for record in records:
        book.write(record)
    book.close()
    return path.read_bytes()


def test_a_cut_at_any_byte_leaves_the_records_before_it(tmp_path):
    records = [{"n": n, "text": "x" * n, "odd": "\n\u2028é"} for n in range(8)]
    data = made(tmp_path / "journal", records)
    ends = [len(b"".join(map(encode_line, records[:n]))) for n in range(9)]
    for cut in range(len(data) + 1):
        found, good = read_records(data[:cut])
        count = max(n for n in range(9) if ends[n] <= cut)
        assert found == records[:count] and good == ends[count]


def test_a_flipped_bit_takes_the_record_that_it_is_in(tmp_path):
    records = [{"n": n} for n in range(5)]
    data = made(tmp_path / "journal", records)
    draw = random.Random(1)
    for _ in range(300):
        at = draw.randrange(len(data))
        damaged = bytearray(data)
        damaged[at] ^= 1 << draw.randrange(8)
        found, good = read_records(bytes(damaged))
        hit = data[:at].count(b"\n")
        both = data[at : at + 1] == b"\n"  # The end of a record: the next has no beginning now.
        assert found == [one for one in records if one["n"] not in (hit, hit + both)]
        whole = records[4] in found
        assert good == len(data) if whole else good < len(data)


def test_writing_goes_on_behind_a_torn_end(tmp_path):
    path = tmp_path / "journal"
    made(path, [{"n": 1}])
    with open(path, "ab") as file:
        file.write(b'12345678 {"n": 2')
    assert read_records(made(path, [{"n": 3}]))[0] == [{"n": 1}, {"n": 3}]


def test_it_is_written_anew_when_it_has_grown(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_SMALLEST_TO_COMPACT", 1000)
    state = {}

    def records():
        for n in range(500):
            state[n % 5] = n
            yield {"last": n}

    data = made(tmp_path / "journal", records(), lambda: {"all": list(state.values())})
    found, good = read_records(data)
    assert good == len(data) < 3000 and "all" in found[0]
    assert found[-1] == {"last": 499} and not list(tmp_path.glob("*.tmp"))


def test_a_full_disk_leaves_whole_records(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    book = Journal(str(path), lambda: None)
    book.write({"n": 1})
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[: len(data) // 2]))
    with pytest.raises(OSError, match="the disk is full") as raised:
        book.write({"n": 2})
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert read_records(path.read_bytes())[0] == [{"n": 1}]
    book.close()


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x


@pytest.mark.parametrize(
    "value",
    [None, 1, 1.5, "a", [1, [2]], {"a": {"b": [1, None]}}, (1, 2), {1: 2}, {3, 4}, Point(5), True,
     {"__pickled__": "no"}, [Point(1), {"a": (1,)}], float("inf"), b"bytes"],
)  # fmt: skip
def test_values_come_back_as_they_were(value):
    import json

    back = unpack(json.loads(json.dumps(pack(value))))
    assert back == value and type(back) is type(value)


def test_a_journal_whose_owner_is_interrupted_before_it_has_it_is_closed(tmp_path):
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))

    class Interrupted(Journal):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(str(tmp_path / "journal"), lambda: None)
    wait_until(lambda: threading.active_count() == threads, "the thread goes on")
    assert len(os.listdir("/proc/self/fd")) == files

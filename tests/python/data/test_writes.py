# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a folder holds after writes that die, fail, or come twice: all of the old, or all of the
new, and nothing beside it."""

import os
import pathlib
import random
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import sheaf  # noqa: E402
from sheaf import data  # noqa: E402
from sheaf.data import errors  # noqa: E402
from sheaf.data.datasource import FilenameProvider, WriteResult, file_datasink, staging  # noqa: E402
from sheaf.data.datasource.sinks import ParquetDatasink  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402

CHANGES = ("create_dir", "move", "delete_file", "delete_dir", "open_output_stream")


class Gone(BaseException):
    """Of a driver that is dead: nothing that it does from now on happens."""


class Dying:
    """A file system that works for some changes, and then for none."""

    def __init__(self, inner, changes):
        self._inner, self.left = inner, changes

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name not in CHANGES:
            return found

        def change(*args, **kwargs):
            self.left -= 1
            if self.left < 0:
                raise Gone
            return found(*args, **kwargs)

        return change


def numbers(folder):
    """What a reader finds, one number per row."""
    files = pathlib.Path(folder).glob("*.parquet")
    return sorted(n for path in files for n in pq.read_table(path)["n"].to_pylist())


def hidden(folder):
    return [path.name for path in pathlib.Path(folder).iterdir() if path.name.startswith(".")]


def written(folder, tasks, mode="append", filesystem=None):
    sink = ParquetDatasink(str(folder), mode=mode)
    if filesystem is not None:
        sink.filesystem = filesystem
    sink.on_write_start()
    if sink.skips:
        return sink
    returns = [
        sink.write([pa.table({"n": rows})], TaskContext(number))
        for number, rows in enumerate(tasks)
    ]
    sink.on_write_complete(WriteResult(0, 0, returns))
    return sink


@pytest.fixture
def dead_pid():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_driver_that_dies_at_any_moment(tmp_path, monkeypatch, dead_pid, mode):
    old, new = [1, 2, 3], [10, 20, 30, 40]
    whole = sorted(new if mode == "overwrite" else old + new)
    outcomes = set()
    this_process = staging._this_process()
    for changes in range(100):
        folder = tmp_path / str(changes)
        written(folder, [[1, 2], [3]])
        monkeypatch.setattr(
            staging, "_this_process", lambda: (*this_process[:2], str(dead_pid), "1")
        )
        system = Dying(ParquetDatasink(str(folder)).filesystem, changes)
        died = False
        try:
            written(folder, [[10, 20], [30], [40]], mode, system)
        except Gone:
            died = True
        monkeypatch.undo()
        found = numbers(folder)
        if mode == "overwrite":  # The old are whole until the new are.
            assert set(old) <= set(found) or set(new) <= set(found)
        written(folder, [[100]])
        after = numbers(folder)
        assert after in (sorted([*old, 100]), sorted([*whole, 100])) and hidden(folder) == []
        outcomes.add(len(after))
        if not died:
            break
    else:
        pytest.fail("it never came to its end")
    assert changes > 10 and outcomes == {4, len(whole) + 1}


def test_a_sink_that_writes_twice_adds_twice_and_leaves_nothing_when_it_fails(tmp_path):
    sink = ParquetDatasink(str(tmp_path))
    for n in (1, 2):
        sink.on_write_start()
        made = sink.write([pa.table({"n": [n]})], TaskContext(0))
        sink.on_write_complete(WriteResult(0, 0, [made]))
    sink.on_write_start()
    sink.write([pa.table({"n": [3]})], TaskContext(0))
    sink.on_write_failed(OSError("no"))
    assert numbers(tmp_path) == [1, 2] and hidden(tmp_path) == []


def test_what_others_have_left_is_named(tmp_path, caplog, monkeypatch):
    sink = ParquetDatasink(str(tmp_path))
    sink.on_write_start()  # Of this process, which lives.
    elsewhere = ("elsewhere", *staging._this_process()[1:])
    monkeypatch.setattr(staging, "_this_process", lambda: elsewhere)
    other = ParquetDatasink(str(tmp_path))
    other.on_write_start()
    monkeypatch.undo()
    caplog.clear()
    written(tmp_path, [[1]])
    assert len(hidden(tmp_path)) == 2 and numbers(tmp_path) == [1]
    (said,) = [record.getMessage() for record in caplog.records]
    assert other.write_uuid in said and "elsewhere" in said
    sink.on_write_complete(WriteResult(0, 0, [sink.write([pa.table({"n": [3]})], TaskContext(0))]))
    assert numbers(tmp_path) == [1, 3]


def test_files_that_cannot_be_moved_or_deleted(tmp_path):
    class Failing(Dying):
        def __init__(self, inner, name, words):
            super().__init__(inner, 1 << 30)
            self.name, self.words = name, words

        def __getattr__(self, name):
            found = super().__getattr__(name)

            def change(*args):
                if name == self.name and any(self.words in str(one) for one in args[-1:]):
                    raise PermissionError(13, "not allowed")
                return found(*args)

            return change if name == self.name else found

    sink = written(tmp_path, [[1], [2]])
    inner = sink.filesystem
    for mode in ("append", "overwrite"):
        with pytest.raises(errors.WriteError, match="not allowed; nothing was written"):
            written(tmp_path, [[7], [8], [9]], mode, Failing(inner, "move", "_000001_"))
        assert numbers(tmp_path) == [1, 2] and hidden(tmp_path) == []
    with pytest.raises(errors.WriteError, match="was to be deleted, and all new files are there"):
        written(tmp_path, [[7]], "overwrite", Failing(inner, "delete_file", sink.write_uuid))
    assert numbers(tmp_path) == [1, 2, 7]


def test_a_task_that_was_given_up_and_goes_on_writing(tmp_path):
    sink = ParquetDatasink(str(tmp_path))
    sink.on_write_start()

    def blocks():  # The other try begins and ends while this one is in its file.
        yield pa.table({"n": [1]})
        returned.append(sink.write([pa.table({"n": [1]})], TaskContext(0)))
        yield pa.table({"n": [2]})

    returned = []
    sink.write(blocks(), TaskContext(0))
    sink.on_write_complete(WriteResult(0, 0, returned))
    assert numbers(tmp_path) == [1] and hidden(tmp_path) == []
    with pytest.raises(OSError):  # Much later: it does not make the folder anew.
        sink.write([pa.table({"n": [3]})], TaskContext(1))
    assert hidden(tmp_path) == []


def test_object_stores_keep_nothing_of_a_write_that_failed(monkeypatch):
    fsspec = pytest.importorskip("fsspec", reason="not installed: pip install fsspec")
    monkeypatch.setattr(file_datasink, "_WHOLE_WHEN_CLOSED", ("py::fsspec+memory",))
    memory = fsspec.filesystem("memory")
    memory.store.clear()

    def made(mode="append"):
        sink = ParquetDatasink("/store", filesystem=memory, mode=mode)
        sink.on_write_start()
        return sink, [sink.write([pa.table({"n": [n]})], TaskContext(n)) for n in range(3)]

    first, returns = made()
    first.on_write_complete(WriteResult(0, 0, returns))
    second, _ = made()
    second.on_write_failed(RuntimeError("of a task"))
    assert len(memory.find("/store")) == 3
    third, returns = made("overwrite")
    third.on_write_complete(WriteResult(0, 0, returns))
    assert all(third.write_uuid in name for name in memory.find("/store"))
    assert len(memory.find("/store")) == 3


@pytest.fixture(scope="module")
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=128 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def test_nothing_runs_where_nothing_is_to_be_written(cluster, tmp_path):
    rows, ran = data.range(10).map(lambda row: {"n": row["id"]}), tmp_path / "ran"
    out = str(tmp_path / "out")
    rows.write_parquet(out, mode="ignore")
    assert numbers(out) == list(range(10))
    rows.map(lambda row: [ran.touch(), row][1]).write_parquet(out, mode=data.SaveMode.IGNORE)
    with pytest.raises(ValueError, match="SaveMode.ERROR"):
        rows.map(lambda row: [ran.touch(), row][1]).write_parquet(out, mode="error")
    assert not ran.exists() and numbers(out) == list(range(10))


def test_a_worker_that_dies_in_a_write_leaves_each_file_once(cluster, tmp_path):
    mark, out = tmp_path / "died", tmp_path / "out"

    def dies_once(row):
        if row["id"] == 35 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return {"n": row["id"]}

    data.range(40, override_num_blocks=4).map(dies_once).write_parquet(str(out), mode="overwrite")
    assert mark.exists() and numbers(out) == list(range(40)) and hidden(out) == []
    with pytest.raises(errors.UserCodeError):
        data.range(40).map(lambda row: 1 / (row["id"] - 39)).write_parquet(str(out))
    assert numbers(out) == list(range(40)) and hidden(out) == []


FULL = """
import os, sys
import numpy as np
import sheaf
from sheaf import data, exceptions

out = sys.argv[1]
sheaf.init(num_cpus=2, object_store_memory=80 << 20, log_to_driver=False)
random = np.random.default_rng(1)
data.range(10).write_parquet(out)
old = os.listdir(out)
try:
    data.range(16).map_batches(lambda b:
        {"x": [random.bytes(1 << 20) for _ in b["id"]]}).write_parquet(out, mode="overwrite")
except exceptions.OutOfDiskError as error:
    print("No space left on device" in str(error))
print(os.listdir(out) == old)
"""


def test_a_disk_that_is_full_while_files_are_written(tmp_path):
    apart = ["unshare", "--mount", "--map-root-user"]
    allowed = subprocess.run(
        [*apart, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, text=True
    )
    if allowed.returncode != 0:
        pytest.skip(f"a mount namespace is not allowed here: {allowed.stderr.strip()}")
    script = (
        f"mount -t tmpfs -o size=8m none '{tmp_path}' && exec '{sys.executable}' -c \"$0\" \"$1\""
    )
    done = subprocess.run(
        [*apart, "sh", "-c", script, FULL, str(tmp_path / "out")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_files_have_so_many_rows_at_least(tmp_path, seed):
    rng = random.Random(seed)
    rows, least = rng.choice([2, 100, 333]), rng.choice([1, 7, 30, 60, 500])
    whole = data.range(rows, override_num_blocks=rng.choice([1, 4, 9]))
    for name, source in {
        "plain": whole,
        "filtered": whole.filter(lambda row: row["id"] % 3 > 0),
        "csv": whole,
    }.items():
        folder = str(tmp_path / name)
        if name == "csv":
            source.write_csv(folder + "0")
            source = data.read_csv(folder + "0")
        source.write_parquet(folder, min_rows_per_file=least)
        sizes = [pq.read_metadata(path).num_rows for path in sorted(pathlib.Path(folder).iterdir())]
        assert sum(size < least for size in sizes) <= 1, sizes  # What is left at the end.
        found = sorted(row["id"] for row in data.read_parquet(folder).take_all())
        assert found == sorted(row["id"] for row in source.take_all())


def test_a_join_with_a_small_side_is_written_whole(tmp_path):
    """Its tasks join their rows some at a time; all of them write their files once."""
    context = data.DataContext.get_current().copy()
    context.small_input_bytes, context.target_max_block_size = 0, 8 << 10
    with data.DataContext.current(context):
        large = data.range(20_000, override_num_blocks=2).map_batches(lambda b: {"n": b["id"]})
        small = data.from_arrow(pa.table({"n": range(0, 20_000, 4), "v": range(5000)}))
        large.join(small, "inner", 2, on=("n",)).write_parquet(str(tmp_path))
    assert numbers(tmp_path) == list(range(0, 20_000, 4))


def test_files_of_one_name_are_an_error_and_nothing_is_written(tmp_path):
    class Same(FilenameProvider):
        def get_filename_for_block(self, block, write_uuid, task_index, block_index):
            return "one.parquet"

    rows = data.range(100, override_num_blocks=4).map_batches(lambda b: {"n": b["id"]})
    with pytest.raises(errors.WriteError, match="one.parquet: 4 files would have this name"):
        rows.write_parquet(str(tmp_path), filename_provider=Same())
    assert not list(tmp_path.iterdir())
    rows.repartition(1).write_parquet(str(tmp_path), filename_provider=Same())
    assert numbers(tmp_path) == list(range(100))

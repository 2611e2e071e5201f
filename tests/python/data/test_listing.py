# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Read tasks are made when somebody needs them, and files are read while others are found."""

import pickle
import random
import threading
import time
from concurrent import futures

import pytest
import sheaf
from conftest import wait_until
from sheaf import data
from sheaf.data.datasource import FileBasedDatasource, filesystems, listing
from sheaf.data.datasource.datasource import ReadTask

fsspec = pytest.importorskip("fsspec", reason="not installed: pip install fsspec")
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def cluster():
    sheaf.init(num_cpus=2, log_to_driver=False)
    yield
    sheaf.shutdown()


class Slow(fsspec.AbstractFileSystem):
    """Folders "in/00" and so on of files that hold their own names; each request for a folder takes
    a while. `gate` holds back requests for folders behind the first, `broken` is one that fails."""

    protocol = "slow"
    cachable = False
    folders, files, pause_s = 50, 1000, 0.02
    gate = threading.Event()
    broken = None
    asked = []

    def __reduce__(self):
        return type(self), ()

    def _entry(self, path):
        parts = path.strip("/").split("/")
        is_file = len(parts) == 3
        return {"name": path.strip("/"), "size": 8 if is_file else 0} | {
            "type": "file" if is_file else "directory"
        }

    def info(self, path, **_):
        return self._entry(self._strip_protocol(path))

    def ls(self, path, detail=True, **_):
        path = self._strip_protocol(path).strip("/")
        time.sleep(self.pause_s)
        type(self).asked.append(path)
        if "/" not in path:
            names = [f"{path}/{number:02}" for number in range(self.folders)]
        else:
            if path != "in/00":
                assert self.gate.wait(60), "nobody opens the gate"
            if path == self.broken:
                raise PermissionError(13, "not yours", path)
            names = [f"{path}/{number:05}" for number in range(self.files)]
        entries = [self._entry(name) for name in names]
        return entries if detail else names

    def _open(self, path, mode="rb", **_):
        import io

        return io.BytesIO(self._strip_protocol(path).strip("/")[-8:].encode())


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(listing, "_PATIENCE_S", 0.0)
    Slow.gate.clear()
    Slow.asked.clear()
    Slow.broken = None
    yield Slow()
    Slow.gate.set()


def test_the_first_block_comes_before_all_files_are_listed(slow):
    """50,000 files in 50 folders, of which one has been listed."""
    rows = data.read_binary_files("in", filesystem=slow, include_paths=True)
    batches = iter(rows.iter_batches(batch_size=None, prefetch_batches=0))
    first = next(batches)
    assert first["path"][0] == "in/00/00000" and first["bytes"][0] == b"00/00000"
    assert "in/02" not in Slow.asked
    Slow.gate.set()
    count = len(first["path"]) + sum(len(batch["path"]) for batch in batches)
    assert count == Slow.folders * Slow.files
    asked = len(Slow.asked)
    assert len(rows.input_files()) == count
    assert len(Slow.asked) == asked, "they are listed again"


def test_files_come_in_the_order_of_names_and_once(slow):
    Slow.gate.set()
    slow.folders, slow.files = 5, 40
    paths = [
        row["path"]
        for row in data.read_binary_files("in", filesystem=slow, include_paths=True).take_all()
    ]
    assert paths == [f"in/{i:02}/{j:05}" for i in range(5) for j in range(40)]


def test_errors_of_later_folders_come_when_they_are_found(slow):
    Slow.broken = "in/03"
    rows = data.read_binary_files("in", filesystem=slow, include_paths=True)
    seen = []
    Slow.gate.set()
    with pytest.raises(PermissionError, match="not yours"):
        for batch in rows.iter_batches(batch_size=None):
            seen += list(batch["path"])
    assert all(path < "in/03" for path in seen)
    with pytest.raises(PermissionError):
        rows.input_files()
    wait_until(lambda: sheaf.available_resources().get("CPU") == 2, "tasks are left")


@pytest.mark.parametrize("exchange", ["random_shuffle", "sort", "groupby"])
def test_an_exchange_begins_before_all_files_are_listed(slow, exchange, tmp_path):
    slow.folders, slow.files = 3, 40

    def marked(batch):
        (tmp_path / batch["path"][0].replace("/", "-")).touch()
        return batch

    rows = data.read_binary_files("in", filesystem=slow, include_paths=True).map_batches(marked)
    behind = {
        "random_shuffle": lambda: rows.random_shuffle(),
        "sort": lambda: rows.sort("path"),
        "groupby": lambda: rows.groupby("path").count(),
    }[exchange]()
    with futures.ThreadPoolExecutor(1) as pool:
        made = pool.submit(behind.materialize)
        try:
            wait_until((tmp_path / "in-00-00000").exists, "no file is read before all are found")
            assert "in/02" not in Slow.asked
        finally:
            Slow.gate.set()
        assert len({row["path"] for row in made.result(60).take_all()}) == 120


def test_who_has_enough_ends_the_listing(slow):
    rows = data.read_binary_files("in", filesystem=slow, include_paths=True)
    assert len(rows.map(lambda row: row).take(3)) == 3
    Slow.gate.set()
    wait_until(
        lambda: not any(thread.name == "sheaf-listing" for thread in threading.enumerate()),
        "the thread that lists goes on",
    )
    assert len(Slow.asked) < 10


def test_a_plan_that_is_sent_has_all_files(slow):
    slow.folders, slow.files = 3, 5
    Slow.gate.set()
    source = data.read_text("in", filesystem=slow)._plan.datasource
    assert not source._listing.is_complete()
    sent = pickle.loads(pickle.dumps(source))
    assert sent._listing.is_complete() and sent.input_files() == source.input_files()


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_in_the_order_of_a_whole_listing(seed, tmp_path):
    """With names around "/", hidden ones, empty folders, and files beside folders."""
    draw = random.Random(seed)
    memory = fsspec.filesystem("memory")
    base = f"/listing-{seed}"
    for _ in range(40):
        names = draw.choices(
            ["a", "a-", "a.", "a0", "b", "_c", "_k=1", ".d", "e"], k=draw.randrange(1, 4)
        )
        memory.pipe(
            "/".join([base, *(f"{name}{draw.choice('xy')}" for name in names), "f.txt"]), b"1"
        )
    system, (path,) = filesystems.resolve(base, memory)
    whole = list(filesystems.list_files(system, [path]))
    parts = [info for part in listing.folder_parts(system, [path], False) for info in part]
    assert parts == whole and len(whole) > 5
    memory.rm(base, recursive=True)


@pytest.fixture
def made(monkeypatch):
    """Counts read tasks that are made."""
    count, init = [], ReadTask.__init__

    def counted(self, *args, **kwargs):
        count.append(1)
        init(self, *args, **kwargs)

    monkeypatch.setattr(ReadTask, "__init__", counted)
    return count


def test_a_limit_behind_a_function_makes_few_of_many_read_tasks(made, tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:04}.txt").write_text(f"{number}\n")
    numbers = data.range(20_000, override_num_blocks=20_000).map(lambda row: row)
    assert [row["id"] for row in numbers.limit(5).take_all()] == list(range(5))
    assert 5 <= len(made) < 200, len(made)
    made.clear()
    texts = data.read_text(str(tmp_path), override_num_blocks=2000).map(lambda row: row)
    assert [row["text"] for row in texts.take(5)] == list("01234")
    assert 5 <= len(made) < 200, len(made)
    made.clear()
    assert numbers.filter(lambda row: row["id"] == 19_000).take(1) == [{"id": 19_000}]
    assert numbers.count() == 20_000


def test_a_reader_of_a_user_is_asked_for_its_own_tasks(tmp_path):
    class Reversed(FileBasedDatasource):
        def _read_stream(self, f, path):
            yield {"text": [f.read().decode()]}

        def get_read_tasks(self, *args, **kwargs):
            return super().get_read_tasks(*args, **kwargs)[::-1]

    for name in "abc":
        (tmp_path / name).write_text(name)
    source = Reversed(str(tmp_path))
    rows = data.read_datasource(source, override_num_blocks=3).take_all()
    assert [row["text"] for row in rows] == ["c", "b", "a"]

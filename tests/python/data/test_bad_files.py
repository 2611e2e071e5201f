# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files that are damaged, of several types, not there or not readable: datasets of them end with an
error that names the file, and no task of theirs goes on."""

import gzip
import pickle
import time

import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import sheaf  # noqa: E402
from sheaf import data  # noqa: E402
from sheaf.data import errors  # noqa: E402
from sheaf.data.datasource import filesystems  # noqa: E402
from sheaf.data.datasource.delimited import CSVDatasource  # noqa: E402
from sheaf.data.expressions import col  # noqa: E402

CPUS, WAIT_S = 2, 30
ZIPPED = gzip.compress(b"x\n" + b"".join(b"%d\n" % n for n in range(100_000)))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=CPUS, object_store_memory=128 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture(autouse=True)
def nothing_runs():
    """After each test no task of it runs."""
    yield
    until = time.monotonic() + WAIT_S
    while sheaf.available_resources().get("CPU", 0) < CPUS:
        assert time.monotonic() < until, "tasks go on"
        time.sleep(0.02)


def folder(tmp_path, **files):
    """A folder with files; "_" in a name is a point."""
    for name, content in files.items():
        path = tmp_path / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(tmp_path)


@pytest.mark.parametrize(
    "reader, name, content, said",
    [
        ("csv", "a.csv", "x,y\n1,2\n1\n", "a.csv, line 3: .*Expected 2 columns, got 1"),
        ("csv", "a.csv", "", "a.csv: the file is empty"),
        ("csv", "a.csv", b"x\n\xff\xfe\n", "a.csv: not UTF-8"),
        ("csv", "a.csv.gz", ZIPPED[:-100], "a.csv.gz: .*Truncated compressed stream"),
        ("csv", "a.csv.gz", b"none", "a.csv.gz: .*incorrect header"),
        ("text", "a.txt.gz", ZIPPED[:-100], "a.txt.gz: .*Truncated compressed stream"),
        ("text", "a.txt", b"\xff", "a.txt: not utf-8"),
        ("json", "a.json", '{"x": 1}\n{"x"\n', "a.json, line 2: not JSON"),
        ("json", "a.json.gz", ZIPPED[:-100], "a.json.gz: .*Truncated compressed stream"),
        ("numpy", "a.npy", "", "a.npy: not a file of numpy.save"),
        ("images", "a.png", "none", "a.png: not an image"),
        ("tfrecords", "a.tfrecords", "n" * 20, "a.tfrecords: record 1: not a TFRecord"),
        ("webdataset", "a.tar", "n" * 20, "a.tar: not a whole tar archive"),
        ("parquet", "a.parquet", "", "a.parquet: not a whole Parquet file"),
        ("parquet", "a.parquet", "PAR1" * 9, "a.parquet: not a whole Parquet file"),
    ],
)
def test_damage(tmp_path, reader, name, content, said):
    if reader == "images":
        pytest.importorskip("PIL", reason="not installed: pip install pillow")
    path = folder(tmp_path, **{name: content})
    with pytest.raises(errors.FileFormatError, match=said):
        getattr(data, f"read_{reader}")(path).map(lambda row: row).take_all()


@pytest.mark.parametrize(
    "consume",
    [
        lambda rows: rows.to_pandas(),
        lambda rows: list(rows.iter_batches(batch_size=100)),
        lambda rows: rows.sort("x").take_all(),
        lambda rows: rows.groupby("x").count().take_all(),
        lambda rows: rows.random_shuffle().materialize(),
        lambda rows: rows.materialize(),
    ],
)
def test_types_of_files_that_do_not_go_together(tmp_path, consume):
    path = folder(tmp_path, a_csv="x\n1\n", b_csv="x\nword\n")
    with pytest.raises(
        errors.SchemaMismatchError, match=r"column 'x' is int64 in .*a\.csv and string in .*b\.csv"
    ):
        consume(data.read_csv(path))
    # What makes them one type is no error.
    texts = data.read_csv(path).map_batches(lambda b: {"x": b["x"].astype(str)})
    assert sorted(texts.to_pandas()["x"]) == ["1", "word"]


def test_types_that_go_together(tmp_path):
    path = folder(tmp_path, a_json='{"x": 1}\n', b_json='{"x": 1.5, "y": "b"}\n')
    assert sorted(data.read_json(path).to_pandas()["x"]) == [1.0, 1.5]
    assert data.read_json(path).sort("x").take_all() == [
        {"x": 1.0, "y": None},
        {"x": 1.5, "y": "b"},
    ]
    out = str(tmp_path / "out")
    data.read_json(path).write_parquet(out)
    written = data.read_parquet(out).materialize()
    assert written.count() == 2 and not written.schema().base_schema.metadata


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_that_vanishes(tmp_path, kind, ignore):
    for name in "ab":
        if kind == "csv":
            (tmp_path / f"{name}.csv").write_text("x\n1\n")
        else:
            pq.write_table(pa.table({"x": [1]}), tmp_path / f"{name}.parquet")
    rows = getattr(data, f"read_{kind}")(str(tmp_path), ignore_missing_paths=ignore)
    (tmp_path / f"b.{kind}").unlink()
    rows = rows.map(lambda row: row)
    if ignore:
        assert rows.take_all() == [{"x": 1}]
    else:
        with pytest.raises(FileNotFoundError, match=rf"b\.{kind}"):
            rows.take_all()


def test_files_without_rows_or_columns(tmp_path):
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    rows = data.read_parquet(str(tmp_path))
    assert rows.count() == 0 and rows.take_all() == []
    for empty in (rows, rows.filter(col("x") > 1), rows.sort("x"), rows.random_shuffle()):
        assert empty.to_pandas().columns.tolist() == ["x"] and empty.schema().names == ["x"]
    pq.write_table(pa.table({}), tmp_path / "columns.parquet")
    nothing = data.read_parquet(str(tmp_path / "columns.parquet"))
    assert nothing.count() == 0 and nothing.take_all() == []


def test_columns_that_are_not_there(tmp_path):
    path = folder(tmp_path, a_csv="price,kind\n1,a\n")
    wanted = "no column 'prise'; did you mean 'price'"
    for wrong in (
        lambda rows: rows.select_columns(["prise"]).take_all(),
        lambda rows: rows.drop_columns(["prise"]).take_all(),
        lambda rows: rows.filter(col("prise") > 1).take_all(),
        lambda rows: rows.with_column("x", col("prise") + 1).take_all(),
        lambda rows: rows.sort("prise").take_all(),
        lambda rows: rows.groupby("prise").count().take_all(),
    ):
        with pytest.raises(errors.ColumnNotFoundError, match=wanted):
            wrong(data.read_csv(path))


def test_paths_that_may_not_be_read(tmp_path):
    pytest.importorskip("fsspec", reason="not installed: pip install fsspec")
    from fsspec.implementations.local import LocalFileSystem

    class Locked(LocalFileSystem):
        cachable = False

        def _open(self, path, *args, **kwargs):
            raise PermissionError(13, "Permission denied", path)

    path = folder(tmp_path, a_csv="x\n1\n")
    with pytest.raises(PermissionError, match=r"a\.csv"):
        (task,) = CSVDatasource(path, filesystem=Locked()).get_read_tasks(1)
        list(task())
    (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match="no files to read"):
        data.read_csv(str(tmp_path / "x"))


@pytest.mark.parametrize(
    "error, damage",
    [
        (OSError("Truncated compressed stream"), True),
        (OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"), True),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during GetObject: invalid answer"), False),
        (OSError(5, "Input/output error: page"), False),
        (ConnectionResetError("invalid"), False),
        (TimeoutError("decoding"), False),
    ],
)
def test_damage_and_what_may_pass_are_told_apart(error, damage):
    assert filesystems.is_damage(error) is damage
    assert filesystems.is_damage(pickle.loads(pickle.dumps(error))) is damage
    tries = []

    def fails():
        tries.append(1)
        raise error

    with pytest.raises(OSError):
        filesystems.retried(fails, "x", lambda _: None)
    assert len(tries) == (1 if damage else 10 if "AWS Error" in str(error) else 4)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files are read and written: formats, partitions, what is damaged or missing, and what a write
leaves behind."""

import gzip
import json
import os
import pathlib
import pickle

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from sheaf import cloudpickle  # noqa: E402
from sheaf.data import block, errors  # noqa: E402
from sheaf.data.datasource import (  # noqa: E402
    BlockBasedFileDatasink,
    FileBasedDatasource,
    FileShuffleConfig,
    Partitioning,
    PathPartitionFilter,
    ReadTask,
    RowBasedFileDatasink,
    SaveMode,
    WriteResult,
    filesystems,
)
from sheaf.data.datasource.datasource import balanced  # noqa: E402
from sheaf.data.datasource.delimited import CSVDatasource, JSONDatasource, TextDatasource  # noqa: E402
from sheaf.data.datasource.in_memory import BlocksDatasource, RangeDatasource, items_to_tables  # noqa: E402
from sheaf.data.datasource.parquet import ParquetDatasource  # noqa: E402
from sheaf.data.datasource.sinks import (  # noqa: E402
    CSVDatasink,
    ImageDatasink,
    JSONDatasink,
    NumpyDatasink,
    ParquetDatasink,
)
from sheaf.data.datasource.whole_files import BinaryDatasource, ImageDatasource, NumpyDatasource  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402


def tables(source, parallelism=3):
    """What copies of all read tasks give, task by task."""
    tasks = pickle.loads(cloudpickle.dumps(source.get_read_tasks(parallelism)))
    return [block.concat(list(task())) for task in tasks]


def rows(source, parallelism=3):
    return [row for table in tables(source, parallelism) for row in block.table_to_rows(table)]


def write(sink, *tasks):
    """A whole write: each of the tasks writes its tables by a copy of the sink."""
    sink.on_write_start()
    if sink.skips:
        return
    returns = []
    for number, written in enumerate(tasks):
        copy = pickle.loads(cloudpickle.dumps(sink))
        returns.append(copy.write(iter(written), TaskContext(number)))
    sink.on_write_complete(WriteResult(0, 0, returns))


def below(folder):
    return sorted(
        str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file()
    )


def table_of(count, start=0):
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "s": [f"row {n}" for n in range(start, start + count)],
        }
    )


def test_a_range():
    source = RangeDatasource(10)
    assert rows(source) == [{"id": n} for n in range(10)]
    assert (source.num_rows(), source.estimate_inmemory_data_size(), source.schema().names) == (
        10,
        80,
        ["id"],
    )
    assert [task.metadata.num_rows for task in source.get_read_tasks(4)] == [2, 3, 2, 3]
    assert rows(RangeDatasource(0)) == [] and len(RangeDatasource(3).get_read_tasks(100)) == 3
    tensors = rows(RangeDatasource(2, "tensor", (2, 2)))
    assert [row["data"].tolist() for row in tensors] == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]
    for wrong in (-1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="want a whole number"):
            RangeDatasource(wrong)


def test_what_is_in_memory():
    source = BlocksDatasource(items_to_tables([{"a": n} for n in range(10)], 4))
    assert rows(source, 2) == [{"a": n} for n in range(10)] and len(source.get_read_tasks(2)) == 2
    assert items_to_tables([], 4)[0].num_rows == 0


def test_a_task_gives_no_more_rows_than_its_limit():
    (task,) = RangeDatasource(100).get_read_tasks(1, per_task_row_limit=7)
    assert sum(table.num_rows for table in task()) == 7


def test_a_read_task_that_gives_no_blocks():
    with pytest.raises(errors.BatchError, match="want an iterable of blocks"):
        list(ReadTask(lambda: None, block.BlockMetadata())())


@pytest.mark.parametrize(
    "sizes, groups",
    [([1] * 10, 3), ([100, 1, 1, 1], 2), ([1, 1, 1, 100], 2), ([5], 4), ([0, 0, 0], 2), ([], 3)],
)
def test_files_are_spread_by_their_sizes(sizes, groups):
    parts = balanced(sizes, groups)
    assert [n for part in parts for n in part] == list(range(len(sizes))) and all(
        len(part) for part in parts
    )
    assert len(parts) == min(groups, len(sizes))
    if 100 in sizes:
        assert max(sum(sizes[n] for n in part) for part in parts) <= 102


def test_parquet_there_and_back(tmp_path):
    write(ParquetDatasink(str(tmp_path)), [table_of(5)], [table_of(5, 5)], [])
    assert len(below(tmp_path)) == 2 and not list(tmp_path.glob(".*"))
    source = ParquetDatasource(str(tmp_path))
    assert rows(source) == list(block.table_to_rows(table_of(10)))
    assert source.num_rows() == 10 and source.schema() == table_of(1).schema
    assert len(source.input_files()) == 2


class Thing:
    pass


def test_parquet_keeps_tensors_and_never_unpickles(tmp_path):
    table = block.rows_to_table(
        [{"t": np.full((2, 2), n), "v": np.ones(n), "o": Thing()} for n in (1, 2)]
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetDatasource(str(tmp_path))
    back = rows(source)
    assert back[1]["t"].tolist() == [[2, 2], [2, 2]] and back[1]["v"].tolist() == [1, 1]
    assert isinstance(back[0]["o"], bytes) and source.schema().field("o").type == pa.large_binary()


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([Thing(), Thing()], "column 'x' holds objects of Python, .*: leave it out by drop_col"),
        (np.zeros((2, 3, 0)), r"column 'x' holds tensors of shape \(3, 0\).*drop_columns"),
        (pa.array([[], []], pa.list_(pa.int64(), 0)), "the fixed size 0: cast it to list<"),
        (
            pa.array([{"a": []}] * 2, pa.struct({"a": pa.list_(pa.int8(), 0)})),
            "column 'x' .*fixed size 0",
        ),
    ],
)
def test_what_nobody_could_read_is_not_written_to_parquet(tmp_path, column, said):
    table = block.batch_to_table({"x": column})
    with pytest.raises(errors.BatchError, match=said):
        write(ParquetDatasink(str(tmp_path)), [table])


def test_parquet_tasks_are_ranges_of_row_groups(tmp_path):
    pq.write_table(table_of(1000), tmp_path / "a.parquet", row_group_size=100)
    source = ParquetDatasource(str(tmp_path))
    tasks = source.get_read_tasks(5)
    assert [task.metadata.num_rows for task in tasks] == [200] * 5
    assert [next(task())["id"][0].as_py() for task in tasks] == [0, 200, 400, 600, 800]
    assert len(source.get_read_tasks(100)) == 10


def test_parquet_reads_the_columns_that_are_asked_for(tmp_path):
    wide = pa.table({f"c{n}": np.arange(100) for n in range(50)})
    pq.write_table(wide, tmp_path / "a.parquet")
    source = ParquetDatasource(str(tmp_path))
    narrow = source.with_projection(["c7", "c3"])
    assert tables(narrow)[0].column_names == ["c7", "c3"] == narrow.schema().names
    assert narrow.estimate_inmemory_data_size() * 20 < source.estimate_inmemory_data_size()
    assert ParquetDatasource(str(tmp_path), columns=["c1"]).schema().names == ["c1"]
    with pytest.raises(
        errors.ColumnNotFoundError, match="read_parquet: no column 'c77'; did you mean 'c7'"
    ):
        ParquetDatasource(str(tmp_path), columns=["c77"])
    assert tables(source.with_projection([]))[0].num_rows == 100


def test_parquet_of_several_schemas(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [1.5], "c": [True]}), tmp_path / "2.parquet")
    assert rows(ParquetDatasource(str(tmp_path))) == [
        {"a": 1.0, "b": "x", "c": None},
        {"a": 1.5, "b": None, "c": True},
    ]
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "3.parquet")
    with pytest.raises(
        errors.SchemaMismatchError, match=r"'a' is double in .*2.parquet and string in .*3.parquet"
    ):
        ParquetDatasource(str(tmp_path))


def test_parquet_partitions(tmp_path):
    table = pa.table({"year": [2025, 2026, 2026], "kind": ["a b", None, "c/d"], "x": [1, 2, 3]})
    write(ParquetDatasink(str(tmp_path), partition_cols=["year", "kind"]), [table])
    assert [path.rpartition("/")[0] for path in below(tmp_path)] == [
        "year=2025/kind=a b",
        "year=2026/kind=__HIVE_DEFAULT_PARTITION__",
        "year=2026/kind=c%2Fd",
    ]
    back = sorted(rows(ParquetDatasource(str(tmp_path))), key=lambda row: row["x"])
    assert [(row["x"], row["year"], row["kind"]) for row in back] == [
        (1, 2025, "a b"),
        (2, 2026, None),
        (3, 2026, "c/d"),
    ]
    chosen = PathPartitionFilter.of(lambda values: values["year"] == "2025")
    assert len(rows(ParquetDatasource(str(tmp_path), partition_filter=chosen))) == 1
    with pytest.raises(errors.ColumnNotFoundError, match="partition_cols: no column 'yaer'"):
        write(ParquetDatasink(str(tmp_path), partition_cols=["yaer"]), [table])


def test_rows_of_equal_keys_go_to_one_partition(tmp_path):
    """In whichever dictionary they lie, and whatever sign a zero has."""
    table = pa.table(
        {
            "kind": pa.chunked_array(
                [
                    pa.array(["a", "b", "a", None]).dictionary_encode(),
                    pa.array(["b", "c", "b"]).dictionary_encode(),
                ]
            ),
            "level": [0.0, 1.5, -0.0, float("nan"), 1.5, None, 2.0],
            "x": range(7),
        }
    )
    write(ParquetDatasink(str(tmp_path), partition_cols=["kind", "level"]), [table])
    found = {
        path.rpartition("/")[0]: pq.read_table(tmp_path / path, partitioning=None)["x"].to_pylist()
        for path in below(tmp_path)
    }
    assert found == {
        "kind=a/level=0.0": [0, 2],
        "kind=b/level=1.5": [1, 4],
        "kind=b/level=2.0": [6],
        "kind=c/level=__HIVE_DEFAULT_PARTITION__": [5],
        "kind=__HIVE_DEFAULT_PARTITION__/level=nan": [3],
    }


def test_damaged_parquet_is_named(tmp_path):
    good = tmp_path / "good.parquet"
    pq.write_table(table_of(10_000), good)
    data = good.read_bytes()
    for name, bad in (("cut", data[:-20]), ("none", b""), ("text", b"hello" * 10)):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(bad)
        with pytest.raises(
            errors.FileFormatError, match=f"{name}.parquet: not a whole Parquet file"
        ):
            ParquetDatasource(str(path))
    inside = tmp_path / "inside.parquet"
    inside.write_bytes(data[:4] + os.urandom(2000) + data[2004:])
    with pytest.raises(errors.FileFormatError, match="inside.parquet: damaged Parquet file"):
        tables(ParquetDatasource(str(inside)))


def test_csv_there_and_back(tmp_path):
    write(CSVDatasink(str(tmp_path)), [table_of(5), table_of(5, 5)])
    assert len(below(tmp_path)) == 2
    assert rows(CSVDatasource(str(tmp_path))) == list(block.table_to_rows(table_of(10)))
    with pytest.raises(errors.BatchError, match="column 'l' is list.*CSV cannot hold"):
        write(CSVDatasink(str(tmp_path)), [pa.table({"l": [[1]]})])


@pytest.mark.parametrize(
    "data, said",
    [
        (b"a,b\n1,2\n1,2,3\n", r"bad.csv, line 3: .*Expected 2 columns, got 3"),
        (b"", "bad.csv: the file is empty"),
        (b"a\n\xff\xfe\n", "bad.csv: not UTF-8"),
    ],
)
def test_bad_csv_names_file_and_line(tmp_path, data, said):
    (tmp_path / "bad.csv").write_bytes(data)
    with pytest.raises(errors.FileFormatError, match=said) as caught:
        rows(CSVDatasource(str(tmp_path)))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_csv_without_rows_keeps_its_schema(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n")
    (table,) = tables(CSVDatasource(str(tmp_path)))
    assert table.column_names == ["a", "b"] and table.num_rows == 0


def test_json_there_and_back(tmp_path):
    table = pa.table({"a": [1, 2], "n": [{"x": [1.5]}, {"x": []}], "s": ["\u00e4", None]})
    write(JSONDatasink(str(tmp_path)), [table])
    assert rows(JSONDatasource(str(tmp_path))) == table.to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '[{"a": 1}, {"a": 2}]',
        '\n{"a": 1}\n\n{"a": 2}',
        '[\n{"a": 1},\n{"a": 2}\n]',
    ],
)
def test_forms_of_json(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    assert rows(JSONDatasource(str(tmp_path))) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_json_end_at_newlines_alone(tmp_path, end):
    """Also where Arrow does not read them, as values are of several kinds."""
    made = [{"x": "a\u2028b\u2029c\x85d", "y": [1]}, {"x": "", "y": {"z": 1}}]
    lines = (json.dumps(row, ensure_ascii=False) + end for row in made)
    (tmp_path / "a.json").write_bytes("".join(lines).encode())
    assert rows(JSONDatasource(str(tmp_path))) == made


def test_bad_json_names_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": }\n')
    with pytest.raises(errors.FileFormatError, match="a.jsonl, line 2: not JSON"):
        rows(JSONDatasource(str(path)))
    path.write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(errors.FileFormatError, match="a.jsonl: "):
        rows(JSONDatasource(str(path)))
    path.write_text("")
    assert rows(JSONDatasource(str(path))) == []
    path.write_text('{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(
        errors.SchemaMismatchError, match="column 'a' is int in row 0 and str in row 1"
    ):
        rows(JSONDatasource(str(path)))


def test_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\r\n\ntw\u00f6".encode())
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write(b"three\n")
    assert [row["text"] for row in rows(TextDatasource(str(tmp_path)))] == [
        "one",
        "",
        "tw\u00f6",
        "three",
    ]
    assert len(rows(TextDatasource(str(tmp_path), drop_empty_lines=True))) == 3
    (tmp_path / "c.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(errors.FileFormatError, match="c.txt: not utf-8"):
        rows(TextDatasource(str(tmp_path)))
    assert rows(TextDatasource(str(tmp_path / "c.txt"), encoding="latin-1"))[1] == {
        "text": "\u00ff"
    }


def test_bytes_images_and_arrays(tmp_path):
    pytest.importorskip("PIL", reason="not installed: pip install pillow")
    images = block.batch_to_table(
        {"image": np.arange(2 * 8 * 6 * 3, dtype=np.uint8).reshape(2, 8, 6, 3)}
    )
    write(ImageDatasink(str(tmp_path / "i"), "image"), [images])
    assert len(below(tmp_path / "i")) == 2
    assert all(
        (a["image"] == b["image"]).all()
        for a, b in zip(rows(ImageDatasource(str(tmp_path / "i"))), block.table_to_rows(images))
    )
    assert rows(ImageDatasource(str(tmp_path / "i"), size=(4, 2), mode="L"))[0]["image"].shape == (
        4,
        2,
    )
    assert rows(BinaryDatasource(str(tmp_path / "i")))[0]["bytes"].startswith(b"\x89PNG")
    write(NumpyDatasink(str(tmp_path / "n"), "image"), [images])
    assert [row["data"].shape for row in rows(NumpyDatasource(str(tmp_path / "n")))] == [
        (8, 6, 3)
    ] * 2
    (tmp_path / "i" / "x.png").write_bytes(b"none")
    (tmp_path / "n" / "x.npy").write_bytes(b"none")
    for source in (ImageDatasource(str(tmp_path / "i")), NumpyDatasource(str(tmp_path / "n"))):
        with pytest.raises(errors.FileFormatError, match=r"x\.(png|npy): not a"):
            rows(source)


def test_paths_become_columns(tmp_path):
    for year in (2025, 2026):
        (tmp_path / f"y={year}").mkdir()
        (tmp_path / f"y={year}" / "a.csv").write_text("x\n1\n")
    found = rows(
        CSVDatasource(
            str(tmp_path),
            partitioning=Partitioning("hive", field_types={"y": int}),
            include_paths=True,
        )
    )
    assert [(row["x"], row["y"], row["path"][-12:]) for row in found] == [
        (1, 2025, "y=2025/a.csv"),
        (1, 2026, "y=2026/a.csv"),
    ]
    by_place = Partitioning("dir", base_dir=str(tmp_path), field_names=["folder"])
    assert [row["folder"] for row in rows(CSVDatasource(str(tmp_path), partitioning=by_place))] == [
        "y=2025",
        "y=2026",
    ]
    with pytest.raises(ValueError, match="field_names"):
        Partitioning("dir")
    with pytest.raises(ValueError, match="levels of folders"):
        rows(CSVDatasource(str(tmp_path), partitioning=Partitioning("dir", field_names=["folder"])))


def test_paths_that_hold_nothing(tmp_path):
    pytest.importorskip("PIL", reason="not installed: pip install pillow")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        CSVDatasource(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="no files to read"):
        CSVDatasource(str(tmp_path))
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match=r"none of 1 files ends in \.png"):
        ImageDatasource(str(tmp_path))
    with pytest.raises(TypeError, match="path 3 of type int"):
        CSVDatasource([3])
    with pytest.raises(ValueError, match="no paths"):
        CSVDatasource([])
    assert rows(CSVDatasource([str(tmp_path / "absent")], ignore_missing_paths=True)) == []


def test_a_file_that_vanishes_between_listing_and_reading(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    for ignore in (False, True):
        (tmp_path / "a.txt").write_text("a")
        source = TextDatasource(str(tmp_path), ignore_missing_paths=ignore)
        (tmp_path / "a.txt").unlink()
        if ignore:
            assert rows(source) == [{"text": "b"}]
        else:
            with pytest.raises(FileNotFoundError, match="a.txt"):
                rows(source)


def test_files_in_random_order(tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_text(str(number))
    orders = [
        [
            row["text"]
            for row in rows(TextDatasource(str(tmp_path), shuffle=FileShuffleConfig(seed)), 1)
        ]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2] and sorted(map(int, orders[0])) == list(range(20))
    with pytest.raises(ValueError, match="shuffle='file'"):
        TextDatasource(str(tmp_path), shuffle="file")


def test_other_file_systems(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="not installed: pip install fsspec")
    from pyarrow import fs

    memory = fsspec.filesystem("memory")
    sink = ParquetDatasink("/there", filesystem=memory)
    write(sink, [table_of(3)])
    assert (
        len(rows(ParquetDatasource("memory://there")))
        == 3
        == len(rows(ParquetDatasource("/there", filesystem=memory)))
    )
    (tmp_path / "a.txt").write_text("a")
    for path, system in (
        (f"file://{tmp_path}", None),
        (str(tmp_path), fs.LocalFileSystem()),
        (tmp_path, None),
    ):
        assert rows(TextDatasource(path, filesystem=system)) == [{"text": "a"}]


def test_what_may_pass_is_tried_again():
    pauses, calls = [], []

    def fails(times, error):
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    assert (
        filesystems.retried(lambda: fails(3, OSError(5, "I/O error")), "x", pauses.append) == "done"
    )
    assert pauses == [0.1, 0.2, 0.4]
    for times, error, made in (
        (9, OSError(5, "I/O error"), 4),
        (9, FileNotFoundError(2, "none"), 1),
        (9, OSError(28, "full"), 1),
    ):
        calls.clear()
        with pytest.raises(OSError):
            filesystems.retried(lambda: fails(times, error), "x", pauses.append)
        assert len(calls) == made
    broken = iter([True, False])

    def items():
        for number in range(4):
            if number == 2 and next(broken):
                raise OSError(5, "I/O error")
            yield number

    assert list(filesystems.stream_retried(items, "x", pauses.append)) == [0, 1, 2, 3]


def test_modes_of_saving(tmp_path):
    def saved(mode, count):
        write(ParquetDatasink(str(tmp_path), mode=mode), [table_of(count)])
        return len(rows(ParquetDatasource(str(tmp_path))))

    assert [
        saved(SaveMode.APPEND, 1),
        saved("append", 2),
        saved("ignore", 9),
        saved(SaveMode.OVERWRITE, 5),
    ] == [1, 3, 3, 5]
    assert len(below(tmp_path)) == 1
    with pytest.raises(ValueError, match="holds 1 files, and mode is SaveMode.ERROR"):
        saved(SaveMode.ERROR, 1)
    with pytest.raises(ValueError, match="'apend' is not a valid SaveMode"):
        ParquetDatasink(str(tmp_path), mode="apend")


def test_a_task_that_is_run_again_leaves_its_files_once(tmp_path):
    sink = ParquetDatasink(str(tmp_path))
    sink.on_write_start()
    sink.write([table_of(3)], TaskContext(0))
    again = sink.write([table_of(3)], TaskContext(0))
    assert below(tmp_path) and not list(tmp_path.glob("*.parquet"))
    sink.on_write_complete(WriteResult(3, 0, [again]))
    assert len(rows(ParquetDatasource(str(tmp_path)))) == 3 and len(below(tmp_path)) == 1


def test_a_write_that_fails_leaves_nothing(tmp_path):
    sink = ParquetDatasink(str(tmp_path / "out"))
    sink.on_write_start()
    sink.write([table_of(3)], TaskContext(0))
    sink.on_write_failed(RuntimeError("of a task"))
    assert below(tmp_path) == []


def test_a_full_disk_is_named(tmp_path):
    from sheaf.exceptions import OutOfDiskError

    class Full(BlockBasedFileDatasink):
        def write_block_to_file(self, block, file):
            raise OSError(28, "No space left on device")

    sink = Full(str(tmp_path))
    with pytest.raises(OutOfDiskError, match="No space left"):
        write(sink, [table_of(1)])
    sink.on_write_failed(RuntimeError())
    assert below(tmp_path) == []


def test_rows_per_file(tmp_path):
    write(ParquetDatasink(str(tmp_path), max_rows_per_file=4), [table_of(10)])
    assert sorted(pq.read_metadata(tmp_path / name).num_rows for name in below(tmp_path)) == [
        2,
        4,
        4,
    ]
    assert ParquetDatasink(str(tmp_path), min_rows_per_file=7).min_rows_per_write == 7
    for arguments in ({"min_rows_per_file": 0}, {"min_rows_per_file": 5, "max_rows_per_file": 4}):
        with pytest.raises(ValueError, match="_rows_per_file"):
            ParquetDatasink(str(tmp_path), **arguments)


def test_formats_of_users(tmp_path):
    class Lines(FileBasedDatasource):
        _FILE_EXTENSIONS = "mine"

        def _read_stream(self, f, path):
            yield from ({"line": [line]} for line in f.read().decode().split())

    class OneJson(RowBasedFileDatasink):
        def write_row_to_file(self, row, file):
            file.write(json.dumps(row).encode())

    (tmp_path / "a.mine").write_text("x y")
    (tmp_path / "a.other").write_text("z")
    assert rows(Lines(str(tmp_path))) == [{"line": "x"}, {"line": "y"}]
    write(OneJson(str(tmp_path / "out"), file_format="json"), [table_of(2)])
    assert sorted(
        json.loads((tmp_path / "out" / name).read_text())["id"] for name in below(tmp_path / "out")
    ) == [0, 1]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files of ray.data: what is written and read, by whole folders and by parts of them."""

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import blocks, data, fails, folder, kinds_of, plain, rows, written
from program import main, program, say

people = {"name": ["Ann", "Bob", None], "age": [31, 42, 53]}


def parquet(path, count=2):
    """Files of three rows each."""
    for number in range(count):
        table = pa.table({"id": range(3 * number, 3 * number + 3), "s": ["a", "b", "c"]})
        pq.write_table(table, path / f"{number}.parquet")
    return str(path)


@program
def parquet_there_and_back():
    with folder() as path:
        data.from_arrow(pa.table(people)).write_parquet(str(path / "out"))
        written(path / "out")
        ds = data.read_parquet(str(path / "out"))
        rows(ds)
        kinds_of(ds)
        say(ds.count())


@program
def parquet_of_several_files():
    with folder() as path:
        ds = data.read_parquet(parquet(path))
        rows(ds)
        say(ds.count(), [f.rsplit("/", 1)[1] for f in sorted(ds.input_files())])
        rows(data.read_parquet([str(path / "1.parquet"), str(path / "0.parquet")]).sort("id"))


@program
def some_columns_of_parquet():
    with folder() as path:
        ds = data.read_parquet(parquet(path, 1), columns=["s"])
        rows(ds)
        say(ds.columns())
        say(data.read_parquet(str(path)).select_columns(["id"]).take(1))
        fails(lambda: data.read_parquet(str(path), columns=["zz"]).take_all(), "zz")


@program
def parquet_by_expressions():
    from ray.data.expressions import col

    with folder() as path:
        ds = data.read_parquet(parquet(path))
        rows(ds.filter(expr=col("id") > 3))
        rows(ds.filter(expr=col("s") == "b").select_columns(["id"]))


@program
def partitioned_parquet():
    with folder() as path:
        table = pa.table({"k": ["a", "b", "a"], "n": [1, 1, 2], "v": [1.5, 2.5, 3.5]})
        data.from_arrow(table).write_parquet(str(path / "out"), partition_cols=["k"])
        say(sorted(one.name for one in (path / "out").iterdir()))
        rows(data.read_parquet(str(path / "out")).sort("v"))
        say(sorted(data.read_parquet(str(path / "out")).columns()))


@program
def partitions_by_two_columns():
    with folder() as path:
        table = pa.table({"k": ["a", "b"], "n": [1, 2], "v": [1.5, 2.5]})
        data.from_arrow(table).write_parquet(str(path / "out"), partition_cols=["k", "n"])
        say(sorted(str(f.parent.relative_to(path)) for f in (path / "out").rglob("*.parquet")))
        rows(data.read_parquet(str(path / "out")).sort("v"))


@program
def partitions_of_csv():
    from ray.data.datasource import Partitioning

    with folder() as path:
        for year in (2023, 2024):
            (path / f"year={year}").mkdir()
            (path / f"year={year}" / "x.csv").write_text(f"v\n{year % 10}\n")
        rows(data.read_csv(str(path), partitioning=Partitioning("hive")).sort("v"))
        rows(data.read_csv(str(path)).sort("v"))


@program
def paths_beside_rows():
    with folder() as path:
        ds = data.read_parquet(parquet(path, 1), include_paths=True)
        say(ds.columns(), {row["path"].rsplit("/", 1)[1] for row in ds.take_all()})
        (path / "t").mkdir()
        (path / "t" / "x.txt").write_text("a\nb\n")
        say([sorted(row) for row in data.read_text(str(path / "t"), include_paths=True).take_all()])


@program
def csv_there_and_back():
    with folder() as path:
        data.from_arrow(pa.table(people)).write_csv(str(path / "out"))
        (file,) = written(path / "out")
        say(*file.read_text().splitlines())
        rows(data.read_csv(str(path / "out")))


@program
def csv_of_all_types():
    with folder() as path:
        text = 'i,f,s,b,d,q\n1,1.5,x,true,2024-01-02,"a,b"\n,,,,,\n3,2,y,false,2024-01-03,"q""q"\n'
        (path / "x.csv").write_text(text)
        ds = data.read_csv(str(path / "x.csv"))
        rows(ds)
        kinds_of(ds)


@program
def csv_with_options():
    from pyarrow import csv as pcsv

    with folder() as path:
        (path / "x.csv").write_text("1;2\n3;4\n")
        ds = data.read_csv(
            str(path / "x.csv"),
            parse_options=pcsv.ParseOptions(delimiter=";"),
            read_options=pcsv.ReadOptions(column_names=["a", "b"]),
        )
        rows(ds)
        rows(
            data.read_csv(str(path), convert_options=pcsv.ConvertOptions(strings_can_be_null=True))
        )


@program
def csv_that_is_broken():
    with folder() as path:
        (path / "x.csv").write_text("a,b\n1,2\n1,2,3\n")
        fails(lambda: data.read_csv(str(path)).take_all())


@program
def csv_without_rows():
    with folder() as path:
        (path / "x.csv").write_text("a,b\n")
        ds = data.read_csv(str(path))
        say(ds.count(), ds.take_all())


@program
def json_there_and_back():
    with folder() as path:
        data.from_arrow(pa.table({"a": [1, 2], "l": [[1], []]})).write_json(str(path / "out"))
        (file,) = written(path / "out")
        say(*file.read_text().splitlines())
        rows(data.read_json(str(path / "out")))


@program
def json_of_lines_and_of_lists():
    with folder() as path:
        (path / "a.json").write_text('{"a": 1, "b": {"c": "x"}}\n{"a": 2, "b": {"c": null}}\n')
        rows(data.read_json(str(path / "a.json"), lines=True))
        (path / "b.json").write_text(json.dumps([{"a": 1}, {"a": 2}]))
        rows(data.read_json(str(path / "b.json")))
        (path / "c.jsonl").write_text('{"a": 3}\n')
        rows(data.read_json(str(path / "c.jsonl")))


@program
def json_with_moments():
    with folder() as path:
        frame = pd.DataFrame({"t": [pd.Timestamp("2024-01-02 03:04:05")], "s": ["ü"]})
        data.from_pandas(frame).write_json(str(path / "out"))
        (file,) = written(path / "out")
        say(file.read_text().strip())


@program
def text_lines():
    with folder() as path:
        (path / "x.txt").write_text("one\n\ntwo\nthree")
        rows(data.read_text(str(path / "x.txt")))
        rows(data.read_text(str(path / "x.txt"), drop_empty_lines=False))
        (path / "y.txt").write_bytes("ü\n".encode("latin-1"))
        rows(data.read_text(str(path / "y.txt"), encoding="latin-1"))


@program
def whole_files():
    with folder() as path:
        (path / "a.bin").write_bytes(b"\0\1")
        (path / "b.bin").write_bytes(b"")
        rows(data.read_binary_files(str(path)).sort("bytes"))
        say(sorted(data.read_binary_files(str(path), include_paths=True).columns()))


@program
def arrays_in_files():
    with folder() as path:
        np.save(path / "x.npy", np.arange(6).reshape(3, 2))
        rows(data.read_numpy(str(path / "x.npy")))
        data.range_tensor(2, shape=(2,)).write_numpy(str(path / "out"), column="data")
        (file,) = written(path / "out")
        say(plain(np.load(file)))


@program
def images():
    from PIL import Image

    with folder() as path:
        for number in (1, 2):
            Image.new("RGB", (4, 3), (number, 0, 9)).save(path / f"{number}.png")
        ds = data.read_images(str(path))
        kinds_of_rows = [(row["image"].shape, row["image"].dtype.name) for row in ds.take_all()]
        say(kinds_of_rows, sorted(int(row["image"][0, 0, 0]) for row in ds.take_all()))
        small = data.read_images(str(path), size=(2, 2), mode="L", include_paths=True).take(1)[0]
        say(small["image"].shape, sorted(small))
        ds.write_images(str(path / "out"), "image")
        written(path / "out")


@program
def records_of_tensorflow():
    with folder() as path:
        ds = data.from_items([{"i": 1, "f": 0.5, "s": "x", "l": [1, 2]}], override_num_blocks=1)
        ds.write_tfrecords(str(path / "out"))
        written(path / "out")
        rows(data.read_tfrecords(str(path / "out")))


@program
def web_datasets():
    with folder() as path:
        ds = data.from_items(
            [{"__key__": "a", "txt": "hello", "cls": 3}, {"__key__": "b", "txt": "x", "cls": 4}],
            override_num_blocks=1,
        )
        ds.write_webdataset(str(path / "out"))
        written(path / "out")
        for row in data.read_webdataset(str(path / "out")).take_all():
            say({key: value for key, value in sorted(row.items()) if key != "__url__"})


@program
def databases():
    import sqlite3

    with folder() as path:
        file = str(path / "x.db")
        with sqlite3.connect(file) as connection:
            connection.execute("create table t (a integer, b text)")
        data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": None}]).write_sql(
            "insert into t values (?, ?)", lambda: sqlite3.connect(file)
        )
        rows(data.read_sql("select * from t order by a", lambda: sqlite3.connect(file)))
        rows(data.read_sql("select count(*) n from t", lambda: sqlite3.connect(file)))


@program
def files_that_are_not_there():
    with folder() as path:
        for read in (data.read_parquet, data.read_csv, data.read_json, data.read_text):
            fails(lambda read=read: read(str(path / "missing")).take_all(), "missing")


@program
def some_files_that_are_not_there():
    with folder() as path:
        (path / "x.csv").write_text("a\n1\n")
        paths = [str(path / "x.csv"), str(path / "missing.csv")]
        fails(lambda: data.read_csv(paths).take_all(), "missing.csv")
        rows(data.read_csv(paths, ignore_missing_paths=True))


@program
def empty_folders():
    with folder() as path:
        fails(lambda: data.read_csv(str(path)).take_all())
        fails(lambda: data.read_parquet(str(path)).take_all())


@program
def suffixes_of_files():
    with folder() as path:
        (path / "x.csv").write_text("a\n1\n")
        (path / "readme.md").write_text("nothing to read")
        rows(data.read_csv(str(path), file_extensions=["csv"]))
        fails(lambda: data.read_parquet(str(path), file_extensions=["parquet"]).take_all())


@program
def hidden_files():
    with folder() as path:
        (path / "x.csv").write_text("a\n1\n")
        (path / "_note.csv").write_text("a\n2\n")
        (path / ".hidden.csv").write_text("a\n3\n")
        rows(data.read_csv(str(path)).sort("a"))


@program
def folders_in_folders():
    with folder() as path:
        (path / "in").mkdir()
        (path / "in" / "x.csv").write_text("a\n1\n")
        (path / "y.csv").write_text("a\n2\n")
        rows(data.read_csv(str(path)).sort("a"))


@program
def compressed_files():
    import gzip

    with folder() as path:
        (path / "x.csv.gz").write_bytes(gzip.compress(b"a\n1\n"))
        rows(data.read_csv(str(path / "x.csv.gz")))
        (path / "x.json.gz").write_bytes(gzip.compress(b'{"a": 1}\n'))
        rows(data.read_json(str(path / "x.json.gz")))


@program
def files_of_rows():
    with folder() as path:
        ds = data.range(10, override_num_blocks=5)
        ds.write_csv(str(path / "few"), min_rows_per_file=5)
        sizes = [len(list(csv.reader(f.open()))) - 1 for f in (path / "few").iterdir()]
        say(sum(sizes), min(sizes) >= 5)
        data.range(10, override_num_blocks=1).write_parquet(str(path / "many"), max_rows_per_file=4)
        sizes = [pq.read_metadata(f).num_rows for f in (path / "many").iterdir()]
        say(sum(sizes), max(sizes) <= 4)


@program
def modes_of_writing():
    from ray.data import SaveMode

    with folder() as path:
        out = str(path / "out")
        data.range(2, override_num_blocks=1).write_parquet(out)
        data.range(3, override_num_blocks=1).write_parquet(out)
        say(data.read_parquet(out).count())
        data.range(1, override_num_blocks=1).write_parquet(out, mode=SaveMode.OVERWRITE)
        say(data.read_parquet(out).count())
        data.range(5, override_num_blocks=1).write_parquet(out, mode=SaveMode.IGNORE)
        say(data.read_parquet(out).count())
        fails(lambda: data.range(5).write_parquet(out, mode=SaveMode.ERROR))


@program
def writing_nothing():
    with folder() as path:
        data.range(3).filter(lambda row: False).write_parquet(str(path / "out"))
        say((path / "out").exists() and len(list((path / "out").iterdir())))


@program
def arguments_of_parquet():
    with folder() as path:
        data.range(3, override_num_blocks=1).write_parquet(str(path / "out"), compression="gzip")
        (file,) = written(path / "out")
        say(pq.read_metadata(file).row_group(0).column(0).compression)


@program
def parquet_of_different_columns():
    with folder() as path:
        pq.write_table(pa.table({"a": [1]}), path / "0.parquet")
        pq.write_table(pa.table({"a": [2], "b": ["x"]}), path / "1.parquet")
        fails(lambda: sorted(map(repr, data.read_parquet(str(path)).take_all())))


@program
def parquet_of_different_types():
    with folder() as path:
        pq.write_table(pa.table({"a": [1]}), path / "0.parquet")
        pq.write_table(pa.table({"a": ["x"]}), path / "1.parquet")
        fails(lambda: data.read_parquet(str(path)).take_all())


@program
def parquet_that_is_none():
    with folder() as path:
        (path / "x.parquet").write_bytes(b"this is no parquet file at all")
        fails(lambda: data.read_parquet(str(path)).take_all(), "x.parquet")


@program
def nested_parquet():
    with folder() as path:
        table = pa.table({"l": [[1, None], []], "s": [{"a": 1}, None], "b": [b"x", None]})
        data.from_arrow(table).write_parquet(str(path / "out"))
        rows(data.read_parquet(str(path / "out")))


@program
def tensors_in_parquet():
    with folder() as path:
        data.range_tensor(3, shape=(2, 2)).write_parquet(str(path / "out"))
        ds = data.read_parquet(str(path / "out"))
        rows(ds.sort("data") if False else ds.map(lambda row: {"s": int(row["data"].sum())}))
        say(ds.take(1)[0]["data"].shape)


@program
def blocks_of_files():
    with folder() as path:
        say(data.read_parquet(parquet(path, 4), override_num_blocks=2).materialize().num_blocks())
        blocks(data.read_parquet(str(path), override_num_blocks=4))


@program
def pipelines_from_file_to_file():
    with folder() as path:
        (path / "in.csv").write_text("a,b\n1,x\n2,y\n3,x\n")
        ds = data.read_csv(str(path / "in.csv")).filter(lambda row: row["b"] == "x")
        ds.map_batches(lambda b: {**b, "c": b["a"] * 10}).write_parquet(str(path / "out"))
        rows(data.read_parquet(str(path / "out")))


main()

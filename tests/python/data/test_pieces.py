# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Large files of lines are read in pieces at line ends, and give what they give as a whole; many
small ones are read by many tasks."""

import gzip
import json
import pickle
import random

import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from pyarrow import csv  # noqa: E402
from sheaf.data import block, errors  # noqa: E402
from sheaf.data.datasource import delimited, file_based, pieces  # noqa: E402
from sheaf.data.datasource.delimited import CSVDatasource, JSONDatasource, TextDatasource  # noqa: E402


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of 1,000 bytes."""
    for module in (pieces, file_based):
        monkeypatch.setattr(module, "PIECE_BYTES", 1000)


def tasks_of(source):
    return source.get_read_tasks(100)


def rows(source):
    made = [list(task()) for task in tasks_of(source)]
    return [row for tables in made for table in tables for row in block.table_to_rows(table)]


def whole(source, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(file_based, "PIECE_BYTES", 1 << 60)
        assert len(tasks_of(source)) == len(source.input_files())
        return rows(source)


def random_csv(rng, end):
    lines = ["a,b,c"]
    for n in range(rng.randrange(100, 400)):
        text = rng.choice(["x", '"q,q"', '"q""q"', 'half"', "", "\u00e4" * rng.randrange(40)])
        lines.append(f"{n},{text},{rng.choice(['', '1.5'])}")
    return end.join(lines) + rng.choice(["", end])


@pytest.mark.parametrize("seed", range(3))
def test_csv(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    for name in "ab":
        text = random_csv(rng, rng.choice(["\n", "\r\n"]))
        (tmp_path / f"{name}.csv").write_bytes(text.encode())
    for args in (
        {},
        {"parse_options": csv.ParseOptions(delimiter=",")},
        {"read_options": csv.ReadOptions(column_names=["x", "y", "z"])},
        {"read_options": csv.ReadOptions(autogenerate_column_names=True)},
        {"convert_options": csv.ConvertOptions(column_types={"a": pa.string(), "f0": pa.string()})},
    ):
        source = CSVDatasource(str(tmp_path), arrow_csv_args=args)
        assert rows(source) == whole(source, monkeypatch)
        sizes = [task.metadata.size_bytes for task in tasks_of(source)]
        assert len(sizes) > 3 and max(sizes) <= 1000
        together = [
            row for task in source.get_read_tasks(1) for t in task() for row in t.to_pylist()
        ]
        assert together == rows(source)


def test_a_line_end_in_quotes(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,"x\ny"\n' + "2,x\n" * 1000)
    source = CSVDatasource(str(path))
    assert len(tasks_of(source)) == 1 and len(rows(source)) == 1001  # Its beginning says so.
    many = "".join(f"{n},x\n" for n in range(300_000))  # More than what is looked at.
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 20)
    path.write_text("a,b\n" + many + '1,"' + "x\n" * (1 << 19) + '"\n' + many)
    with pytest.raises(errors.FileFormatError, match=r"a\.csv: .*newlines_in_values=True"):
        rows(CSVDatasource(str(path)))


def test_what_is_not_cut(tmp_path):
    lines = "".join(f"{n},x\n" for n in range(1000))
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a,b\n" + "".join(f"{random.random()},x\n" for n in range(1000)))
    (tmp_path / "b.csv").write_text("a,b\n" + lines)
    assert len(tasks_of(CSVDatasource(str(tmp_path / "a.csv.gz")))) == 1
    for args in (
        {"read_options": csv.ReadOptions(skip_rows=1)},
        {"read_options": csv.ReadOptions(encoding="latin-1")},
        {"parse_options": csv.ParseOptions(newlines_in_values=True)},
        {"convert_options": csv.ConvertOptions(include_columns=["a"])},
    ):
        source = CSVDatasource(str(tmp_path / "b.csv"), arrow_csv_args=args)
        assert len(tasks_of(source)) == 1 and rows(source)
    (tmp_path / "a.json").write_text(json.dumps([{"a": n} for n in range(500)]))
    (tmp_path / "b.json").write_text(json.dumps({"a": list(range(500))}, indent=1))
    (tmp_path / "c.json").write_text('{"t": "2026-01-01"}\n' * 100)
    for name, count in (("a", 500), ("b", 1), ("c", 100)):
        source = JSONDatasource(str(tmp_path / f"{name}.json"))
        assert len(tasks_of(source)) == 1 and len(rows(source)) == count
    (tmp_path / "a.txt").write_bytes(lines.encode("utf-16"))
    assert len(tasks_of(TextDatasource(str(tmp_path / "a.txt"), encoding="utf-16"))) == 1


@pytest.mark.parametrize("seed", range(2))
def test_json_lines_and_text(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    made = [
        {
            "n": n if rng.random() < 0.8 else None,
            "s": rng.choice(["", "\u00e4", "x" * 50]),
            "l": [{"a": 1.5}] * rng.randrange(3),
            **({"late": n} if n > 150 else {}),
        }
        for n in range(200)
    ]
    text = "\n".join(json.dumps(row) for row in made)
    (tmp_path / "a.jsonl").write_text(text)
    source = JSONDatasource(str(tmp_path))
    tables = [table for task in tasks_of(source) for table in task()]
    assert len(tables) > 5 and block.concat(tables).to_pylist() == [
        {"n": row["n"], "s": row["s"], "l": row["l"], "late": row.get("late")} for row in made
    ]
    (tmp_path / "a.txt").write_text(text)
    source = TextDatasource(str(tmp_path / "a.txt"))
    assert len(tasks_of(source)) > 5
    assert rows(source) == whole(source, monkeypatch) == [{"text": one} for one in text.split("\n")]


def test_types_that_change_within_a_file(tmp_path):
    lines = ['{"x": 1}'] * 200 + ['{"x": 1.5}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source = JSONDatasource(str(tmp_path))
    tables = [table for task in tasks_of(source) for table in task()]
    assert block.concat(tables)["x"].to_pylist() == [1.0] * 200 + [1.5]


def test_long_lines(tmp_path, monkeypatch):
    """Lines that are longer than pieces, and longer than what is looked at."""
    (tmp_path / "a.txt").write_text("\n".join(["a", "b" * 5000, "", "c" * 200_000, "d"]))
    source = TextDatasource(str(tmp_path / "a.txt"))
    assert len(tasks_of(source)) == 100 and rows(source) == whole(source, monkeypatch)


def test_damage_in_a_later_piece(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 300 + "1\n" + "1,2\n" * 300)
    # Damage near the beginning: such a file is not cut.
    with pytest.raises(errors.FileFormatError, match=r"a\.csv, line 302: .*got 1"):
        rows(CSVDatasource(str(tmp_path)))
    monkeypatch.setattr(delimited, "_FIRST_BYTES", 500)
    with pytest.raises(errors.FileFormatError, match=r"a\.csv, line 302: .*got 1"):
        rows(CSVDatasource(str(tmp_path)))
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 150 + "none\n")
    with pytest.raises(errors.FileFormatError, match=r"a\.jsonl, line 151: not JSON"):
        rows(JSONDatasource(str(tmp_path)))


def test_many_files_are_read_by_many_tasks_in_their_order(tmp_path):
    for number in range(2500):
        (tmp_path / f"{number:04}.txt").write_text(f"{number}\n")
    for hidden in (".seen", "_SUCCESS"):
        (tmp_path / hidden).write_text("no")
    source = TextDatasource(str(tmp_path))
    tasks = source.get_read_tasks(source.least_read_tasks())
    sizes = [len(task.metadata.input_files) for task in tasks]
    assert len(sizes) == 3 and max(sizes) < 1000 and sum(sizes) == 2500
    # Names go once, and nothing of each file beside them.
    assert len(pickle.dumps(tasks[0])) < sizes[0] * (len(f"{tmp_path}/0000.txt") + 8) + 4000
    found = [text for task in tasks for block in task() for text in block["text"].to_pylist()]
    assert found == [str(number) for number in range(2500)]

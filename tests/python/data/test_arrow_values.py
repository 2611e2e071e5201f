# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Arrow data as values: what a slice shows travels, nothing else, and is read where it lies."""

import datetime
import decimal
import random

import numpy as np
import pytest
import sheaf
from sheaf.experimental import get_local_object_locations

pa = pytest.importorskip("pyarrow", reason="pip install 'sheaf[data]'")
pytestmark = pytest.mark.usefixtures("node")


def size_of(ref):
    [row] = get_local_object_locations([ref]).values()
    return row["object_size"]


def table(rows):
    words = [None if i % 7 == 3 else f"word {i}" for i in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "flag": pa.array([None if i % 5 == 1 else i % 3 == 0 for i in range(rows)]),
            "half": pa.array(np.arange(rows, dtype=np.float16)),
            "word": pa.array(words),
            "long": pa.array(words, pa.large_string()),
            "raw": pa.array([b"\0" * (i % 4) for i in range(rows)]),
            "day": pa.array([datetime.date(2020, 1, 1 + i % 28) for i in range(rows)]),
            "when": pa.array(range(rows), pa.timestamp("us", "Europe/Zurich")),
            "money": pa.array([decimal.Decimal(i) / 4 for i in range(rows)], pa.decimal128(20, 2)),
            "four": pa.array([b"abcd"] * rows, pa.binary(4)),
            "nothing": pa.nulls(rows),
            "list": pa.array([[i] * (i % 3) for i in range(rows)]),
            "struct": pa.array([{"a": i, "b": str(i)} for i in range(rows)]),
            "color": pa.array([["red", "green"][i % 2] for i in range(rows)]).dictionary_encode(),
        }
    )


@pytest.mark.parametrize("rows", [0, 1, 9, 1000])
def test_tables_come_back_as_they_were(rows):
    value = table(rows).replace_schema_metadata({"made": "here"})
    back = sheaf.get(sheaf.put(value))
    assert back.equals(value)
    assert back.schema.equals(value.schema, check_metadata=True)
    back.validate(full=True)


def test_slices_of_any_kind(seed=None):
    seed = seed or random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    whole = pa.concat_tables([table(100), table(100).slice(9, 0), table(37)])
    for _ in range(30):
        start = rng.randrange(130)
        part = whole.slice(start, rng.randrange(140))
        part = part.select(rng.sample(part.column_names, rng.randrange(1, 8)))
        back = sheaf.get(sheaf.put(part))
        assert back.equals(part), (start, part.num_rows)
        back.validate(full=True)
        for column in part.columns:
            again = sheaf.get(sheaf.put(column))
            assert again.equals(column)
            for chunk in column.chunks:
                assert sheaf.get(sheaf.put(chunk)).equals(chunk)
        for batch in part.to_batches():
            assert sheaf.get(sheaf.put(batch)).equals(batch)


def test_a_slice_ships_what_it_shows():
    big = pa.table(
        {"n": np.arange(1_000_000), "s": pa.array([f"value {i}" for i in range(1_000_000)])}
    )
    part = big.slice(500_000, 100_000)
    ref = sheaf.put(part)
    assert 100_000 * 8 < size_of(ref) < 1.2 * part.nbytes + 10_000
    assert sheaf.get(ref).equals(part)
    few = sheaf.put(big.slice(777_777, 5))
    assert size_of(few) < 2_000


def test_tables_are_read_where_they_lie():
    value = pa.table({"n": np.arange(1_000_000)})
    ref = sheaf.put(value)
    first, second = sheaf.get(ref), sheaf.get(ref)
    address = [t.column(0).chunk(0).buffers()[1].address for t in (first, second)]
    assert address[0] == address[1]
    assert not first.column(0).chunk(0).buffers()[1].is_mutable
    del ref  # Who reads holds what he reads.
    for _ in range(3):
        sheaf.put(np.zeros(1_000_000))
    assert first.equals(value)


def test_tables_inside_other_values_and_through_tasks():
    @sheaf.remote
    def total(parts):
        return {"sum": sum(part["n"].to_numpy().sum() for part in parts), "first": parts[0]}

    parts = [pa.table({"n": np.arange(i, i + 10)}) for i in range(3)]
    out = sheaf.get(total.remote(parts))
    assert out["sum"] == sum(part["n"].to_numpy().sum() for part in parts)
    assert out["first"].equals(parts[0])


def test_a_table_without_columns_has_rows():
    value = table(5).select([])
    back = sheaf.get(sheaf.put(value))
    assert back.num_rows == 5
    assert back.num_columns == 0


def test_extension_types():
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    )
    value = pa.table({"t": tensors, "i": range(4)}).slice(1, 2)
    back = sheaf.get(sheaf.put(value))
    assert back.equals(value)
    assert (back["t"].combine_chunks().to_numpy_ndarray()[0] == tensors.to_numpy_ndarray()[1]).all()


def test_data_frames():
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    frame = table(50).select(["id", "word"]).to_pandas()
    assert sheaf.get(sheaf.put(frame)).equals(frame)
    arrow = table(50).to_pandas(types_mapper=pandas.ArrowDtype)[10:20]
    assert sheaf.get(sheaf.put(arrow)).equals(arrow)
    polars = pytest.importorskip("polars", reason="pip install polars")
    lazy = polars.from_arrow(table(50).select(["id", "word", "list"]))
    assert sheaf.get(sheaf.put(lazy)).equals(lazy)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Moments, spans and times keep their fractions through JSON and through functions of rows, or an
error names the column."""

import datetime
import json
import random

import pyarrow as pa
import pytest
import sheaf
from sheaf import data
from sheaf.data.errors import BatchError

pytestmark = pytest.mark.usefixtures("node")
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("seed", range(3))
def test_moments_through_json(tmp_path, unit, zone, seed):
    rng = random.Random(seed)
    fractions = [0, 1, 5] if seed else [0]  # Whole seconds alone are what Arrow knows by itself.
    ticks = [
        rng.randrange(-(2**30), 2**31) * PER_SECOND[unit]
        + rng.choice(fractions) * PER_SECOND[unit] // 10 ** rng.choice([1, 3, 6, 9])
        for _ in range(20)
    ]
    cells = pa.array([*ticks, None], pa.timestamp(unit, zone))
    blocks = [pa.table({"t": cells.slice(n, 7), "n": range(n, n + 7)}) for n in (0, 7, 14)]
    data.from_arrow(blocks).write_json(str(tmp_path))
    read = data.read_json(str(tmp_path)).sort("n").materialize()
    kind = read.schema().types[read.schema().names.index("t")]
    assert pa.types.is_timestamp(kind)
    found = pa.chunked_array([pa.array([row["t"] for row in read.take_all()], kind)])
    assert found.cast(pa.timestamp("ns")).to_pylist() == (
        cells.cast(pa.timestamp(unit)).cast(pa.timestamp("ns")).to_pylist()
    )


def test_texts_that_are_no_moments_alone_stay_texts(tmp_path):
    cells = {
        "a": ["2020-01-01T00:00:00.5", "n/a"],
        "b": ["2020-13-01T00:00:00.5", None],
        "c": ["2020-01-01T00:00:00.5", "2020-01-01T00:00:00.5Z"],
        "d": ["at 2020-01-01T00:00:00.5", "2020-01-01T00:00:00.5"],
    }
    file = tmp_path / "a.json"
    rows = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert data.read_json(str(file)).take_all() == rows


def test_nanoseconds_through_a_function_of_rows():
    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")):
        cells = pa.array([1_000_000_001, None, -5], kind)
        made = data.from_arrow(pa.table({"t": cells})).map(lambda row: row).to_arrow_refs()
        table = pa.concat_tables(sheaf.get(made))
        assert table.column("t").type == kind
        assert table.column("t").combine_chunks().equals(cells)
    whole = data.from_arrow(pa.table({"t": pa.array([10**9, None], pa.time64("ns"))}))
    assert whole.map(lambda row: row).take_all() == [{"t": datetime.time(0, 0, 1)}, {"t": None}]
    times = data.from_arrow(pa.table({"t": pa.array([1_000_000_001], pa.time64("ns"))}))
    with pytest.raises(BatchError, match="column 't' is time64.ns. with nanoseconds"):
        times.take_all()
    for change in (times.map, times.map_batches):
        with pytest.raises(Exception, match="BatchError: column 't' is time64.ns. with nanosec"):
            change(lambda one: one).materialize()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        times.map_batches(lambda batch: 1 / 0, batch_format="pyarrow").materialize()


def test_a_column_of_another_length_is_refused():
    rows = data.range(3, override_num_blocks=1)
    for column in ([7], [7, 8]):
        with pytest.raises(Exception, match="length"):
            rows.add_column("x", lambda batch, column=column: column).take_all()
    assert [row["x"] for row in rows.add_column("x", lambda batch: 7).take_all()] == [7, 7, 7]

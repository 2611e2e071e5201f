# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Users' functions may use one object for all that they give: a row or a batch is what it was when
it was given. What nobody else holds is not copied."""

import asyncio
import itertools
import pickle

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf import cloudpickle, data  # noqa: E402
from sheaf.data import block, transforms  # noqa: E402
from sheaf.data.datasource import Datasource, FileBasedDatasource, ReadTask  # noqa: E402
from sheaf.data.datasource.foreign import TorchDatasource  # noqa: E402
from sheaf.data.expressions import col, udf  # noqa: E402
from sheaf.data.transforms.framed import framed  # noqa: E402
from sheaf.data.user_code import take_batch, take_row  # noqa: E402

COUNT = 6


def firsts(transform):
    """The first number in column "x" of each row."""
    table = pa.table({"id": np.arange(COUNT)})
    transform = pickle.loads(cloudpickle.dumps(transform))
    parts = list(transform(iter([table])))
    return [first(row["x"]) for part in parts for row in block.table_to_rows(part)]


def first(value):
    while not np.isscalar(value):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return int(value)


def refilled(shape):
    """A class that fills one array for each batch."""

    class Refilled:
        def __init__(self):
            self.out = np.zeros(shape, "f4")

        def __call__(self, batch):
            out = self.out[: len(batch["id"])]
            out[:] = batch["id"].reshape(-1, *[1] * (out.ndim - 1))
            return {"x": out}

    return transforms.ClassUdf(Refilled)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 40, 50)])
def test_one_array_for_all_batches(shape):
    assert firsts(transforms.map_batches(refilled(shape), batch_size=2)) == list(range(COUNT))


def test_one_dict_for_all_batches():
    out = {"x": np.zeros(1)}

    def fill(batch):
        out["x"][:] = batch["id"]
        return out

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))


def test_a_read_only_view_of_an_array_that_is_filled_again():
    out = np.zeros(1)

    def fill(batch):
        out[:] = batch["id"]
        view = out[:]
        view.flags.writeable = False
        return {"x": view}

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))


def test_read_only_memory_that_is_no_blocks():
    out = np.zeros(1)

    def fill(batch):
        out[:] = batch["id"]
        return {"x": np.lib.stride_tricks.as_strided(out, writeable=False)}

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))


class Holder:
    def __init__(self, value):
        self.value = value


def test_objects_of_rows_that_hold_one_array():
    out = np.zeros(1)

    def fill(row):
        out[:] = row["id"]
        return {"x": Holder(out)}

    table = pa.table({"id": np.arange(COUNT)})
    made = [
        row
        for part in transforms.map_rows(fill)(iter([table]))
        for row in block.table_to_rows(part)
    ]
    assert [row["x"].value[0] for row in made] == list(range(COUNT))


@pytest.mark.parametrize("make", ["generator", "iterator", "list", "coroutine", "async generator"])
def test_one_array_for_all_batches_that_are(make):
    out = np.zeros((1, 2))

    def several(batch):
        for number in batch["id"]:
            out[:] = number
            yield {"x": out}

    async def later(batch):
        out[:] = batch["id"]
        await asyncio.sleep(0)
        out[:] = batch["id"]
        return {"x": out}

    async def several_later(batch):
        for one in several(batch):
            yield one
            await asyncio.sleep(0)

    fn = {
        "generator": several,
        "iterator": lambda batch: itertools.chain(several(batch)),
        "list": lambda batch: list(several(batch)),
        "coroutine": later,
        "async generator": several_later,
    }[make]
    assert firsts(transforms.map_batches(fn, batch_size=1)) == list(range(COUNT))


def test_one_dataframe_for_all_batches():
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    frame = pandas.DataFrame({"x": np.array([0])})

    def fill(batch):
        frame.iloc[0, 0] = int(batch["id"][0])
        return frame

    def several(batch):
        for number in batch["id"]:
            frame.iloc[0, 0] = int(number)
            yield frame

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))
    assert firsts(transforms.map_batches(several)) == list(range(COUNT))


def test_one_buffer_of_arrow_for_all_batches():
    out = np.zeros(1, "i8")

    def fill(table):
        out[:] = table.column("id").to_numpy()
        return pa.table({"x": pa.array(out)})

    assert firsts(transforms.map_batches(fill, batch_size=1, batch_format="pyarrow")) == list(
        range(COUNT)
    )


def arrow_series(array):
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    return pandas.Series(pandas.arrays.ArrowExtensionArray(array))


COLUMNS = {
    "array": lambda array: array,
    "chunked": lambda array: pa.chunked_array([array]),
    "dictionary": lambda array: pa.DictionaryArray.from_arrays(pa.array([0]), array),
    "struct": lambda array: pa.StructArray.from_arrays([COLUMNS["dictionary"](array)], ["a"]),
    "NumPy": lambda array: array.to_numpy(),
    "pandas": arrow_series,
}


@pytest.mark.parametrize("make", COLUMNS)
def test_columns_of_arrow_that_lie_in_one_array_for_all_batches(make):
    out = np.zeros(1, "i8")

    def column(number):
        out[:] = number
        return COLUMNS[make](pa.array(out))

    def fill(batch):
        return {"x": column(batch["id"])}

    def several(batch):
        for number in batch["id"]:
            yield fill({"id": number})

    def table(batch):
        return pa.table(fill(batch))

    def frame(batch):
        pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
        return pandas.DataFrame(fill(batch))

    @udf()
    def value(ids):
        return column(ids)

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))
    assert firsts(transforms.map_batches(several)) == list(range(COUNT))
    adding = transforms.with_columns({"x": value(col("id"))})
    tables = list(adding(pa.table({"id": [number]}) for number in range(COUNT)))
    assert sum((list(map(first, t.column("x").to_pylist())) for t in tables), []) == list(
        range(COUNT)
    )
    if make not in ("NumPy", "pandas"):
        assert firsts(transforms.map_batches(table, batch_size=1)) == list(range(COUNT))
    if make == "pandas":
        assert firsts(transforms.map_batches(frame, batch_size=1)) == list(range(COUNT))


@pytest.mark.parametrize("text", [False, True])
def test_one_buffer_under_many_small_dataframes(text):
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    memory = bytearray(8)
    ends = pa.py_buffer(np.array([0, 1]))
    buffers = [None, ends, pa.py_buffer(memory)] if text else [None, pa.py_buffer(memory)]
    array = pa.Array.from_buffers(pa.large_string() if text else pa.int64(), 1, buffers)
    column = pandas.Series(array, dtype="str") if text else arrow_series(array)

    def fill(frame):
        memory[:1] = str(frame["id"].iloc[0]).encode() if text else bytes([frame["id"].iloc[0]])
        return pandas.DataFrame({"x": column}, copy=False)

    tables = [pa.table({"id": [number]}) for number in range(COUNT)]
    made = list(transforms.map_batches(fill, batch_format="pandas")(framed(iter(tables), True)))
    assert [int(one) for t in made for one in t.column("x").to_pylist()] == list(range(COUNT))


def test_one_list_for_all_batches():
    class Fill:
        def __init__(self):
            self.out = [{"x": np.zeros(1)}]

        def __call__(self, batch):
            self.out[0]["x"][:] = batch["id"]
            return self.out

    class Later(Fill):
        async def __call__(self, batch):
            return super().__call__(batch)

    for kind in (Fill, Later):
        filling = transforms.map_batches(transforms.ClassUdf(kind), batch_size=1)
        assert firsts(filling) == list(range(COUNT))


def test_one_tensor_of_torch_for_all_batches():
    torch = pytest.importorskip("torch", reason="not installed: pip install torch")
    out = torch.zeros(1)

    def fill(batch):
        out[:] = float(batch["id"][0])
        return {"x": out[:]}

    assert firsts(transforms.map_batches(fill, batch_size=1)) == list(range(COUNT))


def set_array(value, number):
    value[:] = number


def set_first(value, number):
    value[0] = number


def set_nested(value, number):
    value[0]["a"][0] = number


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (np.zeros(2), set_array),
        (np.ma.masked_array(np.zeros(2), [False, True]), set_first),
        ([0], set_first),
        ([{"a": [0]}], set_nested),
        ([{"a": np.zeros(2)}], set_nested),
    ],
)
def test_one_value_for_all_rows(value, change):
    def fill(row):
        change(value, row["id"])
        return {"x": value}

    async def later(row):
        return fill(row)

    def several(row):
        yield fill(row)

    assert firsts(transforms.map_rows(fill)) == list(range(COUNT))
    assert firsts(transforms.map_rows(later)) == list(range(COUNT))
    assert firsts(transforms.flat_map(several)) == list(range(COUNT))
    assert firsts(transforms.flat_map(lambda row: [fill(row)])) == list(range(COUNT))


def test_one_dict_for_all_rows():
    out = {}

    def fill(row):
        out["x"] = row["id"]
        return out

    def several(row):
        yield fill(row)

    rows = []

    def one_list(row):
        rows[:] = [fill(row)]
        return rows

    async def list_later(row):
        return one_list(row)

    async def several_later(row):
        yield fill(row)

    assert firsts(transforms.map_rows(fill)) == list(range(COUNT))
    assert firsts(transforms.flat_map(several)) == list(range(COUNT))
    assert firsts(transforms.flat_map(one_list)) == list(range(COUNT))
    assert firsts(transforms.flat_map(list_later)) == list(range(COUNT))
    assert firsts(transforms.flat_map(several_later)) == list(range(COUNT))


def test_one_dict_for_all_rows_of_an_asynchronous_generator():
    async def several(row):
        out = {}
        for out["x"] in range(COUNT):
            yield out

    assert firsts(transforms.flat_map(several)) == list(range(COUNT)) * COUNT


def test_one_array_for_all_calls_of_an_expression():
    out = np.zeros(2)

    @udf()
    def fill(ids):
        out[: len(ids)] = ids
        return out[: len(ids)]

    adding = transforms.with_columns({"x": fill(col("id"))})
    tables = [pa.table({"id": [0, 1]}), pa.table({"id": [2, 3]})]
    assert [one for t in list(adding(iter(tables))) for one in t.column("x").to_pylist()] == [
        0,
        1,
        2,
        3,
    ]


def test_one_array_for_all_blocks_of_a_read_task():
    out = np.zeros(1)

    def task():
        for number in range(COUNT):
            out[:] = number
            yield {"x": out}

    made = list(transforms.read(task)(iter([])))
    assert [table.column("x").to_pylist() for table in made] == [[n] for n in range(COUNT)]


@pytest.mark.parametrize("make", [dict, pa.table])
def test_one_array_for_all_blocks_of_a_datasource(make, tmp_path):
    def blocks():
        out = np.zeros(1)
        for number in range(COUNT):
            out[:] = number
            yield make({"x": out})

    class Numbers(Datasource):
        def get_read_tasks(self, *_):
            return [ReadTask(blocks, block.BlockMetadata())]

    class Files(FileBasedDatasource):
        def _read_stream(self, f, path):
            yield from blocks()

    (tmp_path / "file").write_bytes(b"x")
    for source in (Numbers(), Files(str(tmp_path / "file"))):
        (task,) = source.get_read_tasks(1)
        made = list(transforms.read(task)(iter([])))
        assert [table.column("x").to_pylist() for table in made] == [[n] for n in range(COUNT)]


def test_one_array_for_all_elements_of_a_dataset_of_torch():
    class Numbers:
        def __iter__(self):
            out = np.zeros(1)
            for number in range(COUNT):
                out[:] = number
                yield out

    (task,) = TorchDatasource(Numbers()).get_read_tasks(1)
    (table,) = transforms.read(task)(iter([]))
    assert [first(row["item"]) for row in block.table_to_rows(table)] == list(range(COUNT))


def address(table):
    return table.column("x").chunk(0).buffers()[1].address


def test_what_nobody_else_holds_is_not_copied():
    fresh = np.zeros(3)
    at = fresh.ctypes.data
    batches = [{"x": fresh[1:]}]
    del fresh
    assert address(take_batch(batches)) == at + 8
    rows = [{"x": np.zeros(3)}]
    at = rows[0]["x"].ctypes.data
    assert take_row(rows)["x"].ctypes.data == at


def test_a_function_finds_its_own_objects_unchanged():
    held = {"x": [np.zeros(2)]}
    taken = take_row([held])
    assert held["x"][0] is not taken["x"][0] and taken["x"][0].tolist() == [0, 0]


def test_small_datasets_of_arrays_that_change_afterwards():
    count = 4
    codes = pa.array([0, 1, 2, 3])
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    array = np.ones(count)
    frame = pandas.DataFrame({"data": np.ones(count)})
    made = [
        data.from_numpy(array),
        data.from_arrow(pa.table({"data": pa.array(array)})),
        data.from_blocks([{"data": array}]),
        data.from_pandas(frame),
        data.from_arrow(pa.table({"data": pa.DictionaryArray.from_arrays(codes, pa.array(array))})),
    ]
    array[:] = 0
    frame.iloc[:, 0] = 0.0
    for dataset in made:
        assert [row["data"] for row in dataset.take_all()] == [1] * count

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of any size become batches of one size, in order or mixed; whose memory is that of a block
is told from what is copied."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf.data import (
    block,  # noqa: E402
    transforms,  # noqa: E402
)
from sheaf.data.batches import batches, check_batch_size, rebatch, shuffled  # noqa: E402
from sheaf.data.util.memory import Memory, own_arrow  # noqa: E402


def tables(*sizes):
    """Blocks that number their rows from 0 throughout."""
    start = 0
    for size in sizes:
        yield pa.table({"id": np.arange(start, start + size)})
        start += size


def sizes(found):
    return [table.num_rows for table in found]


def ids(found):
    return [row for table in found for row in table.column("id").to_pylist()]


@pytest.mark.parametrize("blocks", [(10,), (1,) * 10, (3, 0, 7), (0, 0, 10, 0), (4, 4, 2)])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 11])
def test_all_rows_in_order_in_batches_of_one_size(blocks, batch_size):
    found = list(rebatch(tables(*blocks), batch_size))
    assert ids(found) == list(range(10))
    assert (
        all(size == batch_size for size in sizes(found)[:-1]) and 0 < sizes(found)[-1] <= batch_size
    )
    whole = list(rebatch(tables(*blocks), batch_size, drop_last=True))
    assert sizes(whole) == [batch_size] * (10 // batch_size)


def test_whole_blocks_are_batches_and_empty_ones_are_not():
    assert sizes(rebatch(tables(3, 0, 2), None)) == [3, 2]
    assert list(rebatch(tables(), 5)) == [] == list(rebatch(tables(0, 0), 5))


def test_a_batch_within_a_block_is_a_view_of_it():
    table = pa.table({"id": np.arange(100)})
    second = list(rebatch(iter([table]), 10))[1].column("id").chunk(0)
    assert second.buffers()[1].address == table.column("id").chunk(0).buffers()[1].address


def test_no_more_blocks_are_taken_than_a_batch_needs():
    taken = []
    source = (taken.append(n) or pa.table({"id": [n]}) for n in range(100))
    next(rebatch(source, 3))
    assert taken == [0, 1, 2]


@pytest.mark.parametrize(
    "size, error",
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)],
)
def test_sizes_that_are_none(size, error):
    with pytest.raises(error, match=f"batch_size={size!r}: want"):
        check_batch_size(size)
    check_batch_size(None)
    check_batch_size(np.int64(3))


def test_rows_without_columns_are_counted():
    assert sizes(rebatch(iter([block.empty_rows(5), block.empty_rows(3)]), 4)) == [4, 4]


def test_mixing_gives_each_row_once_reproducibly_and_far_from_its_place():
    def mixed(seed):
        return list(shuffled(tables(*[100] * 10), 32, 200, seed))

    found = mixed(7)
    assert sorted(ids(found)) == list(range(1000))
    assert sizes(found)[:-1] == [32] * 31
    assert ids(found) == ids(mixed(7)) != ids(mixed(8))
    assert np.abs(np.array(ids(found)) - np.arange(1000)).mean() > 50


@pytest.mark.parametrize(
    "blocks, batch_size, buffer",
    [((5,), 10, 100), ((1,) * 50, 7, 3), ((50,), 1, 1), ((20, 30), None, 10)],
)
def test_mixing_of_few_rows(blocks, batch_size, buffer):
    found = list(shuffled(tables(*blocks), batch_size, buffer, 1))
    assert sorted(ids(found)) == list(range(sum(blocks)))
    dropped = list(shuffled(tables(*blocks), batch_size, buffer, 1, drop_last=True))
    assert all(size == (batch_size or buffer) for size in sizes(dropped))


def test_formats():
    pytest.importorskip("pandas", reason="not installed: pip install pandas")
    found = list(batches(tables(3, 2), 2, "numpy"))
    assert [batch["id"].tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    assert [len(frame) for frame in batches(tables(3), 2, "pandas")] == [2, 1]


LARGE = 1 << 14  # Rows that are looked at before they are copied.
SHARED = {
    "arrays": ("numpy", lambda batch: batch),
    "a dict of them": ("numpy", dict),
    "parts of them": ("numpy", lambda batch: {"x": batch["x"][1:]}),
    "arrays of Arrow's": ("pyarrow", lambda table: {"x": table.column("x").chunk(0).to_numpy()}),
    "a table": ("pyarrow", lambda table: table),
    "columns": ("pyarrow", lambda table: table.select(["x"])),
    "a dict of columns": ("pyarrow", lambda table: {"x": table.column("x")}),
    "a DataFrame": ("pandas", lambda frame: frame),
    "columns of a DataFrame": ("pandas", lambda frame: {"x": frame["x"]}),
}


@pytest.mark.parametrize("batch_size", [None, LARGE - 1])
@pytest.mark.parametrize("name", SHARED)
def test_what_a_function_gives_back_is_not_copied(name, batch_size):
    batch_format, give = SHARED[name]
    table = pa.table({"x": np.arange(LARGE)})
    if batch_format == "pandas":
        pytest.importorskip("pandas", minversion="3", reason="not installed: pip install pandas")
        table = table.cast(pa.schema({"x": pa.string()}))

    def ends(table):
        buffer = table.column("x").chunk(0).buffers()[-1]
        return buffer.address, buffer.address + buffer.size

    give_back = transforms.map_batches(give, batch_format=batch_format, batch_size=batch_size)
    made, given = ends(next(give_back(iter([table])))), ends(table)
    assert given[0] <= made[0] < made[1] <= given[1]


def of_struct(array):
    return pa.StructArray.from_arrays([array], ["a"])


WORDS = pa.array(["a", "b", None]).dictionary_encode()
EVERY_TYPE = {
    "numbers": pa.array([1, 2, None]),
    "flags": pa.array([True, False, None]),
    "strings": pa.array(["a", None]),
    "lists": pa.array([[1], [2, 3], None]),
    "structs": pa.array([{"a": 1, "b": "x"}, None]),
    "maps": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "lists of one size": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "views": pa.array(["a" * 40, "b"], pa.string_view()),
    "list views": pa.array([[1], [2]], pa.list_view(pa.int64())),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 2], [5, 6]),
    "dictionary": WORDS,
    "dictionary in a struct": of_struct(WORDS),
    "dictionary in a list": pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), WORDS),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "tensors": block.batch_to_table({"x": np.zeros((2, 3))}).column("x").chunk(0),
    "objects": block.batch_to_table({"x": [{1}, {2}]}).column("x").chunk(0),
    "nothing": pa.nulls(3),
}


def addresses(array):
    found = {one.address for one in array.buffers() if one is not None and one.size}
    if pa.types.is_struct(array.type):
        return found | addresses(array.field(0))
    if pa.types.is_list(array.type):
        return found | addresses(array.values)
    return found | (addresses(array.dictionary) if pa.types.is_dictionary(array.type) else set())


@pytest.mark.parametrize("kind", EVERY_TYPE)
def test_a_copy_has_no_buffer_of_what_was_copied(kind):
    array = EVERY_TYPE[kind]
    for part in (array, array.slice(1)):
        copy = own_arrow(part)
        assert copy.equals(part) and copy.type == part.type
        assert not addresses(part) & addresses(copy)


@pytest.mark.parametrize("kind", ["dictionary", "dictionary in a struct", "strings", "tensors"])
def test_memory_is_known_with_all_that_lies_in_it(kind):
    array = pa.concat_arrays([EVERY_TYPE[kind]] * LARGE)
    memory = Memory(pa.table({"x": array, "y": np.arange(len(array))}))
    assert addresses(own_arrow(array, memory)) == addresses(array)
    assert not addresses(array) & addresses(own_arrow(array, Memory(pa.table({"x": [1]}))))


def test_strings_of_one_buffer_that_is_known_and_another_are_copied():
    large = pa.array(["a"] * LARGE, pa.large_string())
    _, ends, text = large.buffers()
    other = pa.py_buffer(bytearray(ends))
    mixed = pa.Array.from_buffers(pa.large_string(), LARGE, [None, other, text])
    copy = own_arrow(mixed, Memory(pa.table({"x": large})))
    assert copy.equals(large) and other.address not in addresses(copy)

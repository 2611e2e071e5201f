# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of any size become batches of one size, in order or mixed."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf.data import block  # noqa: E402
from sheaf.data.batches import batches, check_batch_size, rebatch, shuffled  # noqa: E402


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

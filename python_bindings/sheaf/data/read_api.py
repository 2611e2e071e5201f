# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes datasets: of values, of tables, of what lies in files and elsewhere."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

import sheaf
from sheaf.data import block as blocks
from sheaf.data import plan
from sheaf.data.compute import task_options
from sheaf.data.context import DataContext
from sheaf.data.dataset import Dataset, MaterializedDataset, materialized
from sheaf.data.datasource.in_memory import RangeDatasource
from sheaf.data.operators import Bundle
from sheaf.data.read_plan import local_cpus, parallelism
from sheaf.data.tasks import Header
from sheaf.data.user_code import own_table

_PUT_BYTES = 64 << 10  # A larger block lies in the store, once, and not in the plan.


def _cpus() -> int:
    if sheaf.is_initialized():
        return max(1, int(sheaf.cluster_resources().get("CPU", 1)))
    return local_cpus()


def _bundle(table: Any) -> Bundle:
    """A table as a block."""
    size = blocks.size_bytes(table)
    header = Header(table.num_rows, size, table.schema)
    if size > _PUT_BYTES and not sheaf.is_initialized():
        sheaf.init()
    if size <= _PUT_BYTES:
        table = own_table(table)  # Its memory may be the caller's, who goes on to change it.
        return Bundle(table, 0, table.num_rows, size, header)
    block = sheaf.put(table)
    return Bundle(block, 0, table.num_rows, size, header, sources=block)


def _blocks(name: str, tables: Sequence[Any]) -> MaterializedDataset:
    made = materialized([_bundle(table) for table in tables])
    node = made._plan
    assert isinstance(node, plan.Blocks)
    return MaterializedDataset(plan.Blocks((), node.bundles, node.schema, name), made._context)


def _wanted(name: str, override: int | None, deprecated: int) -> int:
    if override is not None and override < 1:
        raise ValueError(f"{name}: override_num_blocks={override}: want 1 or more")
    return override if override is not None else deprecated


def _cut(table: Any, count: int) -> list[Any]:
    count = max(1, min(count, table.num_rows))
    ends = [table.num_rows * part // count for part in builtins.range(count + 1)]
    return [blocks.slice_rows(table, a, b - a) for a, b in zip(ends, ends[1:])]


def from_items(
    items: list[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """A dataset of values.

    Args:
        items: dicts, which are rows, or values, which become {"item": value}.
        parallelism: deprecated: override_num_blocks.
        override_num_blocks: how many blocks; None: two for each CPU at most.

    Returns:
        The dataset.
    """
    items = list(items)
    count = _wanted("from_items", override_num_blocks, parallelism)
    if count < 1:
        count = 2 * _cpus()
    count = max(1, min(count, len(items)))
    ends = [len(items) * part // count for part in builtins.range(count + 1)]
    whole = blocks.rows_to_table(items)
    tables = [blocks.slice_rows(whole, a, b - a) for a, b in zip(ends, ends[1:])]
    return _blocks("FromItems", tables)


def range(
    n: int,
    *,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """A dataset of the numbers from 0, as "id".

    Args:
        n: how many.
        parallelism: deprecated: override_num_blocks.
        concurrency: tasks at a time; None: as many as fit.
        override_num_blocks: how many blocks.

    Returns:
        The dataset.
    """
    count = _wanted("range", override_num_blocks, parallelism)
    return read_datasource(RangeDatasource(n), parallelism=count, concurrency=concurrency)


def range_tensor(
    n: int,
    *,
    shape: tuple[int, ...] = (1,),
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """A dataset of tensors, as "data", each full of its number.

    Args:
        n: how many.
        shape: of each.
        parallelism, concurrency, override_num_blocks: as of range.

    Returns:
        The dataset.
    """
    count = _wanted("range_tensor", override_num_blocks, parallelism)
    return read_datasource(
        RangeDatasource(n, "tensor", tuple(shape)), parallelism=count, concurrency=concurrency
    )


def read_datasource(
    datasource: Any,
    *,
    parallelism: int = -1,
    concurrency: int | None = None,
    compute: Any = None,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of what a datasource gives.

    Args:
        datasource: a Datasource.
        parallelism: deprecated: override_num_blocks.
        concurrency: read tasks at a time; None: as many as fit.
        compute: a TaskPoolStrategy.
        override_num_blocks: how many read tasks.
        ray_remote_args: options of remote functions, for read tasks.
        **options: num_cpus, num_gpus, memory and further options of remote functions.

    Returns:
        The dataset.
    """
    count = _wanted("read_datasource", override_num_blocks, parallelism)
    given = {**(ray_remote_args or {}), **options}
    settled = task_options("read_datasource", None, compute, concurrency, given)
    return Dataset(plan.Read((), datasource, count, settled))


def _tables(given: Any, kinds: tuple[type, ...]) -> list[Any]:
    return (
        list(given)
        if isinstance(given, (list, tuple)) and not isinstance(given, kinds)
        else [given]
    )


def _repartitioned(name: str, tables: list[Any], override: int | None) -> MaterializedDataset:
    if override is not None:
        _wanted(name, override, -1)
        tables = _cut(blocks.concat(tables), override)
    return _blocks(name, tables)


def from_blocks(blocks_: list[Any]) -> MaterializedDataset:
    """A dataset of blocks.

    Args:
        blocks_: of pyarrow.Table or pandas.DataFrame.

    Returns:
        The dataset.
    """
    return _blocks("FromBlocks", [blocks.batch_to_table(block) for block in blocks_])


def from_pandas(dfs: Any, override_num_blocks: int | None = None) -> MaterializedDataset:
    """A dataset of DataFrames, one block each; their index is left out.

    Args:
        dfs: one or a list.
        override_num_blocks: how many blocks.

    Returns:
        The dataset.
    """
    tables = [blocks.batch_to_table(frame) for frame in _tables(dfs, ())]
    return _repartitioned("FromPandas", tables, override_num_blocks)


def from_arrow(tables: Any, *, override_num_blocks: int | None = None) -> MaterializedDataset:
    """A dataset of Arrow tables, one block each.

    Args:
        tables: one or a list, of pyarrow.Table or of bytes of Arrow's IPC stream format.
        override_num_blocks: how many blocks.

    Returns:
        The dataset.
    """
    found = [_arrow(table) for table in _tables(tables, ())]
    return _repartitioned("FromArrow", found, override_num_blocks)


def _arrow(table: Any) -> Any:
    if isinstance(table, (bytes, bytearray, memoryview)):
        import pyarrow as pa

        with pa.ipc.open_stream(table) as reader:
            return blocks.batch_to_table(reader.read_all())
    return blocks.batch_to_table(table)


def from_numpy(ndarrays: Any) -> MaterializedDataset:
    """A dataset of arrays, as "data", one block each.

    Args:
        ndarrays: one or a list; the first axis is that of rows.

    Returns:
        The dataset.
    """
    return _blocks(
        "FromNumpy", [blocks.batch_to_table({"data": array}) for array in _tables(ndarrays, ())]
    )


def _of_refs(name: str, refs: Any, change: Any) -> MaterializedDataset:
    """A dataset of what references hold. It is made to tables by tasks, where it lies."""
    found = [refs] if isinstance(refs, sheaf.ObjectRef) else list(refs)
    for ref in found:
        if not isinstance(ref, sheaf.ObjectRef):
            raise TypeError(f"{name}: {ref!r}: want references, as sheaf.put gives")
    call = sheaf.remote(_to_table).options(num_returns=2)
    pairs = [call.remote(change, ref) for ref in found]
    headers = sheaf.get([header for header, _ in pairs])
    bundles = [
        Bundle(block, 0, header.num_rows, header.size_bytes, header, sources=ref)
        for header, (_, block), ref in zip(headers, pairs, found)
    ]
    return materialized(bundles)


def _to_table(change: Any, value: Any) -> tuple[Any, Any]:
    table = change(value)
    return Header(table.num_rows, blocks.size_bytes(table), table.schema), table


def _array_table(array: Any) -> Any:
    return blocks.batch_to_table({"data": array})


def from_pandas_refs(dfs: Any) -> MaterializedDataset:
    """A dataset of DataFrames that references hold.

    Args:
        dfs: one or a list.

    Returns:
        The dataset.
    """
    return _of_refs("from_pandas_refs", dfs, blocks.batch_to_table)


def from_arrow_refs(tables: Any) -> MaterializedDataset:
    """A dataset of tables that references hold.

    Args:
        tables: one or a list.

    Returns:
        The dataset.
    """
    return _of_refs("from_arrow_refs", tables, _arrow)


def from_numpy_refs(ndarrays: Any) -> MaterializedDataset:
    """A dataset of arrays that references hold, as "data".

    Args:
        ndarrays: one or a list.

    Returns:
        The dataset.
    """
    return _of_refs("from_numpy_refs", ndarrays, _array_table)


def default_parallelism(size: int | None) -> int:
    """How many read tasks data of this many bytes gets.

    Args:
        size: bytes; None: unknown.

    Returns:
        The number.
    """
    return parallelism(size, DataContext.get_current(), _cpus())

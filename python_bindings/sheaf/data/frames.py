# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of frames of other libraries, and queries over datasets in SQL; each library is imported
when it is used."""

from __future__ import annotations

import os
from typing import Any

from sheaf.data import block as blocks
from sheaf.data.dataset import Dataset
from sheaf.data.errors import DataError
from sheaf.data.iterator import table_of
from sheaf.data.methods.foreign import library
from sheaf.data.read_api import from_arrow, from_items, from_pandas
from sheaf.data.transforms import cut_blocks


class QueryError(DataError):
    """A query in SQL that DuckDB refuses; its message says why."""


def from_dask(df: Any) -> Dataset:
    """A dataset of a dask.dataframe.DataFrame.

    Args:
        df: the frame; it is computed now.

    Returns:
        The dataset, with one block for each partition.
    """
    return from_pandas(list(library("from_dask", "dask").compute(*df.to_delayed())))


def from_modin(df: Any) -> Dataset:
    """A dataset of a modin.pandas.DataFrame.

    Args:
        df: the frame.

    Returns:
        The dataset.
    """
    return from_pandas(df._to_pandas())


def from_daft(df: Any) -> Dataset:
    """A dataset of a daft.DataFrame.

    Args:
        df: the frame; it is computed now.

    Returns:
        The dataset.
    """
    return from_arrow(df.to_arrow())


def from_tf(dataset: Any) -> Dataset:
    """A dataset of a tf.data.Dataset, whose elements are rows; what are no dicts become
    {"item": element}.

    Args:
        dataset: it is read now.

    Returns:
        The dataset.
    """
    return from_items(list(dataset.as_numpy_iterator()))


def sql(query: str, **datasets: Dataset) -> Dataset:
    """The result of a query over datasets, by DuckDB, in this process: `sql("select sum(v) from t",
    t=dataset)`. Datasets are made first, and DuckDB reads their blocks in the object
    store without a copy.

    Args:
        query: one statement in DuckDB's SQL.
        **datasets: by the names of the query's tables.

    Returns:
        A dataset whose blocks are there.

    Raises:
        QueryError: the query has another form, or names a table or column that there is not.
    """
    for name, one in datasets.items():
        if not isinstance(one, Dataset):
            raise TypeError(f"sql: {name}={one!r}: want a Dataset")
    duckdb = library("sql", "duckdb")
    held = {name: one.materialize() for name, one in datasets.items()}
    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as connection:
        for name, one in held.items():
            tables = [table_of(bundle) for bundle in one._run()]
            table = blocks.concat(tables)
            schema = one.schema()
            if not table.num_columns and schema is not None:
                table = schema.base_schema.empty_table()
            connection.register(name, table)
        try:
            kinds = [one.type for one in connection.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise QueryError(f"sql: {query!r} gives no rows: want one query, as SELECT")
            made = connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(f"sql: {error}") from error
    context = next(iter(held.values()))._context if held else None
    target = 128 << 20 if context is None else context.target_max_block_size
    return from_arrow(list(cut_blocks(iter([made]), target)) or [made])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of frames of other libraries, and queries over datasets in SQL; each library is imported
when it is used."""

from __future__ import annotations

import json
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
    t=dataset)`. Datasets are made first, as far as the plan tells their columns only those that the
    query reads, and DuckDB reads their blocks in the object store without a copy.

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
    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as connection:
        try:
            kinds = [one.type for one in connection.extract_statements(query)]
            if kinds != [duckdb.StatementType.SELECT]:
                raise QueryError(f"sql: {query!r} gives no rows: want one query, as SELECT")
            held = {
                name: (one if columns is None else one.select_columns(columns)).materialize()
                for (name, one), columns in zip(
                    datasets.items(), _columns_of_query(query, datasets)
                )
            }
            for name, one in held.items():
                tables = [table_of(bundle) for bundle in one._run()]
                table = blocks.concat(tables)
                schema = one.schema()
                if not table.num_columns and schema is not None:
                    table = schema.base_schema.empty_table()
                connection.register(name, table)
            made = connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(f"sql: {error}") from error
    context = next(iter(held.values()))._context if held else None
    target = 128 << 20 if context is None else context.target_max_block_size
    return from_arrow(list(cut_blocks(iter([made]), target)) or [made])


def _columns_of_query(query: str, datasets: dict[str, Dataset]) -> list[list[str] | None]:
    """The columns of each dataset that a query reads, as DuckDB plans it over empty tables; at
    least one, for the number of rows. None: not known, which may be all."""
    import duckdb

    schemas = {name: one.schema(fetch_if_missing=False) for name, one in datasets.items()}
    if None in schemas.values():
        return [None] * len(datasets)
    read: dict[str, set[str]] = {name: set() for name in datasets}
    try:
        with duckdb.connect() as connection:
            # All but one would fold away scans of tables that are empty.
            others = connection.execute(
                "select string_agg(name) from duckdb_optimizers() where name <> 'unused_columns'"
            ).fetchall()[0][0]
            connection.execute(f"set disabled_optimizers = '{others}'")
            for name, schema in schemas.items():
                connection.register("given", schema.base_schema.empty_table())
                quoted = '"' + name.replace('"', '""') + '"'
                connection.execute(f"create table {quoted} as select * from given")
            plan = connection.execute(f"explain (format json) {query}").fetchall()[0][1]
        nodes = list(json.loads(plan))
        while nodes:
            node = nodes.pop()
            nodes += node.get("children", [])
            told = node.get("extra_info", {})
            if "Table" in told:
                columns = told.get("Projections", "")
                name = told["Table"].rpartition(".")[2]
                read[name].update([columns] if isinstance(columns, str) else columns)
    except (duckdb.Error, KeyError):  # The query itself will say what is wrong.
        return [None] * len(datasets)
    out: list[list[str] | None] = []
    for name, schema in schemas.items():
        wanted = [column for column in schema.names if column in read[name]]
        out.append(wanted or schema.names[:1])
    return out

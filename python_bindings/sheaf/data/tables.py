# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What comes in as rows or batches of other libraries as a pa.Table, and what users see of one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import arrow_types
from sheaf.data.columns import column_of, column_to_numpy, values_of
from sheaf.data.errors import BatchError, MissingPackageError, shown
from sheaf.data.schema import conform, unify_schemas

BATCH_FORMATS = ("default", "numpy", "pandas", "pyarrow", "polars", None)
_ROWS_AT_ONCE = 4096  # As Python values: what iterating over rows holds at a time.
_LARGEST_OFFSET = 2**31 - 1  # Of strings and lists that are not large_.


def rows_to_table(rows: Sequence[Any]) -> Any:
    """Rows as one table.

    Args:
        rows: dicts, or values that become {"item": value}. A key that a row lacks is NULL there.
            Arrays become tensors; objects that Arrow has no type for are pickled.

    Returns:
        The pa.Table, its columns in the order in which keys first came.

    Raises:
        SchemaMismatchError: a column mixes numbers, strings or bytes.
    """
    if not rows:
        return pa.table({})
    if not isinstance(rows[0], Mapping):
        rows = [row if isinstance(row, Mapping) else {"item": row} for row in rows]
    names = list(rows[0])
    try:
        columns = [[row[name] for row in rows] for name in names]
        same = sum(map(len, rows)) == len(names) * len(rows)
    except (KeyError, TypeError):
        same = False
    if not same:
        names, columns = _uneven_columns(rows)
    if not names:
        return empty_rows(len(rows))
    return _table([str(name) for name in names], columns)


def _uneven_columns(rows: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
    rows = [row if isinstance(row, Mapping) else {"item": row} for row in rows]
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return names, [[row.get(name) for row in rows] for name in names]


def _table(names: list[str], columns: Iterable[Any]) -> Any:
    arrays = [column_of(name, values) for name, values in zip(names, columns)]
    return pa.Table.from_arrays(arrays, names=names)


def empty_rows(count: int) -> Any:
    """A table of `count` rows without columns."""
    return pa.table({"": pa.nulls(count)}).select([])


def slice_rows(table: Any, start: int, count: int | None = None) -> Any:
    """Some rows of a table, without a copy: also of one without columns, whose rows Arrow's own
    slice does not count.

    Args:
        table: a pa.Table.
        start: the first row.
        count: how many, if there are as many; None: all from `start`.

    Returns:
        The pa.Table.
    """
    if table.num_columns:
        return table.slice(start, count)
    left = max(0, table.num_rows - start)
    return empty_rows(left if count is None else min(count, left))


def table_to_rows(table: Any, exact: bool = True) -> Iterator[dict[str, Any]]:
    """The rows of a table as dicts of Python values; tensors are NumPy arrays.

    Args:
        table: a pa.Table.
        exact: False: times lose nanoseconds, which Python's do not have.

    Yields:
        One dict per row.

    Raises:
        BatchError: a time has nanoseconds.
    """
    names = table.column_names
    if not names:
        yield from ({} for _ in range(table.num_rows))
        return
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        for name, column in zip(names, part.columns if exact else ()):
            _check_times(name, column)
        columns = [values_of(column) for column in part.columns]
        for values in zip(*columns):
            yield dict(zip(names, values))


def _check_times(name: str, column: Any) -> None:
    """Raises BatchError: Python's time would lose nanoseconds."""
    if column.type != pa.time64("ns") or not len(column):
        return
    whole = column.cast(pa.time64("us"), safe=False).cast(pa.time64("ns"))
    if pc.all(pc.equal(whole, column)).as_py() is False:
        raise BatchError(
            f"column '{name}' is time64[ns] with nanoseconds, which times of Python do not have: "
            "cast it to time64[us], or to int64, or use batch_format='pyarrow'"
        )


def batch_to_table(batch: Any) -> Any:
    """What a user function or a reader gives as a table.

    Args:
        batch: a mapping of columns (arrays or lists of equal lengths), a pa.Table or RecordBatch, a
            DataFrame of pandas or Polars.

    Returns:
        The pa.Table.

    Raises:
        BatchError: it is something else, its columns have several lengths, or two of them one name.
    """
    table = _as_table(batch)
    names = table.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BatchError(
            f"column '{twice}' is there {names.count(twice)} times: rename all but one"
        )
    return table


def _as_table(batch: Any) -> Any:
    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, pa.RecordBatch):
        return pa.Table.from_batches([batch])
    if isinstance(batch, Mapping):
        return _of_mapping(batch)
    library = type(batch).__module__.partition(".")[0]
    if library == "pandas" and hasattr(batch, "columns"):
        return _of_pandas(batch)
    if library == "polars" and hasattr(batch, "to_arrow") and hasattr(batch, "columns"):
        return _of_polars(batch)
    raise BatchError(
        f"got {shown(batch)} of type {type(batch).__name__}: want a batch, which is a dict "
        "of arrays, a pyarrow.Table, or a DataFrame of pandas or Polars"
    )


def _of_mapping(batch: Mapping[Any, Any]) -> Any:
    names = [str(name) for name in batch]
    arrays = [column_of(name, values) for name, values in zip(names, batch.values())]
    lengths = {name: len(array) for name, array in zip(names, arrays)}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"'{name}' {length}" for name, length in list(lengths.items())[:20])
        raise BatchError(f"columns of a batch have several lengths: {said}")
    return pa.Table.from_arrays(arrays, names=names)


def _of_pandas(frame: Any) -> Any:
    names = [str(name) for name in frame.columns]
    columns = [column for _, column in frame.items()]
    if not names:
        return empty_rows(len(frame))
    return pa.Table.from_arrays([column_of(n, c) for n, c in zip(names, columns)], names=names)


def _of_polars(frame: Any) -> Any:
    table = frame.to_arrow()
    plain = [
        pa.large_string()
        if pa.types.is_string_view(kind)
        else pa.large_binary()
        if pa.types.is_binary_view(kind)
        else kind
        for kind in table.schema.types
    ]
    if plain == table.schema.types:
        return table
    return table.cast(pa.schema(list(zip(table.column_names, plain))))


def table_to_batch(table: Any, batch_format: str | None = "default", zero_copy: bool = True) -> Any:
    """A table as the batch that users see.

    Args:
        table: a pa.Table.
        batch_format: "default" and "numpy": a dict of NumPy arrays; "pandas", "polars": a
            DataFrame; "pyarrow" and None: the table.
        zero_copy: arrays are views of the table where Arrow keeps values as NumPy does, and all are
            read-only; False: they are writable.

    Returns:
        The batch.
    """
    if batch_format in ("default", "numpy"):
        for name, column in zip(table.column_names, table.columns):
            _check_times(name, column)
        return {
            name: _numpy(column, zero_copy)
            for name, column in zip(table.column_names, table.columns)
        }
    if batch_format in ("pyarrow", None):
        return table
    if batch_format == "pandas":
        return _to_pandas(table, zero_copy)
    if batch_format == "polars":
        return _to_polars(table)
    raise ValueError(f"batch_format={batch_format!r}: want one of {list(BATCH_FORMATS)}")


def _numpy(column: Any, zero_copy: bool) -> Any:
    array = column_to_numpy(column)
    if zero_copy:
        array.flags.writeable = False
    elif not array.flags.writeable:
        array = array.copy()
    return array


def _to_pandas(table: Any, zero_copy: bool) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError("batch_format='pandas'", "pandas") from error
    names = table.column_names
    if not names:
        return pandas.DataFrame(index=range(table.num_rows))
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and not _are_categories(table.column(place)):
            plain = table.column(place).cast(field.type.value_type).dictionary_encode()
            table = table.set_column(place, field.name, plain)
    special = [isinstance(kind, pa.BaseExtensionType) for kind in table.schema.types]
    if not any(special):
        threads = table.num_rows >= _ROWS_AT_ONCE  # Below that they cost more than they give.
        frame = table.replace_schema_metadata(None).to_pandas(use_threads=threads)
    else:
        columns = [
            pandas.Series(values_of(column), dtype=object) if extension else column.to_pandas()
            for column, extension in zip(table.columns, special)
        ]
        frame = pandas.concat(columns, axis=1, ignore_index=True)
        frame.columns = names
    return frame if zero_copy else frame.copy()


def _are_categories(column: Any) -> bool:
    """Whether its dictionaries have each value once and no NULL, as pandas wants categories."""
    every = [chunk.dictionary for chunk in column.chunks]
    return all(one.null_count == 0 and len(one.unique()) == len(one) for one in every)


def _to_polars(table: Any) -> Any:
    try:
        import polars
    except ImportError as error:
        raise MissingPackageError("batch_format='polars'", "polars") from error
    columns = {}
    for name, column in zip(table.column_names, table.columns):
        if arrow_types.tensor_shape(column.type) is not None:
            columns[name] = polars.Series(name, column_to_numpy(column))
        elif isinstance(column.type, pa.BaseExtensionType):
            columns[name] = polars.Series(name, values_of(column), dtype=polars.Object)
        else:
            columns[name] = polars.Series(name, column)
    return polars.DataFrame(columns)


def concat(tables: Sequence[Any]) -> Any:
    """Tables one below the other, without a copy where their schemas agree; else unified first.

    Args:
        tables: of pa.Table.

    Returns:
        The pa.Table.

    Raises:
        SchemaMismatchError: a column has two types that no third one holds.
    """
    if len(tables) == 1:
        return tables[0]
    if not tables:
        return pa.table({})
    schema = unify_schemas([table.schema for table in tables])
    if not len(schema):
        return empty_rows(sum(table.num_rows for table in tables))
    return pa.concat_tables([conform(table, schema) for table in tables])


def combine(table: Any) -> Any:
    """The table with one chunk per column; strings and bytes that are more than 2 GiB then become
    large_string and large_binary.

    Args:
        table: a pa.Table.

    Returns:
        The pa.Table; the same when each column has one chunk.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(field.type)
        if large is not None and column.num_chunks > 1 and column.nbytes > _LARGEST_OFFSET:
            table = table.set_column(place, field.name, column.cast(large))
    if all(column.num_chunks <= 1 for column in table.columns):
        return table
    return table.combine_chunks()


def size_bytes(table: Any) -> int:
    """Bytes that the rows of this table take as Arrow: of the slice, not of what it is a slice
    of."""
    try:
        return int(table.nbytes)
    except pa.ArrowException:  # Types whose ranges Arrow cannot tell.
        return int(table.get_total_buffer_size())


def random_permutation(rows: int, seed: int | None) -> Any:
    """An order of `rows` rows as a pa.Array of indices; the same for the same seed."""
    return pa.array(np.random.default_rng(seed).permutation(rows))


def rows_of_bytes(table: Any, target_bytes: int) -> int:
    """How many rows of this table take about `target_bytes`: at least one."""
    if table.num_rows == 0:
        return 1
    return max(1, math.floor(target_bytes * table.num_rows / max(1, size_bytes(table))))

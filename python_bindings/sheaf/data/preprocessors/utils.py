# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the preprocessors have in common: how they learn in one pass, and how they put columns into
batches."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.aggregate import AggregateFn, AggregateFnV2
from sheaf.data.block import batch_to_table, table_to_batch
from sheaf.data.columns import values_of
from sheaf.data.preprocessors.base import (
    SerializablePreprocessorBase,
    _is_frame,
    frame_with,
    parameters_of,
)
from sheaf.data.schema import check_columns

__all__ = ["ValueCounts", "simple_hash", "simple_split_tokenizer"]


def simple_split_tokenizer(value: str) -> list[str]:
    """The words between single spaces.

    Args:
        value: a text.

    Returns:
        Its words; empty ones between two spaces.
    """
    return value.split(" ")


def simple_hash(value: object, num_features: int) -> int:
    """A number for a value, the same in each process.

    Args:
        value: anything whose str() says what it is.
        num_features: how many numbers there are.

    Returns:
        From 0 to below `num_features`.
    """
    return int(hashlib.sha256(str(value).encode()).hexdigest(), 16) % num_features


class Held:
    """A value that stays a Python object in a column."""

    def __init__(self, value: Any) -> None:
        self.value = value


class ValueCounts(AggregateFnV2):
    """How often each value of a column comes, as a Counter in a Held; None counts NULL and NaN.

    Args:
        on: the column.
        name: of the result.
        elements: counts what lists hold; else a list is one value, as a tuple.
        split: makes the list of each value; instead of `elements`.
        ranked: values of a block come in the order of their counts, so that of equally frequent
            ones the first is that which was first the most frequent; else as they come.
    """

    def __init__(
        self,
        on: str,
        name: str,
        elements: bool = False,
        split: Callable[[Any], Iterable[Any]] | None = None,
        ranked: bool = True,
    ) -> None:
        super().__init__(name, collections.Counter, on=on, ignore_nulls=False)
        self._column, self._elements, self._split, self._ranked = on, elements, split, ranked

    def reads_only_columns(self) -> bool:
        """Returns True."""
        return True

    def aggregate_block(self, block: Any) -> Any:
        """The counts of a block.

        Args:
            block: a pa.Table.

        Returns:
            A Counter.
        """
        counted = self._counted(block.column(self._column))
        if self._ranked:
            counted = dict(sorted(counted.items(), key=lambda one: -one[1]))
        return collections.Counter(counted)

    def _counted(self, column: Any) -> dict[Any, int]:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        if self._split is None and not is_list(kind):
            found = column.value_counts()
            values, counts = values_of(found.field("values")), found.field("counts").to_pylist()
            counted: dict[Any, int] = {}
            for value, count in zip(values, counts):
                value = None if value != value else hashable(value)
                counted[value] = counted.get(value, 0) + count
            return counted
        values = values_of(column)
        if self._split is not None:
            values = [self._split(value) for value in values if value is not None]
        elif not self._elements:
            return collections.Counter(map(hashable, values))
        counter: collections.Counter[Any] = collections.Counter()
        for several in values:
            if several is not None:
                counter.update(several)
        return counter

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """The counts of both.

        Args:
            current_accumulator: a Counter.
            new: a Counter.

        Returns:
            A Counter.
        """
        made = collections.Counter(current_accumulator)
        made.update(new)
        return made

    def finalize(self, accumulator: Any) -> Any:
        """Returns the Counter in a Held."""
        return Held(accumulator)


def hashable(value: Any) -> Any:
    """Lists and arrays as tuples; the rest as it is."""
    if isinstance(value, (list, np.ndarray)):
        return tuple(value.tolist() if isinstance(value, np.ndarray) else value)
    return value


def is_list(kind: Any) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def results_of(ds: Any, aggregates: Sequence[AggregateFn]) -> dict[str, Any]:
    """The results of aggregates over a dataset, by name, made in one pass; None of no rows."""
    once = {one.name: one for one in aggregates}
    found = ds.aggregate(*once.values()) if once else {}
    found = dict.fromkeys(once) if found is None else found
    return {k: v.value if isinstance(v, Held) else v for k, v in found.items()}


class BuiltIn(SerializablePreprocessorBase):
    """A preprocessor of this package: what it learns are aggregates, and it works on Arrow."""

    _is_fittable = True
    _FRAMES = True  # Whether batches that are no DataFrames become some, as in Ray.

    def _aggregates(self) -> list[AggregateFn]:
        """Returns the aggregates that it learns from."""
        return []

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        """Returns `stats_`, of the results of those."""
        return results

    def _fit(self, ds: Any) -> BuiltIn:
        return self._settle(results_of(ds, self._aggregates()))

    def _settle(self, results: dict[str, Any]) -> BuiltIn:
        self.stats_ = self._learned({one.name: results[one.name] for one in self._aggregates()})
        return self

    def _changed(self, table: Any) -> dict[str, Any]:
        """Returns the columns that it makes of a pa.Table, by name."""
        raise NotImplementedError

    def _dropped(self) -> list[str]:
        """Returns the columns that it takes away."""
        return []

    def _check(self, table: Any) -> None:
        check_columns(self.get_input_columns(), table.column_names, type(self).__name__)

    def _transform_arrow(self, table: Any) -> Any:
        self._check(table)
        made = self._changed(table)
        gone = set(self._dropped())
        if gone:
            table = table.select([name for name in table.column_names if name not in gone])
        for name, column in made.items():
            table = with_column(table, name, column)
        return table

    def _transform_batch(self, data: Any) -> Any:
        if isinstance(data, np.ndarray):
            raise ValueError(f"{type(self).__name__}: want columns by name, not one array")
        if not _is_frame(data):
            table = self._transform_arrow(batch_to_table(data))
            return table_to_batch(table, "pandas", zero_copy=False) if self._FRAMES else table
        there = [name for name in self.get_input_columns() if name in data.columns]
        table = batch_to_table(data[there])
        self._check(table)
        made = self._changed(table)
        new = pa.Table.from_arrays(list(made.values()), names=list(made))
        return frame_with(data, new, self._dropped(), list(made))

    def _shown(self) -> dict[str, Any]:
        shown = {name: getattr(self, name) for name in parameters_of(type(self))}
        if "tokenization_fn" in shown:
            fn = shown["tokenization_fn"]
            shown["tokenization_fn"] = Name(getattr(fn, "__name__", str(fn)))
        return shown


class Name(str):
    """Text that repr shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def with_column(table: Any, name: str, column: Any) -> Any:
    """A pa.Table with a column in the place of that of the same name, or behind the others."""
    place = table.schema.get_field_index(name)
    return table.append_column(name, column) if place < 0 else table.set_column(place, name, column)


def floats(column: Any) -> Any:
    """Numbers as floats; those of 32 bits stay so."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_float32(column.type):
        return column
    return column.cast(pa.float64(), safe=False)  # 2**60 + 1 becomes the nearest float.


def missing(column: Any) -> Any:
    """Which values are NULL or NaN, as booleans of NumPy."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), bool)


def array_of(column: Any, dtype: Any = np.float64) -> Any:
    """Numbers as a NumPy array, NaN for NULL."""
    return np.asarray(floats(column).to_numpy(zero_copy_only=False), dtype)


def numbers(values: Any, absent: Any = None) -> Any:
    """A NumPy array as Arrow, NULL for NaN and where `absent` says so."""
    gone = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    return pa.array(values, mask=gone if absent is None else gone | absent)


def plain(column: Any) -> Any:
    """A column as one pa.Array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def tokens_of(column: Any, split: Callable[[Any], Any]) -> list[Any]:
    """The tokens of each text; None of NULL."""
    return [None if text is None else split(text) for text in values_of(column)]

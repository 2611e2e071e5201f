# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Encoders: categories as numbers, or as vectors of them. Categories are numbered in their
order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregate import AggregateFn
from sheaf.data.aggregates.keys import key
from sheaf.data.columns import column_of, values_of
from sheaf.data.errors import MissingPackageError
from sheaf.data.preprocessors.base import Applied
from sheaf.data.preprocessors.utils import (
    BuiltIn,
    ValueCounts,
    hashable,
    is_list,
    missing,
    plain,
    with_column,
)
from sheaf.data.preprocessors.version_support import SerializablePreprocessor
from sheaf.data.schema import check_columns

__all__ = ["Categorizer", "LabelEncoder", "MultiHotEncoder", "OneHotEncoder", "OrdinalEncoder"]


def categories(counts: Mapping[Any, int] | None, column: str, most: int | None = None) -> list[Any]:
    """The values of a column in their order; `most` of them, the most frequent.

    Raises:
        ValueError: a value is missing.
    """
    counts = counts or {}
    if None in counts:
        raise ValueError(
            f"Unable to fit column '{column}' because it contains null values. Consider imputing "
            "missing values first."
        )
    ranked = sorted(counts, key=lambda value: -counts[value])[:most]
    return ordered(ranked, column)


def ordered(values: list[Any], column: str) -> list[Any]:
    """Values in their order."""
    try:
        return sorted(values)
    except TypeError as error:
        raise ValueError(f"Unable to fit column '{column}': {error}") from error


class _Encoder(BuiltIn):
    """An encoder that learns the distinct values of columns: `stats_["unique_values(column)"]` has
    them with their numbers."""

    columns: list[str]
    output_columns: list[str]
    max_categories: Mapping[str, int] = {}

    def _elements(self) -> bool:
        """Returns whether the elements of lists are categories, or whole lists are."""
        return True

    def _aggregates(self) -> list[AggregateFn]:
        for name in self.max_categories:
            if name not in self.columns:
                raise ValueError(
                    f"You set `max_categories` for {name}, which is not present in {self.columns}."
                )
        kind = "elements" if self._elements() else "values"
        return [ValueCounts(n, f"{kind}({n})", elements=self._elements()) for n in self.columns]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        return {
            f"unique_values({name})": {
                value: number
                for number, value in enumerate(
                    categories(counts, name, self.max_categories.get(name))
                )
            }
            for name, counts in zip(self.columns, results.values())
        }

    def _numbers(self, name: str) -> dict[Any, int]:
        return self.stats_[f"unique_values({name})"]

    def _check(self, table: Any) -> None:
        super()._check(table)
        gaps = [name for name in self.columns if missing(table.column(name)).any()]
        if gaps:
            raise ValueError(
                f"Unable to transform columns {gaps} because they contain null values. Consider "
                "imputing missing values first."
            )

    def _codes(self, table: Any, name: str) -> Any:
        """The number of each row's category; -1 of one that is not known."""
        return codes_of(table.column(name), self._numbers(name))


def codes_of(column: Any, known: Mapping[Any, int]) -> Any:
    """The numbers of values as a NumPy array; -1 of those that are not known."""
    column = key(column)  # -0.0 is 0.0.
    if is_list(column.type) or isinstance(column.type, pa.BaseExtensionType):
        found = [known.get(hashable(value), -1) for value in values_of(column)]
        return np.array(found, np.int64)
    try:
        keys = pa.array(list(known), column.type)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"values of type {column.type} were others when it was fitted") from error
    numbers = np.array([*known.values(), -1], np.int64)
    places = pc.index_in(column, value_set=keys).fill_null(len(keys))
    return numbers[places.to_numpy()]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.ordinal_encoder")
class OrdinalEncoder(_Encoder):
    """Categories as numbers from 0, in their order; NULL for one that was not there when it was
    fitted.

    Args:
        columns: the columns.
        encode_lists: elements of lists are categories; False: whole lists.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _FRAMES = False

    def __init__(
        self,
        columns: list[str],
        *,
        encode_lists: bool = True,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns, self.encode_lists = columns, encode_lists
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _elements(self) -> bool:
        return self.encode_lists

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            column = table.column(name)
            if is_list(column.type) and self.encode_lists:
                lists = plain(column)
                codes = codes_of(lists.flatten(), self._numbers(name))
                lengths = pc.list_value_length(lists).to_numpy()
                offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
                made[output] = pa.ListArray.from_arrays(offsets, _known(codes))
            else:
                made[output] = _known(self._codes(table, name))
        return made


def _known(codes: Any) -> Any:
    return pa.array(codes, mask=codes < 0)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.one_hot_encoder")
class OneHotEncoder(_Encoder):
    """Categories as vectors with one 1; all 0 for one that is not known. A list is one category.

    Args:
        columns: the columns.
        max_categories: names of columns with how many categories they have, the most frequent.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _FRAMES = False

    def __init__(
        self,
        columns: list[str],
        *,
        max_categories: dict[str, int] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns, self.max_categories = columns, max_categories or {}
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _elements(self) -> bool:
        return False

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            codes = self._codes(table, name)
            width = len(self._numbers(name))
            rows = np.zeros((len(codes), width), np.uint8)
            known = np.flatnonzero(codes >= 0)
            rows[known, codes[known]] = 1
            kind = pa.list_(pa.uint8(), width)
            if width:
                made[output] = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), type=kind)
            else:
                made[output] = pa.array([[]] * len(codes), kind)
        return made


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.multi_hot_encoder")
class MultiHotEncoder(_Encoder):
    """Lists of categories as vectors of how often each comes. Arguments as of OneHotEncoder."""

    def __init__(
        self,
        columns: list[str],
        *,
        max_categories: dict[str, int] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns, self.max_categories = columns, max_categories or {}
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            column, width = plain(table.column(name)), len(self._numbers(name))
            rows = np.arange(len(column))
            if is_list(column.type):
                rows = np.repeat(rows, pc.list_value_length(column).to_numpy())
                column = column.flatten()
            codes = codes_of(column, self._numbers(name))
            counts = np.zeros((table.num_rows, width), np.int64)
            np.add.at(counts, (rows[codes >= 0], codes[codes >= 0]), 1)
            offsets = np.arange(table.num_rows + 1, dtype=np.int32) * width
            made[output] = pa.ListArray.from_arrays(offsets, pa.array(counts.ravel()))
        return made


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.label_encoder")
class LabelEncoder(_Encoder):
    """The labels of one column as numbers from 0, in their order, and back.

    Args:
        label_column: the column.
        output_column: where the numbers go; the same column when not given.
    """

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        super().__init__()
        self.label_column, self.output_column = label_column, output_column or label_column

    @property
    def columns(self) -> list[str]:  # type: ignore[override]
        """Returns the column that it reads."""
        return [self.label_column]

    def get_output_columns(self) -> list[str]:
        """Returns the column that it makes."""
        return [self.output_column]

    def _changed(self, table: Any) -> dict[str, Any]:
        return {self.output_column: _known(self._codes(table, self.label_column))}

    def inverse_transform(self, ds: Any) -> Any:
        """Labels of numbers, lazily.

        Args:
            ds: a dataset with numbers in `output_column`.

        Returns:
            It with labels in `label_column`.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted("inverse_transform")
        return ds.map_batches(Applied(self, "_inverse_arrow"), batch_format="pyarrow")

    def _inverse_arrow(self, table: Any) -> Any:
        check_columns([self.output_column], table.column_names, "LabelEncoder")
        labels = column_of(self.label_column, list(self._numbers(self.label_column)))
        codes = plain(table.column(self.output_column)).cast(pa.int64())
        known = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(labels)))
        return with_column(table, self.label_column, labels.take(pc.if_else(known, codes, None)))


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.categorizer")
class Categorizer(BuiltIn):
    """Columns of categories, as pandas and Arrow (where they are dictionaries) know them; NULL for
    one that is not known. `stats_` has the types by column. It needs pandas.

    Args:
        columns: the columns.
        dtypes: names of columns with their pandas.CategoricalDtype; those of the others are
            learned.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(
        self,
        columns: list[str],
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns, self.dtypes = columns, dtypes or {}
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _aggregates(self) -> list[AggregateFn]:
        return [
            ValueCounts(name, f"elements({name})", elements=True)
            for name in self.columns
            if name not in self.dtypes
        ]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        learned = dict(self.dtypes)
        for name, counts in zip((n for n in self.columns if n not in learned), results.values()):
            values = [value for value in counts or () if value is not None]
            learned[name] = _categorical(ordered(values, name), False)
        return learned

    def _get_serializable_fields(self) -> dict[str, Any]:
        plain_types = {
            name: {"categories": list(kind.categories), "ordered": kind.ordered}
            for name, kind in self.dtypes.items()
        }
        return {**super()._get_serializable_fields(), "dtypes": plain_types or None}

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        kinds = (fields.get("dtypes") or {}).items()
        dtypes = {name: _categorical(kind["categories"], kind["ordered"]) for name, kind in kinds}
        super()._set_serializable_fields({**fields, "dtypes": dtypes}, version)

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            made[output] = categorical_array(
                codes_of(
                    table.column(name),
                    {value: place for place, value in enumerate(self.stats_[name].categories)},
                ),
                self.stats_[name],
            )
        return made


def _categorical(values: list[Any], in_order: bool) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError("Categorizer", "pandas") from error
    return pandas.CategoricalDtype(values, in_order)


def categorical_array(codes: Any, kind: Any) -> Any:
    """Numbers of categories as a dictionary of Arrow; NULL below 0."""
    values = column_of("categories", list(kind.categories))
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=codes < 0), plain(values), ordered=bool(kind.ordered)
    )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Preprocessors and NaN, the ends of integer types, and -0.0: as Ray 2.60 does, but for
SimpleImputer, for which Ray finds no mean where there is a NaN."""

import math

import numpy as np
import pyarrow as pa
import pytest
from sheaf import data
from sheaf.data.errors import BatchError
from sheaf.data.preprocessors import (
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
)

pytestmark = pytest.mark.usefixtures("node")
NAN = math.nan


def changed(preprocessor, values, kind=None):
    """The rows of a column "x" after it, each value in a block of its own; "nan" is NaN."""
    cells = pa.array(values, kind)
    blocks = [pa.table({"x": cells.slice(n, 1)}) for n in range(len(cells))]
    found = [row["x"] for row in preprocessor.fit_transform(data.from_arrow(blocks)).take_all()]
    return ["nan" if value != value else value for value in found]


def test_the_mean_fills_null_and_nan():
    assert changed(SimpleImputer(["x"]), [1.0, NAN, None, 3.0]) == [1.0, 2.0, 2.0, 3.0]
    frequent = SimpleImputer(["x"], "most_frequent")
    assert changed(frequent, [1.0, NAN, NAN, None, 3.0, 3.0]) == [1.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    with pytest.raises(Exception, match="Column x has no fill value"):
        changed(SimpleImputer(["x"]), [NAN, NAN])


def test_scalers_of_a_column_with_nan():
    values = [1.0, NAN, 3.0, 7.0]
    assert changed(StandardScaler(["x"]), values) == [None] * 4
    assert changed(MinMaxScaler(["x"]), values) == [0.0, "nan", 2 / 6, 1.0]
    assert changed(MaxAbsScaler(["x"]), values) == [1 / 7, "nan", 3 / 7, 1.0]
    assert changed(RobustScaler(["x"]), values) == [-2 / 3, "nan", 0.0, 4 / 3]


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_scalers_at_the_ends_of_integers(kind):
    ends = [int(np.iinfo(kind).min), int(np.iinfo(kind).max)]
    assert changed(MaxAbsScaler(["x"]), ends, kind) == [-1.0, ends[1] / -ends[0]]
    assert changed(MinMaxScaler(["x"]), ends, kind) == [0.0, 1.0]


def test_minus_zero_is_the_category_zero():
    values = [1.5, 0.0, -0.0]
    assert changed(OrdinalEncoder(["x"]), values) == [1, 0, 0]
    assert changed(LabelEncoder("x"), values) == [1, 0, 0]
    assert changed(OneHotEncoder(["x"]), values) == [[0, 1], [1, 0], [1, 0]]


def test_a_column_of_text_is_named():
    with pytest.raises(BatchError, match="mean.*column 'x' is string"):
        changed(StandardScaler(["x"]), ["a", "b"])

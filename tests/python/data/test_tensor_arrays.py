# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors in columns of pandas: into datasets, through functions, and back."""

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf import data  # noqa: E402
from sheaf.data.extensions import TensorArray, TensorDtype  # noqa: E402

IMAGES = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3)


def test_a_column_of_tensors_is_one_of_pandas():
    column = TensorArray(IMAGES)
    frame = pandas.DataFrame({"n": range(4), "image": column})
    assert frame.dtypes["image"] == TensorDtype((2, 3), np.float32)
    assert frame["image"].iloc[1].shape == (2, 3) and column.numpy_shape == (4, 2, 3)
    assert np.array_equal(frame["image"].to_numpy(), IMAGES)
    some = frame[frame["n"] % 2 == 1].reset_index(drop=True)
    assert np.array_equal(some["image"].to_numpy(), IMAGES[1::2])
    both = pandas.concat([frame, some], ignore_index=True)
    assert np.array_equal(both["image"].to_numpy(), np.concatenate([IMAGES, IMAGES[1::2]]))
    assert both["image"].isna().sum() == 0 and "[" in repr(frame)
    ordered = frame.sort_values("n", ascending=False)
    assert np.array_equal(ordered["image"].to_numpy(), IMAGES[::-1])
    assert list(column == TensorArray(IMAGES[::-1])) == [False] * 4


def test_tensors_of_several_shapes():
    rows = [np.ones((2, 2)), np.ones((1, 2)), None]
    column = TensorArray(rows)
    assert column.is_variable_shaped and column.numpy_shape == (3, None, 2)
    assert list(column.isna()) == [False, False, True]
    assert pandas.Series(column).iloc[1].shape == (1, 2)
    missing = TensorArray(IMAGES).take([0, -1], allow_fill=True)
    assert list(missing.isna()) == [False, True]


@pytest.mark.parametrize("wrong", ["text", 3, np.array(["a", "b"]), [["x"], ["y"]]])
def test_what_is_no_tensor_is_refused(wrong):
    with pytest.raises(TypeError):
        TensorArray(wrong)


@pytest.mark.usefixtures("node")
def test_datasets_take_them_without_an_object_per_row():
    frame = pandas.DataFrame({"n": range(4), "image": TensorArray(IMAGES)})
    ds = data.from_pandas(frame)
    assert ds.schema().base_schema.field("image").type == pa.fixed_shape_tensor(
        pa.float32(), (2, 3)
    )

    def brighter(batch):
        images = np.stack(batch["image"]) + 1
        return batch.assign(image=TensorArray(images))

    made = ds.map_batches(brighter, batch_format="pandas").take_batch(4)
    assert np.array_equal(made["image"], IMAGES + 1)


@pytest.mark.usefixtures("node")
def test_datasets_take_those_of_several_shapes():
    rows = [np.ones((2, 2)), np.zeros((1, 2))]
    back = data.from_pandas(pandas.DataFrame({"x": TensorArray(rows)})).take_all()
    assert [row["x"].tolist() for row in back] == [row.tolist() for row in rows]

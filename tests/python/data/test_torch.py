# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.data beside the real PyTorch."""

import warnings

import numpy as np
import pyarrow as pa
import pytest
from sheaf import data
from sheaf.data import errors
from sheaf.data.collate_fn import (
    ArrowBatchCollateFn,
    DefaultCollateFn,
    PandasBatchCollateFn,
    is_tensor_batch_type,
)
from sheaf.data.util import torch_utils

torch = pytest.importorskip("torch")


def of(values, kind=None):
    return data.from_arrow(pa.table({"a": pa.array(values, kind)}))


def first(dataset, **options):
    return next(iter(dataset.iter_torch_batches(**options)))


@pytest.fixture(scope="module")
def stored(node):
    """Numbers in blocks in the object store."""
    return data.range(100_000, override_num_blocks=2).materialize()


# What becomes a tensor.


@pytest.mark.parametrize(
    "kind", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float16"]
)
def test_numbers_keep_their_type(node, kind):
    tensor = first(of(np.array([1, 2], kind)))["a"]
    assert tensor.dtype == getattr(torch, kind) and tensor.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_dtypes_of_all_columns_and_of_some(node, dtype):
    rows = data.from_items([{"a": n, "b": n / 2} for n in range(3)])
    assert {one.dtype for one in first(rows, dtypes=dtype).values()} == {dtype}
    some = first(rows, dtypes={"a": dtype})
    assert (some["a"].dtype, some["b"].dtype) == (dtype, torch.float64)


def test_nulls_are_nan(node):
    assert first(of([1, None]))["a"].isnan().tolist() == [False, True]
    assert first(of([None, None]))["a"].isnan().all()


@pytest.mark.parametrize(
    "values", [[[1, 2], [3, 4]], [np.ones((2, 3)), np.zeros((2, 3))]], ids=["lists", "arrays"]
)
def test_lists_and_arrays_of_one_shape_are_one_tensor(node, values):
    tensor = first(data.from_items([{"a": one} for one in values]))["a"]
    assert tensor.tolist() == np.array(values).tolist()


def test_tensors_of_several_shapes(node):
    rows = data.from_items([{"a": np.ones(n + 1)} for n in range(3)])
    with pytest.raises(RuntimeError, match="column 'a' .* several shapes.*collate_fn"):
        first(rows)
    sizes = [list(batch["a"].shape) for batch in rows.iter_torch_batches(batch_size=1)]
    assert sizes == [[1, 1], [1, 2], [1, 3]]


@pytest.mark.parametrize("values", [["x", "y"], [b"x"], [np.datetime64(1, "s")]])
def test_what_is_no_number_is_refused_by_its_column(node, values):
    with pytest.raises(TypeError, match="column 'a' of dtype .* is no tensor: leave it out"):
        first(of(values))


# Tensors share no memory with the data: another reader has it, too, or it cannot be written.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": None},
        {"dtypes": torch.int64},
        {"collate_fn": lambda batch: {"id": torch.as_tensor(batch["id"])}},
        {"collate_fn": DefaultCollateFn(dtypes=torch.int64)},
    ],
    ids=["plain", "blocks", "dtype", "function", "class"],
)
def test_tensors_may_be_written_and_the_data_stays(stored, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in stored.iter_torch_batches(**options):
            batch["id"] += 1
    assert stored.sum("id") == sum(range(100_000))


def test_an_array_that_may_be_written_is_not_copied():
    array = np.arange(3)
    torch_utils.convert_ndarray_to_torch_tensor(array)[0] = 7
    assert array[0] == 7
    array.flags.writeable = False
    torch_utils.convert_ndarray_to_torch_tensor(array)[0] = 8
    assert array[0] == 7


# Collate functions.


def test_classes_say_which_batch_they_take(node):
    class OfArrow(ArrowBatchCollateFn):
        def __call__(self, batch):
            return type(batch)

    class OfPandas(PandasBatchCollateFn):
        def __call__(self, batch):
            return type(batch).__name__

    rows = of([1])
    assert first(rows, collate_fn=OfArrow()) is pa.Table
    assert first(rows, collate_fn=OfPandas()) == "DataFrame"
    assert first(rows, collate_fn=lambda batch: type(batch)) is dict
    with pytest.raises(ValueError, match="collate_fn=3: want a function"):
        rows.iter_torch_batches(collate_fn=3)


def test_the_default_class_takes_a_table():
    table = pa.table({"a": pa.chunked_array([[1, 2], [3]])})
    apart = DefaultCollateFn()(table)
    assert [one.tolist() for one in apart["a"]] == [[1, 2], [3]]
    together = DefaultCollateFn(dtypes={"a": torch.int8}, combine_chunks=True)(table)
    assert together["a"].tolist() == [1, 2, 3] and together["a"].dtype == torch.int8


def test_lists_of_tensors_in_lists_and_dicts_become_one(node):
    one, two = torch.tensor([1, 2]), torch.tensor([3])
    for made, wanted in (
        ({"a": [one, two]}, {"a": [1, 2, 3]}),
        ([(one, two), (two,)], [[1, 2, 3], [3]]),
        ((one, two), [[1, 2], [3]]),
    ):
        got = first(of([1]), collate_fn=lambda batch, made=made: made)
        assert type(got) is type(made)
        if isinstance(got, dict):
            assert {name: value.tolist() for name, value in got.items()} == wanted
        else:
            assert [value.tolist() for value in got] == wanted
    other = {"n": 1, "t": [one, two]}
    assert first(of([1]), collate_fn=lambda batch: other) is other


def test_what_is_a_batch_of_tensors():
    one = torch.ones(1)
    for value in (one, [one], [[one], [one]], {"a": one}, {"a": [one]}, [], {}):
        assert is_tensor_batch_type(value)
    for value in ([1], {"a": one, "b": [one]}, {"a": {"b": one}}, [[[one]]], [one, [one]], "x"):
        assert not is_tensor_batch_type(value)


def test_places(node):
    rows = data.range(2)
    assert first(rows)["id"].device.type == "cpu"
    assert first(rows, device="meta")["id"].device.type == "meta"
    made = first(
        rows, device="meta", collate_fn=lambda batch: {"a": [torch.ones(2), torch.ones(1)]}
    )
    assert made["a"].device.type == "meta" and list(made["a"].shape) == [3]
    with pytest.raises(RuntimeError):
        rows.iter_torch_batches(device="nowhere")


# Pairs of features and labels.


def test_pairs_of_tensors_and_labels(node):
    rows = data.from_items([{"a": np.arange(2) + n, "y": n} for n in range(3)]).iterator()
    features, label = next(iter(rows.to_torch(label_column="y", batch_size=3)))
    assert list(features.shape) == [3, 1, 2] and label.tolist() == [[0], [1], [2]]
    features, _ = next(
        iter(rows.to_torch(feature_columns=["a"], batch_size=3, unsqueeze_feature_tensors=False))
    )
    assert features.tolist() == [[0, 1], [1, 2], [2, 3]]
    features, _ = next(iter(rows.to_torch(feature_columns=[], label_column="y")))
    assert features.tolist() == [[[0, 1]]]


@pytest.mark.parametrize(
    "columns, dtypes, error",
    [
        (["a"], [torch.int8], TypeError),
        ([["a"], ["b"]], [torch.int8], ValueError),
        ([["a"]], {"a": torch.int8}, TypeError),
        ({"p": ["a"]}, [torch.int8], TypeError),
        ({"p": ["a"]}, {"q": torch.int8}, ValueError),
        ({"p": []}, None, ValueError),
    ],
)
def test_dtypes_that_do_not_fit_columns(node, columns, dtypes, error):
    rows = data.from_items([{"a": 1, "b": 2}]).iterator()
    with pytest.raises(error, match="to_torch: feature_columns|to_torch: feature_column_dtypes"):
        rows.to_torch(feature_columns=columns, feature_column_dtypes=dtypes)


# Tensors that come in.


def test_elements_of_datasets_of_torch(node):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    class Long(Stream):
        def __len__(self):
            return 2  # Wrong.

    for made in (Stream(), Long(), torch.utils.data.Subset(list(range(5)), [0, 1, 2])):
        assert [row["item"] for row in data.from_torch(made).take_all()] == [0, 1, 2]


def test_tensors_without_dimensions_are_numbers(node):
    rows = data.from_items([{"a": torch.tensor(n / 2), "b": np.asarray(n)} for n in range(2)])
    assert rows.take_all() == [{"a": 0.0, "b": 0}, {"a": 0.5, "b": 1}]
    assert rows.schema().types == [pa.float32(), pa.int64()]


def test_a_tensor_that_numpy_does_not_have_is_refused_by_its_column(node):
    rows = data.range(3).map_batches(
        lambda b: {"a": torch.ones(len(b["id"]), dtype=torch.bfloat16)}
    )
    with pytest.raises(errors.UserCodeError, match=r"column 'a' .*bfloat16.*return x\.float\(\)"):
        rows.take_all()


def test_workers_of_a_trainer_write_into_the_tensors_of_their_parts(node, tmp_path):
    from sheaf import train
    from sheaf.train.torch import TorchConfig, TorchTrainer

    def loop():
        totals = []
        for _ in range(2):  # Epochs.
            total = torch.zeros(1, dtype=torch.int64)
            for batch in train.get_dataset_shard().iter_torch_batches(batch_size=1000):
                batch["id"] += 1
                total += batch["id"].sum()
            torch.distributed.all_reduce(total)
            totals.append(int(total))
        train.report({"totals": totals})

    result = TorchTrainer(
        loop,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=tmp_path, progress=False),
        datasets={"train": data.range(100_000, override_num_blocks=4).materialize()},
    ).fit()
    assert result.metrics["totals"] == [sum(range(100_001))] * 2

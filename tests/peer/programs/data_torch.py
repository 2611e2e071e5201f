# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Batches of ray.data as tensors of PyTorch: iter_torch_batches, to_torch, collate functions."""

import warnings

import numpy as np
import pyarrow as pa
import torch
from datasets import data, fails
from program import main, program, say
from torch_values import shown

warnings.simplefilter(
    "ignore"
)  # Ray says of to_torch, and of functions that collate, they are old.


def batches(ds, **options):
    for batch in ds.iter_torch_batches(**options):
        say(shown(batch))


def of(values, kind=None):
    return data.from_arrow(pa.table({"a": pa.array(values, kind)}))


@program
def sizes_of_batches():
    ds = data.range(10, override_num_blocks=2)
    batches(ds, batch_size=4)
    batches(ds, batch_size=4, drop_last=True)
    batches(ds, batch_size=None)
    batches(ds)
    batches(ds, batch_size=3, prefetch_batches=0)
    batches(ds, batch_size=3, prefetch_batches=4)
    batches(data.range(0), batch_size=3)


@program
def numbers_keep_their_types():
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        batches(of([1, 2], getattr(pa, kind)()))
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        batches(of(np.array([0.5, 2], kind.to_pandas_dtype()), kind))
    batches(of([True, False, True]))


@program
def dtypes_of_all_columns():
    ds = data.from_items([{"a": n, "b": n / 2, "c": n > 1} for n in range(3)])
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.bool):
        batches(ds, dtypes=dtype)


@program
def dtypes_of_some_columns():
    ds = data.from_items([{"a": n, "b": n / 2} for n in range(3)])
    batches(ds, dtypes={"a": torch.float32, "b": torch.float16})
    batches(ds, dtypes={"a": torch.bfloat16, "b": torch.int32, "other": torch.int8})
    fails(lambda: list(ds.iter_torch_batches(dtypes={})))


@program
def dtypes_that_are_none():
    ds = data.from_items([{"a": n, "b": n / 2} for n in range(3)])
    fails(lambda: list(ds.iter_torch_batches(dtypes={"a": torch.float32})))
    fails(lambda: list(ds.iter_torch_batches(dtypes="float32")))
    fails(lambda: list(ds.iter_torch_batches(dtypes=np.float32)))


@program
def nulls():
    batches(of([1, None, 3]))
    batches(of([1.5, None]))
    batches(of([None, 2.5], pa.float32()))
    batches(of([1, None], pa.int32()))
    fails(lambda: list(of([True, None]).iter_torch_batches()))
    fails(lambda: list(of([None, None]).iter_torch_batches()))
    batches(of([1, None, 3]), dtypes=torch.float32)


@program
def columns_without_tensors():
    import datetime
    import decimal

    for values in (
        ["a", "b"],
        [b"a", b"b"],
        [decimal.Decimal("1.5"), decimal.Decimal("2.25")],
        [datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2)],
        [datetime.date(2026, 1, 1)],
        [datetime.timedelta(seconds=1)],
        [{"x": 1}],
        [[1, 2], [3]],
        [["a"], ["b"]],
        [[1, 2], None],
    ):
        ds = of(values)
        fails(lambda ds=ds: list(ds.iter_torch_batches()))


@program
def errors_are_those_of_torch():
    def kind(values):
        try:
            list(of(values).iter_torch_batches())
        except BaseException as error:
            return next(
                k.__name__
                for k in (TypeError, RuntimeError, ValueError, Exception)
                if isinstance(error, k)
            )
        return "none"

    say(kind(["a", "b"]), kind([[1, 2], [3]]), kind([[1, 2], None]), kind([{"x": 1}]))


@program
def lists_of_one_length():
    batches(of([[1, 2], [3, 4]]))
    batches(of([[1.5], [2.5], [3.5]]))
    batches(of([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)))
    batches(of([[1, 2], [3, 4]]), dtypes=torch.float32)
    fails(lambda: list(of([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]).iter_torch_batches()))
    batches(of([[True, False], [False, True]]))
    batches(data.from_items([{"a": [n, n + 1]} for n in range(3)]))


@program
def tensors_of_one_shape():
    ds = data.range_tensor(4, shape=(2, 2), override_num_blocks=2)
    batches(ds, batch_size=3)
    batches(ds, batch_size=3, dtypes=torch.float32)
    batches(data.from_numpy(np.arange(6, dtype=np.uint8).reshape(3, 2)))
    batches(data.from_numpy(np.ones((2, 3), bool)))
    batches(data.from_numpy(np.ones((2, 1, 2), np.float16)))


@program
def tensors_of_several_shapes():
    ds = data.from_items([{"a": np.ones((n + 1, 2))} for n in range(3)])
    fails(lambda: list(ds.iter_torch_batches()))
    batches(ds, batch_size=1)

    def padded(batch):
        longest = max(len(one) for one in batch["a"])
        return torch.stack(
            [
                torch.nn.functional.pad(torch.as_tensor(one), (0, 0, 0, longest - len(one)))
                for one in batch["a"]
            ]
        )

    batches(ds, collate_fn=padded)


@program
def functions_that_collate():
    ds = data.from_items([{"a": n, "b": n / 2} for n in range(4)])
    batches(ds, batch_size=2, collate_fn=lambda b: torch.as_tensor(b["a"]) * 10)
    batches(ds, batch_size=2, collate_fn=lambda b: (torch.as_tensor(b["a"]), torch.ones(1)))
    batches(ds, batch_size=2, collate_fn=lambda b: {"x": torch.as_tensor(b["b"])})
    batches(ds, batch_size=2, collate_fn=lambda b: len(b["a"]))
    batches(ds, batch_size=2, collate_fn=lambda b: {"n": len(b["a"]), "t": torch.ones(1)})
    batches(ds, batch_size=4, collate_fn=lambda b: b)
    fails(lambda: ds.iter_torch_batches(collate_fn=len, dtypes=torch.int8))
    fails(lambda: ds.iter_torch_batches(collate_fn=3))

    def broken(batch):
        raise KeyError("no such")

    fails(lambda: list(ds.iter_torch_batches(collate_fn=broken)))


@program
def lists_of_tensors_are_put_together():
    ds = data.from_items([{"a": n} for n in range(4)])
    one, two = torch.tensor([1, 2]), torch.tensor([3])
    for made in (
        {"a": [one, two]},
        [[one, two], [two]],
        ((one, two), (two,)),
        [one, two],
        {"a": (one, two), "b": [two]},
        {"a": {"b": one}},
        {"a": [one], "b": one},
        [],
        {},
        [[[one]]],
    ):
        batches(ds, collate_fn=lambda batch, made=made: made)


@program
def classes_that_collate():
    from ray.data.collate_fn import (
        ArrowBatchCollateFn,
        CollateFn,
        NumpyBatchCollateFn,
        PandasBatchCollateFn,
    )

    class OfArrow(ArrowBatchCollateFn):
        def __call__(self, batch):
            return torch.as_tensor(batch["a"].to_numpy() + 5)

    class OfNumpy(NumpyBatchCollateFn):
        def __call__(self, batch):
            return {"a": torch.as_tensor(batch["a"] + 5)}

    class OfPandas(PandasBatchCollateFn):
        def __call__(self, batch):
            return torch.as_tensor(batch["a"].to_numpy() + 5), torch.ones(1)

    class OfAny(CollateFn):
        def __call__(self, batch):
            return type(batch).__name__

    ds = data.from_items([{"a": 1}, {"a": 3}])
    for made in (OfArrow(), OfNumpy(), OfPandas(), OfAny()):
        batches(ds, collate_fn=made)


@program
def the_default_class_that_collates():
    from ray.data.collate_fn import ArrowBatchCollateFn, DefaultCollateFn

    table = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": [0.5, 1, 2]})
    say(shown(DefaultCollateFn()(table)))
    say(shown(DefaultCollateFn(combine_chunks=True)(table)))
    say(shown(DefaultCollateFn(dtypes=torch.float32, combine_chunks=True)(table)))
    say(shown(DefaultCollateFn(dtypes={"a": torch.int8, "b": torch.float16})(table)))
    say(shown(DefaultCollateFn(num_workers=0)(table)))
    say(isinstance(DefaultCollateFn(), ArrowBatchCollateFn))
    ds = data.from_items([{"a": n, "b": n / 2} for n in range(4)], override_num_blocks=2)
    batches(ds, batch_size=3, collate_fn=DefaultCollateFn(dtypes=torch.float32))

    class Wrapped(ArrowBatchCollateFn):
        def __init__(self):
            self.inner = DefaultCollateFn()

        def __call__(self, batch):
            made = self.inner(batch)
            return {name: [one * 2 for one in tensors] for name, tensors in made.items()}

    batches(ds, batch_size=3, collate_fn=Wrapped())


@program
def what_is_a_batch_of_tensors():
    from ray.data.collate_fn import is_tensor_batch_type

    one = torch.ones(1)
    for value in (
        one,
        [one],
        (one, one),
        [[one], [one, one]],
        {"a": one},
        {"a": [one]},
        [],
        {},
        [1],
        {"a": one, "b": [one]},
        {"a": {"b": one}},
        [[[one]]],
        {"a": [[one]]},
        [one, [one]],
        "text",
        None,
        np.ones(1),
    ):
        say(is_tensor_batch_type(value))


@program
def functions_of_torch_utils():
    from ray.data.util.torch_utils import (
        arrow_batch_to_tensors,
        convert_ndarray_batch_to_torch_tensor_batch,
        convert_ndarray_to_torch_tensor,
        move_tensors_to_device,
    )

    table = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": [0.5, 1, 2]})
    say(shown(arrow_batch_to_tensors(table)))
    say(shown(arrow_batch_to_tensors(table, combine_chunks=True)))
    say(shown(arrow_batch_to_tensors(table, dtypes={"a": torch.int8, "b": torch.float16})))
    say(shown(convert_ndarray_to_torch_tensor(np.arange(3))))
    say(shown(convert_ndarray_to_torch_tensor(np.arange(3), dtype=torch.float32)))
    say(shown(convert_ndarray_batch_to_torch_tensor_batch({"a": np.arange(2)}, {"a": torch.int8})))
    say(shown(convert_ndarray_batch_to_torch_tensor_batch(np.arange(2), torch.int8)))
    one, two = torch.tensor([1, 2]), torch.tensor([3])
    say(shown(move_tensors_to_device({"a": [one, two]}, "cpu")))
    say(shown(move_tensors_to_device([[one, two], [two]], torch.device("cpu"))))
    say(shown(move_tensors_to_device({"a": [one, two]})))


@program
def places_of_tensors():
    ds = data.range(2)
    for device in ("auto", "cpu", torch.device("cpu"), "cpu:0"):
        batch = next(iter(ds.iter_torch_batches(device=device)))
        say(batch["id"].device.type)
    batch = next(iter(ds.iter_torch_batches(device="meta")))
    say(batch["id"].device.type, list(batch["id"].shape))
    batch = next(iter(ds.iter_torch_batches(device="meta", collate_fn=lambda b: torch.ones(2))))
    say(batch.device.type)
    fails(lambda: list(ds.iter_torch_batches(device="nonsense")))


@program
def local_shuffles():
    ds = data.range(40, override_num_blocks=4)

    def drawn(**options):
        return [one for batch in ds.iter_torch_batches(**options) for one in batch["id"].tolist()]

    options = {"batch_size": 5, "local_shuffle_buffer_size": 10}
    first = drawn(**options, local_shuffle_seed=1)
    say(sorted(first) == list(range(40)), first != list(range(40)))
    say(first == drawn(**options, local_shuffle_seed=1))
    say(len(drawn(batch_size=7, drop_last=True, local_shuffle_buffer_size=10)))


@program
def no_warning_of_arrays_that_cannot_be_written():
    import warnings

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        list(data.range(10).iter_torch_batches(batch_size=4))
        list(data.range_tensor(10, shape=(2, 2)).iter_torch_batches(batch_size=4))
    say([str(one.message)[:40] for one in seen if "writ" in str(one.message)])


@program
def several_epochs():
    it = data.range(6).iterator()
    for _ in range(2):
        batches(it, batch_size=4)
    made = data.range(4).iter_torch_batches(batch_size=2)
    say(len(list(made)), len(list(made)))


@program
def pairs():
    ds = data.from_items([{"a": n, "b": n / 2, "y": n % 2} for n in range(5)])
    for features, label in ds.iterator().to_torch(label_column="y", batch_size=2):
        say(shown(features), shown(label))
    for one in ds.iterator().to_torch(label_column="y", feature_columns=["b", "a"], batch_size=3):
        say(shown(one))
    for one in ds.iterator().to_torch(batch_size=3, drop_last=True):
        say(shown(one))
    for one in ds.iterator().to_torch(
        label_column="y",
        label_column_dtype=torch.float32,
        unsqueeze_label_tensor=False,
        batch_size=5,
    ):
        say(shown(one))


@program
def pairs_of_several_inputs():
    ds = data.from_items([{"a": n, "b": n / 2, "y": n % 2} for n in range(3)])
    for one in ds.iterator().to_torch(
        label_column="y", feature_columns=[["a"], ["a", "b"]], batch_size=3
    ):
        say(shown(one))
    for one in ds.iterator().to_torch(
        label_column="y",
        feature_columns=[["a"], ["a", "b"]],
        feature_column_dtypes=[torch.int8, torch.float16],
        batch_size=3,
    ):
        say(shown(one))
    for one in ds.iterator().to_torch(
        label_column="y",
        feature_columns={"p": ["a"], "q": ["a", "b"]},
        feature_column_dtypes={"p": torch.int8, "q": torch.float16},
        batch_size=3,
    ):
        say(shown(one))
    for one in ds.iterator().to_torch(
        feature_columns={"p": ["a"]}, feature_column_dtypes=torch.float64
    ):
        say(shown(one))
    for one in ds.iterator().to_torch(feature_columns=[], label_column="y", batch_size=3):
        say(shown(one))


@program
def pairs_of_tensors():
    ds = data.from_items([{"a": np.arange(2) + n, "y": n} for n in range(3)])
    for one in ds.iterator().to_torch(label_column="y", batch_size=3):
        say(shown(one))
    for one in ds.iterator().to_torch(
        label_column="y", batch_size=3, unsqueeze_feature_tensors=False
    ):
        say(shown(one))
    ds = data.from_items([{"a": [n, n], "y": n} for n in range(3)])
    for one in ds.iterator().to_torch(
        label_column="y", batch_size=3, unsqueeze_feature_tensors=False
    ):
        say(shown(one))
    ds = data.from_items([{"a": n, "y": n} for n in range(3)])
    for one in ds.iterator().to_torch(
        label_column="y", batch_size=3, unsqueeze_feature_tensors=False
    ):
        say(shown(one))


@program
def mistakes_about_pairs():
    ds = data.from_items([{"a": n, "b": n / 2, "s": "x"} for n in range(3)])

    def wrong(**options):
        fails(lambda: list(ds.iterator().to_torch(**options)))

    wrong(feature_columns=["none"])
    wrong(label_column="none")
    wrong(feature_columns=["s"])
    wrong(feature_columns=["a"], feature_column_dtypes=[torch.int8])
    wrong(feature_columns=[["a"], ["b"]], feature_column_dtypes=[torch.int8])
    wrong(feature_columns=[["a"], ["b"]], feature_column_dtypes={"a": torch.int8})
    wrong(feature_columns={"p": ["a"]}, feature_column_dtypes=[torch.int8])
    wrong(feature_columns={"p": ["a"]}, feature_column_dtypes={"q": torch.int8})
    wrong(feature_columns={"p": []}, feature_column_dtypes={"p": torch.int8})


@program
def pairs_are_an_iterable_dataset():
    from torch.utils.data import DataLoader, IterableDataset

    ds = data.from_items([{"a": n, "y": n % 2} for n in range(5)])
    made = ds.iterator().to_torch(label_column="y", batch_size=2)
    say(isinstance(made, IterableDataset))
    for features, label in DataLoader(made, batch_size=None):
        say(shown(features), shown(label))
    say(len(list(made)), len(list(made)))
    say(
        [
            list(one[0].shape)
            for one in DataLoader(ds.iterator().to_torch(label_column="y"), batch_size=2)
        ]
    )


if __name__ == "__main__":
    main()

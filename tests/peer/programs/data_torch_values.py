# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch in rows and batches of ray.data, and in files."""

import warnings

import numpy as np
import ray
import torch
from datasets import data, fails, folder, kinds_of, rows
from program import main, program, say
from torch_values import shown

warnings.simplefilter("ignore")


def taken(ds):
    for row in ds.take_all():
        say(shown(row))


def mapped(function, **options):
    return data.range(3, override_num_blocks=1).map(function, **options)


def by_batch(function, **options):
    return data.range(3, override_num_blocks=1).map_batches(function, **options)


@program
def rows_that_hold_tensors():
    taken(mapped(lambda row: {"x": torch.ones(2) * row["id"]}))
    taken(mapped(lambda row: {"x": torch.full((2, 2), row["id"])}))
    taken(mapped(lambda row: {"x": torch.ones(int(row["id"]) + 1)}))
    taken(mapped(lambda row: {"x": torch.tensor([True, False])}))
    taken(mapped(lambda row: {"x": torch.ones(2, dtype=torch.float16)}))
    taken(mapped(lambda row: {"x": torch.ones(2, dtype=torch.uint8)}))


@program
def rows_that_hold_scalars_of_torch():
    taken(mapped(lambda row: {"x": torch.tensor(row["id"])}))
    taken(mapped(lambda row: {"x": torch.tensor(row["id"] / 2)}))
    taken(mapped(lambda row: {"x": torch.tensor(row["id"] > 1)}))
    kinds_of(mapped(lambda row: {"x": torch.tensor(row["id"] / 2)}))
    taken(mapped(lambda row: {"x": np.asarray(row["id"])}))


@program
def batches_that_hold_tensors():
    taken(by_batch(lambda b: {"x": torch.as_tensor(b["id"]) * 2}))
    taken(by_batch(lambda b: {"x": torch.ones(3, 2)}))
    taken(by_batch(lambda b: {"x": torch.ones(3, 2, 2, dtype=torch.uint8)}))
    taken(by_batch(lambda b: {"x": torch.tensor([True, False, True])}))
    taken(by_batch(lambda b: {"x": torch.ones(3, dtype=torch.float16)}))
    taken(by_batch(lambda b: {"x": [torch.ones(n + 1) for n in range(3)]}))
    taken(by_batch(lambda b: {"x": [torch.ones(2), torch.zeros(2), torch.ones(2)]}))
    taken(by_batch(lambda b: {"x": [torch.tensor(n) for n in range(3)]}))
    taken(by_batch(lambda b: {"id": b["id"], "x": torch.zeros(3)}))


@program
def bfloat16_is_no_column():
    fails(lambda: by_batch(lambda b: {"x": torch.ones(3, dtype=torch.bfloat16)}).take_all())
    fails(lambda: mapped(lambda row: {"x": torch.ones(2, dtype=torch.bfloat16)}).take_all())


@program
def tensors_with_gradients():
    fails(lambda: by_batch(lambda b: {"x": torch.ones(3, requires_grad=True)}).take_all())
    fails(lambda: mapped(lambda row: {"x": torch.ones(2, requires_grad=True)}).take_all())


@program
def tensors_that_do_not_lie_in_order():
    taken(by_batch(lambda b: {"x": torch.arange(6).reshape(2, 3).t()}))
    taken(by_batch(lambda b: {"x": torch.arange(6)[::2]}))
    taken(by_batch(lambda b: {"x": torch.ones(1).expand(3)}))
    taken(mapped(lambda row: {"x": torch.arange(6).reshape(2, 3).t()}))


@program
def a_batch_that_is_a_tensor():
    fails(lambda: by_batch(lambda b: torch.ones(3)).take_all())
    fails(lambda: mapped(lambda row: torch.ones(3)).take_all())
    fails(lambda: by_batch(lambda b: {"x": torch.tensor(1)}).take_all())


@program
def columns_of_other_lengths():
    fails(lambda: by_batch(lambda b: {"x": torch.ones(3), "y": torch.ones(2)}).take_all())


@program
def items_that_are_tensors():
    taken(data.from_items([torch.ones(2), torch.zeros(2)]))
    taken(data.from_items([{"x": torch.ones(2)}, {"x": torch.zeros(2)}]))
    taken(data.from_items([{"x": torch.tensor(1)}, {"x": torch.tensor(2)}]))
    taken(data.from_items([torch.tensor(1), torch.tensor(2)]))
    taken(data.from_items([{"x": [torch.ones(2)]}, {"x": [torch.zeros(2)]}]))
    taken(data.from_items([{"x": {"y": torch.ones(2)}}]))


@program
def from_tensors_as_arrays():
    taken(data.from_numpy(torch.arange(3).numpy()))
    taken(data.from_numpy([torch.ones(2).numpy(), torch.zeros(2).numpy()]))


@program
def maps_between_tensors():
    ds = mapped(lambda row: {"x": torch.ones(2) * row["id"]})
    taken(ds.map(lambda row: {"kind": type(row["x"]).__name__, "sum": float(row["x"].sum())}))
    taken(ds.map_batches(lambda b: {"x": torch.as_tensor(b["x"]).sum(dim=1)}))
    for batch in ds.iter_torch_batches(batch_size=2):
        say(shown(batch))


@program
def flat_maps_and_filters():
    ds = data.range(2, override_num_blocks=1)
    taken(ds.flat_map(lambda row: [{"x": torch.ones(1) * row["id"]}] * 2))
    taken(ds.filter(lambda row: torch.tensor(row["id"] > 0)))
    taken(ds.add_column("y", lambda b: torch.ones(len(b)).numpy()))


@program
def a_model_as_a_class():
    class Model:
        def __init__(self, factor):
            torch.manual_seed(0)
            self.model = torch.nn.Linear(1, 1)
            with torch.no_grad():
                self.model.weight.fill_(factor)
                self.model.bias.fill_(1.0)

        def __call__(self, batch):
            with torch.inference_mode():
                x = torch.as_tensor(batch["id"], dtype=torch.float32).unsqueeze(1)
                return {"id": batch["id"], "y": self.model(x).squeeze(1).numpy()}

    ds = data.range(6, override_num_blocks=2)
    made = ds.map_batches(Model, fn_constructor_args=(2.0,), batch_size=2, concurrency=2)
    rows(made, ordered=False)


@program
def a_model_in_a_closure():
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(3.0)
        model.bias.fill_(0.5)

    def predicted(batch):
        with torch.no_grad():
            x = torch.as_tensor(batch["id"]).float().unsqueeze(1)
            return {"y": model(x)}

    taken(data.range(3, override_num_blocks=1).map_batches(predicted))


@program
def a_model_by_reference():
    state = ray.put({"weight": torch.full((1, 1), 3.0), "bias": torch.tensor([0.5])})

    def predicted(batch, reference):
        model = torch.nn.Linear(1, 1)
        model.load_state_dict(ray.get(reference))
        with torch.no_grad():
            return {"y": model(torch.as_tensor(batch["id"]).float().unsqueeze(1)).numpy()}

    taken(
        data.range(3, override_num_blocks=1).map_batches(predicted, fn_kwargs={"reference": state})
    )


@program
def writing_into_what_a_batch_holds():
    def doubled(batch):
        x = torch.as_tensor(batch["id"])
        x *= 2
        return {"id": x}

    taken(data.range(3, override_num_blocks=1).map_batches(doubled, zero_copy_batch=False))


@program
def elements_of_a_torch_dataset():
    from torch.utils.data import Dataset, IterableDataset, Subset

    class Squares(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, place):
            return place * place

    class Pairs(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, place):
            return {"x": place, "y": str(place)}

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    class Long(IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 3

    taken(data.from_torch(Squares()))
    taken(data.from_torch(Pairs()))
    taken(data.from_torch(Stream()))
    taken(data.from_torch(Long()))
    taken(data.from_torch(Subset(Squares(), [2, 0])))
    say(data.from_torch(Squares()).count(), data.from_torch(Stream()).count())
    kinds_of(data.from_torch(Squares()))


@program
def tensors_of_a_torch_dataset():
    from torch.utils.data import TensorDataset

    taken(data.from_torch(TensorDataset(torch.arange(2))))
    ds = data.from_torch(TensorDataset(torch.arange(4).reshape(2, 2).float(), torch.arange(2)))
    taken(ds.map(lambda row: {"x": row["item"][0], "y": row["item"][1]}))
    for batch in ds.map(
        lambda row: {"x": row["item"][0], "y": row["item"][1]}
    ).iter_torch_batches():
        say(shown(batch))


@program
def images_and_labels_of_a_torch_dataset():
    from torch.utils.data import Dataset

    class Images(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, place):
            return torch.full((1, 2, 2), float(place)), place

    ds = data.from_torch(Images())
    row = ds.take(1)[0]
    say(type(row["item"]).__name__, len(row["item"]), type(row["item"][0]).__name__)

    def apart(batch):
        return {
            "image": np.stack([item[0].numpy() for item in batch["item"]]),
            "label": [item[1] for item in batch["item"]],
        }

    ds = ds.map_batches(apart)
    for batch in ds.iter_torch_batches(batch_size=2):
        say(shown(batch))


@program
def transforms_of_images():
    from ray.data.preprocessors import TorchVisionPreprocessor

    ds = data.from_numpy(np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1))

    def chw(image):
        return image.permute(2, 0, 1).float()

    made = TorchVisionPreprocessor(["data"], transform=chw).transform(ds)
    taken(made)
    made = TorchVisionPreprocessor(["data"], transform=chw, output_columns=["x"]).transform(ds)
    say(made.columns())
    batched = TorchVisionPreprocessor(["data"], lambda x: x.float() / 2, batched=True)
    for batch in batched.transform(ds).iter_torch_batches():
        say(shown(batch))

    def of_arrays(image):
        if not isinstance(image, np.ndarray):
            raise TypeError("want an array")
        return torch.as_tensor(image.copy())

    taken(TorchVisionPreprocessor(["data"], of_arrays).transform(ds))
    taken(TorchVisionPreprocessor(["data"], lambda x: x[: int(x.max()) % 3 + 1]).transform(ds))
    fails(lambda: TorchVisionPreprocessor(["data"], lambda x: "text").transform(ds).take_all())
    fails(lambda: TorchVisionPreprocessor(["none"], chw).transform(ds).take_all())
    fails(lambda: TorchVisionPreprocessor(["data"], chw, output_columns=["a", "b"]))
    say(
        sorted(
            TorchVisionPreprocessor(["data"], chw).transform_batch({"data": np.zeros((1, 2, 2, 1))})
        )
    )


@program
def concatenated_columns_as_features():
    from ray.data.preprocessors import Concatenator, StandardScaler

    ds = data.from_items([{"a": float(n), "b": n * 2.0, "y": n % 2} for n in range(4)])
    ds = StandardScaler(["a", "b"]).fit_transform(ds)
    ds = Concatenator(columns=["a", "b"], output_column_name="x", dtype=np.float32).transform(ds)
    for batch in ds.iter_torch_batches(batch_size=2):
        say({k: (str(v.dtype), list(v.shape)) for k, v in batch.items()})


@program
def tensors_in_parquet():
    with folder() as path:
        mapped(lambda row: {"x": torch.ones(2, 2) * row["id"], "id": row["id"]}).write_parquet(
            str(path)
        )
        for batch in data.read_parquet(str(path)).iter_torch_batches():
            say(shown(batch))


@program
def tensors_saved_by_numpy():
    with folder() as path:
        np.save(path / "a.npy", torch.arange(4).reshape(2, 2).numpy())
        for batch in data.read_numpy(str(path)).iter_torch_batches():
            say(shown(batch))


@program
def images_as_tensors():
    from PIL import Image

    with folder() as path:
        for n in range(2):
            Image.fromarray(np.full((2, 3, 3), n, np.uint8)).save(path / f"{n}.png")
        ds = data.read_images(str(path))
        for batch in ds.iter_torch_batches():
            say(shown(batch))
        for batch in ds.iter_torch_batches(dtypes=torch.float32):
            say(str(batch["image"].dtype), list(batch["image"].shape))


@program
def sorting_and_grouping_next_to_tensors():
    ds = data.from_items([{"k": n % 2, "n": n, "x": torch.ones(2) * n} for n in range(4)])
    taken(ds.sort("n", descending=True))
    rows(
        ds.groupby("k").map_groups(lambda g: {"k": g["k"][:1], "x": g["x"].sum(axis=0)[None]}),
        ordered=False,
    )


@program
def putting_tensors_together():
    ds = data.from_items([{"k": n % 2, "n": n, "x": torch.ones(2) * n} for n in range(4)])
    taken(ds.repartition(2).limit(2))
    rows(ds.union(ds.limit(1)), ordered=False)
    say(len(ds.random_shuffle(seed=1).take_all()))
    taken(ds.zip(data.range(4).rename_columns({"id": "m"})).limit(1))


@program
def consumers_of_a_split():
    parts = data.range(8, override_num_blocks=4).streaming_split(2, equal=True)

    @ray.remote
    def consumed(part):
        return [batch["id"] for batch in part.iter_torch_batches(batch_size=2)]

    found = ray.get([consumed.remote(part) for part in parts])
    say(sorted(one for part in found for batch in part for one in batch.tolist()))
    say([sum(len(batch) for batch in part) for part in found])
    say({str(batch.dtype) for part in found for batch in part})


if __name__ == "__main__":
    main()

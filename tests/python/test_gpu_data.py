# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Data on its way to a GPU: batches of tensors, models in tasks and actors that hold a GPU, data
that a trainer reads. Skipped without torch and a GPU."""

import numpy as np
import pytest
import sheaf
from sheaf import train
from sheaf.train.torch import TorchTrainer

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")
data = pytest.importorskip("sheaf.data")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

ROWS = 1000


@pytest.fixture(scope="module", autouse=True)
def node():
    """A node with the machine's GPUs."""
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def numbered():
    """ROWS rows of their number, as an integer and as a vector."""
    return data.range(ROWS, override_num_blocks=7).map_batches(
        lambda batch: {"id": batch["id"], "x": np.repeat(batch["id"][:, None], 3, 1) / 8}
    )


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("batch_size", [64, ROWS])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_batches_of_tensors_lie_in_the_gpu(pin_memory, batch_size, prefetch):
    seen, kept = 0, []
    for batch in numbered().iter_torch_batches(
        batch_size=batch_size, device="cuda", pin_memory=pin_memory, prefetch_batches=prefetch
    ):
        assert batch["id"].device.type == batch["x"].device.type == "cuda"
        assert torch.equal(batch["x"], batch["id"][:, None].repeat(1, 3) / 8)
        batch["x"] += 1  # It is the consumer's.
        kept.append(batch["id"])
        seen += len(batch["id"])
    assert seen == ROWS
    # Those that were kept were not overwritten by later ones.
    assert sorted(torch.cat(kept).tolist()) == list(range(ROWS))


def test_types_and_collate_functions_reach_the_gpu():
    dtypes = {"id": torch.int32, "x": torch.bfloat16}
    [batch] = numbered().iter_torch_batches(batch_size=ROWS, dtypes=dtypes, device="cuda:0")
    assert batch["id"].dtype == torch.int32 and batch["x"].dtype == torch.bfloat16

    def collate(arrays):
        return [torch.as_tensor(arrays["id"]), torch.as_tensor(arrays["x"])]

    for ids, x in numbered().iter_torch_batches(batch_size=100, collate_fn=collate, device="cuda"):
        assert ids.is_cuda and torch.equal(x[:, 0], ids / 8)


class Model:
    """A model that lies in the GPU which its actor holds."""

    def __init__(self):
        self.layer = torch.nn.Linear(3, 1, dtype=torch.float64, device="cuda")
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def __call__(self, batch):
        with torch.no_grad():
            y = self.layer(torch.as_tensor(batch["x"], device="cuda"))
        return {"id": batch["id"], "y": y[:, 0].cpu(), "gpus": [sheaf.get_gpu_ids()] * len(y)}


def test_actors_with_half_a_gpu_map_batches():
    mapped = numbered().map_batches(Model, num_gpus=0.5, concurrency=2, batch_size=50)
    rows = mapped.take_all()
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    assert all(row["y"] == row["id"] * 3 / 8 and len(row["gpus"]) == 1 for row in rows)


def test_tasks_with_a_gpu_return_tensors_of_it():
    def doubled(batch):
        return {"twice": torch.as_tensor(batch["id"], device="cuda") * 2}

    rows = data.range(100).map_batches(doubled, num_gpus=0.25).take_all()
    assert sorted(row["twice"] for row in rows) == list(range(0, 200, 2))


def train_loop(config):
    """Fits y = 2 x + 1 to batches of its part of the data."""
    context = train.get_context()
    shard = train.get_dataset_shard("train")
    model = train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = 0
    for _ in range(config["epochs"]):
        for batch in shard.iter_torch_batches(batch_size=50, dtypes=torch.float32):
            assert batch["x"].device.type == config["device"]
            loss = ((model(batch["x"][:, None])[:, 0] - batch["y"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows += len(batch["x"])
    train.report({"loss": loss.item(), "rows": rows, "rank": context.get_world_rank()})


@pytest.mark.parametrize(("workers", "share"), [(1, 1), (2, 0.5), (2, 0)])
def test_a_trainer_reads_batches_where_its_model_is(tmp_path, workers, share):
    x = np.random.default_rng(1).random(ROWS)
    result = TorchTrainer(
        train_loop,
        train_loop_config={"epochs": 20, "device": "cuda" if share else "cpu"},
        # Two ranks of NCCL want two GPUs.
        torch_config=train.torch.TorchConfig(backend="gloo" if workers > 1 else None),
        datasets={"train": data.from_items([{"x": one, "y": 2 * one + 1} for one in x])},
        scaling_config=train.ScalingConfig(
            num_workers=workers,
            use_gpu=share > 0,
            resources_per_worker={"CPU": 1, **({"GPU": share} if share else {})},
        ),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    assert result.metrics["loss"] < 1e-3
    assert result.metrics["rows"] == ROWS // workers * 20

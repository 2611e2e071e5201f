# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a network on handwritten digits with PyTorch and DistributedDataParallel over Sheaf:
gradient accumulation, mixed precision and clipping, checkpoints, and a restart when a worker is
lost.

    python train_torch.py [--workers 2] [--epochs 10]
"""

import argparse
import contextlib
import pathlib
import tempfile
from typing import Any

import numpy as np
import sheaf
import torch  # type: ignore[import-not-found,unused-ignore]
from sheaf import train
from sheaf.train.torch import TorchTrainer, get_device, prepare_data_loader, prepare_model

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"


def load() -> Any:
    """Images and digits, in an order of their own."""
    with np.load(DATA) as file:
        x, y = file["x"].astype(np.float32), file["y"].astype(np.int64)
    order = np.random.default_rng(1).permutation(len(y))
    return torch.utils.data.TensorDataset(
        torch.from_numpy(x[order] / x.max()), torch.from_numpy(y[order])
    )


def loop(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    data, device = load(), get_device()
    split = len(data) * 4 // 5
    training = torch.utils.data.Subset(data, range(split))
    loader = prepare_data_loader(
        torch.utils.data.DataLoader(training, batch_size=16, shuffle=True, drop_last=True)
    )
    model = prepare_model(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    )
    plain = getattr(model, "module", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # float16 on a GPU: the loss is scaled so that small gradients are not lost. bfloat16 has
    # float32's range and needs no scaler.
    precision = torch.float16 if device.type == "cuda" else torch.bfloat16
    scaler = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)(
        enabled=precision == torch.float16
    )
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(f"{folder}/state.pt")
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        first = state["epoch"]
    for epoch in range(first, config["epochs"]):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        total, clipped = 0.0, 0
        for index, (images, digits) in enumerate(loader):
            last = (
                index % config["accumulate"] == config["accumulate"] - 1 or index == len(loader) - 1
            )
            # Gradients are added up here; only the last of them is reduced over the workers.
            with contextlib.nullcontext() if last or model is plain else model.no_sync():
                with torch.autocast(device.type, dtype=precision):
                    loss = (
                        torch.nn.functional.cross_entropy(model(images).float(), digits)
                        / config["accumulate"]
                    )
                scaler.scale(loss).backward()
            total += float(loss.detach()) * config["accumulate"]
            if last:
                scaler.unscale_(optimizer)  # The bound is for the gradients themselves.
                clipped += (
                    float(torch.nn.utils.clip_grad_norm_(model.parameters(), config["longest"]))
                    > config["longest"]
                )
                # Leaves the step out if a scaled gradient was infinite; then scales by less.
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        with torch.no_grad():
            images, digits = data[split:]
            accuracy = float((plain(images.to(device)).argmax(1).cpu() == digits).float().mean())
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if train.get_context().get_world_rank() == 0:
                state = {
                    "model": plain.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict(),
                    "epoch": epoch + 1,
                }
                torch.save(state, f"{folder}/state.pt")
                saved = train.Checkpoint.from_directory(folder)
            metrics = {
                "loss": total / len(loader),
                "accuracy": accuracy,
                "samples": split,
                "clipped": clipped,
                "precision": str(precision),
            }
            train.report(metrics, checkpoint=saved)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    with sheaf.init(num_cpus=given.workers), tempfile.TemporaryDirectory() as folder:
        result = TorchTrainer(
            loop,
            train_loop_config={"epochs": given.epochs, "accumulate": 2, "longest": 1.0},
            scaling_config=train.ScalingConfig(num_workers=given.workers),
            run_config=train.RunConfig(
                storage_path=folder,
                failure_config=train.FailureConfig(max_failures=2),
                total_reports=given.epochs,
                checkpoint_config=train.CheckpointConfig(num_to_keep=1),
            ),
        ).fit()
    assert result.metrics is not None
    clipped = sum(row["clipped"] for row in result.metrics_history)
    print(f"recognised: {result.metrics['accuracy']:.3f}, loss {result.metrics['loss']:.3f}")
    print(
        f"gradients of 2 batches a step, {result.metrics['precision']}, clipped in {clipped} steps"
    )


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a small neural network on handwritten digits: workers compute gradients on their part of each batch and add them up by
all-reduce. One worker is killed in the middle; the others stay, a new one joins, and training goes on from the last checkpoint.

    python train_digits.py [--workers 4] [--epochs 12] [--scaling]
"""

import argparse
import os
import pathlib
import signal
import tempfile
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import sheaf
from sheaf import train

Floats = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]
DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"
PIXELS, HIDDEN, CLASSES = 64, 32, 10
BATCH, RATE, MOMENTUM = 64, 0.05, 0.9


def load() -> tuple[Arrays, Arrays]:
    """Images to train on, and others to test with: x of [count, 64] between 0 and 1, and y."""
    with np.load(DATA) as file:
        x, y = file["x"].astype(np.float64), file["y"].astype(np.int64)
    order = np.random.default_rng(1).permutation(len(y))
    x, y = x[order] / x.max(), y[order]
    split = len(y) * 4 // 5 // BATCH * BATCH
    return {"x": x[:split], "y": y[:split]}, {"x": x[split:], "y": y[split:]}


def initial_weights() -> Floats:
    """All layers in one array; views of it: see layers."""
    random = np.random.default_rng(2)
    weights = np.zeros(PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    first, _, second, _ = layers(weights)
    first[:] = random.normal(0, (2 / PIXELS) ** 0.5, first.shape)
    second[:] = random.normal(0, (1 / HIDDEN) ** 0.5, second.shape)
    return weights


def layers(flat: Floats) -> list[Floats]:
    """Weights and biases of both layers, as views."""
    ends = np.cumsum([PIXELS * HIDDEN, HIDDEN, HIDDEN * CLASSES])
    first, first_bias, second, second_bias = np.split(flat, ends)
    return [first.reshape(PIXELS, HIDDEN), first_bias, second.reshape(HIDDEN, CLASSES), second_bias]


def forward(weights: Floats, x: Floats) -> tuple[Floats, Floats]:
    """What the hidden layer gives, and the probabilities of the digits."""
    first, first_bias, second, second_bias = layers(weights)
    hidden: Floats = np.maximum(x @ first + first_bias, 0)
    scores = hidden @ second + second_bias
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = exponents / exponents.sum(axis=1, keepdims=True)
    return hidden, probabilities


def add_gradients(weights: Floats, x: Floats, y: npt.NDArray[np.int64], out: Floats) -> float:
    """Writes the sums of the gradients of these images into `out`; gives the sum of their losses."""
    hidden, errors = forward(weights, x)
    loss = -np.log(errors[np.arange(len(y)), y]).sum()
    errors[np.arange(len(y)), y] -= 1
    first, first_bias, second, second_bias = layers(out)
    np.matmul(hidden.T, errors, out=second)
    errors.sum(axis=0, out=second_bias)
    back = (errors @ layers(weights)[2].T) * (hidden > 0)
    np.matmul(x.T, back, out=first)
    back.sum(axis=0, out=first_bias)
    return float(loss)


def accuracy(weights: Floats, test: Arrays) -> float:
    return float((forward(weights, test["x"])[1].argmax(axis=1) == test["y"]).mean())


def loop(config: dict[str, Any]) -> None:
    """Runs in each worker."""
    context = train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    images, _ = load()
    weights, velocity, step = initial_weights(), np.zeros_like(initial_weights()), 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder, np.load(f"{folder}/state.npz") as state:
            weights, velocity, step = state["weights"], state["velocity"], int(state["step"])
    group = context.group
    shared = group.zeros(len(weights) + 1, "float64")  # Where the workers can read each other's gradients, and losses behind.
    gradients = shared[:-1]
    while step < config["steps"]:
        batch = step % (len(images["y"]) // BATCH) * BATCH
        mine = slice(batch + BATCH * rank // size, batch + BATCH * (rank + 1) // size)
        shared[-1] = add_gradients(weights, images["x"][mine], images["y"][mine], gradients)
        group.all_reduce(shared)
        velocity = MOMENTUM * velocity + gradients / BATCH
        weights = weights - RATE * velocity
        step += 1
        saved = None
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0 and (step % config["save_each"] == 0 or step == config["steps"]):
                np.savez(f"{folder}/state.npz", weights=weights, velocity=velocity, step=step)
                saved = train.Checkpoint.from_directory(folder)
            train.report({"loss": shared[-1] / BATCH, "samples": BATCH, "step": step, "pid": os.getpid()}, checkpoint=saved)


class KillOne(train.UserCallback):
    """Kills a worker when a step has been reported."""

    def __init__(self, rank: int, step: int):
        self._rank, self._step = rank, step

    def after_report(self, run_context: train.RunContext, metrics: list[dict[str, Any]], checkpoint: train.Checkpoint | None) -> None:
        if metrics[0]["step"] == self._step:
            self._step = -1
            os.kill(metrics[self._rank]["pid"], signal.SIGKILL)


def fit(workers: int, steps: int, kill_at: int | None = None) -> tuple[train.Result, Floats]:
    """Trains; gives the result and the weights."""
    with tempfile.TemporaryDirectory() as folder:
        result = train.DataParallelTrainer(
            loop,
            train_loop_config={"steps": steps, "save_each": 20},
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name=f"digits-{workers}",
                storage_path=folder,
                failure_config=train.FailureConfig(max_failures=1 if kill_at else 0),
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                callbacks=[KillOne(workers // 2, kill_at)] if kill_at else [],
                total_reports=steps,
            ),
        ).fit()
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as saved, np.load(f"{saved}/state.npz") as state:
            return result, state["weights"]


def alone(images: Arrays, steps: int) -> Floats:
    """The same in this process: what the weights should be."""
    weights, gradients = initial_weights(), initial_weights()
    velocity = np.zeros_like(weights)
    for step in range(steps):
        batch = step % (len(images["y"]) // BATCH) * BATCH
        add_gradients(weights, images["x"][batch : batch + BATCH], images["y"][batch : batch + BATCH], gradients)
        velocity = MOMENTUM * velocity + gradients / BATCH
        weights = weights - RATE * velocity
    return weights


def throughput(result: train.Result) -> float:
    """Images per second, from the first step to the last."""
    rows = result.metrics_history
    return BATCH * float(len(rows) - 1) / float(rows[-1]["timestamp"] - rows[0]["timestamp"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--scaling", action="store_true", help="also with 1, 2, 4 workers")
    given = parser.parse_args()
    images, test = load()
    steps = given.epochs * (len(images["y"]) // BATCH)
    expected = alone(images, steps)
    with sheaf.init(num_cpus=max(given.workers, 4)):
        result, weights = fit(given.workers, steps, kill_at=steps // 2)
        print(f"recognised: {accuracy(weights, test):.3f} of {len(test['y'])} images; loss {result.metrics_history[-1]['loss']:.4f}")
        print(f"steps: {[row['step'] for row in result.metrics_history] == list(range(1, steps + 1)) and steps}, each once")
        print(f"weights as in one process, to {np.abs(weights - expected).max():.1e}")
        print(f"throughput: {throughput(result):,.0f} images/s with {given.workers} workers, the loss of one included")
        print("what happened:", *result.events, sep="\n  ")
        for workers in (1, 2, 4) if given.scaling else ():
            begin = time.monotonic()
            again, weights = fit(workers, steps)
            off = np.abs(weights - expected).max()
            print(f"{workers} workers: {throughput(again):>8,.0f} images/s, {time.monotonic() - begin:.1f} s, weights to {off:.1e}")


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a small neural network on handwritten digits: workers compute gradients on their part of
each batch and add them up by all-reduce. One worker is killed in the middle; the others stay, a new
one joins, and training goes on from the last checkpoint.

    python train_digits.py [--workers 4] [--nodes 1] [--epochs 12] [--scaling]
    python train_digits.py --kills 50 [--seed SEED]    # As many runs, each with a kill at a random
    step.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import sheaf
from sheaf import train
from sheaf.cluster_utils import Cluster

Floats = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]
DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"
PIXELS, HIDDEN, CLASSES = 64, 32, 10
BATCH, RATE, MOMENTUM = 64, 0.05, 0.9  # BATCH: of all workers together.
SAVE_EACH = 20
ROUNDING = 1e-9  # Sums in another order.


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
    """Writes the sums of the gradients of these images into `out`; gives the sum of their
    losses."""
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
    rank, size, batch = context.get_world_rank(), context.get_world_size(), config["batch"]
    images, _ = load()
    weights, velocity, step = initial_weights(), np.zeros_like(initial_weights()), 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder, np.load(f"{folder}/state.npz") as state:
            weights, velocity, step = state["weights"], state["velocity"], int(state["step"])
    group = context.group
    shared = group.zeros(
        len(weights) + 1, "float64"
    )  # Where the workers can read each other's gradients, and losses behind.
    gradients = shared[:-1]
    while step < config["steps"]:
        begin = step % (len(images["y"]) // batch) * batch
        mine = slice(begin + batch * rank // size, begin + batch * (rank + 1) // size)
        shared[-1] = add_gradients(weights, images["x"][mine], images["y"][mine], gradients)
        group.all_reduce(shared)
        velocity = MOMENTUM * velocity + gradients / batch
        weights = weights - RATE * velocity
        step += 1
        saved = None
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0 and (step % config["save_each"] == 0 or step == config["steps"]):
                np.savez(f"{folder}/state.npz", weights=weights, velocity=velocity, step=step)
                saved = train.Checkpoint.from_directory(folder)
            train.report(
                {"loss": shared[-1] / batch, "samples": batch, "step": step, "pid": os.getpid()},
                checkpoint=saved,
            )


class KillOne(train.UserCallback):
    """Kills a worker when a step has been reported."""

    def __init__(self, rank: int, step: int):
        self._rank, self._step = rank, step

    def after_report(
        self,
        run_context: train.RunContext,
        metrics: list[dict[str, Any]],
        checkpoint: train.Checkpoint | None,
    ) -> None:
        if metrics[0]["step"] == self._step:
            self._step = -1
            os.kill(metrics[self._rank]["pid"], signal.SIGKILL)


def fit(
    workers: int, steps: int, callbacks: Sequence[train.UserCallback] = (), batch: int = BATCH
) -> tuple[train.Result, Floats]:
    """Trains; gives the result and the weights."""
    with tempfile.TemporaryDirectory() as folder:
        result = train.DataParallelTrainer(
            loop,
            train_loop_config={"steps": steps, "save_each": SAVE_EACH, "batch": batch},
            scaling_config=train.ScalingConfig(num_workers=workers),
            run_config=train.RunConfig(
                name=f"digits-{workers}",
                storage_path=folder,
                failure_config=train.FailureConfig(max_failures=5),
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                callbacks=list(callbacks),
                total_reports=steps,
                progress=sys.stderr.isatty(),
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
        add_gradients(
            weights,
            images["x"][batch : batch + BATCH],
            images["y"][batch : batch + BATCH],
            gradients,
        )
        velocity = MOMENTUM * velocity + gradients / BATCH
        weights = weights - RATE * velocity
    return weights


def difference(result: train.Result, weights: Floats, expected: Floats, steps: int) -> float:
    """How far the weights are apart; without bound when steps are missing or doubled."""
    if [row["step"] for row in result.metrics_history] != list(range(1, steps + 1)):
        return float("inf")
    return float(np.abs(weights - expected).max())


def throughput(result: train.Result, batch: int = BATCH) -> float:
    """Images per second, from the first step to the last."""
    rows = result.metrics_history
    return batch * float(len(rows) - 1) / float(rows[-1]["timestamp"] - rows[0]["timestamp"])


def recoveries(result: train.Result) -> list[float]:
    """Of each loss: seconds to the next step."""
    return [
        float(event.text.split()[-5])
        for event in result.events
        if event.text.endswith(" s after the loss")
    ]


def row(label: str, text: str) -> None:
    print(f"  {label:12} {text}", flush=True)


def bar(part: float) -> str:
    return "\u2588" * round(24 * part)


@contextlib.contextmanager
def cluster(workers: int, nodes: int) -> Generator[None, None, None]:
    """The one that SHEAF_ADDRESS names, or one of this program's own."""
    if os.environ.get("SHEAF_ADDRESS"):
        with sheaf.init(log_to_driver=False):
            yield
        return
    own = Cluster(initialize_head=True, head_node_args={"num_cpus": -(-workers // nodes)})
    try:
        for _ in range(nodes - 1):
            own.add_node(num_cpus=-(-workers // nodes))
        with sheaf.init(address=own.address, log_to_driver=False):
            own.wait_for_nodes()
            yield
    finally:
        own.shutdown()


def tour(workers: int, epochs: int, scaling: bool) -> bool:
    """Trains, kills one worker in the middle, and compares with this process alone."""
    images, test = load()
    steps = epochs * (len(images["y"]) // BATCH)
    print(
        f"\nTraining in Python  {workers} workers add up their gradients by "
        "all-reduce; one will be killed"
    )
    row("images", f"{len(images['y']):,} to learn from, {len(test['y']):,} for the test")
    result, weights = fit(workers, steps, [KillOne(workers // 2, steps // 2)])
    row(
        "steps",
        f"{steps}, {throughput(result):,.0f} images a second, the loss of a worker included",
    )
    for event in result.events:
        row(f"at {event.time - result.events[0].time:.2f} s", event.text)
    right = accuracy(weights, test)
    row("accuracy", f"{bar(right)} {100 * right:.1f} % of the test images")
    off = difference(result, weights, alone(images, steps), steps)
    row("check", f"each step once, and the weights of one process to {off:.0e}")
    one = 0.0
    if scaling:
        row(
            "scaling",
            f"batches of {len(images['y']):,} images; this machine has {os.cpu_count()} cores",
        )
    for count in (1, 2, workers) if scaling else ():
        # Large batches, as they are for large models: the digits are so few that all make one.
        speed = throughput(fit(count, 60, batch=len(images["y"]))[0], len(images["y"]))
        one = speed if count == 1 else one
        row(
            f"{count} worker{'s' * (count > 1)}",
            f"{bar(speed / one / workers)} {speed:,.0f} images a second, {speed / one:.1f} times",
        )
    return off < ROUNDING and right > 0.93


def kills(workers: int, count: int, seed: int) -> bool:
    """Trains `count` times, each time with a kill of a random worker at a random step."""
    images, _ = load()
    steps = 3 * (len(images["y"]) // BATCH)
    expected, choice, largest = alone(images, steps), random.Random(seed), 0.0
    times: list[float] = []
    print(f"\nKills  {count} runs, each with a kill at a random step; seed {seed}")
    for run in range(1, count + 1):
        # Before the last time but one that all wait for a checkpoint: nobody has finished by then.
        kill_at, victim = (
            choice.randrange(1, steps // SAVE_EACH * SAVE_EACH),
            choice.randrange(workers),
        )
        result, weights = fit(workers, steps, [KillOne(victim, kill_at)])
        off = difference(result, weights, expected, steps)
        if off >= ROUNDING:
            row(
                "run",
                f"{run}: rank {victim} was killed behind step {kill_at}; "
                f"{len(result.metrics_history)} of {steps} steps, weights off by "
                f"{off}",
            )
            return False
        largest = max(largest, off)
        times += recoveries(result)
    row(
        "runs",
        f"{count} of {steps} steps: each step once, the weights of one process to {largest:.0e}",
    )
    row(
        "recovery",
        f"{len(times)} losses; to the next step: median "
        f"{statistics.median(times):.2f} s, longest {max(times):.2f} s",
    )
    return len(times) >= count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        help="of the program's own cluster, when SHEAF_ADDRESS names none",
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--scaling", action="store_true", help="also with 1, 2, 4 workers")
    parser.add_argument(
        "--kills", type=int, metavar="COUNT", help="so many runs with a kill at a random step"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    with cluster(max(given.workers, 4), given.nodes):
        right = (
            kills(given.workers, given.kills, given.seed)
            if given.kills
            else tour(given.workers, given.epochs, given.scaling)
        )
    sys.exit(
        0
        if right
        else "train_digits: steps are missing or doubled, the weights differ, or too "
        "few digits are recognised"
    )


if __name__ == "__main__":
    main()

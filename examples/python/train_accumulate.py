# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation and clipping with NumPy: each worker adds up the gradients of several small
batches, the workers add up theirs once per step, and the result is clipped. A step is that of one
process which takes all of these images at once. With PyTorch: train_torch.py.

    python train_accumulate.py [--workers 2] [--accumulate 4]
"""

import argparse
import tempfile
from typing import Any

import numpy as np
import sheaf
from sheaf import train
from train_digits import Floats, accuracy, add_gradients, initial_weights, load

SMALL, STEPS, RATE, LONGEST = 16, 60, 0.5, 0.5  # SMALL: images at a time.


def update(weights: Floats, gradients: Floats) -> float:
    """One step against the gradients, after they were shortened, as one vector, to LONGEST. Gives
    how long they were."""
    length = float(np.linalg.norm(gradients))
    if length > LONGEST:
        gradients *= LONGEST / length
    weights -= RATE * gradients
    return length


def loop(config: dict[str, int]) -> None:
    """Runs in each worker."""
    context, (images, _) = train.get_context(), load()
    weights, one = initial_weights(), initial_weights()
    shared = context.group.zeros(len(weights), "float64")
    mine = SMALL * config["accumulate"]  # Images of this worker in each step.
    batch = mine * context.get_world_size()
    for step in range(STEPS):
        begin = step % (len(images["y"]) // batch) * batch + mine * context.get_world_rank()
        shared[:] = 0
        for small in range(begin, begin + mine, SMALL):
            add_gradients(
                weights, images["x"][small : small + SMALL], images["y"][small : small + SMALL], one
            )
            shared += one
        context.group.all_reduce(shared)  # Once per step, however many small batches there are.
        shared /= batch
        length = update(weights, shared)
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if step == STEPS - 1 and context.get_world_rank() == 0:
                np.save(f"{folder}/weights.npy", weights)
                saved = train.Checkpoint.from_directory(folder)
            train.report({"length": length}, saved)


def alone(images: dict[str, Any], batch: int) -> Floats:
    """The same in this process, without accumulation."""
    weights, gradients = initial_weights(), initial_weights()
    for step in range(STEPS):
        begin = step % (len(images["y"]) // batch) * batch
        add_gradients(
            weights,
            images["x"][begin : begin + batch],
            images["y"][begin : begin + batch],
            gradients,
        )
        gradients /= batch
        update(weights, gradients)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=4)
    given = parser.parse_args()
    with sheaf.init(num_cpus=given.workers), tempfile.TemporaryDirectory() as folder:
        result = train.DataParallelTrainer(
            loop,
            train_loop_config={"accumulate": given.accumulate},
            scaling_config=train.ScalingConfig(num_workers=given.workers),
            run_config=train.RunConfig(name="accumulate", storage_path=folder, total_reports=STEPS),
        ).fit()
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as saved:
            weights = np.load(f"{saved}/weights.npy")
    images, test = load()
    off = np.abs(weights - alone(images, SMALL * given.accumulate * given.workers)).max()
    clipped = sum(row["length"] > LONGEST for row in result.metrics_history)
    print(
        f"recognised: {accuracy(weights, test):.3f}, {clipped} of {STEPS} steps "
        f"clipped, the weights of one process to {off:.0e}"
    )


if __name__ == "__main__":
    main()

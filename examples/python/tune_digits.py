# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Searches the learning rate and the decay of a classifier of handwritten digits, by ASHA, which
ends bad trials early, or by a population whose members go on from the better ones.

    python tune_digits.py [asha|population]
"""

import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import sheaf
from sheaf import tune
from sheaf.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"
EPOCHS = 27


def train(config: dict[str, Any], images: Any, labels: Any) -> None:
    train_images, train_labels = images[::2], labels[::2]
    weights, first = np.zeros((images.shape[1], 10)), 0
    checkpoint = tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            weights = np.load(pathlib.Path(folder) / "weights.npy")
            first = json.loads((pathlib.Path(folder) / "epoch.json").read_text())
    for epoch in range(first + 1, EPOCHS + 1):
        scores = train_images @ weights
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = exponents / exponents.sum(axis=1, keepdims=True)
        errors[np.arange(len(train_labels)), train_labels] -= 1
        gradient = train_images.T @ errors / len(train_labels)
        weights = (1 - config["decay"]) * weights - config["rate"] * gradient
        accuracy = float((np.argmax(images[1::2] @ weights, axis=1) == labels[1::2]).mean())
        with tempfile.TemporaryDirectory() as folder:
            np.save(pathlib.Path(folder) / "weights.npy", weights)
            (pathlib.Path(folder) / "epoch.json").write_text(str(epoch))
            saved = tune.Checkpoint.from_directory(folder)
            tune.report({"accuracy": accuracy}, checkpoint=saved)


def scheduler_of(name: str) -> TrialScheduler:
    if name == "asha":
        return ASHAScheduler(max_t=EPOCHS, grace_period=3, reduction_factor=3)
    return PopulationBasedTraining(
        perturbation_interval=5,
        hyperparam_mutations={"rate": tune.loguniform(0.01, 10), "decay": [0, 1e-4, 1e-3, 1e-2]},
    )


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "asha"
    sheaf.init()
    with np.load(DATA) as file:
        images, labels = file["x"] / 16.0, file["y"].astype(int)
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            tune.with_parameters(train, images=images, labels=labels),
            param_space={
                "rate": tune.loguniform(0.01, 10),
                "decay": tune.choice([0, 1e-4, 1e-3, 1e-2]),
            },
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                num_samples=12 if name == "asha" else 4,
                scheduler=scheduler_of(name),
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        best = results.get_best_result()
        epochs = sum(len(result.metrics_history) for result in results)
        assert best.metrics is not None and best.config is not None
        print(
            f"{len(results)} trials, {epochs} epochs; the best with rate "
            f"{best.config['rate']:.3g}: {best.metrics['accuracy']:.1%}"
        )


if __name__ == "__main__":
    main()

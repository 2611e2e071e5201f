# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Searches the learning rate and the decay of a classifier of handwritten digits with HyperOpt,
whose trials are tasks.

    python hyperopt_digits.py
"""

import pathlib
from typing import Any

import numpy as np
import sheaf
from hyperopt import fmin, hp, space_eval, tpe  # type: ignore[import-not-found,unused-ignore]
from sheaf.util.hyperopt import SheafTrials

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"
EPOCHS = 27


def error_of(config: dict[str, Any]) -> float:
    """Runs in a task: the part of the digits that are not recognised."""
    with np.load(DATA) as file:
        images, labels = file["x"] / 16.0, file["y"].astype(int)
    train_images, train_labels = images[::2], labels[::2]
    weights = np.zeros((images.shape[1], 10))
    for _ in range(EPOCHS):
        scores = train_images @ weights
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = exponents / exponents.sum(axis=1, keepdims=True)
        errors[np.arange(len(train_labels)), train_labels] -= 1
        gradient = train_images.T @ errors / len(train_labels)
        weights = (1 - config["decay"]) * weights - config["rate"] * gradient
    return float((np.argmax(images[1::2] @ weights, axis=1) != labels[1::2]).mean())


def main() -> None:
    sheaf.init()
    space: Any = {
        "rate": hp.loguniform("rate", np.log(0.01), np.log(10)),
        "decay": hp.choice("decay", [0, 1e-4, 1e-3, 1e-2]),
    }
    trials = SheafTrials(parallelism=4)
    best: Any = fmin(
        error_of, space, algo=tpe.suggest, max_evals=20, trials=trials, show_progressbar=False
    )
    rate = space_eval(space, best)["rate"]
    print(f"{len(trials)} trials; the best with rate {rate:.3g}: {1 - min(trials.losses()):.1%}")


if __name__ == "__main__":
    main()

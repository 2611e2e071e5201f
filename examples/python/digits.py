# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of handwritten digits with a parameter server: workers compute gradients on
their part of the images, which all of them read from shared memory.

    python digits.py [EPOCHS]
"""

import pathlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import sheaf
from sheaf.types import ObjectRef, typed

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[Any]
WORKERS = 2
DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"


def probabilities(weights: Floats, images: Floats) -> Floats:
    scores = images @ weights
    exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = exponents / exponents.sum(axis=1, keepdims=True)
    return result


class Server:
    """Holds the weights, [inputs, 10]."""

    def __init__(self, inputs: int):
        self._weights = np.zeros((inputs, 10))

    @sheaf.method
    def apply(self, rate: float, *gradients: Floats) -> Floats:
        self._weights = self._weights - rate * sum(gradients) / len(gradients)
        return self._weights

    @sheaf.method
    def weights(self) -> Floats:
        return self._weights


ServerActor = sheaf.remote(Server)


@sheaf.remote
def gradient(weights: Floats, images: Floats, labels: Labels, part: int) -> Floats:
    mine, targets = images[part::WORKERS], labels[part::WORKERS]
    errors = probabilities(weights, mine)
    errors[np.arange(len(targets)), targets] -= 1
    result: Floats = mine.T @ errors / len(mine)
    return result


def load() -> tuple[Floats, Labels]:
    """Images, [count, inputs] between 0 and 1 with a constant 1 behind, and their digits."""
    with np.load(DATA) as file:
        arrays = {file[name].ndim: file[name] for name in file.files}
    labels = arrays[1]
    images = arrays[max(arrays)].reshape(len(labels), -1).astype(np.float64)
    return np.hstack([images / images.max(), np.ones((len(images), 1))]), labels.astype(np.int64)


def train(epochs: int) -> float:
    """The part of the images, never trained on, whose digit is recognised."""
    images, labels = load()
    split = len(images) * 4 // 5
    shared: ObjectRef[Floats] = sheaf.put(
        images[:split]
    )  # Written once; the workers read it where it lies.
    targets: ObjectRef[Labels] = sheaf.put(labels[:split])
    server = typed(ServerActor.remote(images.shape[1]))
    weights = server.weights.remote()
    for _ in range(epochs):  # Nothing is waited for: each step begins when its arguments are there.
        gradients = [gradient.remote(weights, shared, targets, part) for part in range(WORKERS)]
        weights = server.apply.remote(1.0, *gradients)
    guesses = probabilities(sheaf.get(weights), images[split:]).argmax(axis=1)
    return float((guesses == labels[split:]).mean())


if __name__ == "__main__":
    with sheaf.init():
        print(f"recognised: {train(int(sys.argv[1]) if len(sys.argv) > 1 else 200):.3f}")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of a classifier on real digits, with a parameter server and with gradients
averaged by hand."""

import pathlib

import numpy as np
from runtime import ray

data = np.load(pathlib.Path(__file__).parent.parent / "data" / "digits.npz")
x, y = data["x"] / 16.0, data["y"]
order = np.random.default_rng(0).permutation(len(x))
x, y = x[order].astype(np.float64), y[order]
x_train, y_train, x_test, y_test = x[:1500], y[:1500], x[1500:], y[1500:]


def gradient(w, x, y):
    z = x @ w
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return x.T @ p / len(y)


@ray.remote
class Server:
    def __init__(self, shape):
        self.w = np.zeros(shape)

    def apply(self, *gradients):
        self.w -= 0.5 * np.mean(gradients, axis=0)
        return self.w

    def weights(self):
        return self.w


@ray.remote
class Worker:
    def __init__(self, shard):
        self.x, self.y = shard

    def gradient(self, w):
        return gradient(w, self.x, self.y)


ray.init(num_cpus=4)
server = Server.remote((64, 10))
workers = [Worker.remote((x_train[i::4], y_train[i::4])) for i in range(4)]
w = server.weights.remote()
for _ in range(200):
    w = server.apply.remote(*[worker.gradient.remote(w) for worker in workers])
distributed = ray.get(w)

alone = np.zeros((64, 10))
for _ in range(200):
    alone = alone - 0.5 * np.mean(
        [gradient(alone, x_train[i::4], y_train[i::4]) for i in range(4)], axis=0
    )
assert np.allclose(distributed, alone, atol=1e-12)  # the same numbers as one process computes
accuracy = float(((x_test @ distributed).argmax(1) == y_test).mean())
assert accuracy > 0.93, accuracy
print(f"200 steps, 4 workers, test accuracy {accuracy:.3f}")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A distributed sort: 8 million keys, 16 partitions, every key where it belongs."""

import numpy as np
from runtime import ray

N, PARTS = 8_000_000, 16
ray.init(num_cpus=2, object_store_memory=512 * 1024 * 1024)


@ray.remote
def generate(i):
    return np.random.default_rng(i).integers(0, 1 << 62, N // PARTS)


@ray.remote(num_returns=PARTS)
def partition(keys):
    keys = np.sort(keys)
    bounds = np.searchsorted(keys, np.arange(1, PARTS) * ((1 << 62) // PARTS))
    return np.split(keys, bounds)


@ray.remote
def merge(*parts):
    return np.sort(np.concatenate(parts))


blocks = [generate.remote(i) for i in range(PARTS)]
pieces = [partition.remote(b) for b in blocks]
merged = [merge.remote(*[p[j] for p in pieces]) for j in range(PARTS)]
last, count, checksum = -1, 0, 0
for ref in merged:
    part = ray.get(ref)
    assert part[0] >= last and bool(np.all(part[:-1] <= part[1:]))
    last, count, checksum = part[-1], count + len(part), checksum ^ int(np.bitwise_xor.reduce(part))
expected = 0
for i in range(PARTS):
    expected ^= int(
        np.bitwise_xor.reduce(np.random.default_rng(i).integers(0, 1 << 62, N // PARTS))
    )
assert count == N and checksum == expected
print(f"{N} keys sorted in {PARTS} partitions")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Objects: zero-copy arrays, references inside values, reuse of memory, objects larger than the
store."""

import gc

import numpy as np
from runtime import ray

ray.init(num_cpus=2, object_store_memory=400 * 1024 * 1024)

array = np.arange(8_000_000, dtype=np.float64)  # 64 MB
ref = ray.put(array)
one, two = ray.get(ref), ray.get(ref)
assert np.array_equal(one, array)
assert one.ctypes.data == two.ctypes.data  # the same memory, not two copies
assert not one.flags.writeable  # objects are immutable


@ray.remote
def total(x):
    assert not x.flags.writeable
    return float(x.sum())


assert ray.get([total.remote(ref) for _ in range(8)]) == [float(array.sum())] * 8
view = one[10:20]
del one, two, ref, array
gc.collect()
assert view[0] == 10.0  # a view keeps its object alive
del view

for i in range(40):  # 2.5 GB through a 400 MB store
    block = ray.put(np.full(8_000_000, i, dtype=np.float64))
    assert ray.get(block)[-1] == i
    del block
kept = [
    ray.put(np.full(4_000_000, i, dtype=np.float64)) for i in range(25)
]  # 800 MB kept: twice the store
assert [ray.get(r)[123] for r in kept] == [float(i) for i in range(25)]
del kept


@ray.remote
def make(n):
    return [ray.put(np.full(100_000, i)) for i in range(n)], {"inner": ray.put("text")}


arrays, table = ray.get(make.remote(20))
gc.collect()
assert [int(ray.get(r)[0]) for r in arrays] == list(range(20))
assert ray.get(table["inner"]) == "text"
many = ray.get([ray.put(i) for i in range(10_000)])
assert many == list(range(10_000))
for value in (
    None,
    True,
    3,
    2**80,
    1.5,
    1j,
    "ä\u2028",
    b"\0" * 100,
    (1, [2, {3}]),
    {"a": np.float32(1)},
    lambda: 7,
    np.array([], "f4"),
):
    back = ray.get(ray.put(value))
    assert back() == 7 if callable(value) else np.all(back == value)
print("64 MB shared by address, 2.5 GB through 400 MB, 800 MB kept")

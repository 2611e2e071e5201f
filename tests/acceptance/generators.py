# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Streaming generators: items arrive while the task runs; many items; an error in the middle."""

import time

from runtime import ray

ray.init(num_cpus=2)


@ray.remote
def stream(n, pause=0.0):
    for i in range(n):
        time.sleep(pause)
        yield i


begin = time.monotonic()
items = stream.remote(5, 0.4)
assert ray.get(next(iter(items))) == 0
assert time.monotonic() - begin < 1.9  # the first came before the last was made
assert [ray.get(r) for r in items] == [1, 2, 3, 4]
assert sum(ray.get(r) for r in stream.remote(2000)) == sum(range(2000))


@ray.remote
def half():
    yield 1
    raise KeyError("half way")


refs = iter(half.remote())
assert ray.get(next(refs)) == 1
try:
    ray.get(next(refs))
    raise AssertionError("no error")
except KeyError:
    pass


@ray.remote
class Source:
    def lines(self, n):
        yield from (f"line {i}" for i in range(n))


assert [ray.get(r) for r in Source.remote().lines.options(num_returns="streaming").remote(3)] == [
    "line 0",
    "line 1",
    "line 2",
]
print("2000 items streamed")

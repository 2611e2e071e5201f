# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tasks that start tasks and wait for them, on two CPUs: no deadlock, right resources."""

from runtime import ray

ray.init(num_cpus=2)


@ray.remote
def fib(n):
    if n < 2:
        return n
    return sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))


assert ray.get(fib.remote(9)) == 34


@ray.remote
def chain(x, depth):
    return x if depth == 0 else chain.remote(x + 1, depth - 1)


ref = chain.remote(0, 10)
while not isinstance(ref, int):
    ref = ray.get(ref)
assert ref == 10


@ray.remote
def add(a, b):
    return a + b


x = add.remote(0, 0)
for _ in range(500):  # each depends on the one before
    x = add.remote(x, 1)
assert ray.get(x) == 500
print("fib(9) by 109 tasks, a chain of 500")

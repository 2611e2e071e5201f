# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A small program of a user of the wheel. Prints the libraries that its processes have loaded, one
a line."""

import os

import numpy as np
import sheaf


def libraries():
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split()) > 5}
    return {path for path in paths if ".so" in os.path.basename(path)}


@sheaf.remote
def total(array):
    return int(array.sum()), libraries()


@sheaf.remote
class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, amount):
        self.value += amount
        return self.value


if __name__ == "__main__":
    sheaf.init(num_cpus=2)
    assert not os.environ.get("PYTHONPATH")
    result, loaded = sheaf.get(total.remote(np.arange(1000)))
    assert result == 499500, result
    counter = Counter.remote(40)
    assert sheaf.get([counter.add.remote(1), counter.add.remote(1)]) == [41, 42]
    sheaf.shutdown()
    print("\n".join(sorted(loaded | libraries())))

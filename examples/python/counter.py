# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A stateful actor: calls of one caller run in order, handles travel to tasks, and errors come back
as they were raised."""

import sheaf
from sheaf.types import ActorHandle, typed


class Counter:
    def __init__(self, start: int):
        self._value = start

    @sheaf.method
    def add(self, amount: int) -> int:
        if amount < 0:
            raise ValueError(f"amount={amount}: a counter only grows")
        self._value += amount
        return self._value


CounterActor = sheaf.remote(num_cpus=0)(Counter)


@sheaf.remote
def add_ten(handle: ActorHandle[Counter]) -> list[int]:
    return sheaf.get([typed(handle).add.remote(1) for _ in range(10)])


if __name__ == "__main__":
    with sheaf.init(num_cpus=2):
        handle = CounterActor.remote(100)
        counter = typed(
            handle
        )  # The same, with types: counter.add.remote takes an int and gives an ObjectRef of an int.
        print(sheaf.get([counter.add.remote(1), counter.add.remote(1)]))
        sheaf.get([add_ten.remote(handle) for _ in range(4)])
        total: int = sheaf.get(counter.add.remote(0))
        print("after four tasks:", total)
        try:
            sheaf.get(counter.add.remote(-1))
        except ValueError:
            print("a counter only grows")

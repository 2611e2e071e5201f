# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Remote functions: calls, returns, nesting."""

import ray
from program import main, outcome, program, say


@ray.remote
def add(a, b=10, *rest, key=None):
    return (a, b, rest, key)


@program
def positional_and_keyword():
    say(ray.get(add.remote(1)))
    say(ray.get(add.remote(1, 2, 3, key="k")))
    outcome(add.remote)
    outcome(add.remote, 1, b=2, c=3)
    outcome(add, 1, words=["cannot be called directly"])


@program
def references_as_arguments():
    first = add.remote(1, 2)
    say(ray.get(add.remote(first, key=first)))
    nested = ray.get(add.remote([first]))
    say(type(nested[0][0]).__name__)


@program
def several_returns():
    @ray.remote(num_returns=2)
    def pair():
        return 1, 2

    a, b = pair.remote()
    say(ray.get([b, a]))
    outcome(ray.get, pair.options(num_returns=3).remote(), words=["3"])
    say(pair.options(num_returns=0).remote())


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Two actors form a group by its name and add up arrays in memory that they share.

python groups.py
"""

import sheaf
from sheaf.util import collective


@sheaf.remote(num_cpus=0)
class Member:
    def add_up(self, world_size: int, rank: int) -> float:
        group = collective.Group(world_size, rank, "sums")
        # Reduced where it lies; other arrays are copied on the way.
        gradients = group.zeros(1 << 20, "float32")
        gradients[:] = rank
        group.all_reduce(gradients, "average")
        return float(gradients[0])


def main() -> None:
    with sheaf.init(num_cpus=2):
        members = [Member.remote() for _ in range(2)]
        print(sheaf.get([member.add_up.remote(2, rank) for rank, member in enumerate(members)]))


if __name__ == "__main__":
    main()

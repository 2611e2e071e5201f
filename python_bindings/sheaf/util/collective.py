# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collective communication; not there yet."""

from sheaf import absent

init_collective_group = absent.function("util.collective.init_collective_group")
create_collective_group = absent.function("util.collective.create_collective_group")
destroy_collective_group = absent.function("util.collective.destroy_collective_group")
allreduce = absent.function("util.collective.allreduce")
allgather = absent.function("util.collective.allgather")
broadcast = absent.function("util.collective.broadcast")
reduce = absent.function("util.collective.reduce")
reducescatter = absent.function("util.collective.reducescatter")
barrier = absent.function("util.collective.barrier")
send = absent.function("util.collective.send")
recv = absent.function("util.collective.recv")


def is_group_initialized(group_name: str = "default") -> bool:
    """Never: there are no groups yet."""
    return False

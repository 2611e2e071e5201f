# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of one process that has several GPUs: not in Sheaf; the names exist, and say so when they
are used."""

from sheaf._internal import absent

_INSTEAD = "one actor for each GPU is a rank of its own"
allgather_multigpu = absent.function("util.collective.allgather_multigpu", _INSTEAD)
allreduce_multigpu = absent.function("util.collective.allreduce_multigpu", _INSTEAD)
broadcast_multigpu = absent.function("util.collective.broadcast_multigpu", _INSTEAD)
recv_multigpu = absent.function("util.collective.recv_multigpu", _INSTEAD)
reduce_multigpu = absent.function("util.collective.reduce_multigpu", _INSTEAD)
reducescatter_multigpu = absent.function("util.collective.reducescatter_multigpu", _INSTEAD)
send_multigpu = absent.function("util.collective.send_multigpu", _INSTEAD)
register_collective_backend = absent.function(
    "util.collective.register_collective_backend", "'shm', 'gloo' and 'nccl' are there"
)
GroupManager = absent.a_class(
    "util.collective.GroupManager", "get_group_handle() gives a group of this process"
)
synchronize = absent.function("util.collective.synchronize", "torch.cuda.synchronize does it")
get_address_and_port = absent.function("util.collective.get_address_and_port")

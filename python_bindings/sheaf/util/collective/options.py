# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of collective calls, as programs that make backends of their own name them. Sheaf has no
such backends, and reads none of these."""

from __future__ import annotations

import dataclasses

from sheaf.util.collective.types import ReduceOp

_TIMEOUT_MS = -1


@dataclasses.dataclass
class AllReduceOptions:
    """Of allreduce."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815 (As Ray has it.)
    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class BarrierOptions:
    """Of barrier."""

    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class ReduceOptions:
    """Of reduce."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class AllGatherOptions:
    """Of allgather."""

    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class BroadcastOptions:
    """Of broadcast."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class ReduceScatterOptions:
    """Of reducescatter."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class SendOptions:
    """Of send."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: int = _TIMEOUT_MS


@dataclasses.dataclass
class RecvOptions:
    """Of recv."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    unset_timeout_ms: int = _TIMEOUT_MS

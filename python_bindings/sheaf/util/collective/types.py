# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of backends and reductions, as Ray has them."""

from __future__ import annotations

import dataclasses
import enum

unset_timeout_ms = -1


def _is_there(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def torch_available() -> bool:
    """Returns whether the package torch is installed."""
    return _is_there("torch")


def cupy_available() -> bool:
    """Returns whether the package cupy is installed."""
    return _is_there("cupy")


class Backend:
    """Names of backends: ``Backend("gloo")`` is the name in lower case, checked.

    Args:
        name: "shm", "gloo" or "nccl", in any case. What runs is said by
            `sheaf.util.collective.Group`.

    Raises:
        ValueError: there is no such backend.
        RuntimeError: "mpi", which Ray names and Sheaf does not have.
    """

    NCCL = "nccl"
    MPI = "mpi"
    GLOO = "gloo"
    SHM = "shm"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> str:  # type: ignore[misc]
        backend = getattr(cls, name.upper(), cls.UNRECOGNIZED)
        if backend == cls.UNRECOGNIZED:
            raise ValueError(f"backend {name!r}: want 'shm', 'gloo' or 'nccl'")
        if backend == cls.MPI:
            raise RuntimeError("backend 'mpi' does not exist: want 'shm', 'gloo' or 'nccl'")
        return str(backend)


class ReduceOp(enum.Enum):
    """How values of the ranks become one. Sums and products of integers wrap around."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


# Options of collective calls, as programs that make backends of their own name them. Sheaf has no
# such backends, and reads none of these.


@dataclasses.dataclass
class AllReduceOptions:
    """Of allreduce."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815 (As Ray has it.)
    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class BarrierOptions:
    """Of barrier."""

    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class ReduceOptions:
    """Of reduce."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class AllGatherOptions:
    """Of allgather."""

    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class BroadcastOptions:
    """Of broadcast."""

    root_rank: int = 0
    root_tensor: int = 0
    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class ReduceScatterOptions:
    """Of reducescatter."""

    reduceOp: ReduceOp = ReduceOp.SUM  # noqa: N815
    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class SendOptions:
    """Of send."""

    dst_rank: int = 0
    dst_gpu_index: int = 0
    n_elements: int = 0
    timeout_ms: int = unset_timeout_ms


@dataclasses.dataclass
class RecvOptions:
    """Of recv."""

    src_rank: int = 0
    src_gpu_index: int = 0
    n_elements: int = 0
    unset_timeout_ms: int = unset_timeout_ms


def reduction(op: ReduceOp | str) -> int:
    """The number of a reduction, given itself or its name: "sum", "product", "min", "max",
    "average"."""
    if isinstance(op, str):
        try:
            op = ReduceOp[op.upper()]
        except KeyError:
            raise ValueError(
                f"op={op!r}: want 'sum', 'product', 'min', 'max' or 'average'"
            ) from None
    if not isinstance(op, ReduceOp):
        raise TypeError(f"op={op!r}: want a ReduceOp or its name")
    return op.value

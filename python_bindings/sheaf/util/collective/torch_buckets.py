# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that the ranks share, where they are reduced without further copies: see
sheaf.torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sheaf.util.collective import Group
from sheaf.util.collective.types import ReduceOp

_TYPES = {
    torch.float16: "float16",
    torch.bfloat16: "int16",
    torch.float32: "float32",
    torch.float64: "float64",
}  # bfloat16: of its size.


def shared_tensor(group: Group, like: Any) -> Any:
    """A flat tensor of this size and type in memory that the ranks share; None: there is no room,
    or the type is none of _TYPES."""
    if like.dtype not in _TYPES:
        return None
    try:
        return torch.from_numpy(group.empty(like.numel(), _TYPES[like.dtype])).view(like.dtype)
    except MemoryError:
        return None


class SharedBuckets:
    """A communication hook of DDP: averages each bucket over the ranks, and moves it into shared
    memory when it first sees it.

    With gradient_as_bucket_view=True the gradients of a bucket's parameters are the very tensors
    with which DDP looks into the bucket. So when they and the bucket's own tensor are all pointed
    to other memory, by Tensor.set_, the bucket has moved. Where this cannot be (a parameter without
    gradient, no room), the bucket stays and is reduced by way of copies.
    """

    def __init__(self, group: Group, future_of: Callable[[Any, Any], Any]):
        self._group, self._future_of = group, future_of
        self._shared: dict[
            int, Any
        ] = {}  # By number of the bucket: a tensor that keeps the memory.

    def hook(self, state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with its own classes.
        """Starts the reduction; gives a future of the bucket's tensor. RuntimeError: this torch
        keeps gradients elsewhere."""
        buffer = bucket.buffer()
        begin, end = buffer.data_ptr(), buffer.data_ptr() + buffer.numel() * buffer.element_size()
        gradients = [parameter.grad for parameter in bucket.parameters()]
        inside = [
            gradient is not None and begin <= gradient.data_ptr() < end for gradient in gradients
        ]
        shared = self._shared.get(bucket.index())
        if (
            shared is None or shared.data_ptr() != begin
        ):  # New, or DDP has sorted the gradients into other buckets.
            if all(inside):
                self._move(bucket.index(), buffer, gradients)
        elif not all(there or gradient is None for there, gradient in zip(inside, gradients)):
            raise RuntimeError(
                "DistributedDataParallel has left its shared buckets: do not use "
                "sheaf.torch.share_gradients with this torch"
            )
        started = self._group.all_reduce(buffer, ReduceOp.AVERAGE, async_op=True)
        return self._future_of(started, buffer)

    def _move(self, index: int, buffer: Any, gradients: list[Any]) -> None:
        begin, shared = buffer.data_ptr(), shared_tensor(self._group, buffer)
        if shared is None:
            return
        with torch.no_grad():
            shared.copy_(buffer)
            for tensor in (*gradients, buffer):
                tensor.set_(
                    shared,
                    (tensor.data_ptr() - begin) // tensor.element_size(),
                    tensor.size(),
                    tensor.stride(),
                )
        self._shared[index] = shared

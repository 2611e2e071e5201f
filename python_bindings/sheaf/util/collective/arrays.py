# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy, torch and others as buffers, without copies."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_tensor(array: Any) -> bool:
    """Whether `array` is a tensor of torch, without importing it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def buffer_of(array: Any) -> tuple[Any, str | None]:
    """An object with the buffer protocol over the memory of `array`, and its type where the buffer
    cannot say it."""
    if array is None or not is_tensor(array):
        return array, None
    if array.device.type != "cpu":
        raise NotImplementedError(
            f"a tensor on {array.device}: this group works on CPU arrays; "
            "backend='nccl' on those of GPUs, or copy it with .cpu()"
        )
    if not array.is_contiguous():
        raise ValueError(
            "the tensor is not contiguous: call .contiguous() and copy the result back"
        )
    torch = sys.modules["torch"]
    tensor = array.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy(), "bfloat16"
    return tensor.numpy(), None

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How programs about PyTorch say tensors."""

import torch
from datasets import plain


def shown(value):
    """Tensors with dtype, shape and values, inside of what holds them."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{value.tolist()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}(" + ", ".join(shown(v) for v in value) + ")"
    return f"{type(value).__name__} {plain(value)}"

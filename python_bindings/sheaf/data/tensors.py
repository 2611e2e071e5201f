# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Batches as tensors of PyTorch, which is imported here only when it is used."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sheaf.data.errors import MissingPackageError


def format_of(collate_fn: Any) -> str:
    """The batch format that a collate function takes: Ray's classes for Arrow and pandas say so."""
    names = {kind.__name__ for kind in type(collate_fn).__mro__}
    if "ArrowBatchCollateFn" in names:
        return "pyarrow"
    return "pandas" if "PandasBatchCollateFn" in names else "numpy"


def for_torch(
    dtypes: Any, device: Any, collate_fn: Any, pin_memory: bool
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """What makes tensors of a batch, in the thread that makes batches, and what brings them to
    their device, in that of the consumer."""
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("iter_torch_batches", "torch") from error
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else None

    def collate(batch: Any) -> Any:
        made = collate_fn(batch) if collate_fn is not None else tensors_of(batch, dtypes)
        return _mapped(made, lambda tensor: tensor.pin_memory()) if pin_memory else made

    def finalize(batch: Any) -> Any:
        if device is None or collate_fn is not None and device == "cpu":
            return batch
        return _mapped(batch, lambda tensor: tensor.to(device, non_blocking=pin_memory))

    return collate, finalize


def tensors_of(batch: dict[str, Any], dtypes: Any = None) -> dict[str, Any]:
    """A dict of arrays as a dict of tensors, views where the arrays are of numbers.

    Raises:
        TypeError: a column has no tensor: strings, objects, arrays of several shapes.
    """
    import torch

    out = {}
    for name, array in batch.items():
        if array.dtype == object or array.dtype.kind in "USMm":
            raise TypeError(
                f"column '{name}' of dtype {array.dtype} is no tensor: leave it out by "
                "select_columns, or give a collate_fn"
            )
        if array.dtype in (np.uint16, np.uint32, np.uint64):
            array = array.astype(np.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Arrays are read-only, and tensors do not know it.
            tensor = torch.as_tensor(array)
        wanted = dtypes.get(name) if isinstance(dtypes, dict) else dtypes
        out[name] = tensor if wanted is None else tensor.to(wanted)
    return out


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if hasattr(value, "pin_memory"):
        return change(value)
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(one, change) for one in value)
    return value

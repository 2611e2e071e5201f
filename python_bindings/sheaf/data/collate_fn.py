# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes batches for iter_torch_batches, as classes that say which batches they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "ArrowBatchCollateFn",
    "CollateFn",
    "DefaultCollateFn",
    "NumpyBatchCollateFn",
    "PandasBatchCollateFn",
    "is_tensor_batch_type",
]


class CollateFn:
    """Derive from one of the three below and define __call__, which takes a batch and returns what
    iteration gives."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(self, batch: Any) -> Any:
        """What iteration gives of a batch.

        Args:
            batch: as the class says.

        Returns:
            Anything; tensors are brought to their device.
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__(batch)")


class ArrowBatchCollateFn(CollateFn):
    """Takes a pa.Table."""


class NumpyBatchCollateFn(CollateFn):
    """Takes a dict of NumPy arrays."""


class PandasBatchCollateFn(CollateFn):
    """Takes a DataFrame."""


class DefaultCollateFn(NumpyBatchCollateFn):
    """A dict of tensors.

    Args:
        dtypes: a torch.dtype for all columns, or one by name of column.
        combine_chunks, num_workers: have no effect.
    """

    def __init__(
        self, dtypes: Any = None, combine_chunks: bool = False, num_workers: int = 0
    ) -> None:
        self.dtypes = dtypes

    def __call__(self, batch: Any) -> Any:
        """Returns the tensors."""
        from sheaf.data.tensors import tensors_of

        return tensors_of(batch, self.dtypes)


def is_tensor_batch_type(batch: Any) -> bool:
    """Whether something is a tensor of PyTorch, or a list, a list of lists or a dict of them.

    Args:
        batch: anything.

    Returns:
        Whether it is.
    """
    import torch

    if isinstance(batch, Mapping):
        return all(is_tensor_batch_type(one) for one in batch.values())
    if isinstance(batch, (list, tuple)):
        return all(is_tensor_batch_type(one) for one in batch)
    return isinstance(batch, torch.Tensor)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes batches for iter_torch_batches, as classes that say which batches they take."""

from __future__ import annotations

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


class DefaultCollateFn(ArrowBatchCollateFn):
    """What iter_torch_batches does where no function is given.

    Args:
        dtypes: a torch.dtype for all columns, or one by name of column.
        combine_chunks: False: a column is a list of tensors, one for each chunk of the table, which
            become one on their device.
        num_workers: has no effect.
    """

    def __init__(
        self, dtypes: Any = None, combine_chunks: bool = False, num_workers: int = 0
    ) -> None:
        self.dtypes, self.combine_chunks, self.num_workers = dtypes, combine_chunks, num_workers

    def __call__(self, batch: Any) -> Any:
        """The tensors of a table.

        Args:
            batch: a pa.Table.

        Returns:
            A dict of tensors, or of lists of tensors.
        """
        from sheaf.data.tensors import tensors_of_table

        return tensors_of_table(batch, self.dtypes, self.combine_chunks)


def is_tensor_batch_type(batch: Any) -> bool:
    """Whether iteration brings something to a device: a tensor of PyTorch, a list of tensors, a
    list of such lists, a dict of tensors, or a dict of such lists. Tuples are as lists.

    Args:
        batch: anything.

    Returns:
        Whether it is.
    """
    from sheaf.data.tensors import is_tensors

    return is_tensors(batch)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Arrays and tables as tensors of PyTorch, for classes that collate: the functions of
ray.data.util.torch_utils. torch is imported when one is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sheaf.data import tensors

__all__ = [
    "arrow_batch_to_tensors",
    "concat_tensors_to_device",
    "convert_ndarray_batch_to_torch_tensor_batch",
    "convert_ndarray_list_to_torch_tensor_list",
    "convert_ndarray_to_torch_tensor",
    "convert_tensors_to_numpy",
    "move_tensors_to_device",
    "pin_tensors_to_memory",
]


def arrow_batch_to_tensors(
    batch: Any,
    dtypes: Any = None,
    combine_chunks: bool = False,
    pin_memory: bool = False,
    threadpool: Any = None,
) -> dict[str, Any]:
    """The columns of a table as tensors.

    Args:
        batch: a pa.Table.
        dtypes: a torch.dtype for all columns, or one by name of column.
        combine_chunks: False: a column is a list of tensors, one for each chunk.
        pin_memory: they lie in page-locked memory.
        threadpool: has no effect.

    Returns:
        A dict of tensors, or of lists of tensors.
    """
    made = tensors.tensors_of_table(batch, dtypes, combine_chunks, lent=pin_memory)
    return tensors.pinned(made) if pin_memory else made


def convert_ndarray_to_torch_tensor(
    ndarray: Any, dtype: Any = None, device: Any = None, pin_memory: bool = False
) -> Any:
    """An array as a tensor.

    Args:
        ndarray: numbers; or objects that are arrays of one shape.
        dtype: a torch.dtype; None: that of the array.
        device: where it goes; None: the CPU.
        pin_memory: it lies in page-locked memory.

    Returns:
        The tensor: a view, or a copy where the array may not be written.
    """
    made = tensors.tensor_of(ndarray, dtype, lent=pin_memory)
    if device is not None:
        made = made.to(device)
    return made.pin_memory() if pin_memory else made


def convert_ndarray_batch_to_torch_tensor_batch(
    ndarrays: Any, dtypes: Any = None, device: Any = None, pin_memory: bool = False
) -> Any:
    """An array, or a dict of arrays, as tensors.

    Args:
        ndarrays: the array or the dict.
        dtypes: a torch.dtype, or one by name of column.
        device, pin_memory: as of convert_ndarray_to_torch_tensor.

    Returns:
        A tensor, or a dict of tensors.
    """
    if not isinstance(ndarrays, Mapping):
        if isinstance(dtypes, Mapping):
            if len(dtypes) != 1:
                raise ValueError(f"dtypes={dtypes!r} for one array: want one torch.dtype")
            dtypes = next(iter(dtypes.values()))
        return convert_ndarray_to_torch_tensor(ndarrays, dtypes, device, pin_memory)
    made = tensors.tensors_of(ndarrays, dtypes, lent=pin_memory)
    if device is not None:
        made = {name: one.to(device) for name, one in made.items()}
    return tensors.pinned(made) if pin_memory else made


def convert_ndarray_list_to_torch_tensor_list(
    ndarrays: Mapping[str, Any], dtypes: Any = None, device: Any = None, pin_memory: bool = False
) -> dict[str, list[Any]]:
    """A dict of lists of arrays as a dict of lists of tensors.

    Args:
        ndarrays: the dict.
        dtypes: a torch.dtype, or one by name of column.
        device, pin_memory: as of convert_ndarray_to_torch_tensor.

    Returns:
        The dict.
    """

    def of(name: str) -> Any:
        return dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes

    return {
        name: [convert_ndarray_to_torch_tensor(one, of(name), device, pin_memory) for one in some]
        for name, some in ndarrays.items()
    }


def concat_tensors_to_device(
    tensor_sequence: Any, device: Any = None, non_blocking: bool = True
) -> Any:
    """Tensors as one on a device.

    Args:
        tensor_sequence: tensors whose shapes differ in the first axis only.
        device: where it goes; None: that of the first.
        non_blocking: as of torch.Tensor.to.

    Returns:
        The tensor, with one behind the other along the first axis.
    """
    if not tensor_sequence:
        raise ValueError("concat_tensors_to_device: want one tensor or more, got none")
    return tensors.joined(tensor_sequence, device, non_blocking)


def move_tensors_to_device(
    batch: Any, device: Any = None, non_blocking: bool = True, concat: bool = True
) -> Any:
    """Tensors on a device.

    Args:
        batch: a tensor, a list of tensors, a list of such lists, a dict of tensors, or a dict of
            such lists; tuples are as lists.
        device: where they go; None: `batch` is returned as it is.
        non_blocking: as of torch.Tensor.to.
        concat: lists of tensors inside of a list or dict become one tensor each.

    Returns:
        What was given, with tensors on the device.

    Raises:
        ValueError: `batch` is something else.
    """
    if device is None:
        return batch
    if not tensors.is_tensors(batch):
        raise ValueError(
            f"move_tensors_to_device: got a {type(batch).__name__}: want a tensor, a list of "
            "tensors or of lists of tensors, or a dict of tensors or of lists of tensors"
        )
    return tensors.moved(batch, device, non_blocking, concat)


def pin_tensors_to_memory(batch: Any) -> Any:
    """Tensors in page-locked memory, for those that lie on the CPU.

    Args:
        batch: as of move_tensors_to_device.

    Returns:
        What was given, with tensors there.
    """
    return tensors.pinned(batch)


def convert_tensors_to_numpy(batch: Any) -> Any:
    """Tensors, and what lists and dicts hold of them, as arrays.

    Args:
        batch: the tensors.

    Returns:
        What was given, with arrays.

    Raises:
        TypeError: it holds something else.
    """
    if isinstance(batch, Mapping):
        return {name: convert_tensors_to_numpy(one) for name, one in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(convert_tensors_to_numpy(one) for one in batch)
    if not hasattr(batch, "detach"):
        raise TypeError(f"convert_tensors_to_numpy: got a {type(batch).__name__}: want tensors")
    return batch.detach().cpu().numpy()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Batches as tensors of PyTorch, which is imported here only when it is used.

Tensors know no memory that may not be written, and blocks lie in memory that others read. So what
is made here of a read-only array is a copy, unless what follows copies it anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import sheaf
from sheaf.air import session
from sheaf.data.columns import column_to_numpy
from sheaf.data.errors import MissingPackageError, shown
from sheaf.data.tables import table_to_batch

__all__ = [
    "device_of",
    "for_torch",
    "is_tensors",
    "joined",
    "moved",
    "pinned",
    "tensor_of",
    "tensors_of",
    "tensors_of_table",
]

_COPIED = 16 << 10  # Bytes that are copied sooner than it is found out how to do without.


def for_torch(
    dtypes: Any, device: Any, collate_fn: Any, pin_memory: bool
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """What makes tensors of a pa.Table, in the thread that makes batches, and what brings them to
    their device, in that of the consumer."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("iter_torch_batches", "torch") from error
    if collate_fn is not None and not callable(collate_fn):
        raise ValueError(
            f"iter_torch_batches: collate_fn={shown(collate_fn)}: want a function of a batch, or "
            "an instance of a class derived from ArrowBatchCollateFn, NumpyBatchCollateFn or "
            "PandasBatchCollateFn"
        )
    place = device_of(device)
    lent = pin_memory or place.type != "cpu"
    batch_format = _format_of(collate_fn)

    def collate(table: Any) -> Any:
        if collate_fn is None:
            made: Any = tensors_of_table(table, dtypes, lent=lent)
        else:
            # Arrays that may be written: the function may make tensors that share their memory.
            writable = batch_format == "numpy"
            made = collate_fn(table_to_batch(table, batch_format, zero_copy=not writable))
        return pinned(made) if pin_memory and is_tensors(made) else made

    def finalize(batch: Any) -> Any:
        return moved(batch, place, pin_memory) if is_tensors(batch) else batch

    return collate, finalize


def _format_of(collate_fn: Any) -> str:
    """The batch format that a collate function takes: Ray's classes for Arrow and pandas say so."""
    names = {kind.__name__ for kind in type(collate_fn).__mro__}
    if "ArrowBatchCollateFn" in names:
        return "pyarrow"
    return "pandas" if "PandasBatchCollateFn" in names else "numpy"


def device_of(device: Any) -> Any:
    """The torch.device; of "auto" the GPU of the training loop that runs here, else the CPU."""
    import torch

    if device == "auto":
        holds = session.find() is not None and bool(sheaf.get_gpu_ids())
        return torch.device("cuda:0" if holds and torch.cuda.is_available() else "cpu")
    return torch.device(device)


class _Lent:
    """Read-only memory as if it might be written, since torch warns of what may not."""

    def __init__(self, array: Any) -> None:
        self._array = array  # Which owns the memory.
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (place, False)}


def tensor_of(array: Any, dtype: Any = None, name: str = "", lent: bool = False) -> Any:
    """An array as a tensor: a view, or a copy where the array is read-only.

    Args:
        array: numbers, or objects that are arrays of one shape.
        dtype: a torch.dtype; None: that of the array.
        name: of the column, for errors.
        lent: nobody writes into the tensor: it may be a view of a read-only array.

    Raises:
        TypeError: strings, bytes or moments.
        RuntimeError: other objects, or arrays of several shapes.
    """
    import torch

    kind = array.dtype.kind
    if kind in "OUSMm":
        array = _of_numbers(array, name)
    elif kind == "u" and array.itemsize > 1 and not hasattr(torch, "uint16"):
        array = array.astype(np.int64)
    if array.flags.writeable:
        return torch.as_tensor(array, dtype=dtype)
    if not lent and dtype is None or array.nbytes <= _COPIED:
        return torch.as_tensor(array.copy(), dtype=dtype)
    tensor = torch.as_tensor(np.asarray(_Lent(array)), dtype=dtype)
    if lent or tensor.data_ptr() != array.ctypes.data:
        return tensor
    return tensor.clone()


def _of_numbers(array: Any, name: str) -> Any:
    """Objects as numbers; raises what tensor_of does."""
    if array.dtype == object:
        array = _one_array(array)
    if array.dtype != object and array.dtype.kind not in "USMm":
        return array
    column = f"column '{name}'" if name else "an array"
    remedy = "leave it out by drop_columns, or give a collate_fn"
    if array.dtype == object:
        raise RuntimeError(
            f"{column} holds objects, or arrays of several shapes, which are no tensor: {remedy}"
        )
    raise TypeError(f"{column} of dtype {array.dtype} is no tensor: {remedy}")


def _one_array(array: Any) -> Any:
    """Arrays and lists of one shape as one array, NULLs alone as NaN; else what was given."""
    if all(one is None for one in array):
        return np.full(len(array), np.nan, np.float32)
    try:
        return np.array([np.asarray(one) for one in array])
    except ValueError:
        return array


def tensors_of(batch: Mapping[str, Any], dtypes: Any = None, lent: bool = False) -> dict[str, Any]:
    """A dict of arrays as a dict of tensors; see tensor_of. `dtypes`: one, or some by column."""
    return {name: tensor_of(array, _of(dtypes, name), name, lent) for name, array in batch.items()}


def tensors_of_table(
    table: Any, dtypes: Any = None, combine: bool = True, lent: bool = False
) -> dict[str, Any]:
    """A pa.Table as a dict of tensors; combine=False: of lists of tensors, one for each chunk."""

    def tensors(name: str, column: Any) -> Any:
        dtype = _of(dtypes, name)
        if combine:
            return tensor_of(column_to_numpy(column), dtype, name, lent)
        return [tensor_of(column_to_numpy(one), dtype, name, lent) for one in column.chunks]

    return {name: tensors(name, column) for name, column in zip(table.column_names, table.columns)}


def _of(dtypes: Any, name: str) -> Any:
    return dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_tensor, value))


def is_tensors(value: Any) -> bool:
    """Whether something is a tensor, a list of tensors, a list of such lists, a dict of tensors, or
    a dict of such lists; tuples are as lists."""
    if isinstance(value, Mapping):
        values = list(value.values())
        return all(map(_is_tensor, values)) or all(map(_is_sequence, values))
    if isinstance(value, (list, tuple)):
        return _is_sequence(value) or all(map(_is_sequence, value))
    return _is_tensor(value)


def moved(value: Any, device: Any, non_blocking: bool, concat: bool = True) -> Any:
    """Tensors (see is_tensors) on a device. Lists of tensors inside of something become one tensor,
    joined along the first axis, if `concat`."""

    def each(one: Any) -> Any:
        return one.to(device, non_blocking=non_blocking)

    def inner(some: Any) -> Any:
        return joined(some, device, non_blocking) if concat else _like(some, map(each, some))

    if _is_tensor(value):
        return each(value)
    change: Callable[[Any], Any] = inner
    if isinstance(value, Mapping):
        if all(map(_is_tensor, value.values())):
            change = each
        return {name: change(one) for name, one in value.items()}
    if _is_sequence(value):
        change = each
    return _like(value, map(change, value))


def joined(tensors: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """Tensors as one on a device, one behind the other along the first axis."""
    import torch

    first = tensors[0]
    device = first.device if device is None else torch.device(device)
    if len(tensors) == 1:
        return first.to(device, non_blocking=non_blocking)
    if all(one.device == device for one in tensors):
        return torch.cat(list(tensors))
    rows = sum(len(one) for one in tensors)
    # Each goes to its place there; together on the CPU first would be one more copy.
    whole = torch.empty((rows, *first.shape[1:]), dtype=first.dtype, device=device)
    for part, one in zip(whole.split([len(one) for one in tensors]), tensors):
        part.copy_(one, non_blocking=non_blocking)
    return whole


def pinned(value: Any) -> Any:
    """Tensors (see is_tensors) in page-locked memory, for those that lie on the CPU."""
    if isinstance(value, Mapping):
        return {name: pinned(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return _like(value, map(pinned, value))
    return value.pin_memory() if value.device.type == "cpu" else value


def _like(value: Any, items: Any) -> Any:
    """A list or tuple of the type of another."""
    make = getattr(value, "_make", type(value))  # Of named tuples.
    return make(items)

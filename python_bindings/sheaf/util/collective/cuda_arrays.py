# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory of NVIDIA GPUs: torch tensors, and all else with
``__cuda_array_interface__`` (CuPy, Numba)."""

from __future__ import annotations

import os
import sys

from sheaf import _core
from sheaf.util.collective.arrays import is_tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_TYPES = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "b1": "uint8",
}
_BYTES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
}


def library_folders() -> list[str]:
    """Where this Python's packages keep libnccl.so.2: the wheel of NCCL, and torch."""
    found = []
    for folder in sys.path:
        for part in ("nvidia/nccl/lib", "torch/lib"):
            path = os.path.join(folder or os.curdir, part)
            if os.path.isdir(path):
                found.append(os.path.abspath(path))
    return found


def why_not() -> str:
    """Why groups of CUDA arrays cannot be made here, and what to do; "" if they can."""
    return _core.nccl_unavailable(library_folders())


def current_device() -> int:
    """The device that torch uses, if torch uses one; else the first."""
    torch = sys.modules.get("torch")
    return (
        int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0
    )


def buffer_of(array: Any) -> tuple[Any, str | None]:
    """The memory of `array` for a group, and the name of its type where that is one that can be
    reduced."""
    if array is None:
        return None, None
    if is_tensor(array):
        if array.device.type != "cuda":
            raise TypeError(
                f"a tensor on {array.device}: this group has backend 'nccl' and "
                "works on CUDA arrays; 'shm' on those of the CPU"
            )
        if not array.is_contiguous():
            raise ValueError(
                "the tensor is not contiguous: call .contiguous() and copy the result back"
            )
        name = str(array.dtype).removeprefix("torch.")
        name = "uint8" if name == "bool" else name
        stream = sys.modules["torch"].cuda.current_stream(array.device).cuda_stream
        size = array.numel() * array.element_size()
        return _core.DeviceArray(
            array.data_ptr(), size, stream, array
        ), name if name in _BYTES else None
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError(
            f"a {type(array).__name__}: this group has backend 'nccl' and works on "
            "CUDA arrays (torch tensors, or what has "
            "__cuda_array_interface__); 'shm' works on those of the CPU"
        )
    item = int(interface["typestr"][2:])
    size = item
    for extent in interface["shape"]:
        size *= int(extent)
    if not _is_contiguous(interface.get("strides"), interface["shape"], item):
        raise ValueError("the array is not contiguous: copy it first")
    # A stream of 1 or 2 is CUDA's own name for a default stream, as the interface has it.
    stream = interface.get("stream") or 0
    return _core.DeviceArray(interface["data"][0], size, stream, array), _TYPES.get(
        interface["typestr"][1:]
    )


def _is_contiguous(strides: tuple[int, ...] | None, shape: tuple[int, ...], item: int) -> bool:
    if strides is None:
        return True
    expected = item
    for stride, extent in zip(reversed(strides), reversed(shape)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


class DeviceMemory:
    """Memory of a group's device that CuPy (``cupy.asarray``), torch (``torch.as_tensor``) and
    others take as an array."""

    def __init__(self, memory: Any, shape: tuple[int, ...], typestr: str) -> None:
        self._memory = memory
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (memory.pointer, False),
            "strides": None,
            "version": 3,
        }


def empty(group: Any, shape: int | tuple[int, ...], dtype: Any, device: int) -> Any:
    """An array of the device, as a tensor where torch is loaded with CUDA, else as DeviceMemory."""
    shape = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
    name = str(dtype).removeprefix("torch.")
    typestr = {kind: f"<{code}" for code, kind in _TYPES.items() if code != "b1"} | {
        "uint8": "|u1",
        "bfloat16": "<i2",
    }
    if name not in typestr:
        raise TypeError(f"dtype={dtype!r}: want one of {', '.join(sorted(typestr))}")
    size = _BYTES[name]
    for extent in shape:
        size *= extent
    memory = DeviceMemory(group.allocate_device(size), shape, typestr[name])
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return memory
    tensor = torch.as_tensor(memory, device=f"cuda:{device}")
    return tensor.view(torch.bfloat16) if name == "bfloat16" else tensor

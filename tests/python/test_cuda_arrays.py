# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Groups of CUDA arrays from Python, over the stand-in for CUDA and NCCL (tests/nccl), whose device
memory is the process's own."""

import ctypes
import pathlib

import pytest
import sheaf
from sheaf import _core
from sheaf.util import collective
from sheaf.util.collective import Group, cuda_arrays

STAND_IN = pathlib.Path(_core.__file__).parents[2] / "tests/nccl/libfake_gpu.so"

pytestmark = [
    pytest.mark.usefixtures("node"),
    pytest.mark.skipif(not STAND_IN.exists(), reason=f"{STAND_IN} is not built"),
]


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setenv("SHEAF_CUDA_LIB", str(STAND_IN))
    monkeypatch.setenv("SHEAF_NCCL_LIB", str(STAND_IN))
    with Group(1, 0, "cuda", backend="nccl", device=0) as made:
        yield made


def values(array):
    """The float32 elements of an array that has __cuda_array_interface__."""
    interface = array.__cuda_array_interface__
    return (ctypes.c_float * interface["shape"][0]).from_address(interface["data"][0])


def test_operations_use_the_memory_of_the_arrays(group):
    x, y = group.empty(4), group.empty((4,), "float32")
    values(x)[:] = [1, 2, 3, 4]
    group.all_reduce(x, out=y)
    assert list(values(y)) == [1, 2, 3, 4]
    values(y)[:] = [5, 6, 7, 8]
    group.broadcast(y)
    work = group.all_gather(x, y, async_op=True)
    work.wait()
    assert list(values(x)) == [5, 6, 7, 8]
    group.barrier()


def test_the_example_of_the_page(monkeypatch):
    monkeypatch.setenv("SHEAF_CUDA_LIB", str(STAND_IN))
    monkeypatch.setenv("SHEAF_NCCL_LIB", str(STAND_IN))
    world_size, rank = 1, 0
    # docs/nccl.md quotes these lines.
    group = collective.Group(world_size, rank, "gradients", backend="nccl")
    # Device memory: a tensor where torch is loaded. Any object with __cuda_array_interface__ will do.
    x = group.empty(1 << 20, "float32")
    group.all_reduce(x, "average")
    assert len(values(x)) == 1 << 20
    group.destroy()


def test_what_is_no_cuda_array_is_refused(group):
    with pytest.raises(
        TypeError, match="a bytearray: this group has backend 'nccl' and works on CUDA arrays"
    ):
        group.all_reduce(bytearray(8))

    class Claims:  # Memory of the host, which the driver does not know.
        held = ctypes.create_string_buffer(16)
        __cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (ctypes.addressof(held), False),
            "version": 3,
        }

    with pytest.raises(
        ValueError, match=r"all_reduce \(float32 x 4, sum\): the array lies in host memory"
    ):
        group.all_reduce(Claims())

    class Strided(Claims):
        __cuda_array_interface__ = Claims.__cuda_array_interface__ | {
            "shape": (2, 2),
            "strides": (4, 8),
        }

    with pytest.raises(ValueError, match="not contiguous"):
        group.all_reduce(Strided())
    group.barrier()  # The group lives on.


def test_an_array_of_a_gpu_is_no_array_for_a_group_of_the_cpu(group):
    with Group(1, 0, "cpu") as other:
        with pytest.raises(TypeError, match="the group wants arrays in the CPU's memory"):
            other._group.run(1, cuda_arrays.buffer_of(group.empty(1))[0], None, "float32", 0, 0, 30)


def test_nccl_is_available_where_a_gpu_is(monkeypatch):
    for variable in ("SHEAF_CUDA_LIB", "SHEAF_NCCL_LIB"):
        monkeypatch.setenv(variable, str(STAND_IN))
    assert collective.nccl_available()
    monkeypatch.setenv("SHEAF_CUDA_LIB", "/nowhere/libcuda.so.1")
    assert not collective.nccl_available()
    with pytest.raises(
        RuntimeError,
        match=r"backend 'nccl' cannot be used here: no CUDA driver: "
        r"'/nowhere/libcuda.so.1' \(SHEAF_CUDA_LIB\)",
    ):
        Group(1, 0, "none", backend="nccl")
    monkeypatch.setenv("SHEAF_CUDA_LIB", str(STAND_IN))
    with pytest.raises(ValueError, match="there is no CUDA device 7 among 1"):
        Group(1, 0, "none", backend="nccl", device=7)


def test_collective_functions_by_name(monkeypatch):
    for variable in ("SHEAF_CUDA_LIB", "SHEAF_NCCL_LIB"):
        monkeypatch.setenv(variable, str(STAND_IN))
    collective.init_collective_group(1, 0, "nccl", "by name")
    x = collective.empty(3, group_name="by name")
    values(x)[:] = [1, 2, 3]
    collective.allreduce(x, "by name")
    assert list(values(x)) == [1, 2, 3]
    collective.destroy_collective_group("by name")
    assert sheaf.is_initialized()

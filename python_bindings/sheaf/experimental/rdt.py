# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors that go from GPU to GPU beside the object store: not in Sheaf; the names exist, and
say so when they are used."""

from sheaf._internal import absent

_INSTEAD = "tensors travel as other values; sheaf.util.collective moves them between actors"
deregister_nixl_memory = absent.function("experimental.deregister_nixl_memory", _INSTEAD)
register_nixl_memory = absent.function("experimental.register_nixl_memory", _INSTEAD)
register_nixl_memory_pool = absent.function("experimental.register_nixl_memory_pool", _INSTEAD)
register_tensor_transport = absent.function("experimental.register_tensor_transport", _INSTEAD)
set_nixl_cuda_stream = absent.function("experimental.set_nixl_cuda_stream", _INSTEAD)
set_target_device_for_ref = absent.function("experimental.set_target_device_for_ref", _INSTEAD)
set_target_for_ref = absent.function("experimental.set_target_for_ref", _INSTEAD)
wait_tensor_freed = absent.function("experimental.wait_tensor_freed", _INSTEAD)

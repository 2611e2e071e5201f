# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Slices of TPUs: not in Sheaf; the names exist, and say so when they are used."""

from sheaf._internal import absent

get_current_pod_name = absent.function("util.tpu.get_current_pod_name")
get_current_pod_worker_count = absent.function("util.tpu.get_current_pod_worker_count")
get_num_tpu_chips_on_node = absent.function("util.tpu.get_num_tpu_chips_on_node")
slice_placement_group = absent.function("util.tpu.slice_placement_group")
SlicePlacementGroup = absent.a_class("util.tpu.SlicePlacementGroup")

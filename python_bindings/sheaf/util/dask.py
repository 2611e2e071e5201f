# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A scheduler for Dask graphs; not there yet."""

from sheaf import absent

ray_dask_get = absent.function("util.dask.ray_dask_get")
enable_dask_on_ray = absent.function("util.dask.enable_dask_on_ray")

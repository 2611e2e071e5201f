# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Progress bars; not there yet."""

from sheaf import absent

tqdm = absent.a_class("experimental.tqdm_ray.tqdm")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A backend for joblib: `register_ray()`, then `with joblib.parallel_backend("ray"):` runs Parallel
on the cluster."""

from __future__ import annotations


def register_ray() -> None:
    """Makes the backend known to joblib, under the names "ray" and "sheaf".

    Raises:
        ImportError: joblib is not installed.
    """
    from joblib.parallel import register_parallel_backend

    from sheaf.util.joblib.backend import SheafBackend

    register_parallel_backend("ray", SheafBackend)
    register_parallel_backend("sheaf", SheafBackend)


register_sheaf = register_ray

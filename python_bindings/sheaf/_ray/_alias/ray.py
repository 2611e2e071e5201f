# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stands in the search path of Python for programs written for Ray, and for what they start: the
first `import ray` makes the alias (sheaf.as_ray), and gives the package sheaf itself."""

import os
import sys

sys.modules.pop("ray", None)
try:
    import sheaf.as_ray
except ModuleNotFoundError as error:
    if error.name != "sheaf":
        raise
    folder = os.path.dirname(os.path.abspath(__file__))  # sheaf/_ray/_alias
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(folder))))
    import sheaf.as_ray
sys.modules["ray"] = sheaf.as_ray.ray

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""cloudpickle, under the name that Ray programs use."""

import pickle

from cloudpickle import (
    CloudPickler,
    dump,
    dumps,
    load,
    loads,
    register_pickle_by_value,
    unregister_pickle_by_value,
)

__all__ = [
    "CloudPickler",
    "dump",
    "dumps",
    "load",
    "loads",
    "pickle",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]

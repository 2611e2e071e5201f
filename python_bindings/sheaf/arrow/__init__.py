# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Kernels over Arrow tables, in C++: partition by keys, ranges or chance, gather, concat, hash.
They take and give what has Arrow's PyCapsule interface and import no library of Arrow. No cluster
is needed."""

from sheaf.arrow.errors import MalformedArray, UnsupportedType
from sheaf.arrow.exchange import Parts, concat, gather, hash, partition
from sheaf.arrow.table import Table

__all__ = [
    "MalformedArray",
    "Parts",
    "Table",
    "UnsupportedType",
    "concat",
    "gather",
    "hash",
    "partition",
]

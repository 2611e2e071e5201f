# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Streaming datasets on Arrow blocks in shared memory, with the names of Ray Data."""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError("sheaf.data needs pyarrow: pip install 'sheaf[data]'") from error

from sheaf.data.compute import ActorPoolStrategy, TaskPoolStrategy
from sheaf.data.context import (
    DataContext,
    DatasetContext,
    ExecutionOptions,
    ExecutionResources,
    ShuffleStrategy,
)
from sheaf.data.dataset import Dataset, MaterializedDataset
from sheaf.data.grouped import GroupedData
from sheaf.data.iterator import DataIterator
from sheaf.data.read_api import (
    from_arrow,
    from_arrow_refs,
    from_blocks,
    from_items,
    from_numpy,
    from_numpy_refs,
    from_pandas,
    from_pandas_refs,
    range,
    range_tensor,
    read_datasource,
)
from sheaf.data.schema import Schema

DatasetIterator = DataIterator

__all__ = [
    "ActorPoolStrategy",
    "DataContext",
    "DataIterator",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "ExecutionOptions",
    "ExecutionResources",
    "GroupedData",
    "MaterializedDataset",
    "Schema",
    "ShuffleStrategy",
    "TaskPoolStrategy",
    "from_arrow",
    "from_arrow_refs",
    "from_blocks",
    "from_items",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "range",
    "range_tensor",
    "read_datasource",
]

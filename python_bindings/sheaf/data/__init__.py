# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Streaming datasets on Arrow blocks in shared memory, with the names of Ray Data."""

from __future__ import annotations

import importlib

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
from sheaf.data.not_built import FUNCTIONS, function
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
from sheaf.data.readers import (
    from_huggingface,
    from_torch,
    read_avro,
    read_binary_files,
    read_csv,
    read_delta,
    read_iceberg,
    read_images,
    read_json,
    read_lance,
    read_numpy,
    read_orc,
    read_parquet,
    read_sql,
    read_text,
    read_tfrecords,
    read_webdataset,
)
from sheaf.data.schema import Schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    "from_huggingface",
    "from_items",
    "from_numpy",
    "from_numpy_refs",
    "from_pandas",
    "from_pandas_refs",
    "from_torch",
    "range",
    "range_tensor",
    "read_avro",
    "read_binary_files",
    "read_csv",
    "read_datasource",
    "read_delta",
    "read_iceberg",
    "read_images",
    "read_json",
    "read_lance",
    "read_numpy",
    "read_orc",
    "read_parquet",
    "read_sql",
    "read_text",
    "read_tfrecords",
    "read_webdataset",
]
_LATER = {  # Imported when they are first asked for.
    **dict.fromkeys(
        (
            "BlockBasedFileDatasink",
            "Datasink",
            "Datasource",
            "FileShuffleConfig",
            "ReadTask",
            "RowBasedFileDatasink",
            "SaveMode",
        ),
        "sheaf.data.datasource",
    ),
    **dict.fromkeys(
        ("from_daft", "from_dask", "from_modin", "from_tf", "sql"), "sheaf.data.frames"
    ),
    "DatasetSummary": "sheaf.data.methods.summaries",
    "MixStoppingCondition": "sheaf.data.methods.mixing",
    "Preprocessor": "sheaf.data.preprocessor",
    "RandomSeedConfig": "sheaf.data.methods.arguments",
    "SinkMode": "sheaf.data.not_built",
}
_MODULES = (
    "aggregate",
    "block",
    "collate_fn",
    "datasource",
    "datatype",
    "exceptions",
    "expressions",
    "extensions",
    "preprocessor",
    "preprocessors",
)
NodeIdStr = str


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"sheaf.data.{name}")
    if name in FUNCTIONS:
        return function(f"data.{name}", FUNCTIONS[name])
    raise AttributeError(f"sheaf.data has no '{name}'")

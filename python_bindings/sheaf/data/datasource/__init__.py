# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sources that can be read and sinks that can be written to, with the names of
ray.data.datasource."""

from __future__ import annotations

from sheaf.data.datasource.datasink import Datasink, DummyOutputDatasink, SaveMode, WriteResult
from sheaf.data.datasource.datasource import Datasource, ReadTask
from sheaf.data.datasource.file_based import FileBasedDatasource, FileShuffleConfig
from sheaf.data.datasource.file_datasink import BlockBasedFileDatasink, RowBasedFileDatasink
from sheaf.data.datasource.filename_provider import FilenameProvider
from sheaf.data.datasource.partitioning import (
    Partitioning,
    PartitionStyle,
    PathPartitionFilter,
    PathPartitionParser,
)

__all__ = [
    "BlockBasedFileDatasink",
    "Datasink",
    "Datasource",
    "DummyOutputDatasink",
    "FileBasedDatasource",
    "FileShuffleConfig",
    "FilenameProvider",
    "PartitionStyle",
    "Partitioning",
    "PathPartitionFilter",
    "PathPartitionParser",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "WriteResult",
]

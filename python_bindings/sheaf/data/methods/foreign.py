# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets as frames of other libraries, each imported when it is used."""

from __future__ import annotations

import importlib
from typing import Any

from sheaf.data import block as blocks
from sheaf.data.errors import MissingPackageError

Dataset = Any


def library(what: str, name: str) -> Any:
    """A module, or MissingPackageError that says what wants it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(what, name.partition(".")[0]) from error


class Foreign:
    """The methods of Dataset that give frames of other libraries."""

    def to_dask(self: Dataset, meta: Any = None, verify_meta: bool = True) -> Any:
        """All rows as a dask.dataframe.DataFrame, with one partition for each block.

        Args:
            meta: has no effect: the first block's columns are taken.
            verify_meta: has no effect.

        Returns:
            The frame.
        """
        frames = library("to_dask", "dask.dataframe")
        parts = [blocks.table_to_batch(table, "pandas") for table in self._tables_now(None)]
        made = [frames.from_pandas(part, npartitions=1) for part in parts]
        return made[0] if len(made) == 1 else frames.concat(made)

    def to_modin(self: Dataset) -> Any:
        """Returns all rows as a modin.pandas.DataFrame."""
        return library("to_modin", "modin.pandas").DataFrame(self.to_pandas())

    def to_daft(self: Dataset) -> Any:
        """Returns all rows as a daft.DataFrame."""
        return library("to_daft", "daft").from_arrow(blocks.concat(self._tables_now(None)))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of PyTorch and Hugging Face."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from sheaf.data.block import BlockMetadata, batch_to_table, rows_to_table
from sheaf.data.datasource.datasource import Datasource, ReadTask
from sheaf.data.user_code import take_row

__all__ = ["HuggingFaceDatasource", "TorchDatasource"]

_ROWS_AT_ONCE = 4096


class TorchDatasource(Datasource):
    """The elements of a torch.utils.data.Dataset, each a row {"item": element}; of an
    IterableDataset in one task.

    Args:
        dataset: it must pickle.
    """

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def num_rows(self) -> int | None:
        """Returns how many elements there are; None for an iterable dataset, which inherits a
        __getitem__ that raises, and whose length may be wrong."""
        kinds = {kind.__name__ for kind in type(self._dataset).__mro__}
        by_place = "IterableDataset" not in kinds and hasattr(self._dataset, "__getitem__")
        return len(self._dataset) if by_place else None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with a run of the elements.

        Args:
            parallelism: how many are wanted.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        rows = self.num_rows()
        count = 1 if rows is None else max(1, min(parallelism, rows))
        tasks = []
        for task in range(count):
            start = 0 if rows is None else task * rows // count
            stop = None if rows is None else (task + 1) * rows // count
            metadata = BlockMetadata(None if stop is None else stop - start)
            read = functools.partial(self._read, start, stop)
            tasks.append(ReadTask(read, metadata, None, per_task_row_limit))
        return tasks

    def _read(self, start: int, stop: int | None) -> Iterator[Any]:
        if stop is None:
            elements = iter(self._dataset)
        else:
            elements = (self._dataset[place] for place in range(start, stop))
        rows = map(take_row, ([{"item": element}] for element in elements))
        while part := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            yield rows_to_table(part)


class HuggingFaceDatasource(Datasource):
    """A datasets.Dataset, whose Arrow table is taken as it is, or an IterableDataset.

    Args:
        dataset: of the library datasets.
        batch_size: rows of a block of an iterable dataset.
    """

    def __init__(self, dataset: Any, batch_size: int = 4096):
        if isinstance(dataset, dict):
            raise ValueError(f"got a dict of datasets: choose one of its splits, {list(dataset)}")
        self._dataset, self._batch_size = dataset, batch_size

    def num_rows(self) -> int | None:
        """Returns how many rows there are; None for an iterable dataset."""
        return len(self._dataset) if hasattr(self._dataset, "__len__") else None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with a run of the rows; one for an iterable dataset.

        Args:
            parallelism: how many are wanted.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        rows = self.num_rows()
        count = 1 if rows is None else max(1, min(parallelism, rows))
        tasks = []
        for task in range(count):
            start = 0 if rows is None else task * rows // count
            stop = None if rows is None else (task + 1) * rows // count
            metadata = BlockMetadata(None if stop is None else stop - start)
            read = functools.partial(self._read, start, stop)
            tasks.append(ReadTask(read, metadata, None, per_task_row_limit))
        return tasks

    def _read(self, start: int, stop: int | None) -> Iterator[Any]:
        if stop is None:
            batches = self._dataset.with_format("arrow").iter(batch_size=self._batch_size)
        else:
            part = self._dataset.with_format("arrow").select(range(start, stop))
            batches = part.iter(batch_size=_ROWS_AT_ONCE)
        for batch in batches:
            yield batch_to_table(batch).replace_schema_metadata(None)

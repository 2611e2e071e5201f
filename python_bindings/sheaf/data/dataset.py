# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Dataset: a lazy plan over blocks, and what runs it."""

from __future__ import annotations

import uuid
import weakref
from typing import Any

import pyarrow.compute as pc

import sheaf
from sheaf.data import block as blocks
from sheaf.data import plan, transforms
from sheaf.data.background import InBackground
from sheaf.data.caches.ahead import Ahead
from sheaf.data.context import DataContext
from sheaf.data.exchanges.skew import ExchangeSkew
from sheaf.data.iterator import DataIterator, table_of
from sheaf.data.methods.arguments import suggesting
from sheaf.data.methods.caching import Caching
from sheaf.data.methods.changes import Changes
from sheaf.data.methods.foreign import Foreign
from sheaf.data.methods.mixing import Mixing
from sheaf.data.methods.rearrangements import Rearrangements
from sheaf.data.methods.reductions import Reductions
from sheaf.data.methods.summaries import Summaries
from sheaf.data.not_built import METHODS, function
from sheaf.data.operators import Bundle
from sheaf.data.optimize import optimized
from sheaf.data.schema import Schema, unify_schemas
from sheaf.data.shell import Execution
from sheaf.data.splits import Splits
from sheaf.data.writes import Writes


class Dataset(
    Changes,
    Rearrangements,
    Reductions,
    Splits,
    Mixing,
    Summaries,
    Caching,
    Foreign,
    Writes,
    DataIterator,
):
    """Rows in blocks, made when they are consumed, each time anew. A dataset is a plan: it pickles
    into tasks and actors, and none of its methods changes it. Made by sheaf.data.read_parquet and
    the like.

    Args:
        node: the plan.
        context: settings.
    """

    def __init__(self, node: plan.Node, context: DataContext | None = None) -> None:
        self._plan = node
        self._context = (context or DataContext.get_current()).copy()
        self._name: str | None = None
        self._id = uuid.uuid4().hex
        self._stats: Any = None
        self._schema: Any = None

    def _with(self, node: plan.Node) -> Dataset:
        return Dataset(node, self._context)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stats": None}

    def _execute(self, node: plan.Node | None = None) -> Execution:
        execution = Execution(node or self._plan, self._context, self._name or "")
        self._stats = execution.stats
        return execution

    def _run(self, node: plan.Node | None = None) -> list[Bundle]:
        """All blocks of the result."""
        execution = self._execute(node)
        try:
            return list(execution)
        finally:
            execution.close()

    def _bundles(self) -> Any:
        execution = self._execute()
        if not execution.is_light():
            return InBackground(execution)
        return Ahead(execution) if execution.reads_caches() else execution

    # What it is.

    @property
    def name(self) -> str | None:
        """Returns its name in progress; None: it has none."""
        return self._name

    def set_name(self, name: str | None) -> None:
        """Names it, for progress.

        Args:
            name: of it.
        """
        self._name = name

    def get_dataset_id(self) -> str:
        """Returns a word that no other dataset has."""
        return self._id

    @property
    def context(self) -> DataContext:
        """Returns its settings."""
        return self._context

    def __repr__(self) -> str:
        schema = self._schema or plan.known_schema(self._plan)
        rows = plan.known_rows(self._plan)
        shown = (
            "Unknown schema"
            if schema is None
            else "{" + ", ".join(f"{f.name}: {f.type}" for f in schema) + "}"
        )
        return f"{type(self).__name__}(num_rows={'?' if rows is None else rows}, schema={shown})"

    __str__ = __repr__

    def __iter__(self) -> Any:
        raise TypeError(
            "a Dataset cannot be iterated over itself: use iter_rows() or iter_batches()"
        )

    def explain(self) -> None:
        """Prints the plan, the last operator first, and what runs in its place, if that differs:
        columns and filters that files are read with."""
        print(plan.describe(self._plan))
        better = plan.describe(optimized(self._plan))
        if better != plan.describe(self._plan):
            print(f"\nOptimized:\n{better}")

    def stats(self) -> str:
        """Returns what the last run of this dataset took, as text."""
        return "" if self._stats is None else self._stats.text()

    def skew(self) -> list[ExchangeSkew]:
        """How unequal the partitions of each exchange of the latest execution were: rows, bytes and
        seconds, the most frequent keys, and advice; print one to read it. Empty before there was an
        execution, and where it had no exchange."""
        return [] if self._stats is None else self._stats.skew()

    def schema(self, fetch_if_missing: bool = True) -> Any:
        """The columns and their types: those of the first block, where neither the plan tells nor
        all blocks have been made.

        Args:
            fetch_if_missing: makes the first block where the plan does not tell.

        Returns:
            A Schema; None: unknown, or there is nothing.
        """
        found = self._schema if self._schema is not None else plan.known_schema(self._plan)
        if found is None and fetch_if_missing:
            found = self._first_schema()
        self._schema = found
        return None if found is None else Schema(found)

    def _first_schema(self) -> Any:
        execution = self._execute(plan.Limit((self._plan,), 1))
        try:
            found = [bundle.metadata.schema for bundle in execution if bundle.metadata is not None]
        finally:
            execution.close()
        found = [schema for schema in found if schema is not None and len(schema)]
        return unify_schemas(found) if found else None

    def _whole_schema(self, bundles: list[Bundle]) -> Any:
        """The schema of all these blocks, which may have other columns and types than the first;
        what the plan tells where none has any."""
        found = _unified(bundles)
        if found is not None:
            self._schema = found
        return self.schema(False) if found is None else Schema(found)

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """The names of the columns.

        Args:
            fetch_if_missing: as of schema.

        Returns:
            Them; None: unknown.
        """
        schema = self.schema(fetch_if_missing)
        return None if schema is None else list(schema.names)

    def count(self) -> int:
        """Returns how many rows there are, without making them where the plan tells."""
        known = plan.known_rows(self._plan)
        if known is not None:
            return known
        if isinstance(self._plan, plan.Zip):  # No rows need to come together.
            from sheaf.data.slices import equal_rows

            return equal_rows([self._with(node).count() for node in self._plan.inputs])
        node = plan.Count((self._plan,), "Count", transforms.count_rows)
        return sum(pc.sum(table_of(bundle).column("rows")).as_py() for bundle in self._run(node))

    def num_blocks(self) -> int:
        """Returns how many blocks there are.

        Raises:
            NotImplementedError: they have not been made: use materialize() first.
        """
        raise NotImplementedError(
            "the blocks of a lazy dataset are not known: use materialize().num_blocks()"
        )

    def size_bytes(self) -> int:
        """Returns the bytes of all rows; an estimate where they have not been read."""
        known = plan.known_bytes(self._plan)
        only_reads = all(
            isinstance(node, (plan.Blocks, plan.Read)) for node in plan.walk(self._plan)
        )
        if known is not None and only_reads:
            return known
        execution = self._execute()
        try:
            return sum(bundle.size_bytes for bundle in execution)
        finally:
            execution.close()

    def input_files(self) -> list[str]:
        """Returns the files that it is read from."""
        from sheaf.data.read_plan import local_cpus, read_tasks

        found: dict[str, None] = {}
        for node in plan.walk(self._plan):
            if isinstance(node, plan.Read):
                if hasattr(node.datasource, "input_files"):
                    found.update(dict.fromkeys(node.datasource.input_files()))
                    continue
                for task in read_tasks(node, self._context, local_cpus()):
                    found.update(dict.fromkeys(task.metadata.input_files or ()))
        return list(found)

    # What it gives.

    def _tables_now(self, limit: int | None) -> list[Any]:
        node = self._plan if limit is None else plan.Limit((self._plan,), limit)
        return [table_of(bundle) for bundle in Ahead(iter(self._run(node)))]

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows.

        Args:
            limit: how many at most.

        Returns:
            Them, as dicts.
        """
        self.limit(limit)  # It says what is wrong with it.
        return [row for table in self._tables_now(limit) for row in blocks.table_to_rows(table)]

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows.

        Args:
            limit: how many there may be; None: any number.

        Returns:
            Them, as dicts.

        Raises:
            ValueError: there are more.
        """
        tables = self._tables_now(None if limit is None else limit + 1)
        rows = [row for table in tables for row in blocks.table_to_rows(table)]
        if limit is not None and len(rows) > limit:
            raise ValueError(
                f"the dataset has more than {limit} rows, which take_all(limit) allows"
            )
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """The first rows as a batch.

        Args:
            batch_size: how many at most.
            batch_format: as of map_batches.

        Returns:
            The batch.

        Raises:
            ValueError: there is no row.
        """
        tables = [table for table in self._tables_now(batch_size) if table.num_rows]
        if not tables:
            raise ValueError("take_batch: the dataset is empty")
        return blocks.table_to_batch(blocks.concat(tables), batch_format, zero_copy=False)

    def show(self, limit: int = 20) -> None:
        """Prints the first rows.

        Args:
            limit: how many at most.
        """
        for row in self.take(limit):
            print(row)

    def iterator(self) -> DataIterator:
        """Returns a DataIterator over it, which keeps its own place in an epoch."""
        return _Epochs(self)

    def materialize(self) -> MaterializedDataset:
        """Returns a dataset whose blocks are there: made now, once."""
        bundles = self._run()
        made = materialized(bundles, self._context, self._whole_schema(bundles))
        made._stats, made._name = self._stats, self._name
        return made

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows as one DataFrame.

        Args:
            limit: how many there may be; None: any number.

        Returns:
            The DataFrame.

        Raises:
            ValueError: there are more.
        """
        tables = self._tables_now(None if limit is None else limit + 1)
        table = blocks.concat(tables)
        if limit is not None and table.num_rows > limit:
            raise ValueError(
                f"the dataset has more than {limit} rows, which to_pandas(limit) allows"
            )
        return blocks.table_to_batch(table, "pandas", zero_copy=False)

    def _refs(self, change: Any = None) -> list[Any]:
        out = []
        for bundle in self._run():
            whole = bundle.metadata is not None and bundle.num_rows == bundle.metadata.num_rows
            if change is None and whole and isinstance(bundle.block, sheaf.ObjectRef):
                # What it is made from lives as long as this reference, as it could be lost.
                weakref.finalize(bundle.block, _let_go, bundle.sources).atexit = False
                out.append(bundle.block)
            else:
                table = table_of(bundle)
                out.append(sheaf.put(table if change is None else change(table)))
        return out

    def to_arrow_refs(self) -> list[Any]:
        """Returns a reference to a pyarrow.Table for each block."""
        return self._refs()

    def get_internal_block_refs(self) -> list[Any]:
        """Returns a reference to each block."""
        return self._refs()

    def to_pandas_refs(self) -> list[Any]:
        """Returns a reference to a DataFrame for each block."""
        return self._refs(lambda table: blocks.table_to_batch(table, "pandas"))

    def to_numpy_refs(self, *, column: str | None = None) -> list[Any]:
        """References to arrays of each block.

        Args:
            column: of which; None: dicts of all.

        Returns:
            The references.
        """

        def arrays(table: Any) -> Any:
            batch = blocks.table_to_batch(table, "numpy")
            return batch if column is None else batch[column]

        return self._refs(arrays)


for _name, _instead in METHODS.items():
    setattr(Dataset, _name, function(f"Dataset.{_name}", _instead))
suggesting(Dataset)


class _Epochs(DataIterator):
    """An iterator over a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._context = dataset._context

    def _bundles(self) -> Any:
        return self._dataset._bundles()

    def schema(self) -> Any:
        return self._dataset.schema()

    def stats(self) -> str:
        return self._dataset.stats()

    def materialize(self) -> MaterializedDataset:
        return self._dataset.materialize()


class MaterializedDataset(Dataset):
    """A dataset whose blocks are there."""

    def num_blocks(self) -> int:
        """Returns how many blocks there are.

        Raises:
            NotImplementedError: unpersist() has given them back.
        """
        if not isinstance(self._plan, plan.Blocks):
            return super().num_blocks()
        return len(self._plan.bundles)


def _let_go(sources: Any) -> None:
    """They were held for a reference that is no more."""


def _unified(bundles: list[Bundle]) -> Any:
    known = [bundle.metadata.schema for bundle in bundles if bundle.metadata is not None]
    known = [one for one in known if one is not None and len(one)]
    return unify_schemas(known) if known else None


def materialized(
    bundles: list[Bundle], context: DataContext | None = None, schema: Any = None
) -> MaterializedDataset:
    """A dataset of blocks that are there."""
    found = _unified(bundles) if schema is None else schema.base_schema
    return MaterializedDataset(plan.Blocks((), tuple(bundles), found, "Materialized"), context)


DataIterator._materialized = staticmethod(materialized)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What runs in tasks and actors of an execution: a function over the blocks of one work, whose
outputs go back as pairs of a header and a block."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf import cloudpickle
from sheaf.data import block as blocks
from sheaf.data import transforms
from sheaf.data.exchanges.partition import Borders, Pieces, fetched
from sheaf.data.task_context import TaskContext
from sheaf.data.user_code import ClassUdf

# (blocks, payload) -> (table, what travels beside it). Blocks are tables, or read tasks.
Function = Callable[[Sequence[Any], Any], Iterator[tuple[Any, Any]]]

_INLINE_BYTES = 16 << 10  # A block below this goes in its header.
_TOGETHER_BYTES = 256 << 10  # Of small blocks in one message.
_FUNCTIONS_KEPT = 32  # Of operators, in one worker.


@dataclasses.dataclass
class Header:
    """What goes in front of a block.

    Attributes:
        num_rows, size_bytes, schema: of the block.
        wall_s, cpu_s: that making it took.
        extra: what the function says of it.
        table: the block, where it is small.
        input_files: that it was read from.
        number: of the block among the outputs of its task.
    """

    num_rows: int
    size_bytes: int
    schema: Any
    wall_s: float = 0.0
    cpu_s: float = 0.0
    extra: Any = None
    table: Any = None
    input_files: tuple[str, ...] = ()
    number: int = 0


@dataclasses.dataclass
class MapFunction:
    """Blocks through transforms.

    Attributes:
        transform: of all operators that are fused.
        one_by_one: each block by itself, so that blocks keep their borders.
        target_bytes: of a block at most.
        udfs: classes that an actor makes at its start.
        keeps_tables: blocks are what the transforms give, whatever their sizes.
        on_read: what is done with the output of a read task only; a limit of rows.
    """

    transform: Any = None
    one_by_one: bool = True
    target_bytes: int = 128 << 20
    udfs: tuple[ClassUdf, ...] = ()
    row_limit: int | None = None

    def tables(self, given: Sequence[Any], payload: Any) -> Iterator[Any]:
        """The output tables."""
        groups = [[one] for one in given] if self.one_by_one else [given]
        for group in groups:
            tables: Iterator[Any] = _tables_of(group)
            if self.row_limit is not None:
                tables = transforms.limit_rows(self.row_limit)(tables)
            if self.transform is not None:
                tables = self.transform(tables)
            yield from transforms.cut_blocks(tables, self.target_bytes, self.target_bytes)

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        for table in self.tables(given, payload):
            yield table, None


@dataclasses.dataclass
class PartitionFunction:
    """Blocks through transforms, then cut to partitions: one table per task, or more of them where
    they would be large, in the order of partitions, and beside it where each lies.

    Attributes:
        before: what comes first.
        method: of sheaf.data.exchanges.exchange.
        block_bytes: of a table at most.
        side: which input of the exchange this is.
    """

    before: MapFunction
    method: Any
    block_bytes: int
    side: int = 0

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        size = self.block_bytes
        for table in transforms.cut_blocks(self.before.tables(given, payload), size, size):
            yield self.method.partition(table, payload, self.side)


@dataclasses.dataclass
class ReduceFunction:
    """The slices of some partitions to output.

    Attributes:
        method: of sheaf.data.exchanges.exchange.
        after: what comes behind.
    """

    method: Any
    after: MapFunction

    @property
    def udfs(self) -> tuple[ClassUdf, ...]:
        return self.method.udfs + self.after.udfs

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        return self.behind(self.method.reduce(given, payload))

    def behind(self, tables: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        """All that a task has reduced through what comes behind, once: a write numbers its files
        from 0."""
        size = self.after.target_bytes
        if self.after.transform is not None:
            tables = self.after.transform(tables)
        for table in transforms.cut_blocks(tables, size, size):
            yield table, None


@dataclasses.dataclass
class MergeFunction:
    """Some partitions of many map tasks to one output, in the order of partitions.

    Attributes:
        method: of sheaf.data.exchanges.exchange.
    """

    method: Any

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        yield self.method.merged(given, payload)


@dataclasses.dataclass
class BroadcastFunction(ReduceFunction):
    """Blocks of one side of a join through transforms, then joined with all of the other.

    Attributes:
        before: what comes first.
        side: which one that is, 0 or 1.
        block_bytes: that are joined at a time, at most.
    """

    before: MapFunction
    side: int
    block_bytes: int

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        own, other = given[: payload[0]], list(given[payload[0] :])
        counts = (1, len(other)) if self.side == 0 else (len(other), 1)
        size = self.block_bytes

        def joined() -> Iterator[Any]:
            for table in transforms.cut_blocks(self.before.tables(own, None), size, size):
                both = [table, *other] if self.side == 0 else [*other, table]
                yield from self.method.reduce(both, counts)

        return self.behind(joined())


@dataclasses.dataclass
class SliceFunction:
    """What an operator of an exchange does with the blocks of one work: method.work(blocks,
    payload) gives tables, or pairs of a table and what travels beside it."""

    method: Any
    udfs: tuple[ClassUdf, ...] = ()

    def __call__(self, given: Sequence[Any], payload: Any) -> Iterator[tuple[Any, Any]]:
        yield from self.method.work(given, payload)


def _tables_of(group: Sequence[Any]) -> Iterator[Any]:
    for one in group:
        if isinstance(one, pa.Table):
            yield one
        else:
            yield from transforms.read(one)(iter(()))


def run(
    function: Function,
    context: TaskContext,
    cuts: Sequence[Any],
    payload: Any,
    given: Sequence[Any],
) -> Iterator[Header]:
    """Runs one work in this process.

    Args:
        function: the operator's.
        context: which task this is.
        cuts: (start, stop) for each block; None: all of it.
        payload: the work's.
        given: blocks or read tasks.

    Yields:
        Headers, each with its table.
    """
    parts = [
        _cut(one, *cut) if cut is not None and _is_whole(source, one) else one
        for source, one, cut in zip(given, _as_tables(fetched(given, cuts)), cuts)
    ]
    files = tuple(name for one in given for name in _files_of(one))
    outputs = iter(function(parts, payload))
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        with context.entered():
            made = next(outputs, None)
        if made is None:
            return
        table, extra = made
        yield Header(
            table.num_rows,
            blocks.size_bytes(table),
            table.schema,
            time.perf_counter() - wall,
            time.thread_time() - cpu,
            extra,
            table,
            files,
        )


def _as_tables(given: Sequence[Any]) -> list[Any]:
    """Blocks of users are what references hold: frames, dicts, arrays, too."""
    return [
        one if isinstance(one, pa.Table) or callable(one) else blocks.batch_to_table(one)
        for one in given
    ]


def _is_whole(source: Any, found: Any) -> bool:
    """Whether a table is there of which only some rows may be wanted."""
    return isinstance(found, (pa.Table, pa.RecordBatch)) and not isinstance(source, Pieces)


def _cut(table: Any, start: int, stop: int) -> Any:
    if start == 0 and stop >= table.num_rows:
        return table
    return blocks.slice_rows(table, start, stop - start)


def _files_of(one: Any) -> Sequence[str]:
    return getattr(getattr(one, "metadata", None), "input_files", None) or ()


def stored(header: Header) -> Any:
    """The block of a header, as the store gets it; the header has it no more."""
    table, header.table = header.table, None
    return header.extra.stored(table) if isinstance(header.extra, Borders) else table


_functions: collections.OrderedDict[str, Function] = collections.OrderedDict()


def function_of(key: str, pickled: bytes) -> Function:
    """The function of an operator, unpickled once in a process."""
    found = _functions.get(key)
    if found is None:
        found = _functions[key] = cloudpickle.loads(pickled)
        if len(_functions) > _FUNCTIONS_KEPT:
            _functions.popitem(last=False)
    return found


def run_task(
    key: str,
    pickled: bytes,
    context: TaskContext,
    skip: int,
    together: int,
    cuts: Sequence[Any],
    payload: Any,
    here: Sequence[Any],
    *elsewhere: Any,
) -> Iterator[Any]:
    """The body of a task: a list of headers, then the block of the last of them unless the header
    has it, and so on. Which outputs go together must not depend on time: when its worker dies, or a
    block is lost, the task runs again, and of what it yields then the first items are left out, as
    many as had been yielded before.

    Args:
        key: of the operator's function in this process.
        pickled: that function.
        context: which task this is.
        skip: how many outputs were taken from an earlier try.
        together: how many small blocks go in one message, at most; the first messages have fewer.
        cuts: (start, stop) for each block; None: all of it.
        payload: the work's.
        here: the blocks, and None for each that is elsewhere.
        *elsewhere: those, fetched.

    Yields:
        Lists of headers, and tables.
    """
    function = function_of(key, pickled)
    found = iter(elsewhere)
    given = [next(found) if one is None else one for one in here]
    small: list[Header] = []
    size, most = 0, 1
    for number, header in enumerate(run(function, context, cuts, payload, given)):
        if number < skip:
            continue
        header.number = number
        small.append(header)
        size += header.size_bytes
        if header.size_bytes > _INLINE_BYTES:  # Its place is said in front of it.
            block = stored(header)
            yield small
            yield block
        elif size > _TOGETHER_BYTES or len(small) >= most:
            yield small
            most = min(2 * most, together)
        else:
            continue
        small, size = [], 0
    if small:
        yield small


class MapWorker:
    """An actor of a pool.

    Args:
        key: of the operator's function.
        pickled: that function; the classes of its user are made now.
    """

    def __init__(self, key: str, pickled: bytes):
        self._key, self._pickled = key, pickled
        for udf in getattr(function_of(key, pickled), "udfs", ()):
            transforms.prepare(udf)

    def ready(self) -> None:
        """Returns when the constructor has run."""

    def rest(self) -> Iterator[None]:
        """Yields an item, which nobody takes before there is work: sheaf.data.resting."""
        yield None

    def run(
        self,
        context: TaskContext,
        skip: int,
        together: int,
        cuts: Sequence[Any],
        payload: Any,
        here: Sequence[Any],
        *elsewhere: Any,
    ) -> Iterator[Any]:
        """A task.

        Args:
            context, skip, together, cuts, payload, here, *elsewhere: as of run_task.

        Yields:
            Lists of headers, and tables.
        """
        key, pickled = self._key, self._pickled
        yield from run_task(key, pickled, context, skip, together, cuts, payload, here, *elsewhere)

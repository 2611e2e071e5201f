# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""From the logical plan to operators that the executor runs: maps that go together become one task,
exchanges become map, partition and reduce."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sheaf.data import plan as logical
from sheaf.data import transforms
from sheaf.data.compute import TaskOptions
from sheaf.data.exchanges.exchange import Shuffle
from sheaf.data.exchanges.sort import Sort
from sheaf.data.operators import Operator, Work
from sheaf.data.optimize import optimized
from sheaf.data.read_plan import ReadBundles, has_own, is_light, read_tasks
from sheaf.data.slices import JoinBlocks, ZipBlocks
from sheaf.data.tasks import (
    BroadcastFunction,
    MapFunction,
    MergeFunction,
    PartitionFunction,
    ReduceFunction,
    SliceFunction,
)
from sheaf.data.user_code import ClassUdf

_BLOCKS_OF_A_CPU = 4  # Of the largest, in the budget: one that is read, made, taken, and room.
_LEAST_BLOCK_BYTES = 1 << 20  # Where the budget is small.
_MOST_FUSED = 64  # Maps in one task: their generators are one in another.


@dataclasses.dataclass
class Stage:
    """What the shell needs to run tasks of an operator."""

    function: Any
    options: TaskOptions
    spread: bool = False


class Planner:
    """Makes the operators of one execution.

    Args:
        context: DataContext.
        cpus: of the cluster.
        budget: bytes of blocks that may lie around.
    """

    def __init__(self, context: Any, cpus: float, budget: int = 1 << 30) -> None:
        self._context, self._budget = context, budget
        self._cpus = max(1, int(cpus))
        self.operators: list[Operator] = []
        self._root: logical.Node | None = None
        self._whole: set[int] = set()  # The ids of reads whose rows few tasks are to have.

    def plan(self, node: logical.Node) -> list[Operator]:
        """Operators for a logical plan, the last one's outputs its result."""
        self._root = optimized(node)
        self._build(self._root)
        self._settle_order()
        return self.operators

    def _settle_order(self) -> None:
        """What is sorted stays so, what is zipped meets what it stands beside, and a seed gives one
        order of rows, also with a full budget; an exchange puts an end to any of that."""
        for operator in self.operators:
            behind = any(self.operators[feeder].in_order for feeder in operator.inputs)
            operator.in_order = _sorts(operator) or (behind and not _mixes(operator))
        for operator in reversed(self.operators):
            operator.in_order = operator.in_order or _is_seeded(operator)
            if (
                _zips(operator)
                or _is_seeded(operator)
                or (operator.in_order and not _mixes(operator))
            ):
                for feeder in operator.inputs:
                    self.operators[feeder].in_order = True

    def _build(self, node: logical.Node) -> None:
        """Operators for all of a plan, those first that feed others. It does not call itself: plans
        are deeper than Python's stack."""
        made: list[int] = []
        left: list[tuple[logical.Node, bool]] = [(node, False)]
        while left:
            node, is_ready = left.pop()
            if not is_ready:
                left.append((node, True))
                left += [(child, False) for child in reversed(self._in_order(node))]
                self._note_whole(node)
                continue
            first = len(made) - len(node.inputs)
            feeders = made[first:]
            made[first:] = [getattr(self, f"_build_{_kind(node)}")(node, feeders)]

    def _note_whole(self, node: logical.Node) -> None:
        """Notes which reads an exchange takes that gains by few of their tasks."""
        if not isinstance(node, logical.Exchange) or not node.method.wants_few:
            return
        for child in node.inputs:
            while isinstance(child, logical.Map) and child.is_plain:
                (child,) = child.inputs
            if isinstance(child, logical.Read):
                self._whole.add(id(child))

    def _in_order(self, node: logical.Node) -> Sequence[logical.Node]:
        """The inputs in the order in which they are planned."""
        small = self._small_side(node)
        return node.inputs if small is None else (node.inputs[small], node.inputs[1 - small])

    def _small_side(self, node: logical.Node) -> int | None:
        """The input that goes to all tasks of the other, of a join that is one."""
        if not isinstance(node, logical.Exchange) or len(node.inputs) < 2:
            return None
        bounds = [logical.most_bytes(child) for child in node.inputs]
        side: int | None = node.method.small_side(bounds, self._context)
        return side

    def _add(self, operator: Operator) -> int:
        self.operators.append(operator)
        return len(self.operators) - 1

    # Sources.

    def _build_Blocks(self, node: logical.Blocks, feeders: list[int]) -> int:
        return self._add(Operator(node.name, "source", bundles=node.bundles))

    def _build_CachedBlocks(self, node: logical.CachedBlocks, feeders: list[int]) -> int:
        source = self._build_Blocks(node, feeders)
        if not node.on_disk:
            return source
        function = MapFunction(target_bytes=self._block_bytes)
        stage = Stage(function, TaskOptions(), spread=True)
        # What only reads files that are here maps them here.
        is_little = node is self._root or (logical.known_bytes(node) or 0) < self._small
        here = is_little and node.cache.is_here()
        return self._add(self._map(node.name, source, stage, alone=True, here=here))

    def _build_Read(self, node: logical.Read, feeders: list[int]) -> int:
        size = self._block_bytes
        stream = None
        if node.parallelism < 1 and has_own(node.datasource, "streamed_read_tasks"):
            stream = node.datasource.streamed_read_tasks(self._context)
        if stream is None:
            whole = size if id(node) in self._whole else None
            bundles = ReadBundles(read_tasks(node, self._context, self._cpus, whole), size)
            source = self._add(Operator(node.name, "source", bundles=bundles))
        else:
            found = (list(ReadBundles(tasks, size)) for tasks in stream)
            source = self._add(Operator(node.name, "source", stream=found))
        function = MapFunction(target_bytes=self._block_bytes)
        here = is_light(node.datasource) and (logical.known_bytes(node) or 0) < self._small
        return self._add(
            self._map(node.name, source, Stage(function, node.options, spread=True), here=here)
        )

    @property
    def _small(self) -> int:
        return int(self._context.small_input_bytes)

    @property
    def _block_bytes(self) -> int:
        """Of a block at most: what all tasks read and make that run fits into the store."""
        wanted = self._context.target_max_block_size
        if wanted is None:
            return 1 << 62
        share = self._budget // (_BLOCKS_OF_A_CPU * self._cpus)
        return min(int(wanted), max(_LEAST_BLOCK_BYTES, share))

    def _map(self, name: str, feeder: int, stage: Stage, **fields: Any) -> Operator:
        options = stage.options
        return Operator(
            name,
            "map",
            inputs=(feeder,),
            needs=dict(options.needs),
            pool=options.pool,
            cap=options.cap,
            run=stage,
            **fields,
        )

    # Maps.

    def _build_Map(self, node: logical.Map, feeders: list[int]) -> int:
        (feeder,) = feeders
        before = self.operators[feeder]
        udfs = (node.udf,) if isinstance(node.udf, ClassUdf) else ()
        if self._fuses(before, node):
            function = before.run.function
            own = getattr(function, "after", function)
            own.transform = _chained(own.transform, node.transform)
            if not node.is_plain:
                before.here = False
                if isinstance(function, ReduceFunction):  # Its works do not run here, either.
                    function.method.is_plain = False
            before.name = f"{before.name}->{node.name}"
            before.alone = before.alone or node.alone
            before.rows_per_task = max(before.rows_per_task, self._rows(before, node))
            if isinstance(function, MapFunction):
                function.one_by_one = before.rows_per_task == 0
            if node.options.cap is not None or not node.default_options:
                before.run.options = node.options
                before.needs, before.cap = dict(node.options.needs), node.options.cap
            return feeder
        function = MapFunction(
            node.transform, one_by_one=node.rows == 0, target_bytes=self._block_bytes, udfs=udfs
        )
        here = node.is_plain and node.options.pool is None and self._is_small_here(feeder)
        stage = Stage(function, node.options)
        return self._add(
            self._map(
                node.name, feeder, stage, rows_per_task=node.rows, here=here, alone=node.alone
            )
        )

    def _rows(self, before: Operator, node: logical.Map) -> int:
        if not self._reads(before):
            return node.rows
        source = self.operators[before.inputs[0]]
        if source.stream is not None:
            return 0
        if not isinstance(source.bundles, ReadBundles) or not source.bundles.are_alike:
            return node.rows if all(bundle.num_rows for bundle in source.bundles) else 0
        return node.rows if next(iter(source.bundles)).num_rows else 0

    def _reads(self, operator: Operator) -> bool:
        """Whether its bundles are read tasks, whose rows are not known."""
        feeder = self.operators[operator.inputs[0]]
        return operator.run.spread and feeder.kind == "source"

    def _fuses(self, before: Operator, node: logical.Map) -> bool:
        """Whether a map runs in the tasks of what feeds it."""
        stage = before.run
        if before.kind != "map" or stage is None or before.pool or node.options.pool:
            return False
        if not isinstance(stage.function, (MapFunction, ReduceFunction)):
            return False
        own: Any = getattr(stage.function, "after", stage.function)
        own = own.transform
        if transforms.is_chain(own) and len(own.args[0]) >= _MOST_FUSED:
            return False
        if node.rows and (node.alone or isinstance(stage.function, ReduceFunction)):
            return False  # A write of so many rows to a file waits for them.
        if node.rows and before.rows_per_task == 0 and not self._reads(before):
            return False  # Blocks that come are too small, perhaps; they are put together first.
        same = (
            stage.options.needs == node.options.needs
            and stage.options.remote == node.options.remote
        )
        capped = stage.options.cap is not None and node.options.cap not in (None, stage.options.cap)
        if node.default_options:
            return not (stage.options.cap is not None and node.udf is not None)
        return same and not capped and stage.options.cap is None

    def _is_small_here(self, feeder: int) -> bool:
        """Whether all that an operator gives is in this process, or near, and little."""
        left = [feeder]
        while left:
            operator = self.operators[left.pop()]
            if operator.kind in ("limit", "union"):
                left += operator.inputs
            elif operator.kind == "source":
                if sum(bundle.size_bytes for bundle in operator.bundles) >= self._small:
                    return False
            elif operator.kind != "map" or not operator.here:
                return False
        return True

    # Rows and blocks without tasks.

    def _build_Limit(self, node: logical.Limit, feeders: list[int]) -> int:
        (feeder,) = feeders
        before = self.operators[feeder]
        if before.kind == "map" and isinstance(before.run.function, MapFunction):
            # No task makes more than is wanted.
            function = before.run.function
            function.transform = _chained(function.transform, transforms.limit_rows(node.count))
            if self._reads(before) and before.cap is None:
                before.cap = max(2, self._cpus) if node.count > 1000 else 2
        return self._add(Operator(node.name, "limit", inputs=(feeder,), limit=node.count))

    def _build_Union(self, node: logical.Union, feeders: list[int]) -> int:
        return self._add(Operator(node.name, "union", inputs=tuple(feeders)))

    def _build_RandomizeBlocks(self, node: logical.RandomizeBlocks, feeders: list[int]) -> int:
        import random

        def shuffle(given: Any) -> list[Work]:
            bundles = list(given[0])
            random.Random(node.seed).shuffle(bundles)
            return [Work(tuple(bundles))]

        (feeder,) = feeders
        return self._add(Operator(node.name, "arrange", inputs=(feeder,), arrange=shuffle))

    def _build_Repartition(self, node: logical.Repartition, feeders: list[int]) -> int:
        (feeder,) = feeders
        method = JoinBlocks(node.count, node.rows, self._small)
        return self._add_method(node.name, (feeder,), method)

    def _build_Zip(self, node: logical.Zip, feeders: list[int]) -> int:
        return self._add_method(node.name, tuple(feeders), ZipBlocks(self._small))

    def _add_method(self, name: str, inputs: tuple[int, ...], method: Any) -> int:
        stage = Stage(SliceFunction(method), TaskOptions())
        operator = self._map(name, inputs[0], stage, arrange=method.arrange)
        operator.inputs = inputs
        return self._add(operator)

    # Exchanges.

    def _build_Exchange(self, node: logical.Exchange, feeders: list[int]) -> int:
        small = self._small_side(node)
        if small is not None:
            return self._broadcast(node, small, *feeders)
        sizes = [logical.bytes_now(child) for child in node.inputs]
        method = node.method.begin(sizes, self._cpus, self._context, self._budget)
        if method.samples:
            return self._sorted_exchange(node, feeders[0], method)
        parts = [self._partition(node, feeder, method, side) for side, feeder in enumerate(feeders)]
        return self._reduce(node, [self._merge(node, part, method) for part in parts], method)

    def _partition(self, node: logical.Exchange, feeder: int, method: Any, side: int) -> int:
        before = self.operators[feeder]
        if self._takes_more(before):
            before.run.function = PartitionFunction(
                before.run.function, method, self._block_bytes, side
            )
            before.name += "->Partition"
            before.alone = before.alone or method.alone
            before.here = before.here and method.is_plain
            return feeder
        first = MapFunction(target_bytes=1 << 62, one_by_one=False)
        stage = Stage(PartitionFunction(first, method, self._block_bytes, side), TaskOptions())
        here = self._is_small_here(feeder) and method.is_plain
        return self._add(
            self._map(f"{node.name}Partition", feeder, stage, here=here, alone=method.alone)
        )

    def _takes_more(self, before: Operator) -> bool:
        """Whether the tasks of an operator may do a part of an exchange, too."""
        return (
            before.kind == "map"
            and before.run is not None
            and type(before.run.function) is MapFunction
            and before.pool is None
            and not before.needs.get("GPU")
        )

    def _broadcast(self, node: logical.Exchange, small: int, beside: int, feeder: int) -> int:
        """A join whose small side goes to all tasks of the other."""
        method = node.method.begin([0, 0], self._cpus, self._context, self._budget)
        after = MapFunction(target_bytes=self._block_bytes)
        before = self.operators[feeder]
        fits = self._takes_more(before) and not before.here and node.options == TaskOptions()
        first = before.run.function if fits else MapFunction(None, False, self._block_bytes)
        function = BroadcastFunction(method, after, first, 1 - small, self._block_bytes)
        if not fits:
            stage = Stage(function, node.options)
            return self._add(
                dataclasses.replace(
                    self._map(node.name, feeder, stage), inputs=(feeder, beside), beside=1
                )
            )
        before.run.function, before.name = function, f"{before.name}->{node.name}"
        before.inputs, before.beside = (*before.inputs, beside), len(before.inputs)
        return feeder

    def _reduce(self, node: logical.Exchange, parts: list[int], method: Any) -> int:
        after = MapFunction(target_bytes=self._block_bytes)
        stage = Stage(ReduceFunction(method, after), node.options)
        operator = self._map(node.name, parts[0], stage, arrange=method.arrange)
        operator.inputs = tuple(parts)
        return self._add(operator)

    def _merge(self, node: logical.Exchange, part: int, method: Any) -> int:
        """What map tasks make is merged in rounds when it fills the budget."""
        if self.operators[part].here:
            return part
        stage = Stage(MergeFunction(method), TaskOptions())
        return self._add(self._map(f"{node.name}Merge", part, stage, merge=method.arrange_round))

    def _sorted_exchange(self, node: logical.Exchange, feeder: int, method: Any) -> int:
        """What needs to see a part of all rows before it cuts any. What fills the budget before
        all has come becomes runs instead."""
        if not self.operators[feeder].here:
            stage = Stage(SliceFunction(method), TaskOptions())
            run = self._map(f"{node.name}Run", feeder, stage, merge=method.arrange_runs)
            feeder = self._add(run)
        sample = Stage(SliceFunction(method), TaskOptions())
        first = self._add(
            self._map(f"{node.name}Sample", feeder, sample, arrange=method.arrange_samples)
        )
        cut = MapFunction(target_bytes=1 << 62, one_by_one=False)
        stage = Stage(PartitionFunction(cut, method, self._block_bytes), TaskOptions())
        second = self._add(
            self._map(f"{node.name}Partition", first, stage, arrange=method.arrange_cuts)
        )
        return self._reduce(node, [second], method)


def _method(operator: Operator) -> Any:
    """What an operator does behind a barrier or in front of it."""
    return getattr(getattr(operator.run, "function", None), "method", None)


def _sorts(operator: Operator) -> bool:
    """Whether its outputs are the result of a sort."""
    return isinstance(_method(operator), Sort) and isinstance(operator.run.function, ReduceFunction)


def _zips(operator: Operator) -> bool:
    return isinstance(_method(operator), ZipBlocks)


def _is_seeded(operator: Operator) -> bool:
    """Whether its outputs are what a shuffle makes of a seed, which depends on the order in which
    rows come."""
    is_last = _mixes(operator) and isinstance(_method(operator), Shuffle)
    return is_last and _method(operator).seed is not None


def _mixes(operator: Operator) -> bool:
    """Whether the order of its inputs says nothing about that of its outputs."""
    is_last = isinstance(getattr(operator.run, "function", None), ReduceFunction)
    return operator.kind == "arrange" or (is_last and not isinstance(_method(operator), Sort))


def _kind(node: logical.Node) -> str:
    return "Map" if isinstance(node, logical.Map) else type(node).__name__


def _chained(first: Any, second: Any) -> Any:
    return second if first is None else transforms.chain([first, second])

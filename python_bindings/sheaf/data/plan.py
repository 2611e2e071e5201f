# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The logical plan: what a dataset is, as a tree of immutable operators. Pure, and picklable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from sheaf.data.compute import TaskOptions
from sheaf.data.errors import PlanTooDeepError
from sheaf.data.operators import Bundle

_DEEPEST = 400  # Operators one behind the other: each looks at all behind it.


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One operator.

    Attributes:
        inputs: what it reads from.

    Raises:
        PlanTooDeepError: there are too many operators one behind the other.
    """

    inputs: tuple[Node, ...]
    _depth: ClassVar[int] = 1  # Each has its own, which is not among the fields.

    def __post_init__(self) -> None:
        depth = 1 + max((child._depth for child in self.inputs), default=0)
        if depth > _DEEPEST:
            raise PlanTooDeepError(
                f"{self.name}: the plan has over {_DEEPEST} operators one behind the other: use "
                "materialize() now and then"
            )
        object.__setattr__(self, "_depth", depth)

    def __reduce__(self) -> Any:
        """Without recursion, which a long chain has no room for: all operators one by one, each
        with the places of its inputs."""
        places: dict[int, int] = {}
        flat: list[tuple[type[Node], dict[str, Any], list[int]]] = []
        left: list[tuple[Node, bool]] = [(self, False)]
        while left:
            node, is_ready = left.pop()
            if id(node) in places:
                continue
            if not is_ready:
                left += [(node, True), *((child, False) for child in node.inputs)]
                continue
            places[id(node)] = len(flat)
            inputs = [places[id(child)] for child in node.inputs]
            flat.append((type(node), {**node.__dict__, "inputs": ()}, inputs))
        return _rebuilt, (flat,)

    @property
    def name(self) -> str:
        """As progress and stats() show it."""
        return type(self).__name__

    @property
    def described(self) -> str:
        """As explain() shows it."""
        return self.name

    def with_inputs(self, *inputs: Node) -> Any:
        """The same over other inputs."""
        return dataclasses.replace(self, inputs=inputs)


def _rebuilt(flat: list[tuple[type[Node], dict[str, Any], list[int]]]) -> Node:
    made: list[Node] = []
    for kind, state, inputs in flat:
        node = object.__new__(kind)
        node.__dict__.update(state, inputs=tuple(made[place] for place in inputs))
        made.append(node)
    return made[-1]


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks(Node):
    """Blocks that are there: tables, or references to them."""

    bundles: tuple[Bundle, ...] = ()
    schema: Any = None
    label: str = "FromItems"

    @property
    def name(self) -> str:
        return self.label


@dataclasses.dataclass(frozen=True, eq=False)
class CachedBlocks(Blocks):
    """Blocks of cache().

    Attributes:
        cache: of sheaf.data.caches.
        on_disk: some are files, which are read first.
    """

    cache: Any = None
    on_disk: bool = False

    @property
    def described(self) -> str:
        return str(self.cache.text())


@dataclasses.dataclass(frozen=True, eq=False)
class Read(Node):
    """What a datasource gives."""

    datasource: Any = None
    parallelism: int = -1  # -1: as many tasks as the size asks for.
    options: TaskOptions = dataclasses.field(default_factory=TaskOptions)

    @property
    def name(self) -> str:
        return f"Read{self.datasource.get_name()}"

    @property
    def described(self) -> str:
        details = getattr(self.datasource, "details", None)
        return self.name + (details() if details is not None else "")


@dataclasses.dataclass(frozen=True, eq=False)
class Map(Node):
    """Blocks through a transform.

    Attributes:
        label: as errors show it.
        transform: of sheaf.data.transforms.
        udf: the user's function, if it is one of theirs.
        rows: how many a task has at least, as far as there are; 0: whatever a block has.
        keeps_rows: whether each row gives one row, in order.
        keeps_schema: whether columns and types stay.
        on_schema: pa.Schema -> pa.Schema; None: only the output tells.
    """

    label: str = ""
    transform: Any = None
    udf: Any = None
    options: TaskOptions = dataclasses.field(default_factory=TaskOptions)
    rows: int = 0
    keeps_rows: bool = False
    keeps_schema: bool = False
    on_schema: Any = None
    alone: bool = False  # What a task does depends on its number.
    default_options: bool = True  # Nothing was said of resources: it goes with what it reads from.

    @property
    def name(self) -> str:
        return self.label

    @property
    def is_plain(self) -> bool:
        """Whether it runs no code of the user's."""
        return self.udf is None


@dataclasses.dataclass(frozen=True, eq=False)
class Select(Map):
    """Some columns."""

    columns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Drop(Map):
    """All columns but some."""

    columns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class WithColumns(Map):
    """Further columns by expressions."""

    expressions: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Count(Map):
    """Of each task how many rows it has, as the column "rows"."""


@dataclasses.dataclass(frozen=True, eq=False)
class FilterExpr(Map):
    """Rows for which an expression is true."""

    expression: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Limit(Node):
    """The first rows."""

    count: int = 0

    @property
    def name(self) -> str:
        return f"Limit({self.count})"


@dataclasses.dataclass(frozen=True, eq=False)
class Union(Node):
    """Inputs one behind the other."""


@dataclasses.dataclass(frozen=True, eq=False)
class Zip(Node):
    """Columns of inputs of equal lengths side by side."""


@dataclasses.dataclass(frozen=True, eq=False)
class Repartition(Node):
    """Other blocks of the same rows, in order: `count` of them, or of `rows` rows each."""

    count: int | None = None
    rows: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class RandomizeBlocks(Node):
    """The blocks in another order."""

    seed: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Exchange(Node):
    """Rows to partitions, then each partition to something.

    Attributes:
        label: as progress shows it.
        method: of sheaf.data.exchanges.exchange, which says how.
        options: of its reducing tasks.
    """

    label: str = ""
    method: Any = None
    options: TaskOptions = dataclasses.field(default_factory=TaskOptions)

    @property
    def name(self) -> str:
        return self.label


def walk(node: Node) -> Iterator[Node]:
    """All operators below one, and that, inputs first. Like all here that looks at a plan it does
    not call itself: plans are deeper than Python's stack."""
    left: list[tuple[Node, bool]] = [(node, False)]
    while left:
        found, is_ready = left.pop()
        if is_ready:
            yield found
        else:
            left.append((found, True))
            left += [(child, False) for child in reversed(found.inputs)]


def _up(node: Node, of: Callable[[Node, list[Any]], Any]) -> Any:
    """What `of` gives for a node, when it is called with what it has given for the inputs."""
    found: list[Any] = []
    for one in walk(node):
        first = len(found) - len(one.inputs)
        found[first:] = [of(one, found[first:])]
    return found[0]


def known_rows(node: Node) -> int | None:
    """How many rows an operator gives, where the plan tells; None: only a run does."""
    rows: int | None = _up(node, _rows)
    return rows


def _rows(node: Node, rows: list[int | None]) -> int | None:
    if isinstance(node, Blocks):
        return sum(bundle.num_rows for bundle in node.bundles)
    if isinstance(node, Read):
        count = getattr(node.datasource, "num_rows", None)
        return count() if count is not None else None
    if isinstance(node, Limit):
        return None if rows[0] is None else min(rows[0], node.count)
    known = [count for count in rows if count is not None]
    if len(known) < len(rows):
        return None
    if isinstance(node, Union):
        return sum(known)
    if isinstance(node, Zip) and len(set(known)) == 1:  # Else the run says what is wrong.
        return known[0]
    if isinstance(node, Map):
        return known[0] if node.keeps_rows else None
    if isinstance(node, (Repartition, RandomizeBlocks)) or (
        isinstance(node, Exchange) and node.method.keeps_rows
    ):
        return known[0]
    return None


def known_schema(node: Node) -> Any:
    """The pa.Schema of an operator, where the plan tells; None: only a run does."""
    above: list[Node] = []
    while not isinstance(node, (Blocks, Read)):
        above.append(node)
        node = node.inputs[0]
    if isinstance(node, Blocks):
        schema = node.schema
    else:
        known = getattr(node.datasource, "schema", None)
        schema = known() if known is not None else None
    while above and schema is not None:
        node = above.pop()
        if isinstance(node, (Zip, Union)):
            return None
        if isinstance(node, Exchange):
            schema = node.method.schema(schema)
        elif isinstance(node, Map) and not node.keeps_schema:
            schema = node.on_schema(schema) if node.on_schema is not None else None
    return schema


def known_bytes(node: Node) -> int | None:
    """About how many bytes an operator gives, where the plan tells."""
    size: int | None = _up(node, _bytes)
    return size


def _bytes(node: Node, sizes: list[int | None]) -> int | None:
    if isinstance(node, Blocks):
        return sum(bundle.size_bytes for bundle in node.bundles)
    if isinstance(node, Read):
        size: int | None = node.datasource.estimate_inmemory_data_size()
        return size
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def bytes_now(node: Node) -> int | None:
    """As known_bytes; None, too, while files are still being found."""
    reads = [one.datasource for one in walk(node) if isinstance(one, Read)]
    if all(getattr(source, "is_listed", lambda: True)() for source in reads):
        return known_bytes(node)
    return None


def most_bytes(node: Node) -> int | None:
    """Bytes that an operator gives at most, but for what readers estimate; None: only a run
    tells."""
    size: int | None = _up(node, _most_bytes)
    return size


def _most_bytes(node: Node, sizes: list[int | None]) -> int | None:
    if isinstance(node, (Blocks, Read)):
        return _bytes(node, [])
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return None
    if isinstance(node, Map):
        return known[0] if node.is_plain or node.keeps_schema else None
    grows = isinstance(node, Exchange) and not node.method.keeps_rows
    return None if grows else sum(known)


def describe(node: Node) -> str:
    """The tree as text, the last operator first."""
    lines, left = [], [(node, 0)]
    while left:
        one, depth = left.pop()
        lines.append("   " * max(0, depth - 1) + ("+- " if depth else "") + one.described)
        left += [(child, depth + 1) for child in reversed(one.inputs)]
    return "\n".join(lines)

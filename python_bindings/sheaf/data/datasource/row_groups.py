# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row groups of Parquet files as their footers show them: how large they are, and which of them a
filter rules out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RowGroup", "matching", "of_footer"]


class _Footer:
    """What is at the end of a file, and the numbers of the leaves of each column: one, unless it is
    nested."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata

    @functools.cached_property
    def leaves(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {
            name: [] for name in self.metadata.schema.to_arrow_schema().names
        }
        for leaf in range(self.metadata.num_columns):
            path = self.metadata.schema.column(leaf).path
            while path and path not in found:  # Names may have dots, too.
                path = path.rpartition(".")[0]
            if path:
                found[path].append(leaf)
        return found


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """One row group: its file, its number there, its rows, and the footer of the file."""

    path: str
    number: int
    rows: int
    footer: _Footer

    def column_bytes(self, names: Sequence[str]) -> dict[str, int]:
        """How many bytes columns take when they are decompressed, but not decoded.

        Args:
            names: of columns, at the top.

        Returns:
            The bytes of those that the file has.
        """
        group, leaves = self.footer.metadata.row_group(self.number), self.footer.leaves
        return {
            name: sum(group.column(leaf).total_uncompressed_size for leaf in leaves[name])
            for name in names
            if name in leaves
        }


def of_footer(path: str, footer: Any) -> Iterator[RowGroup]:
    """The row groups of a file.

    Args:
        path: of it.
        footer: a pyarrow.parquet.FileMetaData.

    Yields:
        Them, in order.
    """
    shared = _Footer(footer)
    for number in range(footer.num_row_groups):
        yield RowGroup(path, number, footer.row_group(number).num_rows, shared)


def matching(
    groups: Sequence[RowGroup],
    predicate: Any,
    columns: Sequence[str],
    schema: Any,
    constants: Mapping[str, Mapping[str, Any]],
) -> list[RowGroup]:
    """The row groups in which a row may match.

    Args:
        groups: of files.
        predicate: a pyarrow.compute.Expression.
        columns: that it reads.
        schema: of what is read of all files.
        constants: of each file, by its path: columns that have one value in all of it.

    Returns:
        Those whose statistics do not rule it out.
    """
    kept = []
    for group in groups:
        own, facts = constants[group.path], []
        for name in columns:
            field = schema.field(name)
            facts += [_equal(field, own[name])] if name in own else _facts(group, field)
        if _may_match(predicate, facts, schema):
            kept.append(group)
    return kept


def _equal(field: Any, value: Any) -> Any:
    here = pc.field(field.name)
    return here.is_null() if value is None else here == pa.scalar(value, field.type)


def _may_match(predicate: Any, facts: list[Any], schema: Any) -> bool:
    """Whether a row can match of which these facts hold."""
    import pyarrow.dataset as ds
    from pyarrow import fs

    if not facts:
        return True
    known = functools.reduce(lambda a, b: a & b, facts)
    # Arrow simplifies the filter by what is known of a whole data set; of this one nothing is read.
    files, system = ds.ParquetFileFormat(), fs.LocalFileSystem()
    one = ds.FileSystemDataset(
        [files.make_fragment("/", system)], schema, files, system, root_partition=known
    )
    try:
        return any(True for _ in one.get_fragments(filter=predicate))
    except pa.ArrowException:  # Constants that it cannot compare with this type, as Python can.
        return True


def _facts(group: RowGroup, field: Any) -> list[Any]:
    """What holds of a column in all rows of a group, as expressions."""
    leaves = group.footer.leaves.get(field.name)
    here = pc.field(field.name)
    if leaves is None:
        return [here.is_null()]
    special = pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType)
    if len(leaves) != 1 or special:
        return []
    statistics = group.footer.metadata.row_group(group.number).column(leaves[0]).statistics
    if statistics is None:
        return []
    if statistics.has_null_count and statistics.null_count == group.rows:
        return [here.is_null()]
    if not statistics.has_min_max:
        return []
    try:
        low, high = (pa.scalar(end, field.type) for end in (statistics.min, statistics.max))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return []  # Statistics of a type that Python or the common schema has no value for.
    facts = [here >= low, here <= high]
    if statistics.has_null_count and statistics.null_count == 0:
        return facts
    return [fact | here.is_null() for fact in facts]

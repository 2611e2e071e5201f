# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Columns whose values stand in paths: ".../year=2026/part.csv", or ".../2026/part.csv"."""

from __future__ import annotations

import dataclasses
import enum
import posixpath
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["PartitionStyle", "Partitioning", "PathPartitionFilter", "PathPartitionParser"]


class PartitionStyle(str, enum.Enum):  # noqa: UP042
    """How values stand in paths: with their names (hive), or alone, in a known order (dir)."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclasses.dataclass
class Partitioning:
    """How paths carry values.

    Attributes:
        style: "hive" or "dir".
        base_dir: the folder below which they do; None: the whole path is looked at.
        field_names: of the columns, in order; needed for "dir", optional for "hive".
        field_types: int, float, bool or str by names of columns; str when not given.
        filesystem: of base_dir; has no effect.
    """

    style: PartitionStyle | str = PartitionStyle.HIVE
    base_dir: str | None = None
    field_names: list[str] | None = None
    field_types: dict[str, Any] | None = None
    filesystem: Any = None

    def __post_init__(self) -> None:
        self.style = PartitionStyle(self.style)
        self.field_types = dict(self.field_types or {})
        if self.style == PartitionStyle.DIRECTORY and not self.field_names:
            raise ValueError("Partitioning('dir') needs field_names, one for each level of folders")

    def values(self, path: str) -> dict[str, Any]:
        """The values in a path.

        Args:
            path: of a file.

        Returns:
            Names with values; empty when the path has none.
        """
        folder = posixpath.dirname(path)
        if self.base_dir is not None:
            base = self.base_dir.partition("://")[2] or self.base_dir
            if not (folder.rstrip("/") + "/").startswith(base.rstrip("/") + "/"):
                return {}
            folder = folder[len(base.rstrip("/")) :]
        parts = [part for part in folder.split("/") if part]
        if self.style == PartitionStyle.HIVE:
            pairs = [part.split("=", 1) for part in parts if "=" in part]
            found = {name: urllib.parse.unquote(value) for name, value in pairs}
            if self.field_names and found and list(found) != list(self.field_names):
                raise ValueError(
                    f"{path}: partitions {list(found)}, and field_names={self.field_names}"
                )
        else:
            names = self.field_names or []
            if not parts:
                return {}
            if len(parts) != len(names):
                raise ValueError(
                    f"{path}: {len(parts)} levels of folders, and field_names={names}: set "
                    "base_dir to the folder above them"
                )
            found = dict(zip(names, parts))
        return {name: self._value(name, text, path) for name, text in found.items()}

    def _value(self, name: str, text: str, path: str) -> Any:
        kind = (self.field_types or {}).get(name, str)
        if text == "__HIVE_DEFAULT_PARTITION__":
            return None
        if kind is bool:
            return text.lower() in ("true", "1")
        try:
            return kind(text)
        except ValueError as error:
            raise ValueError(
                f"{path}: partition {name}={text!r} is no {getattr(kind, '__name__', kind)}"
            ) from error


class PathPartitionParser:
    """A Partitioning as a function of paths.

    Args:
        partitioning: how paths carry values.
    """

    def __init__(self, partitioning: Partitioning):
        self._partitioning = partitioning

    @staticmethod
    def of(
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, Any] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionParser:
        """The parser of a Partitioning with these attributes.

        Args:
            style: as of Partitioning.
            base_dir: as of Partitioning.
            field_names: as of Partitioning.
            field_types: as of Partitioning.
            filesystem: as of Partitioning.

        Returns:
            The parser.
        """
        return PathPartitionParser(
            Partitioning(style, base_dir, field_names, field_types, filesystem)
        )

    def __call__(self, path: str) -> dict[str, Any]:
        return self._partitioning.values(path)

    @property
    def scheme(self) -> Partitioning:
        """How paths carry values."""
        return self._partitioning


class PathPartitionFilter:
    """Chooses files by the values in their paths.

    Args:
        path_partition_parser: finds the values.
        filter_fn: takes them, as a dict, and says whether the file is read.
    """

    def __init__(
        self,
        path_partition_parser: PathPartitionParser,
        filter_fn: Callable[[dict[str, Any]], bool],
    ):
        self._parser = path_partition_parser
        self._filter = filter_fn

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, Any]], bool],
        style: PartitionStyle | str = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str] | None = None,
        field_types: dict[str, Any] | None = None,
        filesystem: Any = None,
    ) -> PathPartitionFilter:
        """The filter by a Partitioning with these attributes.

        Args:
            filter_fn: takes the values of a path and says whether the file is read.
            style: as of Partitioning.
            base_dir: as of Partitioning.
            field_names: as of Partitioning.
            field_types: as of Partitioning.
            filesystem: as of Partitioning.

        Returns:
            The filter.
        """
        parser = PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem)
        return PathPartitionFilter(parser, filter_fn)

    def __call__(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if self.apply(path)]

    def apply(self, path: str) -> bool:
        """Whether a file is read.

        Args:
            path: of the file.

        Returns:
            Whether it is.
        """
        return bool(self._filter(self._parser(path)))

    @property
    def parser(self) -> PathPartitionParser:
        """What finds the values."""
        return self._parser


def with_constants(table: Any, values: Mapping[str, Any]) -> Any:
    """The table with a column for each of these values, the same in all rows; one that the table
    has already is replaced."""
    import pyarrow as pa

    for name, value in values.items():
        column = pa.repeat(pa.scalar(value), table.num_rows)
        place = table.schema.get_field_index(name)
        table = (
            table.append_column(name, column)
            if place < 0
            else table.set_column(place, name, column)
        )
    return table

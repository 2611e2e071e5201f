# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the functions of sheaf.arrow take and give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sheaf import _core

if TYPE_CHECKING:
    import pyarrow


class ArrowStream(Protocol):
    """What has Arrow's PyCapsule interface for tables: those of pyarrow, polars, pandas, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """What has it for one batch or column."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...


Data = ArrowStream | ArrowArray


class Table:
    """Columns of Arrow that a function of sheaf.arrow made. It is immutable, and any library that
    has Arrow's PyCapsule interface reads it without a copy: ``pyarrow.table(table)``,
    ``polars.DataFrame(table)``. Any number of threads may use one.
    """

    __slots__ = ("_table",)
    _table: _core.ArrowTable

    @classmethod
    def _of(cls, table: _core.ArrowTable) -> Table:
        made = cls.__new__(cls)
        made._table = table
        return made

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self._table.num_rows

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in their order."""
        return self._table.column_names

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, of dictionary columns without the dictionaries."""
        return self._table.nbytes

    def __len__(self) -> int:
        return self._table.num_rows

    def __repr__(self) -> str:
        names = ", ".join(self.column_names)
        return f"<sheaf.arrow.Table of {self.num_rows} rows: {names}>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.stream()

    def __arrow_c_schema__(self) -> object:
        return self._table.schema()

    def to_pyarrow(self) -> pyarrow.Table:
        """The same as pyarrow's, which must be installed. Nothing is copied.

        Returns:
            A pyarrow.Table.
        """
        import pyarrow

        return pyarrow.table(self)


def core_table(data: Any) -> _core.ArrowTable:
    """What the extension works with.

    Args:
        data: a Table, or what has Arrow's PyCapsule interface.

    Returns:
        The extension's table.
    """
    return data._table if isinstance(data, Table) else _core.arrow_table(data)

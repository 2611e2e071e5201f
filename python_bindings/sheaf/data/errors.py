# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What goes wrong with data, as exceptions. Each names the culprit (a column, a file, a row, an
operator) and what would be right; each pickles."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any

from sheaf.exceptions import RayError, UserCodeException

__all__ = [
    "BatchError",
    "CacheLostError",
    "ColumnNotFoundError",
    "DataError",
    "FileFormatError",
    "MissingPackageError",
    "NotRepeatableError",
    "PlanTooDeepError",
    "SchemaMismatchError",
    "UserCodeError",
    "WriteError",
    "shown",
    "suggestion",
]

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 120
_SHOWN.maxdict = _SHOWN.maxlist = 12


def shown(value: Any) -> str:
    """A value as one line of at most 500 characters, whatever its own repr does."""
    try:
        text = " ".join(_SHOWN.repr(value).split())
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= 500 else text[:497] + "..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" when a known name is close to this one, else nothing."""
    close = difflib.get_close_matches(str(name), [str(one) for one in known], n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


class DataError(RayError):
    """The base of all errors that sheaf.data raises of its own."""


class ColumnNotFoundError(DataError, KeyError):
    """A column was named that the data does not have. `column` and `columns` say which, and what
    there is."""

    def __init__(self, column: str, columns: Iterable[str], where: str = ""):
        self.column = column
        self.columns = [str(name) for name in columns]
        self.where = where
        super().__init__(column, self.columns, where)

    def __str__(self) -> str:
        there = ", ".join(map(repr, self.columns[:20])) + (", ..." * (len(self.columns) > 20))
        return (
            f"{self.where + ': ' if self.where else ''}no column '{self.column}'"
            f"{suggestion(self.column, self.columns)} Columns: {there or 'none'}"
        )


class SchemaMismatchError(DataError, TypeError):
    """One column has two types that no third one holds. `type_a` was found at `where_a` (a file, a
    row, a block), `type_b` at `where_b`."""

    def __init__(self, column: str, type_a: str, where_a: str, type_b: str, where_b: str):
        self.column, self.type_a, self.where_a = column, str(type_a), where_a
        self.type_b, self.where_b = str(type_b), where_b
        super().__init__(column, self.type_a, where_a, self.type_b, where_b)

    def __str__(self) -> str:
        return (
            f"column '{self.column}' is {self.type_a} in {self.where_a} and {self.type_b} in "
            f"{self.where_b}: cast one of them; int becomes float and a missing column NULL, "
            "nothing else is converted"
        )


class BatchError(DataError, ValueError):
    """A value that should be rows or a batch is not: None, a scalar, columns of several lengths."""


class PlanTooDeepError(DataError, ValueError):
    """A dataset was made of a chain of too many operators."""


class FileFormatError(DataError, ValueError):
    """A file does not hold what its reader expects. `path` names it, `line` the line (from 1) where
    there are lines, else None."""

    def __init__(self, path: str, problem: str, line: int | None = None):
        self.path, self.problem, self.line = path, problem, line
        super().__init__(path, problem, line)

    def __str__(self) -> str:
        return f"{self.path}{f', line {self.line}' if self.line else ''}: {self.problem}"


class MissingPackageError(DataError, ImportError):
    """A library that this reader, writer or format needs is not installed; `command` installs
    it."""

    def __init__(self, what: str, package: str):
        self.what, self.package, self.command = what, package, f"pip install {package}"
        super().__init__(what, package)

    def __str__(self) -> str:
        return f"{self.what} needs a package that is not installed: {self.command}"

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.package)


class CacheLostError(DataError):
    """A file of cache("disk") is gone, and its block could not be made again, as it came from an
    actor, or from a task that may not run again. `path` and `node_id` say where it was."""

    def __init__(self, path: str, node_id: str):
        self.path, self.node_id = path, node_id
        super().__init__(path, node_id)

    def __str__(self) -> str:
        return (
            f"the cached block {self.path} of node {self.node_id} is gone, and could not be made "
            "again, as it came from an actor or a task that may not run again: unpersist(), and "
            "cache() anew"
        )


class NotRepeatableError(DataError):
    """A task ran again, since its worker died, and made other blocks than before, so that rows
    would be lost. `operator` names the operator, `taken` how many blocks of the first try had been
    used."""

    def __init__(self, operator: str, taken: int):
        self.operator, self.taken = operator, taken
        super().__init__(operator, taken)

    def __str__(self) -> str:
        return (
            f"{self.operator}: a task ran again, as its worker had died, and made other blocks "
            f"than before, of which {self.taken} had been used: a function must give the same rows "
            "for the same rows (seed what is random), or set max_retries=0"
        )


class WriteError(DataError, OSError):
    """What was to be written could not be; nothing of it is left."""

    def __reduce__(self) -> Any:
        return type(self), self.args


class UserCodeError(DataError, UserCodeException):
    """The user's function raised, or returned what is no data. `operator` names the operator, `row`
    shows one row that it was called with ("" when there is none); the function's own exception is
    __cause__, and its type and text stand in the message."""

    def __init__(self, operator: str, problem: str, row: str = ""):
        self.operator, self.problem, self.row = operator, problem, row
        super().__init__(operator, problem, row)

    def __str__(self) -> str:
        return f"{self.operator}: {self.problem}" + (
            f"; one row of it: {self.row}" * bool(self.row)
        )

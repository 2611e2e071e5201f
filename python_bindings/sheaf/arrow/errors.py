# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the functions of sheaf.arrow raise."""


class UnsupportedType(TypeError):
    """A column has a type that sheaf.arrow does not move, or that cannot be a key: the message
    names it. Such a table is one for pyarrow.

    Attributes:
        column: the name of the column, a str.
    """

    column: str = ""


class MalformedArray(ValueError):
    """What another library gave is no Arrow data: offsets that fall, buffers that are missing,
    indices outside of their dictionary."""


# By the number of the status that the extension has.
_CLASSES: dict[int, type[Exception]] = {
    8: MemoryError,  # Resources are exhausted.
    11: IndexError,  # Out of range.
    12: UnsupportedType,  # Unimplemented.
    15: MalformedArray,  # Data is lost.
}


def from_status(code: int, column: str, words: str) -> Exception:
    """The exception for a status of the extension, which calls this.

    Args:
        code: its number.
        column: the column that it is about; empty: none.
        words: what it says.

    Returns:
        The exception.
    """
    error = _CLASSES.get(code, ValueError)(words)
    if isinstance(error, UnsupportedType):
        error.column = column
    return error

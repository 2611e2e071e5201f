# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Large files of lines in pieces: a line belongs to the piece in which it begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

__all__ = ["PIECE_BYTES", "Piece", "cut", "is_plain", "lines_of"]

PIECE_BYTES = 32 << 20
_LOOK_BYTES = 64 << 10
_COUNTED_BYTES = 16 << 20  # In which lines are counted at a time.
_COMPRESSED = (".gz", ".bz2", ".lz4", ".zst", ".br")  # What Arrow undoes.


@dataclasses.dataclass(frozen=True)
class Piece:
    """Bytes [start, stop) of a file; stop None: all of it.

    Attributes:
        size: bytes, where they are known.
        known: what the beginning of the file tells.
        is_last: it ends where the file does.
    """

    path: str
    start: int = 0
    stop: int | None = None
    size: int = 0
    known: Any = None
    is_last: bool = True


def cut(path: str, size: int, known: Any) -> Iterator[Piece]:
    """The pieces of a file.

    Args:
        path: of it.
        size: its bytes.
        known: goes with each.

    Yields:
        Them, in order.
    """
    for start in range(0, size, PIECE_BYTES):
        stop = min(size, start + PIECE_BYTES)
        yield Piece(path, start, stop, stop - start, known, is_last=stop == size)


def is_plain(path: str) -> bool:
    """Whether a file's name does not say that it is compressed."""
    return not path.lower().endswith(_COMPRESSED)


def lines_of(file: Any, piece: Piece) -> Any:
    """The lines of a piece.

    Args:
        file: a pa.NativeFile that can seek.
        piece: with a stop.

    Returns:
        A stream of them; None: there is none.
    """
    size = file.size()
    begin = _line_from(file, piece.start, size)
    end = size if piece.is_last or piece.stop is None else _line_from(file, piece.stop, size)
    return file.get_stream(begin, end - begin) if begin < end else None


def lines_before(file: Any, piece: Piece) -> int:
    """How many lines of the file are in front of a piece's; reads them all."""
    begin = _line_from(file, piece.start, file.size())
    reads = range(0, begin, _COUNTED_BYTES)
    return sum(file.read_at(min(_COUNTED_BYTES, begin - at), at).count(b"\n") for at in reads)


def _line_from(file: Any, place: int, size: int) -> int:
    """Where the first line begins that does not begin in front of `place`."""
    if place == 0:
        return 0
    place -= 1  # A line end here: one begins at `place`.
    while place < size:
        seen = file.read_at(_LOOK_BYTES, place)
        found = seen.find(b"\n")
        if found >= 0:
            return place + int(found) + 1
        if not seen:
            break
        place += len(seen)
    return size

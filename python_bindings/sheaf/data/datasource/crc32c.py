# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""CRC-32C (Castagnoli) with NumPy: each block of 256 bytes by one gather from a table that says
what every byte at every place adds, blocks joined by four look-ups each."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = ["crc32c", "masked"]

_POLYNOMIAL = 0x82F63B78
_BLOCK = 256
_MASK_DELTA = 0xA282EAD8  # Of the TFRecord format.


@functools.cache
def _tables() -> tuple[Any, list[list[int]], list[int]]:
    """What each byte adds by its place in a block; what the state before a block becomes behind it,
    by its four bytes; and the plain table of bytes."""
    plain = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        plain = np.where(plain & 1, (plain >> 1) ^ np.uint32(_POLYNOMIAL), plain >> 1)
    places = np.empty((_BLOCK, 256), np.uint32)
    places[-1] = plain
    for place in range(_BLOCK - 2, -1, -1):
        later = places[place + 1]
        places[place] = (later >> 8) ^ plain[later & 0xFF]
    # The state is added to the first four bytes.
    return places, [places[byte].tolist() for byte in range(4)], plain.tolist()


def crc32c(data: Any) -> int:
    """The checksum of these bytes.

    Args:
        data: bytes, or what has a buffer.

    Returns:
        32 bits.
    """
    places, before, plain = _tables()
    array = np.frombuffer(data, np.uint8)
    whole = len(array) // _BLOCK
    state = 0xFFFFFFFF
    if whole:
        blocks = array[: whole * _BLOCK].reshape(whole, _BLOCK)
        added = np.bitwise_xor.reduce(places[np.arange(_BLOCK), blocks], axis=1).tolist()
        first, second, third, fourth = before
        for add in added:
            state = (
                first[state & 0xFF]
                ^ second[state >> 8 & 0xFF]
                ^ third[state >> 16 & 0xFF]
                ^ fourth[state >> 24]
                ^ add
            )
    for byte in array[whole * _BLOCK :].tolist():
        state = plain[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def masked(data: Any) -> int:
    """The checksum as TFRecord files have it.

    Args:
        data: bytes.

    Returns:
        32 bits.
    """
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF

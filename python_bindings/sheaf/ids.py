# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of things, as values: equal when they name the same."""

from __future__ import annotations

import builtins
import os


class BaseID:
    """An id of 16 bytes. Immutable; equal to ids of the same class with the same digits.

    Args:
        hexadecimal: its digits, or its bytes.

    Raises:
        ValueError: these are more or fewer bytes than size() says.
        TypeError: it is neither.
    """

    __slots__ = ("_hex",)

    def __init__(self, hexadecimal: str | bytes):
        digits = hexadecimal.hex() if isinstance(hexadecimal, bytes) else hexadecimal
        if not isinstance(digits, str) or len(digits) != 2 * self.size():
            wrong = ValueError if isinstance(hexadecimal, bytes) else TypeError
            raise wrong(
                f"{type(self).__name__}({hexadecimal!r}): want {self.size()} bytes, or their "
                "hexadecimal digits"
            )
        self._hex = digits

    def hex(self) -> str:
        """Returns the id as hexadecimal digits, two a byte."""
        return self._hex

    def binary(self) -> bytes:
        """Returns the id as bytes."""
        return bytes.fromhex(self._hex)

    @classmethod
    def from_hex(cls, hex_id: str | bytes) -> BaseID:
        """Returns the id that these digits write.

        Args:
            hex_id: two digits for each byte.
        """
        return cls(hex_id.decode() if isinstance(hex_id, bytes) else hex_id)

    @classmethod
    def from_binary(cls, id_bytes: bytes) -> BaseID:
        """Returns the id of these bytes.

        Args:
            id_bytes: as many as size() says.
        """
        return cls(id_bytes.hex())

    @classmethod
    def from_random(cls) -> BaseID:
        """Returns an id that names nothing yet, and is like no other."""
        return cls(os.urandom(cls.size()))

    @classmethod
    def nil(cls) -> BaseID:
        """Returns the id that names nothing."""
        return cls("f" * (2 * cls.size()))

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 16

    def is_nil(self) -> bool:
        """Returns whether it names nothing."""
        return not self._hex.strip("0") or not self._hex.strip("f")

    def redis_shard_hash(self) -> builtins.int:
        """Returns a number of 64 bits that is the same in every process."""
        return builtins.int(self._hex[:16] or "0", 16)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._hex == other._hex

    def __hash__(self) -> int:
        return hash(self._hex)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._hex})"

    def __reduce__(self) -> tuple[type[BaseID], tuple[str]]:
        return type(self), (self._hex,)


class UniqueID(BaseID):
    """Of anything."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 28


class ActorID(BaseID):
    """Of an actor."""


class TaskID(BaseID):
    """Of a call."""


class PlacementGroupID(BaseID):
    """Of a placement group."""


class NodeID(UniqueID):
    """Of a node: its number, as 56 digits."""


class JobID(BaseID):
    """Of a driver's job: its number, as 8 digits."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 4

    @classmethod
    def from_int(cls, value: builtins.int) -> JobID:
        """Returns the id of a job.

        Args:
            value: the number of the job, from 1.
        """
        return cls(f"{value:08x}")

    def int(self) -> builtins.int:
        """Returns the number of the job."""
        return int(self._hex, 16)


class WorkerID(UniqueID):
    """Of a process: node and number."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 8


class FunctionID(UniqueID):
    """Of a function."""


class ActorClassID(UniqueID):
    """Of a class of actors."""


def node_id(number: int) -> str:
    """The hexadecimal id of a node number."""
    return f"{number:056x}"


def node_number(hexadecimal: str) -> int:
    """The node number of a hexadecimal id. ValueError: it is none."""
    try:
        return int(hexadecimal, 16)
    except (TypeError, ValueError):
        raise ValueError(
            f"node_id={hexadecimal!r}: want hexadecimal digits, as sheaf.nodes()[0]['NodeID']"
        ) from None

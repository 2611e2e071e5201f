# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of things, as values: equal when they name the same."""

from __future__ import annotations

import builtins


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
    def from_hex(cls, hexadecimal: str) -> BaseID:
        """Returns the id that these digits write.

        Args:
            hexadecimal: two digits for each byte.
        """
        return cls(hexadecimal)

    @classmethod
    def from_binary(cls, data: bytes) -> BaseID:
        """Returns the id of these bytes.

        Args:
            data: as many as size() says.
        """
        return cls(data.hex())

    @classmethod
    def nil(cls) -> BaseID:
        """Returns the id that names nothing."""
        return cls("0" * (2 * cls.size()))

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 16

    def is_nil(self) -> bool:
        """Returns whether it names nothing."""
        return not self._hex.strip("0")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._hex == other._hex

    def __hash__(self) -> int:
        return hash(self._hex)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._hex})"

    def __reduce__(self) -> tuple[type[BaseID], tuple[str]]:
        return type(self), (self._hex,)


class ActorID(BaseID):
    """Of an actor."""


class TaskID(BaseID):
    """Of a call."""


class PlacementGroupID(BaseID):
    """Of a placement group."""


class NodeID(BaseID):
    """Of a node: its number, as 56 digits."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 28


class JobID(BaseID):
    """Of a driver's job: its number, as 8 digits."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 4

    @classmethod
    def from_int(cls, number: int) -> JobID:
        """Returns the id of a job.

        Args:
            number: of the job, from 1.
        """
        return cls(f"{number:08x}")

    def int(self) -> builtins.int:
        """Returns the number of the job."""
        return int(self._hex, 16)


class WorkerID(BaseID):
    """Of a process: node and number."""

    @staticmethod
    def size() -> int:
        """Returns the length of such ids, in bytes."""
        return 8


class UniqueID(BaseID):
    """Of anything."""


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

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of things, as values: equal when they name the same."""

from __future__ import annotations

import builtins


class BaseID:
    """An id of 16 bytes."""

    __slots__ = ("_hex",)

    def __init__(self, hexadecimal: str | bytes):
        self._hex = hexadecimal.hex() if isinstance(hexadecimal, bytes) else hexadecimal

    def hex(self) -> str:
        """The id as hexadecimal digits."""
        return self._hex

    def binary(self) -> bytes:
        """The id as bytes."""
        return bytes.fromhex(self._hex)

    @classmethod
    def from_hex(cls, hexadecimal: str) -> BaseID:
        """The id that these digits write."""
        return cls(hexadecimal)

    @classmethod
    def from_binary(cls, data: bytes) -> BaseID:
        """The id of these bytes."""
        return cls(data.hex())

    @classmethod
    def nil(cls) -> BaseID:
        """The id that names nothing."""
        return cls("0" * (2 * cls.size()))

    @staticmethod
    def size() -> int:
        """Its length in bytes."""
        return 16

    def is_nil(self) -> bool:
        """Whether it names nothing."""
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
        """Its length in bytes."""
        return 28


class JobID(BaseID):
    """Of a driver's job: its number, as 8 digits."""

    @staticmethod
    def size() -> int:
        """Its length in bytes."""
        return 4

    @classmethod
    def from_int(cls, number: int) -> JobID:
        """The id of a number."""
        return cls(f"{number:08x}")

    def int(self) -> builtins.int:
        """Its number."""
        return int(self._hex, 16)


class WorkerID(BaseID):
    """Of a process: node and number."""

    @staticmethod
    def size() -> int:
        """Its length in bytes."""
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

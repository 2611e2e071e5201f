# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Methods of ObjectRef that Ray's has and few programs use: those that need no C++."""

from __future__ import annotations

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf.ids import JobID, TaskID
from sheaf.object_ref import asyncio_future_of

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    import asyncio
    from typing import Any


def as_future(self: ObjectRef[Any], _internal: bool = False) -> asyncio.Future[Any]:
    """Returns a future of the running event loop that ends with the object's value, or its
    error."""
    return asyncio_future_of(self)


def task_id(self: ObjectRef[Any]) -> TaskID:
    """Returns the id of the task that makes the object."""
    return TaskID(self._task_hex())


def binary(self: ObjectRef[Any]) -> bytes:
    """Returns the object's id as 16 bytes: those of hex()."""
    return bytes.fromhex(self.hex())


def _on_completed(self: ObjectRef[Any], py_callback: Any) -> ObjectRef[Any]:
    """Calls `py_callback` with the value, or with the exception, once, when it is there, on a
    thread of its own. Returns the reference."""

    def call() -> None:
        try:
            value = _core.get(self)
        except Exception as error:
            value = error
        py_callback(value)

    _core.on_ready(self, call)
    return self


def job_id(self: ObjectRef[Any]) -> Any:
    """Returns the job of this process, which the object belongs to."""
    return JobID.from_int(_core.context()["job"])


def call_site(self: ObjectRef[Any]) -> str:
    """Returns "": Sheaf does not note where references are made."""
    return ""


def owner_address(self: ObjectRef[Any]) -> bytes:
    """Returns the part of the object's id that names its owner."""
    return self.binary()[:8]


def tensor_transport(self: ObjectRef[Any]) -> None:
    """Returns None: tensors travel as other values do."""


def redis_shard_hash(self: ObjectRef[Any]) -> int:
    """Returns a number of 64 bits that is the same in every process."""
    return int.from_bytes(self.binary()[8:16], "big")


def size(cls: type) -> int:
    """Returns the length of ids of objects, in bytes."""
    return 16


def _not_made(cls: type, *args: Any) -> Any:
    raise NotImplementedError(
        "an ObjectRef is not made of an id in Sheaf, which counts references: pass the reference "
        "itself"
    )


def from_hex(cls: type, hex_id: str) -> Any:
    """Not in Sheaf: raises NotImplementedError."""
    _not_made(cls)


def from_binary(cls: type, id_bytes: bytes) -> Any:
    """Not in Sheaf: raises NotImplementedError."""
    _not_made(cls)


def from_random(cls: type) -> Any:
    """Not in Sheaf: raises NotImplementedError."""
    _not_made(cls)


def nil(cls: type) -> Any:
    """Not in Sheaf: raises NotImplementedError."""
    _not_made(cls)


def add() -> None:
    """Gives ObjectRef these methods."""
    kind: Any = ObjectRef
    for method in (
        as_future,
        task_id,
        binary,
        _on_completed,
        job_id,
        call_site,
        owner_address,
        tensor_transport,
        redis_shard_hash,
    ):
        setattr(kind, method.__name__, method)
    for of_class in (size, from_hex, from_binary, from_random, nil):
        setattr(kind, of_class.__name__, classmethod(of_class))

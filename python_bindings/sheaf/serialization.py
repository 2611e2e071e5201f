# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values that the native codec does not carry: pickle 5 with its buffers outside, and cloudpickle for functions and classes."""

from __future__ import annotations

import io
import pickle
from typing import Any, Callable

from sheaf import _core

_pickler_class: type | None = None
_custom: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def register_serializer(cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]) -> None:
    """From now on instances of `cls` travel as `serializer(value)` and come back by `deserializer`, in this process's values.

    Both functions are pickled along, so workers need no registration to read such values.
    """
    _custom[cls] = (serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Takes register_serializer back; does nothing for a class that is not registered."""
    _custom.pop(cls, None)


def _make_pickler() -> type:
    """cloudpickle's pickler, which also knows references; made on first use, since cloudpickle takes long to import."""
    global _pickler_class
    import cloudpickle

    reduce_other = cloudpickle.Pickler.reducer_override

    class Pickler(cloudpickle.Pickler):
        def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer] | None, references: list[_core.ObjectRef]):
            super().__init__(file, protocol=5, buffer_callback=None if buffers is None else buffers.append)
            self.references = references

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if kind is _core.ObjectRef:
                self.references.append(obj)
                return _core.nested_reference, (len(self.references) - 1, obj.binary())
            if _custom and kind in _custom:
                serializer, deserializer = _custom[kind]
                return deserializer, (serializer(obj),)
            return reduce_other(self, obj)

    _pickler_class = Pickler
    return Pickler


def pickle_value(value: Any) -> tuple[memoryview, list[pickle.PickleBuffer], list[_core.ObjectRef]]:
    """The pickle of `value`, the buffers outside it, and the references inside it. TypeError: what cannot be pickled, and where."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    references: list[_core.ObjectRef] = []
    _dump(value, file, buffers, references)
    return file.getbuffer(), buffers, references


def unpickle_value(data: memoryview, buffers: list[Any]) -> Any:
    """The value of a pickle and the buffers outside it, which it keeps."""
    return pickle.loads(data, buffers=buffers)


def dumps(value: Any) -> tuple[bytes, list[_core.ObjectRef]]:
    """One piece of bytes for `value`, and the references inside it."""
    file = io.BytesIO()
    references: list[_core.ObjectRef] = []
    _dump(value, file, None, references)
    return file.getvalue(), references


def loads(data: bytes) -> Any:
    """The value of `dumps`."""
    return pickle.loads(data)


def _dump(value: Any, file: io.BytesIO, buffers: list[pickle.PickleBuffer] | None, references: list[_core.ObjectRef]) -> None:
    try:
        (_pickler_class or _make_pickler())(file, buffers, references).dump(value)
    except Exception as error:
        from sheaf import unpicklable

        raise unpicklable.explain(value, error) from None

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values that the native codec does not carry: pickle 5 with its buffers outside, and cloudpickle
for functions and classes."""

from __future__ import annotations

import io
import pickle
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from sheaf import _core
from sheaf._internal import arrow_values, unpicklable

_pickler_class: type | None = None
_custom: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Lets instances of a class travel as `serializer(value)`, and come back by `deserializer`.

    It counts for what this process sends from now on. Both functions are pickled along, so workers
    need no registration to read such values; to send them, they do.

    Args:
        cls: the class; instances of subclasses are not meant.
        serializer: gives a value that can be pickled.
        deserializer: makes the instance of that again.
    """
    _custom[cls] = (serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Takes register_serializer back.

    Args:
        cls: the class; of one that is not registered, nothing happens.
    """
    _custom.pop(cls, None)


def _make_pickler() -> type:
    """cloudpickle's pickler, which also knows references; made on first use, since cloudpickle
    takes long to import."""
    global _pickler_class
    import cloudpickle

    reduce_other = cloudpickle.Pickler.reducer_override
    reduce_code = cloudpickle.Pickler.dispatch_table[types.CodeType]

    def reduce_code_with_its_file(code: types.CodeType) -> Any:
        # cloudpickle 3.1.3 leaves the file's name out, without which no traceback has lines.
        make, (*before, _file, name, qualified, line, lines, table, free, cells) = reduce_code(code)
        file = "".join(code.co_filename)  # A copy, which pickle does not take for one it has seen.
        return make, (*before, file, name, qualified, line, lines, table, free, cells)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = ChainMap(
            {types.CodeType: reduce_code_with_its_file}, cloudpickle.Pickler.dispatch_table
        )

        def __init__(
            self,
            file: io.BytesIO,
            buffers: list[pickle.PickleBuffer] | None,
            references: list[_core.ObjectRef[Any]],
        ):
            super().__init__(
                file, protocol=5, buffer_callback=None if buffers is None else buffers.append
            )
            self.references = references
            self.plain: set[type] = set()  # Of whose instances only pickle has to know.

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if kind in self.plain:
                return NotImplemented
            if kind is _core.ObjectRef:
                self.references.append(obj)
                return _core.nested_reference, (len(self.references) - 1, obj._in_memory())
            if _custom and kind in _custom:
                serializer, deserializer = _custom[kind]
                return deserializer, (serializer(obj),)
            if kind.__module__ in arrow_values.MODULES:
                reduce_arrow = arrow_values.reducer_of(kind)
                if reduce_arrow is not None:
                    return reduce_arrow(obj)
            if not issubclass(kind, (type, types.FunctionType)):  # As cloudpickle decides.
                self.plain.add(kind)
            return reduce_other(self, obj)

    _pickler_class = Pickler
    return Pickler


def pickle_value(
    value: Any,
) -> tuple[memoryview, list[pickle.PickleBuffer], list[_core.ObjectRef[Any]]]:
    """The pickle of `value`, the buffers outside it, and the references inside it. TypeError: what
    cannot be pickled, and where."""
    buffers: list[pickle.PickleBuffer] = []
    if _is_numbers(value):  # pickle alone, in C, takes a quarter of the time.
        return memoryview(pickle.dumps(value, 5, buffer_callback=buffers.append)), buffers, []
    file = io.BytesIO()
    references: list[_core.ObjectRef[Any]] = []
    _dump(value, file, buffers, references)
    return file.getbuffer(), buffers, references


def _is_numbers(value: Any) -> bool:
    """Whether it is a NumPy array in which nothing but numbers, texts, bytes or times can be."""
    kind = type(value)
    return (
        kind.__name__ == "ndarray"
        and kind.__module__ == "numpy"
        and not value.dtype.hasobject
        and value.dtype.metadata is None
        and value.dtype.names is None  # Fields have metadata of their own.
        and kind not in _custom
    )


def unpickle_value(data: memoryview, buffers: list[Any]) -> Any:
    """The value of a pickle and the buffers outside it, which it keeps."""
    return pickle.loads(data, buffers=buffers)


def dumps(value: Any) -> tuple[bytes, list[_core.ObjectRef[Any]]]:
    """One piece of bytes for `value`, and the references inside it."""
    file = io.BytesIO()
    references: list[_core.ObjectRef[Any]] = []
    _dump(value, file, None, references)
    return file.getvalue(), references


def loads(data: bytes) -> Any:
    """The value of `dumps`."""
    return pickle.loads(data)


def _dump(
    value: Any,
    file: io.BytesIO,
    buffers: list[pickle.PickleBuffer] | None,
    references: list[_core.ObjectRef[Any]],
) -> None:
    try:
        (_pickler_class or _make_pickler())(file, buffers, references).dump(value)
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        # What pickle says. All else is of the value's own code, or of a signal handler.
        raise unpicklable.explain(value, error, _problem) from None


def _problem(value: Any) -> Exception | None:
    """Why `value` cannot be pickled; None: it can."""
    try:
        (_pickler_class or _make_pickler())(io.BytesIO(), [], []).dump(value)
    except Exception as error:
        return error
    return None


def culprit(value: Any, error: Exception) -> tuple[str, Any]:
    """Of a value whose pickling met `error`: the path to the part that is to blame, and that part;
    ("", value): there is no such part."""
    path, part, _ = unpicklable.find(value, error, _problem)
    return path, part


_ARRAY_TYPES = {
    0x11: "i1",
    0x12: "<i2",
    0x14: "<i4",
    0x18: "<i8",
    0x21: "u1",
    0x22: "<u2",
    0x24: "<u4",
    0x28: "<u8",
    0x34: "<f4",
    0x38: "<f8",
}


def array_of(memory: Any, kind: int) -> Any:
    """Numbers that C++ wrote, as a NumPy array over their memory; `kind`:
    sheaf/internal/type_traits.h's NumberKind."""
    import numpy

    if kind not in _ARRAY_TYPES:
        raise ValueError(
            f"these bytes are no value of Sheaf: there are no numbers of kind {kind:#x}"
        )
    return numpy.frombuffer(memory, _ARRAY_TYPES[kind])

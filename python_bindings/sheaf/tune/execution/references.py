# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References to objects in what a journal keeps: an experiment that is taken up in another session
is given new ones, which stand where the old ones stood."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from sheaf import ObjectRef, cloudpickle
from sheaf.exceptions import ObjectLostError
from sheaf.tune.search.domains import Categorical, Domain

References = Mapping[str, Any]  # New ones, by the ids of the old.


class LostReference:
    """Stands for a reference whose session has ended."""

    def __init__(self, key: str, pickled: bytes):
        self.key, self.pickled = key, pickled


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # It has no types.
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, ObjectRef):
            return value.hex(), cloudpickle.dumps(value)
        return (value.key, value.pickled) if isinstance(value, LostReference) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, references: References):
        super().__init__(io.BytesIO(data))
        self._references = references

    def persistent_load(self, kept: Any) -> Any:
        key, pickled = kept
        if key in self._references:
            return self._references[key]
        try:
            return pickle.loads(pickled)
        except ObjectLostError:
            return LostReference(key, pickled)


def dumps(value: Any) -> bytes:
    """The pickle of a value, with the references in it by their ids."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def loads(data: bytes, references: References) -> Any:
    """See dumps. Where there is no new one for a reference, it is the old one, or a
    LostReference."""
    return _Unpickler(data, references).load()


def are_lost(space: Any) -> bool:
    """Whether a space has references whose session has ended."""
    return any(isinstance(one, LostReference) for one in _leaves(space))


def replaced(space: Any, again: Any) -> dict[str, Any]:
    """For each reference in a space, by its id, the one in its place in the space that was given
    again. ValueError: that differs in something else."""
    found: dict[str, Any] = {}
    _match(space, again, "param_space", found)
    return found


def _match(old: Any, new: Any, where: str, found: dict[str, Any]) -> None:
    if isinstance(old, (ObjectRef, LostReference)) and isinstance(new, ObjectRef):
        found[old.hex() if isinstance(old, ObjectRef) else old.key] = new
        return
    same = type(old).__qualname__ == type(new).__qualname__
    if isinstance(old, (str, bytes, int, float, type(None))):
        same = same and (old == new or old != old)
    before, after = dict(_parts(old)), dict(_parts(new))
    if not same or before.keys() != after.keys():
        raise ValueError(
            f"{where}={new!r}: the experiment has {old!r} there; a space that is given again may "
            "have new references to objects, and is the same otherwise"
        )
    for name, one in before.items():
        _match(one, after[name], f"{where}[{name!r}]", found)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """What a space looks into."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif isinstance(value, Categorical):
        yield from enumerate(value.categories)
    elif isinstance(value, Domain):
        bounds = vars(value).items()
        yield from ((name, one) for name, one in bounds if isinstance(one, (int, float)))


def _leaves(value: Any) -> Iterator[Any]:
    parts = list(_parts(value))
    for _, one in parts:
        yield from _leaves(one)
    if not parts:
        yield value

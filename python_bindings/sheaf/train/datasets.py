# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How data is split between workers."""

from __future__ import annotations

import itertools
from typing import Any

import sheaf


def check(given: Any) -> dict[str, Any]:
    """The trainer's `datasets`. TypeError: not a dict of things that can be split."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise TypeError(f"datasets={given!r}: want a dict, as {{'train': array}}")
    for name, data in given.items():
        if hasattr(data, "streaming_split"):
            continue
        if isinstance(data, dict):
            sizes = {column: len(values) for column, values in data.items()}
            if len(set(sizes.values())) > 1:
                raise ValueError(f"datasets[{name!r}]: its columns differ in length: {sizes}")
        elif hasattr(data, "__next__"):
            raise TypeError(
                f"datasets[{name!r}]={data!r}: an iterator cannot be sent to "
                "workers; give a list, an array, or a function that makes it"
            )
        elif not callable(data) and not hasattr(data, "__iter__") and not _has_items(data):
            raise TypeError(
                f"datasets[{name!r}]={data!r}: want an array, a list, a dict of "
                "arrays, an iterable, or a function that makes one"
            )
    return dict(given)


class Parts(list[Any]):
    """What each worker gets, made by the dataset itself."""


def put(data: Any) -> Any:
    """A dataset once for all workers: in the store, but for one that is split in a stream."""
    return data if hasattr(data, "streaming_split") else sheaf.put(data)


def shared(data: Any, world_size: int) -> Any:
    """A dataset as it goes to workers: one that can be split in a stream (as those of sheaf.data)
    gives each an iterator over equal numbers of rows."""
    if hasattr(data, "streaming_split"):
        return Parts(data.streaming_split(world_size, equal=True))
    return data


def _has_items(data: Any) -> bool:
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def shard(data: Any, rank: int, world_size: int) -> Any:
    """The part of one worker."""
    if isinstance(data, sheaf.ObjectRef):
        data = sheaf.get(data)
    if isinstance(data, Parts):
        return data[rank]
    if isinstance(data, dict):
        return {name: shard(values, rank, world_size) for name, values in data.items()}
    if callable(data):
        data = data()
    if _has_items(data):
        count = len(data)
        return data[count * rank // world_size : count * (rank + 1) // world_size]
    return itertools.islice(data, rank, None, world_size)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How data is split between workers."""

from __future__ import annotations

import copy
import dataclasses
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


class DataConfig:
    """Which datasets of a trainer are split between workers, and how those of sheaf.data run. A
    class derived from it may define `configure`.

    Args:
        datasets_to_split: "all", or names; each worker gets the whole of the others.
        execution_options: sheaf.data.ExecutionOptions for all datasets, or some by name; None:
            those of the dataset's own context.
        enable_shard_locality: has no effect.

    Raises:
        TypeError: datasets_to_split is something else.
    """

    def __init__(
        self,
        datasets_to_split: Any = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
    ):
        names = datasets_to_split
        if names != "all" and not (
            isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        ):
            raise TypeError(f"datasets_to_split={names!r}: want 'all' or a list of names")
        self._names, self._options = names, execution_options

    def splits(self, name: str) -> bool:
        """Whether workers get parts of a dataset.

        Args:
            name: of the dataset.

        Returns:
            False: each gets the whole.
        """
        return self._names == "all" or name in self._names

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: Any = None,
        worker_node_ids: Any = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """What workers iterate over.

        Args:
            datasets: those of sheaf.data, by name.
            world_size: how many workers there are.
            worker_handles: None.
            worker_node_ids: None.
            kwargs: what later versions add.

        Returns:
            For each rank iterators by name.
        """
        made: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            options = self._options
            if isinstance(options, dict):
                options = options.get(name)
            if options is not None:
                dataset = dataset.copy(dataset)
                dataset.context.execution_options = copy.deepcopy(options)
            parts = (
                dataset.streaming_split(world_size, equal=True)
                if self.splits(name)
                else [dataset.iterator() for _ in range(world_size)]
            )
            for mine, part in zip(made, parts):
                mine[name] = part
        return made


class Parts(list[Any]):
    """What each worker gets, made by the dataset itself."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """What each worker gets all of."""

    data: Any


def check_config(config: Any, given: dict[str, Any]) -> DataConfig:
    """The trainer's `dataset_config`. TypeError, ValueError: it is none, or names what is not
    there."""
    if config is None:
        return DataConfig()
    if not isinstance(config, DataConfig):
        raise TypeError(f"dataset_config={config!r}: want a DataConfig")
    for name in [] if config._names == "all" else config._names:
        if name not in given:
            raise ValueError(
                f"datasets_to_split has {name!r}; the trainer got {sorted(given) or 'no datasets'}"
            )
    return config


def put(data: Any) -> Any:
    """A dataset once for all workers: in the store, but for one that is split in a stream."""
    return data if hasattr(data, "streaming_split") else sheaf.put(data)


def shared(given: dict[str, Any], world_size: int, config: DataConfig) -> dict[str, Any]:
    """Datasets as they go to workers: those that can be split in a stream (as those of sheaf.data
    can) give each an iterator."""
    streams = {name: data for name, data in given.items() if hasattr(data, "streaming_split")}
    made = config.configure(streams, world_size, None, None)
    if len(made) != world_size:
        raise ValueError(
            f"{type(config).__name__}.configure gave {len(made)} dicts: want one for each of "
            f"{world_size} workers"
        )
    parts: dict[str, Any] = {name: Parts(one[name] for one in made) for name in made[0]}
    for name, data in given.items():
        if name not in streams:
            parts[name] = data if config.splits(name) else Whole(data)
    return parts


def _has_items(data: Any) -> bool:
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def shard(data: Any, rank: int, world_size: int) -> Any:
    """The part of one worker."""
    if isinstance(data, Whole):
        rank, world_size, data = 0, 1, data.data
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

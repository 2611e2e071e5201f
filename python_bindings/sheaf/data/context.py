# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Settings of datasets: DataContext.get_current() is what those use that are made from now on."""

from __future__ import annotations

import contextvars
import copy
import enum
import math
import os
import warnings
from typing import Any


class ExecutionResources:
    """Amounts of resources. Those not given are 0, or unlimited in for_limits.

    Args:
        cpu: CPUs.
        gpu: GPUs.
        object_store_memory: bytes.
        memory: bytes.
    """

    def __init__(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ):
        for name, value in (("cpu", cpu), ("gpu", gpu), ("memory", memory)):
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}: want 0 or more")
        self._given = (cpu, gpu, object_store_memory, memory)
        self.cpu, self.gpu = cpu or 0.0, gpu or 0.0
        self.object_store_memory, self.memory = object_store_memory or 0.0, memory or 0.0

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Amounts as limits.

        Args:
            cpu: CPUs.
            gpu: GPUs.
            object_store_memory: bytes.
            memory: bytes.

        Returns:
            The amounts, what is not given unlimited.
        """
        return cls(*(math.inf if v is None else v for v in (cpu, gpu, object_store_memory, memory)))

    @classmethod
    def zero(cls) -> ExecutionResources:
        """Returns nothing of all."""
        return cls(0, 0, 0, 0)

    @classmethod
    def inf(cls) -> ExecutionResources:
        """Returns no limit of any."""
        return cls.for_limits()

    def limit(self, name: str) -> float | None:
        """The limit of "cpu", "gpu", "object_store_memory" or "memory"; None: there is none.

        Args:
            name: of the resource.

        Returns:
            The amount.
        """
        value = self._given[("cpu", "gpu", "object_store_memory", "memory").index(name)]
        return None if value is None or math.isinf(value) else value

    def copy(self, **changes: float | None) -> ExecutionResources:
        """The same with some amounts changed.

        Args:
            **changes: amounts by name.

        Returns:
            Others.
        """
        names = ("cpu", "gpu", "object_store_memory", "memory")
        return ExecutionResources(**{**dict(zip(names, self._given)), **changes})

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ExecutionResources) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[float, ...]:
        return self.cpu, self.gpu, self.object_store_memory, self.memory

    def __repr__(self) -> str:
        return (
            f"ExecutionResources(cpu={self.cpu}, gpu={self.gpu}, "
            f"object_store_memory={self.object_store_memory}, memory={self.memory})"
        )


class ExecutionOptions:
    """How plans run.

    Args:
        resource_limits: what an execution may use; None: all of the cluster, and half of its object
            store.
        exclude_resources: what others use of the cluster.
        preserve_order: outputs come in the order of inputs whatever that costs; without it, too,
            unless a full budget would make the pipeline wait.
        actor_locality_enabled, label_selector: have no effect.
        verbose_progress: has no effect.
    """

    def __init__(
        self,
        resource_limits: ExecutionResources | None = None,
        exclude_resources: ExecutionResources | None = None,
        preserve_order: bool = False,
        actor_locality_enabled: bool = True,
        verbose_progress: bool | None = None,
        label_selector: dict[str, str] | None = None,
        locality_with_output: Any = False,
    ):
        self.resource_limits = resource_limits or ExecutionResources.for_limits()
        self.exclude_resources = exclude_resources or ExecutionResources.zero()
        self.preserve_order = preserve_order
        self.actor_locality_enabled = actor_locality_enabled
        self.verbose_progress = verbose_progress
        self.label_selector = label_selector
        self.locality_with_output = locality_with_output

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"ExecutionOptions({fields})"


class ShuffleStrategy(enum.StrEnum):
    """Ray's ways to shuffle; Sheaf has one, whichever is named."""

    SORT_SHUFFLE_PULL_BASED = "sort_shuffle_pull_based"
    SORT_SHUFFLE_PUSH_BASED = "sort_shuffle_push_based"
    HASH_SHUFFLE = "hash_shuffle"
    GPU_SHUFFLE = "gpu_shuffle"


_MIB = 1 << 20
_KNOWN: dict[str, Any] = {
    "target_max_block_size": 128 * _MIB,
    "target_min_block_size": _MIB,
    "read_op_min_num_blocks": 200,
    "min_parallelism": 200,
    "max_errored_blocks": 0,
    "enable_progress_bars": True,
    "broadcast_join_bytes": 64 * _MIB,
    "cache_memory_bytes": None,
    "cache_directory": None,
    "small_input_bytes": 8 * _MIB,  # Below this, what needs no function of the user runs here.
    "skewed_partition_factor": 4.0,
    "skewed_partition_bytes": 256 * _MIB,
    "split_silence_s": 30.0,
    "shuffle_strategy": ShuffleStrategy.HASH_SHUFFLE,
    "print_on_execution_start": True,
    "retried_io_errors": [
        "AWS Error INTERNAL_FAILURE",
        "AWS Error NETWORK_CONNECTION",
        "AWS Error SLOW_DOWN",
        "AWS Error UNKNOWN (HTTP status 503)",
        "AWS Error SERVICE_UNAVAILABLE",
    ],
}


class DataContext:
    """Settings, as attributes. Further names of Ray's can be set and read, and have no effect, as a
    warning says.

    Attributes:
        target_max_block_size: bytes of a block at most, as far as rows allow. With a small object
            store blocks are smaller: its bytes by eight times its CPUs.
        target_min_block_size: bytes that a read task is worth.
        read_op_min_num_blocks: read tasks at least, where there is so much to read;
            what is only grouped or joined is read by fewer.
        max_errored_blocks: how many tasks may fail, their blocks left out; -1: any number.
        enable_progress_bars: whether progress is shown on a terminal.
        execution_options: ExecutionOptions.
        broadcast_join_bytes: a join whose one side is smaller moves only that side.
        cache_memory_bytes: that the caches of a process in memory (cache("memory")) may have
            together, as the last of them found it; None: 0.4 of the cluster's object store.
        cache_directory: where nodes write the files of cache("disk"); None: into the spill
            directory of their session, from which they go with the job, however that ends.
        small_input_bytes: below this, what needs no function of the user's runs in this process.
        skewed_partition_factor, skewed_partition_bytes: a partition of a sort or a join that has
            over so many times the bytes of the median, and over so many bytes, is split.
        split_silence_s: for so long consumers of streaming_split wait for one that is not heard of.
        retried_io_errors: words or regular expressions; reading or writing a file is tried up to 10
            times on errors that have one of them, with growing pauses.
    """

    def __init__(self, **settings: Any):
        self.__dict__.update(copy.deepcopy(_KNOWN))
        self.enable_progress_bars = os.environ.get("RAY_DATA_DISABLE_PROGRESS_BARS", "0") != "1"
        self.execution_options = ExecutionOptions()
        self._config: dict[str, Any] = {}
        self.__dict__.update(settings)

    def __setattr__(self, name: str, value: Any) -> None:
        known = name in _KNOWN or name in ("execution_options", "_config")
        if not known and name not in self.__dict__ and not name.startswith("_"):
            warnings.warn(f"DataContext.{name} has no effect in Sheaf", stacklevel=2)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None  # Of Ray's settings that nobody has set.

    @staticmethod
    def get_current() -> DataContext:
        """Returns the settings of this thread, or those that it was started with."""
        found = _CURRENT.get()
        return _DEFAULT if found is None else found

    @staticmethod
    def _set_current(context: DataContext) -> None:
        global _DEFAULT
        _DEFAULT = context

    @staticmethod
    def current(context: DataContext) -> Any:
        """A with block in which get_current() gives other settings.

        Args:
            context: those.

        Returns:
            What `with` takes.
        """
        import contextlib

        @contextlib.contextmanager
        def entered() -> Any:
            token = _CURRENT.set(context)
            try:
                yield context
            finally:
                _CURRENT.reset(token)

        return entered()

    def get_config(self, key: str, default: Any = None) -> Any:
        """A value of set_config.

        Args:
            key: its name.
            default: given when there is none.

        Returns:
            The value.
        """
        return self._config.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Keeps a value for readers and functions of the user's own.

        Args:
            key: its name.
            value: anything that pickles.
        """
        self._config[key] = value

    def remove_config(self, key: str) -> None:
        """Forgets a value of set_config.

        Args:
            key: its name.
        """
        self._config.pop(key, None)

    def copy(self) -> DataContext:
        """Returns settings that are the same and change by themselves."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"DataContext({', '.join(f'{k}={v!r}' for k, v in sorted(vars(self).items()))})"


DatasetContext = DataContext
_DEFAULT = DataContext()
_CURRENT: contextvars.ContextVar[DataContext | None] = contextvars.ContextVar(
    "sheaf_data_context", default=None
)

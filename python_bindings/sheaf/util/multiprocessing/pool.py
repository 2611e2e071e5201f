# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Pool: one actor per process, and chunks of calls that go to the actor with the least to
do."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from typing import Any

from sheaf import _core, cluster, lifecycle
from sheaf._core import ObjectRef
from sheaf.actor import kill
from sheaf.decorator import remote
from sheaf.object_ref import wait

Chunk = list[tuple[tuple[Any, ...], dict[str, Any]]]
RAY_ADDRESS_ENV = "RAY_ADDRESS"
_CHUNKS_PER_PROCESS = 4  # As multiprocessing divides what map gets.


class _Process:
    """In the actor's process."""

    def __init__(self, initializer: Callable[..., Any] | None, arguments: tuple[Any, ...]):
        if initializer is not None:
            initializer(*arguments)

    def run(self, function: Callable[..., Any], chunk: Chunk) -> list[tuple[bool, Any]]:
        """(True, result) or (False, exception) of each call."""
        out: list[tuple[bool, Any]] = []
        for arguments, keywords in chunk:
            try:
                out.append((True, function(*arguments, **keywords)))
            except Exception as error:
                out.append((False, error))
        return out


class AsyncResult:
    """What apply_async and its kin give. Thread-safe.

    Args:
        chunks: references of the chunks of results.
        single: whether the result is one value.
        callback: called with the result, or None.
        error_callback: called with the exception, or None.
    """

    def __init__(
        self,
        chunks: list[ObjectRef[Any]],
        single: bool,
        callback: Callable[[Any], Any] | None,
        error_callback: Callable[[Any], Any] | None,
    ):
        self._chunks = chunks
        self._single = single
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._left = len(chunks)
        self._lock = threading.Lock()
        self._callback, self._error_callback = callback, error_callback
        for chunk in chunks:
            _core.on_ready(chunk, self._one_is_ready)
        if not chunks:
            self._finish()

    def _one_is_ready(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._finish()

    def _finish(self) -> None:
        try:
            self._result = [_value(item) for chunk in _core.get(self._chunks) for item in chunk]
            if self._single:
                self._result = self._result[0]
        except BaseException as error:
            self._error = error
        self._done.set()
        then, what = (
            (self._callback, self._result)
            if self._error is None
            else (self._error_callback, self._error)
        )
        if then is not None:
            then(what)

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the end.

        Args:
            timeout: seconds at most; None: for ever.
        """
        end = None if timeout is None else time.monotonic() + max(timeout, 0)
        if self._chunks:
            left = None if end is None else max(end - time.monotonic(), 0)
            wait(self._chunks, num_returns=len(self._chunks), timeout=left)
        self._done.wait(None if end is None else max(end - time.monotonic(), 0))

    def get(self, timeout: float | None = None) -> Any:
        """Waits for the result.

        Args:
            timeout: seconds at most; None: for ever.

        Returns:
            The result, or the list of results.

        Raises:
            TimeoutError: of multiprocessing: it was late.
            Exception: what the first call that failed has raised.
        """
        self.wait(timeout)
        if not self._done.is_set():
            raise TimeoutError(f"the result was not there in {timeout} s")
        if self._error is not None:
            raise self._error
        return self._result

    def ready(self) -> bool:
        """Returns whether it has ended."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Returns whether no call raised.

        Raises:
            ValueError: it has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} is not ready: wait for it first")
        return self._error is None


def _value(item: tuple[bool, Any]) -> Any:
    if not item[0]:
        raise item[1]
    return item[1]


class IMapIterator:
    """The results of imap (in order) or imap_unordered, as they come. Chunks are submitted while
    results are taken. Not thread-safe.

    Args:
        pool: that runs the calls.
        function: that is called.
        items: the chunks of its arguments.
        ordered: whether results come in the order of the items.
    """

    def __init__(
        self, pool: Pool, function: Callable[..., Any], items: Iterator[Chunk], ordered: bool
    ):
        self._pool, self._function, self._items, self._ordered = pool, function, items, ordered
        self._pending: list[ObjectRef[Any]] = []
        self._values: list[tuple[bool, Any]] = []
        self._submit(2 * _CHUNKS_PER_PROCESS * len(pool._processes))

    def _submit(self, count: int) -> None:
        for chunk in itertools.islice(self._items, count):
            self._pending.append(self._pool._submit(self._function, chunk))

    def __iter__(self) -> IMapIterator:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """Waits for the next result.

        Args:
            timeout: seconds at most; None: for ever.

        Returns:
            The result.

        Raises:
            TimeoutError: of multiprocessing: it was late, and stays the next one.
            StopIteration: there is none any more.
            Exception: what the call has raised.
        """
        if not self._values:
            if not self._pending:
                raise StopIteration
            candidates = self._pending[:1] if self._ordered else self._pending
            ready, _ = wait(candidates, num_returns=1, timeout=timeout)
            if not ready:
                raise TimeoutError(f"no result came in {timeout} s")
            self._pending.remove(ready[0])
            self._submit(1)
            self._values = _core.get(ready[0])[::-1]
        return _value(self._values.pop())


class Pool:
    """multiprocessing.Pool, whose processes are actors. Thread-safe. It stays in its process.

    Args:
        processes: how many; None: one per CPU of the cluster.
        initializer: called in each process first.
        initargs: its arguments.
        maxtasksperchild: a process is replaced after so many chunks; None: never.
        context: without effect.
        ray_address: the cluster to join where init was not called, as init takes it.
        ray_remote_args: options of the actors; they hold one CPU each otherwise.

    Raises:
        ValueError: `processes` is below 1.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] | None = None,
        maxtasksperchild: int | None = None,
        context: Any = None,
        ray_address: str | None = None,
        ray_remote_args: dict[str, Any] | None = None,
    ):
        del context
        if not _core.is_initialized():
            # A node of one's own has as many CPUs as the pool has processes.
            lifecycle.init(ray_address, num_cpus=None if ray_address else processes)
        cpus = max(1, int(cluster.cluster_resources().get("CPU", 1)))
        if processes is None:
            processes = cpus
        if processes < 1:
            raise ValueError(f"processes={processes}: Processes in the pool must be >0")
        if processes > cpus:
            raise ValueError(
                f"Tried to start a pool with {processes} processes on an existing cluster, but "
                f"there are only {cpus} CPUs in it: want {cpus} at most"
            )
        # Beside whatever holds the CPUs: a pool that waits for one would say nothing.
        self._class = remote(_Process).options(**{"num_cpus": 0, **(ray_remote_args or {})})
        self._starting = (initializer, tuple(initargs or ()))
        self._limit = maxtasksperchild
        self._lock = threading.Lock()
        self._processes = [self._class.remote(*self._starting) for _ in range(processes)]
        self._given = [0] * processes  # Chunks, ever.
        self._unfinished = [0] * processes
        self._pending: set[ObjectRef[Any]] = set()
        self._closed = False

    def _submit(self, function: Callable[..., Any], chunk: Chunk) -> ObjectRef[Any]:
        if self._closed:
            raise ValueError("Pool not running: it was closed, and takes no more calls")
        with self._lock:
            index = min(range(len(self._processes)), key=self._unfinished.__getitem__)
            if self._limit and self._given[index] >= self._limit:
                self._processes[index] = self._class.remote(
                    *self._starting
                )  # The old one ends after its calls.
                self._given[index] = 0
            self._given[index] += 1
            self._unfinished[index] += 1
            ref: ObjectRef[Any] = self._processes[index].run.remote(function, chunk)
            self._pending.add(ref)

        def finished() -> None:
            with self._lock:
                self._unfinished[index] -= 1
                self._pending.discard(ref)

        _core.on_ready(ref, finished)
        return ref

    def _chunks(self, items: Iterable[tuple[Any, ...]], size: int | None) -> Iterator[Chunk]:
        if size is None:
            items = list(items)
            size = -(-len(items) // (len(self._processes) * _CHUNKS_PER_PROCESS)) or 1
        if size < 1:
            raise ValueError(f"chunksize={size}: want a number from 1")
        source = iter(items)
        while True:
            chunk: Chunk = [(arguments, {}) for arguments in itertools.islice(source, size)]
            if not chunk:
                return
            yield chunk

    def _map(
        self,
        function: Any,
        items: Iterable[tuple[Any, ...]],
        size: int | None,
        callback: Any,
        error_callback: Any,
    ) -> AsyncResult:
        refs = [self._submit(function, chunk) for chunk in self._chunks(items, size)]
        return AsyncResult(refs, False, callback, error_callback)

    def apply(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Calls a function in a process, and waits for its result.

        Args:
            func: the function.
            args: its arguments.
            kwargs: its keyword arguments.

        Returns:
            What it returns.

        Raises:
            Exception: what it raises.
            ValueError: the pool is closed.
        """
        return self.apply_async(func, args, kwargs).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Any = None,
        error_callback: Any = None,
    ) -> AsyncResult:
        """Calls a function in a process, without waiting.

        Args:
            func: the function.
            args: its arguments.
            kwargs: its keyword arguments.
            callback: called with the result, on a thread for callbacks.
            error_callback: called with the exception, on a thread for callbacks.

        Returns:
            What the result is asked of.

        Raises:
            ValueError: the pool is closed.
        """
        return AsyncResult(
            [self._submit(func, [(tuple(args or ()), dict(kwargs or {}))])],
            True,
            callback,
            error_callback,
        )

    def map(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None
    ) -> list[Any]:
        """Calls a function for each item, and waits for all results.

        Args:
            func: called as func(item).
            iterable: the items, which are read at once.
            chunksize: how many items a process gets at a time; None: a quarter of its share.

        Returns:
            The results, in the order of the items.

        Raises:
            Exception: what the first call that failed has raised.
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        values: list[Any] = self.map_async(func, iterable, chunksize).get()
        return values

    def map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Any = None,
        error_callback: Any = None,
    ) -> AsyncResult:
        """Calls a function for each item, without waiting.

        Args:
            func: called as func(item).
            iterable: the items, which are read at once.
            chunksize: how many items a process gets at a time; None: a quarter of its share.
            callback: called with the result, on a thread for callbacks.
            error_callback: called with the exception, on a thread for callbacks.

        Returns:
            What the list of results is asked of.

        Raises:
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        return self._map(func, ((item,) for item in iterable), chunksize, callback, error_callback)

    def starmap(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
    ) -> list[Any]:
        """Calls a function with the arguments in each item, and waits for all results.

        Args:
            func: called as func(*item).
            iterable: the items, which are read at once.
            chunksize: how many items a process gets at a time; None: a quarter of its share.

        Returns:
            The results, in the order of the items.

        Raises:
            Exception: what the first call that failed has raised.
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        values: list[Any] = self.starmap_async(func, iterable, chunksize=chunksize).get()
        return values

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        callback: Any = None,
        error_callback: Any = None,
        chunksize: int | None = None,
    ) -> AsyncResult:
        """Calls a function with the arguments in each item, without waiting.

        Args:
            func: called as func(*item).
            iterable: the items, which are read at once.
            callback: called with the result, on a thread for callbacks.
            error_callback: called with the exception, on a thread for callbacks.
            chunksize: how many items a process gets at a time; None: a quarter of its share.

        Returns:
            What the list of results is asked of.

        Raises:
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        return self._map(func, map(tuple, iterable), chunksize, callback, error_callback)

    def imap(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """Calls a function for each item, while results are taken.

        Args:
            func: called as func(item).
            iterable: the items, which are read as results are taken.
            chunksize: how many items a process gets at a time.

        Returns:
            An iterator over the results, in the order of the items.

        Raises:
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        return IMapIterator(
            self, func, self._chunks(((item,) for item in iterable), chunksize), True
        )

    def imap_unordered(
        self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = 1
    ) -> IMapIterator:
        """Calls a function for each item, while results are taken.

        Args:
            func: called as func(item).
            iterable: the items, which are read as results are taken.
            chunksize: how many items a process gets at a time.

        Returns:
            An iterator over the results, as they become ready.

        Raises:
            ValueError: the pool is closed, or `chunksize` is below 1.
        """
        return IMapIterator(
            self, func, self._chunks(((item,) for item in iterable), chunksize), False
        )

    def close(self) -> None:
        """Takes no more calls."""
        self._closed = True

    def terminate(self) -> None:
        """Ends the processes at once; calls that run fail."""
        self.close()
        for process in self._processes:
            kill(process)

    def join(self) -> None:
        """Waits for all calls, after close or terminate; then the processes end."""
        if not self._closed:
            raise ValueError("Pool is still running: close it first")
        with self._lock:
            left = list(self._pending)
        if left:
            wait(left, num_returns=len(left))
        self._processes.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.terminate()

    def __reduce__(self) -> Any:
        raise NotImplementedError("a Pool cannot be passed to a task: make one there")

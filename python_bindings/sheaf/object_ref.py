# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References beyond get and put: wait, await, futures, streams of items."""

from __future__ import annotations

import _thread
import math

from sheaf import _core
from sheaf._core import ObjectRef
from sheaf._internal import ray_attributes

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    import weakref
    from collections.abc import Generator, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")


def wait(
    ray_waitables: list[ObjectRef[T]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Waits until `num_returns` of the references are ready, or for `timeout` seconds.

    What has failed is ready, too: getting it raises. Other threads may change the list meanwhile.

    Args:
        ray_waitables: ObjectRefs, each once, or generators of them, which are ready when their
            next item is.
        num_returns: how many to wait for, from 1 to the number of references.
        timeout: seconds; 0 only looks; None waits for ever.
        fetch_local: a value that lies on another node or on disk is fetched, some of them at a
            time, and ready when it has come; False: it is ready when it is anywhere.

    Returns:
        (ready, not ready), each in the order of `ray_waitables`: at most `num_returns` ready ones.

    Raises:
        TypeError: `ray_waitables` is no list of references, or `num_returns` no number.
        ValueError: a reference comes twice, or a number does not fit.
        RayError: the node has ended meanwhile.
    """
    refs = ray_waitables
    if type(refs) is not list:
        _refuse_other(refs)
    refs = list(refs)  # Nobody else can change it meanwhile, and those not ready are left in it.
    if timeout is not None and timeout < 0:
        raise ValueError(
            f"The 'timeout' argument must be nonnegative: timeout={timeout!r}: want seconds"
        )
    if not refs:
        return [], []
    if not isinstance(num_returns, int):
        raise TypeError(f"num_returns={num_returns!r}: want a number")
    if not 0 < num_returns <= len(refs):
        raise ValueError(_wrong_count(num_returns, len(refs)))
    found = _core.wait_ready(refs, num_returns, timeout, fetch_local)
    return _wait_for_streams(refs, num_returns, timeout) if found is NotImplemented else found


def _refuse_other(refs: Any) -> None:
    """TypeError: wait got no list."""
    if isinstance(refs, list):
        return  # Of a class of the user's own.
    what = "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got "
    if isinstance(refs, (ObjectRef, ObjectRefGenerator)):
        raise TypeError(f"{what}one of them: write wait([{refs!r}])")
    raise TypeError(f"{what}{refs!r}")


def _wrong_count(num_returns: int, count: int) -> str:
    if num_returns > 0:
        said = "num_returns cannot be greater than the number of ray_waitables"
    else:
        said = f"Invalid number of objects to return {num_returns}"
    return f"{said}: num_returns={num_returns}: want 1 to {count}, the number of references"


def _wait_for_streams(
    refs: list[Any], num_returns: int, timeout: float | None
) -> tuple[list[Any], list[Any]]:
    """wait for a list with generators in it: one is ready when its next item is there, or its
    end."""
    import time

    for index, ref in enumerate(refs):
        if not isinstance(ref, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                "wait() expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list "
                f"containing {type(ref).__name__}: item {index} is {ref!r}"
            )
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    pause = 0.001
    while True:
        ready = [
            ref._await_next(0) if isinstance(ref, ObjectRefGenerator) else _core.is_ready(ref)
            for ref in refs
        ]
        left = deadline - time.monotonic()
        if sum(ready) >= num_returns or left <= 0:
            break
        first = refs[ready.index(False)]
        pause = min(2 * pause, 0.02)
        if isinstance(first, ObjectRefGenerator):
            first._await_next(min(pause, left))
        else:
            _core.wait_ready([first], 1, min(pause, left), True)
    chosen = [index for index, is_ready in enumerate(ready) if is_ready][:num_returns]
    return [refs[index] for index in chosen], [
        ref for index, ref in enumerate(refs) if index not in chosen
    ]


def get_other(refs: Any, timeout: float | None) -> Any:
    """get for what is neither an ObjectRef nor a list of them."""
    if isinstance(refs, ObjectRef):
        return _core.get([refs], timeout=timeout)[0]
    if isinstance(refs, tuple):
        return _core.get(list(refs), timeout=timeout)
    if isinstance(refs, ObjectRefGenerator):
        return refs  # As in Ray: it gives the references.
    raise ValueError(
        f"Invalid type of object refs: get takes an ObjectRef or a list of them, got {refs!r}"
    )


def future_of(ref: ObjectRef[Any]) -> concurrent.futures.Future[Any]:
    """A concurrent future that ends with the value of `ref`, or with its error."""
    import concurrent.futures

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def finish() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = _core.get(ref)
        except SystemExit:  # The program ends: what reads the future in its callbacks does not.
            from sheaf.exceptions import RaySystemError

            future.set_exception(RaySystemError("this program is ending, and has left the cluster"))
        except BaseException as error:
            future.set_exception(error)
            if (
                type(error) is KeyboardInterrupt
            ):  # Ctrl-C, which met the main thread here by chance.
                raise
        else:
            future.set_result(value)

    _core.on_ready(ref, finish)
    return future


class _Arrivals:
    """The futures of one event loop that wait for objects. What is ready wakes the loop by a
    descriptor, and is there when it looks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = _core.ReadyQueue()
        self._waiting: dict[int, tuple[ObjectRef[Any], asyncio.Future[Any]]] = {}
        self._last = 0
        loop.add_reader(self._queue.fileno(), self._finish)

    def settle(self, future: asyncio.Future[Any], ref: ObjectRef[Any]) -> None:
        """Ends `future` when `ref` is ready."""
        self._last += 1
        self._waiting[self._last] = ref, future
        self._queue.notify(ref, self._last)

    def _finish(self) -> None:
        for token in self._queue.take():
            ref, future = self._waiting.pop(token)
            if future.done():
                continue
            try:
                value = _core.get(ref, timeout=0)
            except StopIteration as error:  # A future refuses it.
                future.set_exception(RuntimeError(str(error)))
            except BaseException as error:
                if isinstance(error, TimeoutError) and not _core.is_ready(ref):
                    self.settle(future, ref)  # It has made way for others since.
                    continue
                future.set_exception(error)
                if (
                    type(error) is KeyboardInterrupt
                ):  # Ctrl-C, where asyncio.run does not look after it.
                    raise
            else:
                future.set_result(value)


_arrivals: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Arrivals] | None = None


def asyncio_future_of(ref: ObjectRef[Any]) -> asyncio.Future[Any]:
    """A future of the running event loop that ends with the value of `ref`, or with its error."""
    import asyncio

    global _arrivals
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    if _arrivals is None:
        import weakref

        _arrivals = weakref.WeakKeyDictionary()
    arrivals = _arrivals.get(loop)
    if arrivals is None:
        # Futures that were given up keep their loop, and what they waited for, until it arrives.
        for closed in [known for known in _arrivals if known.is_closed()]:
            del _arrivals[closed]
        arrivals = _arrivals[loop] = _Arrivals(loop)
    arrivals.settle(future, ref)
    return future


def await_reference(ref: ObjectRef[Any]) -> Generator[Any, None, Any]:
    """`await ref`: its value."""
    return asyncio_future_of(ref).__await__()


_SLICE_S = 0.05  # How long a thread waits on for an item that nobody waits for any more.


class ObjectRefGenerator(ray_attributes.OfGenerator):
    """The items of a generator that runs in another process, as ObjectRefs, in order.

    `for ref in items` and `async for ref in items` give them while the generator runs. An error of
    the generator is its last item: getting that raises it. Stays in the process that made the call.
    One thread, or one task of asyncio, takes items at a time.

    Args:
        stream: the reference that is ready when the generator has ended.
    """

    def __init__(self, stream: ObjectRef[Any]) -> None:
        self._stream = stream
        self._ahead: ObjectRef[Any] | None = None
        self._ended = False
        self._awaits = _thread.allocate_lock()  # Held by the one that waits for an asyncio program.

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> ObjectRef[Any]:
        return self._next_sync(None)

    def _next_sync(self, timeout: float | None = None) -> ObjectRef[Any]:
        """The next item, waiting `timeout` seconds at most (GetTimeoutError); StopIteration at the
        end."""
        ref, self._ahead = self._ahead, None
        if ref is not None:
            return ref
        ref = None if self._ended else _core.next_item(self._stream, timeout)
        if ref is None:
            self._ended = True
            raise StopIteration
        return ref

    def _await_next(self, timeout: float) -> bool:
        """Waits `timeout` seconds at most for the next item, which stays the next one, or the end;
        whether it came."""
        if self._ahead is None and not self._ended:
            try:
                self._ahead = self._next_sync(timeout)
            except StopIteration:
                pass
            except TimeoutError:
                return False
        return True

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> ObjectRef[Any]:
        import asyncio

        if not self._is_there_now():
            await self._next_is_there(asyncio.get_running_loop())
        try:
            return self._next_sync(None)
        except StopIteration:
            raise StopAsyncIteration from None

    def _is_there_now(self) -> bool:
        if not self._awaits.acquire(blocking=False):
            return False
        try:
            return self._await_next(0)
        finally:
            self._awaits.release()

    async def _next_is_there(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread that ends soon when nobody waits any more; what came until then is the next
        item still."""
        import threading

        there, given_up = loop.create_future(), threading.Event()

        def settle(error: BaseException | None) -> None:
            if not there.done():
                there.set_result(None) if error is None else there.set_exception(error)

        def wait() -> None:
            error: BaseException | None = None
            try:
                with self._awaits:  # A task that was cancelled may have left it a moment ago.
                    while not given_up.is_set() and not self._await_next(_SLICE_S):
                        pass
            except BaseException as caught:
                error = caught
            try:
                loop.call_soon_threadsafe(settle, error)
            except RuntimeError:
                pass  # The loop is closed: nobody waits.

        threading.Thread(target=wait, name="sheaf-items", daemon=True).start()
        try:
            await there
        finally:
            given_up.set()

    def next_ready(self) -> bool:
        """Returns whether next() gives an item, or ends for the first time, without waiting."""
        return not self._ended and self._await_next(0)

    def completed(self) -> ObjectRef[None]:
        """Returns a reference that is ready when the generator has ended."""
        return self._stream

    def is_finished(self) -> bool:
        """Returns whether the generator has ended and all its items have been taken."""
        return self._await_next(0) and self._ended

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._stream.hex()})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "an ObjectRefGenerator stays in the process that made the call; pass "
            "the ObjectRefs of its items"
        )


class DynamicObjectRefGenerator:
    """The value of a call with num_returns="dynamic": an iterable of the ObjectRefs of all items of
    a generator that has ended.

    Args:
        refs: of its items, in order.
    """

    def __init__(self, refs: list[ObjectRef[Any]]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[ObjectRef[Any]]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def wrap_stream(stream: ObjectRef[Any]) -> ObjectRefGenerator:
    """What a call of a generator gives."""
    return ObjectRefGenerator(stream)

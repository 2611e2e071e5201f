# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Operations of torch.distributed under way, and their futures, for the backend of sheaf.torch."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as distributed

_Tensors = list[Any]
_Base: Any = (
    getattr(distributed, "Work", None)
    or getattr(distributed, "_Work", None)
    or torch._C._distributed_c10d.Work
)


class Work(_Base):  # type: ignore[misc]
    """An operation under way. `finish` brings its result where it belongs, once."""

    def __init__(
        self,
        started: list[Any],
        outputs: _Tensors,
        futures: Futures,
        finish: Callable[[], None] | None = None,
    ):
        super().__init__()
        futures.keep(self)
        self._started, self._outputs, self._futures, self._finish = (
            started,
            outputs,
            futures,
            finish,
        )
        self._lock = threading.Lock()
        self._future: Any = None
        self._over = False

    def wait(self, timeout: Any = None) -> bool:
        """Until it is done. Raises CollectiveError."""
        with self._lock:
            if self._over:
                return True
            for started in self._started:
                started.wait()  # Bounded by the timeout of the operation.
            if self._finish is not None:
                self._finish()
            self._over = True
        return True

    def is_completed(self) -> bool:
        """Whether wait would return at once."""
        return self._over or all(started.done() for started in self._started)

    def is_success(self) -> bool:
        """Whether it is done well."""
        return self._over

    def result(self) -> _Tensors:
        """The tensors that it filled."""
        return self._outputs

    def synchronize(self) -> None:
        """The same as wait: there is no device to wait for."""
        self.wait()

    def get_future(self) -> Any:
        """A torch.futures.Future of the tensors."""
        if self._future is None:
            self._future = self._futures.of(self, self._outputs)
        return self._future


class Futures:
    """Sets the futures of operations when they are done, in their order, from one thread.

    Keeps the last operations alive: torch's C++ holds only its own half of a Work, which without
    the other would wait for ever. It asks each for its future, or waits for it, before it starts
    more than two others.
    """

    def __init__(self) -> None:
        self._last: collections.deque[Work] = collections.deque(maxlen=16)
        self._pending: queue.SimpleQueue[tuple[Any, Any, Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def keep(self, work: Work) -> None:
        self._last.append(work)

    def of(self, work: Any, value: Any) -> Any:
        """A torch.futures.Future that has this value, or an exception, when the operation is
        done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sheaf-torch", daemon=True)
            self._thread.start()
        future: Any = torch.futures.Future()
        self._pending.put((work, future, value))
        return future

    def close(self) -> None:
        self._pending.put(None)

    def _run(self) -> None:
        while (pending := self._pending.get()) is not None:
            work, future, value = pending
            try:
                work.wait()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(value)
            del pending, work, future, value  # Nothing is kept while this waits for more.


def all_of(works: list[Work], futures: Futures) -> Work:
    return Work(
        [_Nested(work) for work in works],
        [tensor for work in works for tensor in work.result()],
        futures,
    )


class _Nested:
    """A work in the place of what a group has started."""

    def __init__(self, work: Work):
        self.wait, self.done = work.wait, work.is_completed

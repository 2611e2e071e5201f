# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""An execution that goes on while its consumer does other things."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from sheaf.data.operators import Bundle
from sheaf.data.shell import Execution

_TURN_S = 0.005  # For which it waits when its consumer has not taken what is ready.


class InBackground:
    """An execution that a thread drives while its consumer does other things. It ends when nobody
    refers to this any more, too: an interrupt may come at any time, also while this is made.

    Args:
        execution: it; nobody else touches it from now on.
    """

    def __init__(self, execution: Execution) -> None:
        self._driver = _Driver(execution)
        try:
            self._driver.thread.start()
        except BaseException:  # An interrupt: the thread may run, or not.
            self._driver.stop()
            raise

    def __iter__(self) -> Iterator[Bundle]:
        return self

    def __next__(self) -> Bundle:
        return self._driver.next()

    def close(self) -> None:
        """Ends the execution and its thread. May be called again."""
        self._driver.stop()
        self._driver.thread.join(2.0)

    def __del__(self) -> None:
        if driver := getattr(self, "_driver", None):
            driver.stopped = True


class _Driver:
    """Of one execution. Its thread refers to this, and not to what the consumer has."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._ready: list[Bundle] = []
        self._error: BaseException | None = None
        self._begun = self._finished = self.stopped = False
        self._wants = 1
        self.thread = threading.Thread(target=self._drive, name="sheaf-data", daemon=True)

    def _drive(self) -> None:
        with self._turn:
            if self._begun:
                return
            self._begun = True
        try:
            while not self.stopped:
                with self._turn:
                    if self._execution.is_finished():
                        break
                    if self._execution.has_output() and len(self._ready) < self._wants:
                        self._ready.append(next(self._execution))
                        self._turn.notify_all()
                        continue
                    if self._execution.has_output():
                        self._turn.wait(_TURN_S)
                self._execution.advance()
        except BaseException as error:
            self._error = error
        finally:
            self._execution.close()
            with self._turn:
                self._finished = True
                self._turn.notify_all()

    def next(self) -> Bundle:
        """The next one. StopIteration: there is none, or stop has been called."""
        with self._turn:
            while not self._ready and not self._finished and not self.stopped:
                self._turn.wait(1.0)
            if self.stopped:
                raise StopIteration
            if self._ready:
                bundle = self._ready.pop(0)
                self._turn.notify_all()
                return bundle
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopIteration

    def stop(self) -> None:
        """Asks the thread to end the execution; ends it here when the thread does not run yet."""
        self.stopped = True
        with self._turn:
            begun, self._begun = self._begun, True
            self._turn.notify_all()
        if not begun:
            self._execution.close()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A worker of a training group: an actor that runs a loop in one thread and answers the driver in
others."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import sheaf
from sheaf.air import session as air_session
from sheaf.train import context
from sheaf.train.backend import BackendConfig
from sheaf.train.errors import LoopStopped

CONTROL = "control"
CONTROL_THREADS = 3  # One waits for reports; the others start, stop and acknowledge.


class TrainWorker:
    """One process of the group; it outlives the epochs in which it runs loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: context.Session | None = None
        self._backend = BackendConfig()
        self._thread: int | None = None  # That of user code, while it runs.

    @sheaf.method(concurrency_group=CONTROL)
    def describe(self) -> dict[str, Any]:
        """Where it is."""
        here = sheaf.get_runtime_context()
        return {"node": here.get_node_id(), "pid": os.getpid(), "process": here.get_worker_id()}

    @sheaf.method(concurrency_group=CONTROL)
    def free_port(self) -> int:
        """A TCP port of this node that nobody has now."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port

    @sheaf.method(concurrency_group=CONTROL)
    def prepare(self, start: context.Start, backend: BackendConfig) -> None:
        """Makes the session of an epoch, so that `take` may follow at once. `backend`: what is made
        ready around its loop."""
        session = context.Session(start)
        with self._lock:
            self._session = session
            self._backend = backend
        air_session.set_session(session)

    def run(self, loop: Callable[..., Any], config: dict[str, Any] | None, prepared: None) -> bool:
        """Runs the loop to its end. False: it was stopped. Raises what the loop raises. `prepared`:
        the result of prepare."""
        with self._lock:
            session, backend = self._session, self._backend
        assert session is not None
        told = context.TrainContext(session)
        ended = False
        try:
            try:
                self._enter(session)
                backend.on_start(told)
                loop() if config is None else loop(config)
                ended = True
            finally:
                self._leave()
                air_session.run_endings(failed=not ended)
                backend.on_end(told)
            return True
        except LoopStopped:
            return False
        except BaseException:
            if session.stopped:
                return False  # What a wait raises whose group is being taken apart.
            raise
        finally:
            session.end()

    def _enter(self, session: context.Session) -> None:
        with self._lock:
            if session.stopped:
                raise LoopStopped
            self._thread = threading.get_ident()

    def _leave(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:  # One that has not arrived yet would hit the code behind.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    @sheaf.method(concurrency_group=CONTROL)
    def take(
        self, epoch: int, timeout_s: float, prepared: None = None
    ) -> tuple[list[context.Report], bool]:
        """The reports that nobody has taken, and whether the loop has ended; waits until there is
        something."""
        session = self._of(epoch)
        if session is None:
            raise RuntimeError(f"this worker knows no epoch {epoch}")
        return session.take(timeout_s)

    @sheaf.method(concurrency_group=CONTROL)
    def commit(self, epoch: int, number: int, checkpoint: Any, metrics: dict[str, Any]) -> None:
        """All reports up to this one are recorded."""
        session = self._of(epoch)
        if session:
            session.commit(number, checkpoint, metrics)

    @sheaf.method(concurrency_group=CONTROL)
    def stop(self, epoch: int) -> None:
        """Interrupts the loop: in report, between two lines of Python, or in a wait that the
        backend can end."""
        with self._lock:
            session, backend = self._of(epoch), self._backend
        if session is None:
            return
        session.stop()  # Also what waits in the group for collectives.
        backend.on_stop(context.TrainContext(session))
        with self._lock:
            if self._thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(LoopStopped)
                )

    def _of(self, epoch: int) -> context.Session | None:
        session = self._session
        return session if session is not None and session.start.epoch == epoch else None

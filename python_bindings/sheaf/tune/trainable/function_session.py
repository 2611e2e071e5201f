# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A function that runs in a trial: its reports on their way to the driver, and what it asks."""

from __future__ import annotations

import collections
import contextlib
import inspect
import numbers
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.trainable.checkpoint_writer import CheckpointWriter
from sheaf.tune.trainable.messages import Batch, Row, TrialSpec

_MOST_UNREAD = 1000  # Reports that the driver has not fetched; further ones wait.
_TOGETHER_S = 0.02  # Reports that nobody waits for are fetched together.


class TrialStopped(BaseException):
    """Raised inside a function whose trial is over. Not an Exception, so that functions do not
    catch it."""


class FunctionSession:
    """One run of the function. Thread-safe: the function calls `report` from any thread of the
    process, the actor's thread all else."""

    def __init__(
        self, spec: TrialSpec, function: Callable[..., Any], checkpoint: Checkpoint | None
    ):
        self.spec = spec
        self._checkpoint = checkpoint
        self._writer = CheckpointWriter(spec.filesystem, spec.path, spec.first_checkpoint)
        self._iteration, self._total_s = spec.iteration, spec.time_total_s
        self._last = time.time()
        self._rows: collections.deque[Row] = collections.deque()
        self._allowed = 0  # Of a trial that is decided upon: reports that may be made yet.
        self._made = self._given = self._known = 0  # Reports: all, given to the driver, by its
        # next call known to have reached it.
        self._urgent = False  # A report waits for the driver.
        self._changed = threading.Condition()
        self._stopped = self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(function,), name="trial", daemon=True
        )
        self._reporting = threading.Lock()  # One report at a time has its turn.

    # The function's side.

    def _run(self, function: Callable[..., Any]) -> None:
        error = None
        try:
            self._take_output(function(self.spec.config))
        except TrialStopped:
            pass
        except BaseException as raised:  # Also SystemExit: the driver is told.
            error = raised
        try:
            session.run_endings(failed=error is not None)
        except Exception as raised:
            error = error or raised
        with self._changed:
            self._error = None if self._stopped else error
            self._ended = True
            self._changed.notify_all()

    def _take_output(self, output: Any) -> None:
        """Reports what the function has returned or yielded. ValueError: it is no result."""
        if output is None or isinstance(output, (bool, Mapping)) and not output:
            return  # As Ray, which has no row for False and {} either.
        if inspect.isgenerator(output):
            with contextlib.closing(output):
                for one in output:
                    self._take_output(one)
            return
        if isinstance(output, Mapping):
            self.report(session.snapshot(dict(output)), None, None, False)
        elif isinstance(output, numbers.Real):  # NumPy's, too.
            self.report({fields.DEFAULT_METRIC: output}, None, None, False)
        else:
            if inspect.iscoroutine(output):
                output.close()
            raise ValueError(
                f"the function of the trial gave {output!r}: want None, a number or a dict, or a "
                "generator of such; an async function cannot be a trial"
            )

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, delete: bool
    ) -> None:
        """See sheaf.tune.report."""
        with self._reporting:
            if self._stopped:
                raise TrialStopped
            self._iteration += 1
            written = None
            if checkpoint is not None:
                written = self._keep(checkpoint, name, metrics, delete)
            now = time.time()
            spent, self._last = now - self._last, now
            self._total_s += spent
            self._hand_over(Row(metrics, now, spent, written))

    def _keep(
        self, checkpoint: Checkpoint, name: str | None, metrics: dict[str, Any], delete: bool
    ) -> tuple[str, int]:
        known = {
            **metrics,
            fields.TRAINING_ITERATION: self._iteration,
            fields.TIME_TOTAL_S: self._total_s + time.time() - self._last,
        }
        with checkpoint.as_directory() as local:
            written = self._writer.write(local, name, self._iteration, known)
        if delete:
            import shutil

            shutil.rmtree(checkpoint.path, ignore_errors=True)
        self._checkpoint = Checkpoint(f"{self.spec.path}/{written[0]}", self.spec.filesystem)
        return written

    def _hand_over(self, row: Row) -> None:
        last = not self.spec.decided and is_last(
            self.spec.stop, row.metrics, self._iteration, self._total_s
        )
        with self._changed:
            self._rows.append(row)
            self._made += 1
            number = self._made
            self._urgent = self._urgent or row.checkpoint is not None
            if len(self._rows) == 1 or last or self._urgent:
                self._changed.notify_all()
            if last:
                self._stopped = True
                raise TrialStopped
            if self.spec.decided:
                self._allowed -= 1
                while self._allowed < 0 and not self._stopped:
                    self._changed.wait()
            else:
                # With a checkpoint it is a barrier: whatever becomes of this process, the driver
                # knows the checkpoint when it returns.
                while not self._stopped and (
                    len(self._rows) > _MOST_UNREAD
                    or row.checkpoint is not None
                    and self._known < number
                ):
                    self._changed.wait()
            if self._stopped:
                raise TrialStopped

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest one, to go on from."""
        return self._checkpoint

    def context(self) -> Any:
        """See sheaf.tune.get_context."""
        from sheaf.tune.context import TuneContext

        return TuneContext(self.spec)

    def dataset_shard(self, name: str) -> Any:
        """A trial has no datasets: RuntimeError."""
        raise RuntimeError(
            f"get_dataset_shard({name!r}): a trial has no datasets; give them to its function by "
            "sheaf.tune.with_parameters"
        )

    # The driver's side.

    def begin(self) -> Batch:
        """Starts the function; as take."""
        self._thread.start()
        return self._gather()

    def take(self) -> Batch:
        """The reports since the last take; the function goes on. Waits until there is something.
        Raises what the function raised, behind its last reports."""
        with self._changed:
            self._allowed += 1
            self._known = self._given
            self._changed.notify_all()
        return self._gather()

    def _gather(self) -> Batch:
        with self._changed:
            while not self._rows and not self._ended:
                self._changed.wait()
            if not self.spec.decided:
                until = time.monotonic() + _TOGETHER_S
                while not self._ended and not self._urgent and len(self._rows) < _MOST_UNREAD:
                    left = until - time.monotonic()
                    if left <= 0:
                        break
                    self._changed.wait(left)
            self._urgent = False
            rows = list(self._rows)
            self._given += len(rows)
            self._rows.clear()
            self._changed.notify_all()
            if self._error is not None and not rows:
                raise self._error
            return Batch(rows, self._ended and self._error is None)

    def save(self) -> tuple[str, int] | None:
        """A function saves what it reports, and nothing else."""
        return None

    def stop(self, timeout_s: float) -> bool:
        """Ends the function: its next report, or the one that waits, raises TrialStopped. False: it
        still runs."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def is_last(
    stop: Mapping[str, float], metrics: dict[str, Any], iteration: int, total_s: float
) -> bool:
    """Whether a result meets a criterion, or says itself that it is the last."""
    if metrics.get(fields.DONE):
        return True
    if not stop:
        return False
    known = {fields.TRAINING_ITERATION: iteration, fields.TIME_TOTAL_S: total_s, **flatten(metrics)}
    return any(name in known and known[name] >= bound for name, bound in stop.items())

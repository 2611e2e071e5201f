# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A Trainable that runs in a trial, in the actor's thread."""

from __future__ import annotations

import time
from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune import result as fields
from sheaf.tune.trainable.checkpoint_writer import CheckpointWriter
from sheaf.tune.trainable.function_session import is_last
from sheaf.tune.trainable.messages import Batch, Row, TrialSpec
from sheaf.tune.trainable.trainable import Trainable

_TOGETHER_S = 0.02  # Results that nobody waits for are fetched together.
_MOST_TOGETHER = 1000


class ClassSession:
    """One run of a Trainable."""

    def __init__(
        self,
        spec: TrialSpec,
        kind: type[Trainable],
        checkpoint: Checkpoint | None,
        used: Trainable | None = None,
    ):
        self.spec = spec
        self._writer = CheckpointWriter(spec.filesystem, spec.path, spec.first_checkpoint)
        self._checkpoint = checkpoint
        self._ended = False
        self._error: BaseException | None = None  # Raised behind the results before it.
        self._saved_at = -1
        if used is not None and used.reset(spec.config):
            self.trainable = used
            used._spec = spec
        else:
            if used is not None:
                used.stop()
            self.trainable = _make(kind, spec)
        if checkpoint is not None:
            self.trainable.restore(checkpoint)
        self.trainable._iteration = spec.iteration
        self.trainable._time_total = spec.time_total_s

    def begin(self) -> Batch:
        """The first steps; as take."""
        return self.take()

    def take(self) -> Batch:
        """The results of the next steps: one where the driver decides, else all of a moment. Raises
        what a step raises, behind the results of those before."""
        if self._error is not None:
            raise self._error
        rows: list[Row] = []
        until = time.monotonic() + (0 if self.spec.decided else _TOGETHER_S)
        while not self._ended:
            try:
                rows.append(self._step())
            except BaseException as error:
                if not rows:
                    raise
                self._error = error
                break
            if time.monotonic() >= until or len(rows) >= _MOST_TOGETHER:
                break
        return Batch(rows, self._ended)

    def _step(self) -> Row:
        began = time.time()
        result = session.snapshot(self.trainable.train())
        now = time.time()
        spent = result.pop(fields.TIME_THIS_ITER_S, None) or now - began
        if result.get(fields.TRAINING_ITERATION) == self.trainable._iteration:
            del result[fields.TRAINING_ITERATION]  # The driver counts as well.
        self.trainable._time_total += spent
        iteration, spec = self.trainable._iteration, self.spec
        self._ended = is_last(spec.stop, result, iteration, self.trainable._time_total)
        due = spec.checkpoint_frequency and iteration % spec.checkpoint_frequency == 0
        at_end = self._ended and spec.checkpoint_at_end
        written = None
        if due or at_end or result.get(fields.SHOULD_CHECKPOINT):
            written = self.save(result)
        return Row(result, now, spent, written)

    def save(self, result: dict[str, Any] | None = None) -> tuple[str, int] | None:
        """Saves now; gives the name and number of the checkpoint. None: this step has been saved
        already."""
        iteration = self.trainable._iteration
        if iteration == self._saved_at:
            return None
        known = {
            **(result or {}),
            fields.TRAINING_ITERATION: iteration,
            fields.TIME_TOTAL_S: self.trainable._time_total,
        }
        import tempfile  # It takes as long as a short trial.

        with tempfile.TemporaryDirectory(prefix="sheaf-checkpoint-") as folder:
            self.trainable.save(folder)
            written = self._writer.write(folder, None, iteration, known)
        self._saved_at = iteration
        return written

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What it went on from."""
        return self._checkpoint

    def report(
        self, metrics: dict[str, Any], checkpoint: Checkpoint | None, name: str | None, delete: bool
    ) -> None:
        """A Trainable returns its results: RuntimeError."""
        raise RuntimeError("report() is for functions: a Trainable returns its result from step()")

    def context(self) -> Any:
        """See sheaf.tune.get_context."""
        from sheaf.tune.context import TuneContext

        return TuneContext(self.spec)

    def dataset_shard(self, name: str) -> Any:
        """A trial has no datasets: RuntimeError."""
        raise RuntimeError(f"get_dataset_shard({name!r}): a trial has no datasets")

    def stop(self, timeout_s: float) -> bool:
        """Ends it, except where it may be used again. Always True: no step runs now."""
        return True


def _make(kind: type[Trainable], spec: TrialSpec) -> Trainable:
    """setup may ask for the trial's name, so the trainable has its spec before."""
    made = kind.__new__(kind)
    made._spec = spec
    made.__init__(dict(spec.config))  # type: ignore[misc]
    return made

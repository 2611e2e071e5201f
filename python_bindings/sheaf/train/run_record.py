# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What others see of a training run while it goes on and afterwards: `sheaf list train-runs`, the
dashboard, sheaf.util.state.list_train_runs. All of it is bounded, however long a run is and
whatever it reports."""

from __future__ import annotations

import collections
import json
import math
import numbers
import reprlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import sheaf
from sheaf.air.rows import flatten
from sheaf.train.run_metrics import RunMetrics
from sheaf.util import train_run_store as store

if TYPE_CHECKING:
    from types import TracebackType

    from sheaf.air.checkpoint import Checkpoint
    from sheaf.train.worker_group import Worker

_MOST_METRICS = 16  # Of the last report.
_MOST_RANKS = 512
_MOST_ATTEMPTS = 50  # The last ones.
_MOST_EVENTS = 100
_MOST_LINES = 8  # Metrics that are kept by step.
_MOST_POINTS = 100  # Of each.
_OF_RUN = ("training_iteration", "timestamp", "time_total_s")  # Each row has them.


class RunRecord:
    """Of one run, which is within the context. Used by the driver's thread.

    Args:
        name: of the run.
        path: its folder.
    """

    def __init__(self, name: str, path: str):
        self._lock = threading.Lock()  # Against the thread that writes.
        self._writer: store.Writer | None = None
        self._why = ""
        self._last: dict[str, Any] = {}
        self._ranks: list[dict[str, Any]] = []
        self._attempts: collections.deque[dict[str, Any]] = collections.deque(maxlen=_MOST_ATTEMPTS)
        self._events: collections.deque[dict[str, Any]] = collections.deque(maxlen=_MOST_EVENTS)
        self._series = Series()
        self._metrics = RunMetrics(_cut(name, 200))
        self._run: dict[str, Any] = {
            "name": _cut(name, 200),
            "path": _cut(path, 1000),
            "state": "RUNNING",
            "job": 0,
            "driver": "",
            "workers": 0,
            "attempts": 0,
            "steps": 0,
            "start_ms": 0,
            "end_ms": None,
            "reported_ms": None,
            "checkpoint": None,
            "checkpoint_step": None,
            "message": "",
        }

    def __enter__(self) -> RunRecord:
        here = sheaf.get_runtime_context()
        start = time.time()
        self._run["job"] = int(here.get_job_id(), 16)
        self._run["driver"] = _process(here.get_worker_id())
        self._run["start_ms"] = int(start * 1000)
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(start))
        run_id = f"{when}-{int(start * 1000) % 1000:03d}-{uuid.uuid4().hex[:6]}"
        self._writer = store.Writer(run_id, self._pages)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with self._lock:
            self._run["end_ms"] = round(time.time() * 1000)
            if error is None:
                self._run["state"] = "FINISHED"
            else:
                self._run["state"] = "ERRORED" if isinstance(error, Exception) else "ABORTED"
                self._run["message"] = _cut(f"{type(error).__name__}: {error}", 1000)
        self._metrics.apart()
        assert self._writer is not None
        self._writer.close()

    def parts(self, why: str) -> None:
        """The group is taken apart, to be formed anew."""
        self._why = _cut(why, 400)
        self._metrics.apart()
        self._changed(soon=True)  # The driver may be the next to go.

    def formed(self, number: int, workers: list[Worker], kept: int, steps: int) -> None:
        """The group was formed, `number` times before, and goes on behind `steps` steps."""
        ranks = [
            {
                "rank": rank,
                "process": _process(worker.process),
                "pid": worker.pid,
                "actor_id": worker.actor,
            }
            for rank, worker in enumerate(workers[:_MOST_RANKS])
        ]
        self._metrics.formed(len(workers))
        attempt = {
            "attempt": number + 1,
            "start_ms": round(time.time() * 1000),
            "workers": len(workers),
            "kept": kept,
            "from_step": steps,
            "why": self._why,
        }
        with self._lock:
            self._ranks = ranks
            self._attempts.append(attempt)
            self._run.update(workers=len(workers), attempts=number + 1, steps=steps)
            self._series.cut(steps)
        self._changed(soon=True)

    def happened(self, text: str, step: int) -> None:
        """Something worth a line."""
        event = {"time_ms": round(time.time() * 1000), "step": step, "text": _cut(text, 400)}
        with self._lock:
            self._events.append(event)
        self._changed()

    def reported(self, step: int, row: dict[str, Any], checkpoint: Checkpoint | None) -> None:
        """A step was recorded, the `step`th from 1."""
        self._metrics.step()
        now = round(time.time() * 1000)
        with self._lock:
            first = self._run["reported_ms"] is None
            self._last = row
            self._run.update(steps=step, reported_ms=now)
            if checkpoint is not None:
                self._run.update(checkpoint=_cut(checkpoint.path, 1000), checkpoint_step=step)
            self._series.add(step, now, row)
        self._changed(soon=first)

    def _changed(self, soon: bool = False) -> None:
        if self._writer is not None:
            self._writer.changed(soon)

    def _pages(self) -> dict[str, bytes]:
        """In the thread that writes."""
        with self._lock:
            run, last, ranks = dict(self._run), dict(self._last), self._ranks
            history = {
                "attempts": list(self._attempts),
                "events": list(self._events),
                "series": self._series.as_json(),
            }
        shown = [item for item in flatten(last).items() if item[0] not in _OF_RUN]
        run["metrics"] = {_cut(name, 80): _value(value) for name, value in shown[:_MOST_METRICS]}
        group = {"ranks": ranks, "left_out": run["workers"] - len(ranks)}
        pages = ((store.RUN, run), (store.GROUP, group), (store.HISTORY, history))
        return {kind: json.dumps(page).encode() for kind, page in pages}


class Series:
    """Metrics by step: the first ones that are numbers. When there are too many points each second
    one goes, and from then on each second step is kept."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._points: list[tuple[int, int, dict[str, float]]] = []  # Step, time in ms, values.
        self._stride = 1

    def add(self, step: int, now_ms: int, row: dict[str, Any]) -> None:
        """The `step`th step, from 1; steps only grow, but for `cut`."""
        if (step - 1) % self._stride:
            return
        values = {}
        for name, value in flatten(row).items():
            if name in _OF_RUN or not _is_number(value):
                continue
            if name not in self._names:
                if len(self._names) == _MOST_LINES:
                    continue
                self._names.append(name)
            values[name] = float(value)
        self._points.append((step, now_ms, values))
        if len(self._points) > _MOST_POINTS:
            self._stride *= 2
            self._points = [one for one in self._points if (one[0] - 1) % self._stride == 0]

    def cut(self, steps: int) -> None:
        """Forgets what is behind `steps` steps: they are made again."""
        self._points = [one for one in self._points if one[0] <= steps]

    def as_json(self) -> dict[str, Any]:
        """Columns: steps, times, and values or None by name."""
        return {
            "steps": [one[0] for one in self._points],
            "time_ms": [one[1] for one in self._points],
            "metrics": {
                _cut(name, 80): [one[2].get(name) for one in self._points] for name in self._names
            },
        }


def _is_number(value: Any) -> bool:
    """That JSON can carry."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value) and abs(value) < 1e300
    except (ArithmeticError, ValueError, TypeError):  # 10**400, or a type of somebody's own.
        return False


def _value(value: Any) -> Any:
    """Of a metric: a number as it is, else a short text."""
    if isinstance(value, bool):
        return value
    if _is_number(value):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return _cut(value if isinstance(value, str) else reprlib.repr(value), 80)


def _cut(text: Any, most: int) -> str:
    """Text that JSON can carry, too: names may be of any type, and lone surrogates are no text."""
    text = str(text).encode("utf-8", "replace").decode()
    return text if len(text) <= most else text[: most - 1] + "…"


def _process(worker_id: str) -> str:
    """ "3.17" of "0000000300000011"."""
    return f"{int(worker_id[:8], 16)}.{int(worker_id[8:], 16)}" if worker_id else ""

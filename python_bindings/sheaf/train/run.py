# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One training run, in the driver: forms the group, collects reports, and forms it anew when a
worker or node is lost.

A step is recorded when all workers have reported it, so what is recorded has no gaps; when the
group goes on from a checkpoint, what was recorded behind it is cut off first, so nothing is there
twice.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable
from typing import Any

import sheaf
from sheaf.air.callbacks import RunContext
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import RunConfig, ScalingConfig
from sheaf.air.result import Event, Result
from sheaf.exceptions import RayError, RayTaskError
from sheaf.train import datasets
from sheaf.train.backend import BackendConfig
from sheaf.train.context import Report, Start, Storage
from sheaf.train.datasets import DataConfig
from sheaf.train.errors import TrainingFailedError
from sheaf.train.progress_line import ProgressLine
from sheaf.train.run_files import RunFiles
from sheaf.train.run_record import RunRecord
from sheaf.train.worker_group import Worker, WorkerGroup
from sheaf.util.collective import CollectiveError

_POLL_S = 1.0
_STOP_S = (
    3.0  # How long a healthy worker may take to leave its loop; then its process is ended too.
)
_STALL_S = 30.0  # A step with a checkpoint that not all have reported is worth a word then.


@dataclasses.dataclass
class Plan:
    """What a trainer was given."""

    loop: Callable[..., Any]
    config: dict[str, Any] | None  # None: the loop takes no argument.
    scaling: ScalingConfig
    run: RunConfig
    backend: BackendConfig
    datasets: dict[str, Any]
    dataset_config: DataConfig
    metadata: dict[str, Any]
    resume_from: Checkpoint | None


class _Epoch:
    """The group from when it is formed until it is taken apart."""

    def __init__(self, number: int, workers: list[Worker], first_report: int):
        self.number, self.workers = number, workers
        self.loops: dict[int, Any] = {}
        self.takes: dict[Any, int] = {}  # Reference of a `take` under way -> rank.
        self.heard = dict.fromkeys(range(len(workers)), time.monotonic())
        self.running = set(range(len(workers)))
        self.finished: set[int] = set()  # Came to their end by themselves; they report no more.
        self.failures: dict[int, BaseException] = {}
        self.reports: dict[int, dict[int, Report]] = {}  # By number and rank.
        self.next_report = first_report
        self.said = dict.fromkeys(
            range(len(workers)), first_report
        )  # How many reports each has made.
        self.began = time.monotonic()
        self.stalled_since: float | None = None

    def take(self, rank: int) -> None:
        self.takes[self.workers[rank].handle.take.remote(self.number, _POLL_S)] = rank


class Run:
    """Called once: `go`."""

    def __init__(self, plan: Plan, name: str, filesystem: Any, path: str):
        self._plan, self._name = plan, name
        self._storage = Storage(filesystem, path)
        self._files = RunFiles(filesystem, path, plan.run.checkpoint_config)
        self._group = WorkerGroup(plan.scaling, plan.run)
        self._about = RunContext(name, path, dict(plan.config or {}))
        self._line = ProgressLine(name, plan.run.total_reports, plan.run.progress)
        self._seen = RunRecord(name, path)
        self._events: list[Event] = []
        self._parts: dict[str, Any] = {}  # What workers read lives as long as this.
        self._begin = time.time()
        self._recovering_since: float | None = None

    def go(self) -> Result:
        """Trains to the end. TrainingFailedError: it cannot go on. Raises what callbacks and the
        storage raise."""
        with self._seen:
            return self._go()

    def _go(self) -> Result:
        self._files.open()
        self._tell("on_start", list(self._files.history))
        if self._files.history:
            self._happened(f"goes on behind step {len(self._files.history)} of a former run")
        error: BaseException | None = None
        try:
            self._train()
        except TrainingFailedError as failure:
            error = failure
            failure.result = self._result(failure)
            raise
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._group.close()
            self._files.close()
            self._line.close()
            self._tell("on_end", self._result(error))
        return self._result(None)

    def _train(self) -> None:
        shared = {name: datasets.put(data) for name, data in self._plan.datasets.items()}
        loop = sheaf.put(self._plan.loop)
        failures, number = 0, 0
        while True:
            epoch = self._start(number, loop, shared)
            finished = self._follow(epoch)
            if finished:
                return
            number += 1
            if not epoch.failures:
                continue  # It grows.
            failures += 1
            self._tell("after_exception", dict(epoch.failures))
            bound = self._plan.run.failure_config.max_failures
            if 0 <= bound < failures:
                self._give_up(epoch, bound)

    def _give_up(self, epoch: _Epoch, bound: int) -> None:
        rank = _first_cause(epoch.failures)
        cause = epoch.failures[rank]
        how = "died" if not isinstance(cause, RayTaskError) else "raised"
        last = str(cause).strip().splitlines()[-1] if str(cause).strip() else type(cause).__name__
        text = (
            f"rank {rank} of {len(epoch.workers)} {how} at step {epoch.said[rank] + 1}: {last} "
            f"(FailureConfig.max_failures={bound} allows no more)"
        )
        self._happened(text)
        raise TrainingFailedError(text, rank, cause, epoch.failures)

    def _start(self, number: int, loop: Any, shared: dict[str, Any]) -> _Epoch:
        """Forms the group and starts the loops. A worker that dies meanwhile is a failure of the
        epoch."""
        reports = self._files.rollback()
        if number:
            self._tell("after_rollback", reports)
        new = self._group.form()
        workers = list(self._group.members)
        epoch = _Epoch(number, workers, reports)
        kept, token = self._files.kept, uuid.uuid4().hex[:8]
        address = next(
            (
                row["NodeManagerAddress"]
                for row in sheaf.nodes()
                if row["NodeID"] == workers[0].node
            ),
            "127.0.0.1",
        )
        checkpoint = kept[-1].checkpoint if kept else self._plan.resume_from
        try:
            port = sheaf.get(workers[0].handle.free_port.remote(), timeout=_STOP_S * 10)
        except RayError as error:
            epoch.failures[0] = error
            return epoch
        self._parts = parts = datasets.shared(shared, len(workers), self._plan.dataset_config)
        for rank, place in enumerate(self._group.ranks()):
            start = Start(
                epoch=number,
                rank=rank,
                world_size=len(workers),
                experiment=self._name,
                storage=self._storage,
                first_report=reports,
                checkpoint=checkpoint,
                checkpoints=tuple((one.checkpoint, one.metrics) for one in kept),
                address=address,
                port=port,
                group=f"train:{self._name}:{number}:{token}",
                datasets=parts,
                metadata=self._plan.metadata,
                **place,
            )
            # Calls of one caller run in order, but in different threads: `run` and `take` come when
            # the session is there.
            start_ref = workers[rank].handle.prepare.remote(start, self._plan.backend)
            epoch.loops[rank] = workers[rank].handle.run.remote(loop, self._plan.config, start_ref)
            epoch.takes[workers[rank].handle.take.remote(number, _POLL_S, start_ref)] = rank
        nodes = len({worker.node for worker in workers})
        where = (
            f" from {_last_name(checkpoint.path)}, step {reports}"
            if checkpoint
            else " from the start"
        )
        self._happened(
            f"{len(workers)} workers on {nodes} node{'s' * (nodes > 1)} "
            f"({len(workers) - len(new)} kept, {len(new)} new) begin{where}"
        )
        self._seen.formed(number, workers, len(workers) - len(new), reports)
        return epoch

    def _follow(self, epoch: _Epoch) -> bool:
        """Until all loops have ended (True), or the group must be formed anew (False); then no loop
        runs any more."""
        while epoch.running and not epoch.failures:
            self._hear(epoch, _POLL_S)
            committed = self._commit(epoch)
            self._look_for_silence(epoch)
            if committed and not epoch.failures and epoch.running and self._shall_grow(epoch):
                grows = "there is room for more workers: the group grows"
                self._happened(grows)
                self._seen.parts(grows)
                self._take_apart(epoch)
                return False
        if not epoch.failures:
            return True
        self._recovering_since = time.monotonic()
        self._take_apart(epoch)
        self._commit(epoch)
        first = epoch.failures[_first_cause(epoch.failures)]
        for rank, error in epoch.failures.items():
            if error is not first and isinstance(error, CollectiveError):
                continue  # It says that the other is lost.
            last = (str(error).strip() or type(error).__name__).splitlines()[-1]
            kind = "raised" if isinstance(error, RayTaskError) else "is lost"
            text = f"rank {rank} (pid {epoch.workers[rank].pid}) {kind}: {last}"
            self._happened(text)
            if error is first:
                self._seen.parts(text)
        return False

    def _hear(self, epoch: _Epoch, timeout_s: float) -> None:
        """Takes what workers have to say."""
        if not epoch.takes:
            return
        ready, _ = sheaf.wait(list(epoch.takes), num_returns=1, timeout=timeout_s)
        for ref in ready:
            rank = epoch.takes.pop(ref)
            try:
                reports, ended = sheaf.get(ref)
                for report in reports:
                    epoch.reports.setdefault(report.number, {})[rank] = report
                    epoch.said[rank] = report.number + 1
                epoch.heard[rank] = time.monotonic()
                if not ended:
                    epoch.take(rank)
                    continue
                epoch.running.discard(rank)
                if sheaf.get(epoch.loops[rank], timeout=_STOP_S * 10):
                    epoch.finished.add(rank)
            except RayError as error:
                epoch.running.discard(rank)
                epoch.failures.setdefault(rank, error)

    def _commit(self, epoch: _Epoch) -> bool:
        """Records the steps that all have reported. True: one of them with a checkpoint."""
        durable = False
        while epoch.next_report in epoch.reports:
            said = epoch.reports[epoch.next_report]
            missing = [
                rank
                for rank in range(len(epoch.workers))
                if rank not in said and rank not in epoch.finished
            ]
            if missing:
                self._warn_of_stall(epoch, said, missing)
                break
            durable = self._record(epoch, said) or durable
        return durable

    def _record(self, epoch: _Epoch, said: dict[int, Report]) -> bool:
        number = epoch.next_report
        first = said[min(said)]
        now = time.time()
        row = {**first.metrics}
        for key, value in (
            ("training_iteration", number + 1),
            ("timestamp", now),
            ("time_total_s", now - self._begin),
        ):
            row.setdefault(key, value)
        temporary = next((report.temporary for report in said.values() if report.temporary), None)
        name = next((report.name for report in said.values() if report.name), None)
        checkpoint = self._files.record(row, temporary, name)
        del epoch.reports[number]
        epoch.next_report += 1
        epoch.stalled_since = None
        if checkpoint is not None:
            for rank in said:
                epoch.workers[rank].handle.commit.remote(epoch.number, number, checkpoint, row)
        if self._recovering_since is not None and epoch.number and not epoch.failures:
            self._happened(
                f"step {number + 1} is done, "
                f"{time.monotonic() - self._recovering_since:.2f} s after the loss"
            )
            self._recovering_since = None
        self._line.step(number + 1, row)
        self._seen.reported(number + 1, row, checkpoint)
        self._tell(
            "after_report", [row, *(said[rank].metrics for rank in sorted(said)[1:])], checkpoint
        )
        return checkpoint is not None

    def _warn_of_stall(self, epoch: _Epoch, said: dict[int, Report], missing: list[int]) -> None:
        if not any(report.temporary for report in said.values()):
            return
        now = time.monotonic()
        epoch.stalled_since = epoch.stalled_since or now
        if now - epoch.stalled_since > _STALL_S:
            self._happened(
                f"ranks {sorted(said)} wait in report() for ranks "
                f"{sorted(missing)}: each worker must report each step"
            )
            epoch.stalled_since = now + 1e9

    def _look_for_silence(self, epoch: _Epoch) -> None:
        bound = self._plan.run.failure_config.silence_timeout_s
        for rank in sorted(epoch.running):
            if time.monotonic() - epoch.heard[rank] > bound + _POLL_S:
                epoch.failures[rank] = TimeoutError(
                    f"no answer for {bound:g} s (FailureConfig.silence_timeout_s)"
                )
                epoch.running.discard(rank)

    def _shall_grow(self, epoch: _Epoch) -> bool:
        waited = time.monotonic() - epoch.began
        return (
            waited > self._plan.scaling.elastic_resize_monitor_interval_s and self._group.can_grow()
        )

    def _take_apart(self, epoch: _Epoch) -> None:
        """Stops the loops that run, and ends the processes that are dead or do not stop. Further
        failures are added."""
        for rank in epoch.running:
            epoch.workers[rank].handle.stop.remote(epoch.number)
        deadline = time.monotonic() + _STOP_S
        while epoch.running and (left := deadline - time.monotonic()) > 0:
            self._hear(epoch, left)
        dead = [
            rank for rank, error in epoch.failures.items() if not isinstance(error, RayTaskError)
        ]
        for rank in (*dead, *epoch.running):
            self._group.end(epoch.workers[rank])

    def _happened(self, text: str) -> None:
        self._events.append(Event(time.time(), text, len(self._files.history)))
        self._seen.happened(text, len(self._files.history))
        self._line.note(text)

    def _tell(self, what: str, *arguments: Any) -> None:
        for callback in self._plan.run.callbacks:
            getattr(callback, what)(self._about, *arguments)

    def _result(self, error: BaseException | None) -> Result:
        history, kept = self._files.history, self._files.kept
        return Result(
            metrics=history[-1] if history else None,
            checkpoint=kept[-1].checkpoint if kept else None,
            path=self._storage.path,
            error=error,
            metrics_history=list(history),
            best_checkpoints=[(one.checkpoint, one.metrics) for one in kept],
            events=list(self._events),
            filesystem=self._storage.filesystem,
        )


def _first_cause(failures: dict[int, BaseException]) -> int:
    """The rank whose failure explains the others: a death, else what a loop raised by itself, else
    what came first."""
    dead = [rank for rank, error in failures.items() if not isinstance(error, RayTaskError)]
    own = [rank for rank, error in failures.items() if not isinstance(error, CollectiveError)]
    return (dead or own or list(failures))[0]


def _last_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]

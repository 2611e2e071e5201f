# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs an experiment: carries out what the controller says, by calls of actors, and tells it what
comes back."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

import sheaf
from sheaf.air import storage
from sheaf.exceptions import RayActorError, RayError
from sheaf.tune.execution.commands import Begin, Command, Continue, Delete, End, Save, WriteError
from sheaf.tune.execution.controller import Controller
from sheaf.tune.execution.experiment_log import ExperimentLog
from sheaf.tune.execution.interrupts import Interrupts
from sheaf.tune.execution.processes import Process, Processes
from sheaf.tune.execution.result_rows import ResultRows
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.trainable.messages import Place, TrialSpec, checkpoint_of

_logger = logging.getLogger(__name__)
_TICK_S = 0.1  # How long results are waited for at most, so that the clock is looked at.
_CAPACITY_EACH_S = 1.0  # How often the cluster is asked for its size.
_LINES = 10  # Of a process that has died, of each of its logs.
_LOG_S = 2.0  # How long its node may take to give them.
_GRACE_S = 5.0  # How long a trial that shall end may go on with its step.


@dataclasses.dataclass
class Run:
    """A trial in its process. `awaited`: the call that is under way."""

    trial: Trial
    process: Process
    rows: ResultRows
    awaited: Any = None
    function_ended: bool = False


@dataclasses.dataclass
class Plan:
    """How trials run. `decided`: the scheduler or a stopper looks at each result before the trial
    goes on."""

    experiment: str
    filesystem: Any
    path: str
    is_class: bool
    decided: bool
    reuse_actors: bool
    checkpoint_frequency: int
    checkpoint_at_end: bool
    log_to_file: tuple[str, str] | None = None
    shows_errors: bool = False


class Driver:
    """Not thread-safe. tell: is called each tick, for what is shown; True: at the end."""

    def __init__(
        self,
        controller: Controller,
        processes: Processes,
        log: ExperimentLog,
        plan: Plan,
        tell: Callable[[bool], None],
    ):
        self._controller, self._processes, self._log, self._plan = controller, processes, log, plan
        self._tell = tell
        self._runs: dict[str, Run] = {}
        self._calls: dict[Any, tuple[str, Run]] = {}  # What is under way, by reference.
        self._stopping: dict[Any, float] = {}  # By reference: until when.
        self._asked_capacity = -1e9
        self._addresses: dict[str, str] = {}  # Of nodes, by id.

    def run(self) -> bool:
        """To the end; whether Ctrl-C was that. Raises TuneError for what searchers, schedulers,
        stoppers and callbacks raise, and KeyboardInterrupt; no trial runs then, and what was
        reached is in the journal."""
        with Interrupts() as interrupts:
            self._run(interrupts)
        self._tell(True)
        return interrupts.asked

    def _run(self, interrupts: Interrupts) -> None:
        try:
            goes_on = True
            while goes_on and not interrupts.asked:
                self._controller.begin_step()
                goes_on = self._step()
                self._controller.end_step()
        finally:
            self._close()

    def _step(self) -> bool:
        """Starts what can start, and hears what comes back; whether there is more to do."""
        now = time.monotonic()
        if now - self._asked_capacity >= _CAPACITY_EACH_S:
            self._look_at_cluster()
            self._asked_capacity = now
        self._controller.stop_if_told()
        self._controller.start_trials(now)
        while self._controller.commands:
            self._carry_out()  # It may free what another trial can have at once.
            self._controller.start_trials(now)
        self._log.write(self._controller)
        self._tell(False)
        if self._controller.is_finished():
            return False
        self._controller.check_progress(now)
        self._carry_out()
        self._hear()
        return True

    def _look_at_cluster(self) -> None:
        rows = [row for row in sheaf.nodes() if row["Alive"]]
        settings = self._controller.settings
        settings.nodes = [row["Resources"] for row in rows]
        capacity: dict[str, float] = collections.defaultdict(float)
        for node in settings.nodes:
            for name, amount in node.items():
                capacity[name] += amount
        settings.capacity = capacity
        self._addresses.update((row["NodeID"], row["NodeManagerAddress"]) for row in rows)

    def _address_of(self, node_id: str) -> str:
        if node_id not in self._addresses:  # It has joined a moment ago.
            self._look_at_cluster()
        return self._addresses.get(node_id, "")

    def _close(self) -> None:
        for run in self._runs.values():
            self._processes.end(run.process)
        self._runs.clear()
        self._processes.close()
        self._log.write(self._controller, last=True)

    # What the controller says.

    def _carry_out(self) -> None:
        commands = self._controller.commands
        while commands:
            command: Command = commands.popleft()
            if isinstance(command, Continue):
                run = self._runs[command.trial.trial_id]
                self._call("batch", run, run.process.handle.take.remote())
            elif isinstance(command, Begin):
                self._begin(command)
            elif isinstance(command, Save):
                run = self._runs[command.trial.trial_id]
                self._call("saved", run, run.process.handle.save.remote())
            elif isinstance(command, End):
                self._end(command.trial, command.failed)
            elif isinstance(command, Delete):
                self._log.write(self._controller, sync=True)  # Nothing names it any more.
                storage.files_of(self._plan.filesystem).remove(command.kept.checkpoint.path)
            elif isinstance(command, WriteError):
                self._log.write_error(command.trial)
                if self._plan.shows_errors:
                    _logger.error("trial %s fails: %s", command.trial, command.trial.error_text)

    def _call(self, kind: str, run: Run, ref: Any) -> None:
        run.awaited = ref
        self._calls[ref] = (kind, run)

    def _begin(self, command: Begin) -> None:
        trial, plan = command.trial, self._plan
        path = trial.path
        assert path is not None
        spec = TrialSpec(
            trial_id=trial.trial_id,
            name=trial.trial_name,
            experiment=plan.experiment,
            path=path,
            filesystem=plan.filesystem,
            config=trial.config,
            resources=trial.placement_group_factory,
            decided=plan.decided,
            stop=trial.stopping_criterion,
            checkpoint_frequency=plan.checkpoint_frequency,
            checkpoint_at_end=plan.checkpoint_at_end,
            first_checkpoint=trial.kept.next_number,
            iteration=command.iteration,
            time_total_s=command.time_total_s,
            log_to_file=plan.log_to_file,
        )
        process = self._processes.get(trial.placement_group_factory)
        rows = ResultRows(trial, command.iteration, command.time_total_s)
        run = self._runs[trial.trial_id] = Run(trial, process, rows)
        self._call("batch", run, process.handle.begin.remote(spec, command.checkpoint))

    def _end(self, trial: Trial, failed: bool) -> None:
        run = self._runs[trial.trial_id]
        if run.awaited is not None:  # What comes of it counts no more.
            del self._calls[run.awaited]
            run.awaited = None
        again = self._plan.reuse_actors
        if failed or run.function_ended and not again:
            self._free(run, keep=False)
            return
        ref = run.process.handle.stop.remote(again)
        self._call("stopped", run, ref)
        self._stopping[ref] = time.monotonic() + _GRACE_S

    def _free(self, run: Run, keep: bool) -> None:
        if keep:
            self._processes.keep(run.process)
        else:
            self._processes.end(run.process)
        del self._runs[run.trial.trial_id]
        self._controller.on_ended(run.trial)

    # What comes back.

    def _hear(self) -> None:
        if not self._calls:
            time.sleep(_TICK_S)  # The searcher has nothing now.
            return
        refs = list(self._calls)
        ready, _ = sheaf.wait(refs, num_returns=1, timeout=_TICK_S)
        if ready and len(refs) > 1:
            ready, _ = sheaf.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            if ref in self._calls:  # Another's result may have ended it.
                self._on_ready(ref)
        now = time.monotonic()
        for ref in [ref for ref, until in self._stopping.items() if now > until]:
            _, run = self._calls.pop(ref)
            del self._stopping[ref]
            self._free(run, keep=False)

    def _on_ready(self, ref: Any) -> None:
        kind, run = self._calls.pop(ref)
        run.awaited = None
        try:
            answer = sheaf.get(ref)
        except Exception as error:
            self._on_error(kind, ref, run, error)
            return
        if kind == "stopped":
            del self._stopping[ref]
            self._free(run, keep=bool(answer) and self._plan.reuse_actors)
        elif kind == "saved":
            self._on_saved(run, answer)
        else:
            self._on_batch(run, answer)

    def _on_error(self, kind: str, ref: Any, run: Run, error: BaseException) -> None:
        if kind == "stopped":
            del self._stopping[ref]
            self._free(run, keep=False)
            return
        remote = isinstance(error, RayError)  # Its text is the traceback over there.
        text = str(error) if remote else "".join(traceback.format_exception(error))
        if isinstance(error, RayActorError):
            text += _last_lines(run.rows.place)
        self._controller.on_failed(run.trial, error, text)

    def _on_saved(self, run: Run, answer: Any) -> None:
        if answer.checkpoint is None:
            self._controller.on_saved(run.trial, None, 0)
            return
        name, number = answer.checkpoint
        checkpoint = checkpoint_of(str(run.trial.path), self._plan.filesystem, name)
        self._controller.on_saved(run.trial, checkpoint, number)

    def _on_batch(self, run: Run, batch: Any) -> None:
        trial = run.trial
        if batch.place is not None:
            run.rows.at(batch.place, self._address_of(batch.place.node_id))
            self._controller.began(trial)
        run.function_ended = batch.ended and not self._plan.is_class
        results = []
        for row in batch.rows:
            result = run.rows.result(row)
            if row.checkpoint is not None:
                name, number = row.checkpoint
                checkpoint = checkpoint_of(str(trial.path), self._plan.filesystem, name)
                self._controller.on_checkpoint(trial, checkpoint, number, result)
            results.append((result, row.metrics))
        self._controller.on_batch(trial, results, batch.ended)


def _last_lines(place: Place) -> str:
    """What a process that has died has printed last; empty: nothing, or its node does not say."""
    from sheaf.util.state import get_log  # Seldom needed.

    text = ""
    for suffix in ("out", "err"):
        file = f"{os.path.splitext(place.log)[0]}.{suffix}"
        with contextlib.suppress(Exception):  # Its node may have died with it.
            lines = get_log(
                node_id=place.node_id, filename=file, tail=_LINES, timeout=_LOG_S, errors="replace"
            )
            text += "".join(f"\n{file}: {line.rstrip()}" for line in lines)
    return text

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Optuna on a cluster: a study that all processes share, and trials that run as tasks. Needs the
package optuna, from 4.0 on."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

try:
    from optuna.storages.journal import BaseJournalBackend
    from optuna.storages.journal._base import BaseJournalSnapshot  # It has no public name.
except ImportError as error:
    raise ImportError(
        f"sheaf.util.optuna needs the package optuna, from 4.0 on: pip install optuna ({error})"
    ) from error

import sheaf
from sheaf.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    WorkerCrashedError,
)

_NAMESPACE = "sheaf.util.optuna"  # Of the actors: one for all jobs, so that they find each other.
_FRESH_S = 0.1  # How long a read may be answered with what the append before it brought along.
_LOOK_S = 1.0  # How often the time limit is looked at while trials run.
_CANCEL_S = 5.0  # How long trials have to leave their objective after an interrupt.
_TASK = "sheaf_task"  # The attribute of a trial that names its task, as `sheaf why` takes it.
_ENDED = (WorkerCrashedError, NodeDiedError, OutOfMemoryError, LocalRayletDiedError)


class _JournalActor:
    """The lines of a journal, in memory. They stay text: this process needs no Optuna."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._snapshot: bytes | None = None

    def read(self, first: int) -> list[bytes]:
        return self._lines[first:]

    def append(self, lines: list[bytes], first: int) -> list[bytes]:
        """Adds lines; gives those from `first` on."""
        self._lines += lines
        return self._lines[first:]

    def save_snapshot(self, snapshot: bytes) -> None:
        self._snapshot = snapshot

    def load_snapshot(self) -> bytes | None:
        return self._snapshot


class SheafJournal(BaseJournalBackend, BaseJournalSnapshot):  # type: ignore[misc]
    """A journal for optuna.storages.JournalStorage that all processes of the cluster share.

    It lies in the memory of a detached actor: it outlives the program that made it, but not the
    node that the actor runs on. The first who uses a name makes the actor. May be sent to tasks and
    actors. Thread-safe.

    Args:
        name: of the journal, the same for all jobs of the cluster.
        timeout_s: how long a request may take.

    Raises:
        ValueError: the name is empty, or the time is not positive.
    """

    def __init__(self, name: str, timeout_s: float = 60.0):
        if not name or not isinstance(name, str):
            raise ValueError(f"name={name!r}: want the name of a journal")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s={timeout_s!r}: want seconds, more than 0")
        self.name, self._timeout_s = name, timeout_s
        self._actor: Any = None
        self._lock = threading.Lock()
        self._known = 0  # Lines that the storage of this process has read.
        self._brought: tuple[float, list[bytes]] | None = None  # What an append has brought, when.

    def __reduce__(self) -> Any:
        return SheafJournal, (self.name, self._timeout_s)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds records, all or none. What others have added comes back with the same message, for
        the read that follows.

        Args:
            logs: what JSON can hold.

        Raises:
            GetTimeoutError: the actor does not answer in time; the records may have been added.
            ActorDiedError: the actor has ended, and the journal with it.
        """
        lines = [json.dumps(one, separators=(",", ":")).encode() for one in logs]
        with self._lock:
            new = self._ask("append", lines, self._known)
            self._brought = (time.monotonic(), new)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Gives records; only those that are asked for are sent.

        Args:
            log_number_from: how many are known, counted from the first.

        Returns:
            The others, in order.

        Raises:
            GetTimeoutError: the actor does not answer in time.
            ActorDiedError: the actor has ended, and the journal with it.
        """
        with self._lock:
            brought, self._brought = self._brought, None
            fresh = brought is not None and time.monotonic() - brought[0] < _FRESH_S
            if brought is not None and fresh and log_number_from == self._known:
                new = brought[1]
            else:
                new = self._ask("read", log_number_from)
            self._known = log_number_from + len(new)
        return [json.loads(line) for line in new]

    def save_snapshot(self, snapshot: bytes) -> None:
        """Keeps what a storage has made of the records so far, for storages to come.

        Args:
            snapshot: as Optuna makes it.
        """
        with self._lock:
            self._ask("save_snapshot", snapshot)

    def load_snapshot(self) -> bytes | None:
        """Returns the last snapshot, or None."""
        with self._lock:
            found: bytes | None = self._ask("load_snapshot")
            return found

    def delete(self) -> None:
        """Ends the actor, and with it the journal and the studies in it."""
        with self._lock:
            sheaf.kill(self._handle())
            self._actor, self._known, self._brought = None, 0, None

    def _handle(self) -> Any:
        if self._actor is None:
            made = sheaf.remote(_JournalActor).options(
                name=self.name,
                namespace=_NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
            )
            self._actor = made.remote()
        return self._actor

    def _ask(self, method: str, *arguments: Any) -> Any:
        call = getattr(self._handle(), method)
        return sheaf.get(call.remote(*arguments), timeout=self._timeout_s)


@dataclasses.dataclass
class _Job:
    """What all trials of one `optimize` have in common."""

    study: Any
    objective: Callable[[Any], Any]
    catch: tuple[type[BaseException], ...]
    callbacks: tuple[Callable[[Any, Any], None], ...]


_jobs: dict[str, _Job] = {}  # Of this worker, by token: its study reads only what is new.


def _run_trial(token: str, references: list[Any]) -> bool:
    """One trial, in a task. True: the study shall stop."""
    job = _jobs.get(token)
    if job is None:
        _jobs.clear()
        job = _jobs[token] = sheaf.get(references[0])
        job.study.sampler.reseed_rng()  # All have the sampler of the same pickle.
    task = sheaf.get_runtime_context().get_task_id()

    def objective(trial: Any) -> Any:
        trial.set_user_attr(_TASK, task)
        return job.objective(trial)

    job.study.optimize(objective, n_trials=1, catch=job.catch, callbacks=job.callbacks)
    return bool(getattr(job.study, "_stop_flag", False))


class _Optimization:
    """The trials of one `optimize` that run, as tasks."""

    def __init__(self, job: _Job, task_options: dict[str, Any], max_retries: int):
        self._study, self._retries = job.study, max_retries
        self._token, self._references = uuid.uuid4().hex, [sheaf.put(job)]
        self._run = sheaf.remote(_run_trial).options(max_retries=0, **task_options)
        self._running: dict[Any, int] = {}  # By reference: how often it may be tried again.

    def __len__(self) -> int:
        return len(self._running)

    def start(self, tries: int | None = None) -> None:
        ref = self._run.remote(self._token, self._references)
        self._running[ref] = self._retries if tries is None else tries

    def hear(self, timeout_s: float) -> bool:
        """Waits until a trial is over. True: the study shall stop. Raises what an objective has
        raised, and what has ended a process for the last time."""
        ready, _ = sheaf.wait(list(self._running), num_returns=1, timeout=timeout_s)
        stop = False
        for ref in ready:
            tries = self._running.pop(ref)
            try:
                stop = sheaf.get(ref) or stop
            except _ENDED:
                self._fail({ref.task_id().hex()})
                if tries == 0:
                    raise
                self.start(tries - 1)
        return stop

    def cancel(self) -> None:
        """Ends all; their trials count as failed."""
        refs = list(self._running)
        for ref in refs:
            sheaf.cancel(ref)
        _, left = sheaf.wait(refs, num_returns=len(refs), timeout=_CANCEL_S) if refs else ([], [])
        for ref in left:
            sheaf.cancel(ref, force=True)
        self._fail({ref.task_id().hex() for ref in refs})
        self._running.clear()

    def _fail(self, tasks: set[str]) -> None:
        """The trials of these tasks that nobody will end are over."""
        from optuna.trial import TrialState

        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.user_attrs.get(_TASK) in tasks:
                self._study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def optimize(
    study: Any,
    objective: Callable[[Any], Any],
    n_trials: int | None = None,
    timeout: float | None = None,
    *,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    max_concurrent: int | None = None,
    max_retries: int = 3,
    catch: Iterable[type[BaseException]] | type[BaseException] = (),
    callbacks: Iterable[Callable[[Any, Any], None]] | None = None,
) -> None:
    """Optimizes as study.optimize does, each trial in a task somewhere on the cluster.

    The sampler of each process draws from a seed of its own: a seeded study does not propose the
    same values again. A trial whose process has ended counts as failed, and another takes its
    place.

    Args:
        study: whose storage other processes can use, as JournalStorage(SheafJournal("name")).
        objective: takes a trial and returns a value, or several.
        n_trials: how many; None: no bound.
        timeout: no trial starts after so many seconds; None: no bound.
        num_cpus: of each trial.
        num_gpus: of each trial.
        resources: more of each trial, by name.
        max_concurrent: how many run at once; None: as many as the cluster has room for.
        max_retries: how often a trial whose process has ended is replaced.
        catch: the exceptions of an objective that end its trial only.
        callbacks: called with (study, trial) after each trial, in its process. study.stop() in one,
            or in the objective, ends the study.

    Raises:
        ValueError: the study lies in the memory of this process; a number does not fit.
        Exception: what an objective has raised, unless it is caught; the other trials are
            cancelled.
        WorkerCrashedError: a trial's process has ended too often.
    """
    _check(study, n_trials, timeout, max_concurrent)
    caught = tuple(catch) if isinstance(catch, Iterable) else (catch,)
    amounts = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
    options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": dict(resources or {})}
    job = _Job(study, objective, caught, tuple(callbacks or ()))
    trials = _Optimization(job, options, max_retries)
    until = None if timeout is None else time.monotonic() + timeout
    started, stop = 0, False
    try:
        while True:
            stop = stop or until is not None and time.monotonic() >= until
            room = max_concurrent or _room(amounts)
            while not stop and len(trials) < room and (n_trials is None or started < n_trials):
                trials.start()
                started += 1
            if not trials:
                return
            stop = trials.hear(_LOOK_S) or stop
    except BaseException:
        trials.cancel()
        raise


def _check(
    study: Any, n_trials: int | None, timeout: float | None, max_concurrent: int | None
) -> None:
    from optuna.storages import InMemoryStorage

    if isinstance(study._storage, InMemoryStorage):
        raise ValueError(
            f"the study {study.study_name!r} lies in the memory of this process: make it by "
            "optuna.create_study(storage=JournalStorage(SheafJournal(NAME)))"
        )
    for name, value in (("n_trials", n_trials), ("max_concurrent", max_concurrent)):
        if value is not None and not value >= 1:
            raise ValueError(f"{name}={value!r}: want a number from 1, or None")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: want seconds, more than 0, or None")


def _room(amounts: Mapping[str, float]) -> int:
    """How many trials of these amounts the cluster has room for, one at least."""
    there = sheaf.cluster_resources()
    wanted = {name: amount for name, amount in amounts.items() if amount > 0} or {"CPU": 1}
    return max(1, int(min(there.get(name, 0) / amount for name, amount in wanted.items())))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an experiment needs to be taken up again, in its folder:

experiment.journal       what it was told, then what has become of its trials (journal.py)
experiment.journal.before  of an experiment of the same name, until another began
searcher-state-N/        by the searcher's own save(), now and then; the journal says which one
                         counts, and has what came since
scheduler-state.pkl      by the scheduler's own save(), now and then
stopper-state.pkl        the stopper, likewise
NAME_.../error.txt       what a trial has raised
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import time
from typing import Any

from sheaf import cloudpickle
from sheaf.air import storage
from sheaf.tune.error import TuneError
from sheaf.tune.execution.controller import Controller
from sheaf.tune.execution.experiment_files import (
    JOURNAL,
    SCHEDULER,
    SEARCHER,
    STATE,
    STOPPER,
    read_journal,
)
from sheaf.tune.execution.journal import Journal
from sheaf.tune.execution.mirror import Mirror
from sheaf.tune.execution.trial_records import no_collection, pack, record_of, unpack
from sheaf.tune.execution.trial_source import SearcherSource, TrialSource
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.result import EXPR_ERROR_FILE, EXPR_ERROR_PICKLE_FILE
from sheaf.tune.schedulers.trial_scheduler import FIFOScheduler
from sheaf.tune.stopper import NoopStopper

_EACH_S = 0.2  # How often trials that go on are written.
_SHARE = 50  # States are saved when so many times as long as the last saving took has passed.


class _State:
    """When the state of a searcher or scheduler is saved, by itself."""

    def __init__(self, target: Any):
        self._target = target
        self._took, self._at = 0.0, -1e9
        self.possible = True

    def due(self) -> bool:
        return self.possible and time.monotonic() - self._at >= max(_EACH_S, _SHARE * self._took)

    def save(self, path: str) -> bool:
        """Into a file; whether it could be."""
        began = time.monotonic()
        with contextlib.suppress(NotImplementedError):
            self._target.save(path)
        self.possible = os.path.exists(path)  # Ray's base class writes nothing.
        if self.possible:
            _sync(path)
        self._at = time.monotonic()
        self._took = self._at - began
        return self.possible


class _Pickled:
    """What has no save() and restore() of its own."""

    def __init__(self, target: Any):
        self._target = target

    def save(self, path: str) -> None:
        """Writes nothing where it cannot be pickled."""
        with contextlib.suppress(Exception):
            data = cloudpickle.dumps(self._target)
            with open(path, "wb") as file:
                file.write(data)

    def restore(self, path: str) -> None:
        with open(path, "rb") as file:
            vars(self._target).update(vars(pickle.load(file)))


def _sync(path: str) -> None:
    """The files whose names begin so are on the disk when this returns."""
    folder, prefix = os.path.split(path)
    for name in os.listdir(folder):
        if name.startswith(prefix):
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


class ExperimentLog:
    """Of an experiment in the local folder `path`. settings: what it was told, for a restore,
    packed. OSError: the disk fails, or is full; what is there can be restored."""

    def __init__(
        self,
        path: str,
        settings: dict[str, Any],
        source: TrialSource,
        scheduler: Any,
        stopper: Any,
        mirror: Mirror | None,
    ):
        self._path, self._settings, self._source = path, settings, source
        self._mirror = mirror  # Of the folder; None: it is where it belongs.
        self._trials: dict[str, Any] = {}  # The newest record of each.
        self._written = -1e9
        self._events: list[Any] = []  # Of the searcher, since its state was saved.
        self._saved_events = 0  # How many there were before these.
        self._state_before: str | None = None  # The folder of the searcher's state before this.
        self._searcher = _State(source.search_alg) if isinstance(source, SearcherSource) else None
        self._scheduler = _State(scheduler)
        self._scheduler.possible = type(scheduler) is not FIFOScheduler  # Which has none.
        self._stopper = _State(_Pickled(stopper))
        self._stopper.possible = type(stopper) is not NoopStopper
        fresh = not os.path.exists(os.path.join(path, JOURNAL))
        self._journal = Journal(os.path.join(path, JOURNAL), self._snapshot)
        if fresh:
            self._journal.write({"settings": self._settings}, sync=True)

    def keep(self, trials: list[Trial], found: Found) -> None:
        """Those of an experiment that is taken up again: one record has all of it."""
        self._trials = {trial.trial_id: record_of(trial) for trial in trials}
        self._saved_events, self._events = found.saved_events, found.events()
        if self._searcher is not None and self._events:
            self._save_searcher()
        self._journal.write(self._snapshot(), sync=True)
        live = {self._state_before, SEARCHER.format(self._saved_events)}
        for name in os.listdir(self._path):  # States that a process left which was killed.
            if name.startswith(SEARCHER.format("")) and name not in live:
                shutil.rmtree(os.path.join(self._path, name), ignore_errors=True)

    def write(self, controller: Controller, sync: bool = False, last: bool = False) -> None:
        """Writes what the journal has not: at once where a trial has ended, has saved, or was made,
        else now and then."""
        now = time.monotonic()
        dirty = controller.dirty
        urgent = sync or last or any(map(self._is_urgent, dirty.values()))
        if dirty and (urgent or now - self._written >= _EACH_S):
            record: dict[str, Any] = {"trials": [record_of(trial) for trial in dirty.values()]}
            record["source"] = pack(self._source.get_state())
            if isinstance(self._source, SearcherSource) and self._source.events:
                record["events"] = pack(self._source.events)
                record["first_event"] = self._saved_events + len(self._events)
                self._events += self._source.events
                self._source.events = []
            for one in record["trials"]:
                self._trials[one["id"]] = one
            self._journal.write(record, sync)
            dirty.clear()
            self._written = now
        if self._searcher is not None and self._events and (last or self._searcher.due()):
            self._save_searcher()
        for name, state in ((SCHEDULER, self._scheduler), (STOPPER, self._stopper)):
            if last or state.due() and self._written == now:
                self._save(name, state)
        if last:
            self._journal.close()
            if self._state_before is not None:
                shutil.rmtree(os.path.join(self._path, self._state_before), ignore_errors=True)
        elif sync and self._mirror is not None:
            self._mirror.push()

    def _is_urgent(self, trial: Trial) -> bool:
        known = self._trials.get(trial.trial_id)
        return (
            known is None
            or trial.is_finished()
            or known["next_checkpoint"] != trial.kept.next_number
        )

    def write_error(self, trial: Trial) -> None:
        """What the trial has raised, into its folder."""
        files = storage.files_of(None)
        path = trial.local_path
        assert path is not None and trial.error_text is not None
        files.make_folder(path)
        with contextlib.suppress(Exception):  # What cannot be pickled is there as text.
            files.write(f"{path}/{EXPR_ERROR_PICKLE_FILE}", pickle.dumps(trial.error))
        files.write(f"{path}/{EXPR_ERROR_FILE}", trial.error_text.encode())

    def _save_searcher(self) -> None:
        """Into a folder that the journal does not name yet, so that whatever becomes of it the
        state before stays whole: until the next one, for a disk that loses the end of the journal,
        and since what a killed process has half removed is no state."""
        assert self._searcher is not None
        before, count = self._saved_events, self._saved_events + len(self._events)
        folder = os.path.join(self._path, SEARCHER.format(count))
        shutil.rmtree(folder, ignore_errors=True)  # Of a process that was killed.
        os.mkdir(folder)
        if self._searcher.save(os.path.join(folder, STATE)):
            self._saved_events = count
            self._events = []
            self._journal.write({"searcher": count}, sync=True)
            stale, self._state_before = self._state_before, SEARCHER.format(before)
            folder = os.path.join(self._path, stale) if stale else ""
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def _save(self, name: str, state: _State) -> None:
        path = os.path.join(self._path, name)
        if state.possible and state.save(f"{path}.tmp"):
            os.replace(f"{path}.tmp", path)

    def _snapshot(self) -> dict[str, Any]:
        return {
            "settings": self._settings,
            "trials": list(self._trials.values()),
            "source": pack(self._source.get_state()),
            "searcher": self._saved_events,
            "events": pack(self._events),
        }


class Found:
    """What the journal of an experiment says. settings: see ExperimentLog; records of trials in the
    order in which they were made. FileNotFoundError: there is none."""

    def __init__(self, path: str, filesystem: Any = None):
        with no_collection():
            records, _ = read_journal(filesystem, path)
        if not records:
            raise FileNotFoundError(f"{path!r} has no experiment: there is no {JOURNAL} in it")
        self.settings: Any = None
        self.renewed: dict[str, Any] = {}  # References, by the ids of those that were there.
        self.trials: dict[str, dict[str, Any]] = {}
        self.source: Any = None
        self._events: dict[int, Any] = {}  # By number: a damaged record leaves a gap.
        self.saved_events = 0  # How many of them the searcher's own state has.
        for record in records:
            if "settings" in record and "trials" in record:
                self.trials, self._events = {}, {}
            self.settings = record.get("settings", self.settings)
            for trial in record.get("trials", ()):
                self.trials[trial["id"]] = trial
            self.source = record.get("source", self.source)
            self.saved_events = record.get("searcher", self.saved_events)
            first = record.get("first_event", self.saved_events)
            self._events.update(enumerate(record.get("events", ()), first))
        if self.settings is None:
            raise TuneError(
                f"{os.path.join(path, JOURNAL)!r} is damaged: the record of what the experiment "
                "was told is not whole"
            )

    @property
    def searcher_folder(self) -> str:
        """The name of the folder with the searcher's state that counts."""
        return SEARCHER.format(self.saved_events)

    def events(self) -> list[Any]:
        """What the searcher was asked and told since its state was saved, in order."""
        events = sorted(self._events.items())
        return [unpack(event) for number, event in events if number >= self.saved_events]

    def restore_searcher(self, searcher: Any, folder: str) -> None:
        """The searcher goes on where it was: from what it saved in the local folder, and what it
        was asked and told since."""
        path = os.path.join(folder, self.searcher_folder, STATE)
        if os.path.exists(path):
            searcher.restore(path)
        for event in self.events():
            if event[0] == "suggest":
                searcher.suggest(event[1])
            else:
                searcher.on_trial_complete(event[1], result=event[2], error=event[3])

    def restore_scheduler(self, scheduler: Any, folder: str) -> None:
        """The scheduler goes on from what it saved in the local folder."""
        path = os.path.join(folder, SCHEDULER)
        if os.path.exists(path):
            scheduler.restore(path)

    def restore_stopper(self, stopper: Any, folder: str) -> None:
        """The stopper goes on with what it has counted."""
        path = os.path.join(folder, STOPPER)
        if os.path.exists(path):
            _Pickled(stopper).restore(path)

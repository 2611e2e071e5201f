# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What becomes of the trials of an experiment: a state machine without threads, processes or clock.

Events come in by calls; commands for the driver are taken from `commands`. Schedulers and searchers
are called from here, one at a time, and may call the methods that are named as Ray's.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.air.rows import flatten
from sheaf.tune import result as fields
from sheaf.tune.callback import CallbackList
from sheaf.tune.error import TuneError
from sheaf.tune.execution.activity import Activity, Phase, SaveHandle, Settings
from sheaf.tune.execution.blame import blamed
from sheaf.tune.execution.commands import Begin, Command, Continue, Delete, End, Save, WriteError
from sheaf.tune.execution.room import Room
from sheaf.tune.execution.trial_source import TrialSource
from sheaf.tune.experiment.kept_checkpoints import Kept
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.schedulers.trial_scheduler import TrialScheduler
from sheaf.tune.stopper.stopper import Stopper

_SEARCH_PATIENCE_S = 600.0  # A searcher that has nothing while no trial runs gets so long.


class Controller:
    """Not thread-safe. Exceptions of searchers, schedulers, stoppers and callbacks leave the call
    that they arose in as TuneError; the experiment is over then."""

    CONTINUE, PAUSE, STOP, NOOP = "CONTINUE", "PAUSE", "STOP", "NOOP"

    def __init__(
        self,
        source: TrialSource,
        scheduler: TrialScheduler,
        stopper: Stopper,
        callbacks: CallbackList,
        settings: Settings,
    ):
        self.commands: collections.deque[Command] = collections.deque()
        self.dirty: dict[str, Trial] = {}  # What the journal has not, by id.
        self.settings = settings
        self.iteration = 0
        self.stopped = False  # No further trial begins.
        self.first_error: BaseException | None = None
        self._source, self._scheduler, self._stopper = source, scheduler, stopper
        self._callbacks = callbacks
        self._trials: list[Trial] = []
        self._live: dict[str, Trial] = {}  # Not finished, in the order they were added.
        self._active: dict[str, Activity] = {}
        self._pending = 0
        self._room = Room(settings)
        self._restore_from: dict[str, SaveHandle] = {}  # By trial: a donor's.
        self._saves: dict[str, SaveHandle] = {}  # By trial: pinned for whoever exploits it.
        self._barren_since: float | None = None

    # What schedulers ask and say; the names are Ray's.

    @property
    def search_alg(self) -> Any:
        """Where configurations come from."""
        return self._source.search_alg

    @property
    def scheduler_alg(self) -> TrialScheduler:
        """What decides about trials."""
        return self._scheduler

    @property
    def _metric(self) -> str | None:
        return self.settings.metric

    def get_trials(self) -> list[Trial]:
        """All trials so far, in order."""
        return self._trials

    def get_live_trials(self) -> list[Trial]:
        """Those that are not finished, in order."""
        return list(self._live.values())

    def get_trial(self, trial_id: str) -> Trial | None:
        """The trial with this id."""
        return next((trial for trial in self._trials if trial.trial_id == trial_id), None)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """Ends the trial's process, behind a checkpoint, until the scheduler chooses it again."""
        activity = self._active.get(trial.trial_id)
        if activity is None or activity.phase is Phase.ENDING:
            return
        if activity.phase is Phase.SAVING:
            activity.after = self.PAUSE
        elif should_checkpoint and self.settings.saves_on_demand:
            self._save(trial, self.PAUSE)
        else:
            self._end(trial)
            self._set_status(trial, Trial.PAUSED)

    def stop_trial(self, trial: Trial) -> None:
        """Ends the trial, whatever it does."""
        if trial.is_finished():
            return
        flat = flatten(trial.last_result) if trial.last_result else None
        if trial.status == Trial.RUNNING:
            self._scheduler.on_trial_complete(self, trial, flat or {})
            self._source.on_complete(trial, flat, error=False)
        else:
            self._scheduler.on_trial_remove(self, trial)
            self._source.on_complete(trial, None, error=False)
        self._tell(self._callbacks.on_trial_complete, trial)
        self._finish(trial, Trial.TERMINATED)

    def save_now(self, trial: Trial) -> SaveHandle | None:
        """The trial's state of now, as a checkpoint that stays until the next call for the same
        trial; None: it has none, and there will be none."""
        newest = trial.kept.newest
        of_now = not self._has_news(trial)
        activity = self._active.get(trial.trial_id)
        under_way = self._saves.get(trial.trial_id)
        if under_way is not None and not under_way.settled:
            return under_way
        if activity is None or of_now or not self.settings.saves_on_demand:
            if newest is None:
                return None
            handle = SaveHandle(newest)
            newest.pins += 1
        else:
            handle = SaveHandle()
            if activity.phase is not Phase.SAVING:
                self._save(trial, None)
        self._release(self._saves.pop(trial.trial_id, None))
        self._saves[trial.trial_id] = handle
        return handle

    def exploit(
        self,
        trial: Trial,
        donor: SaveHandle | Checkpoint,
        new_config: dict[str, Any],
        experiment_tag: str,
    ) -> None:
        """The trial goes on from another's checkpoint, with another configuration: it is paused,
        and begins with them when it is chosen."""
        if isinstance(donor, Checkpoint):
            kept = next((found for one in self._trials if (found := one.kept.find(donor))), None)
            donor = SaveHandle(kept or Kept(donor, {}, 0))
        if donor.kept is not None:
            donor.kept.pins += 1
        self._release(self._restore_from.pop(trial.trial_id, None))
        self._restore_from[trial.trial_id] = donor
        self.pause_trial(trial, should_checkpoint=False)
        trial.set_config(new_config)
        trial.set_experiment_tag(experiment_tag)
        self._mark(trial)

    # What the driver tells.

    @blamed
    def begin_step(self) -> None:
        """The driver is about to act."""
        self._callbacks.on_step_begin(iteration=self.iteration, trials=self._trials)

    @blamed
    def end_step(self) -> None:
        """The driver has acted."""
        self.iteration += 1
        self._callbacks.on_step_end(iteration=self.iteration, trials=self._trials)

    @blamed
    def add_restored(self, trials: list[Trial]) -> None:
        """Trials of an experiment that is taken up again, in order."""
        for trial in trials:
            self._trials.append(trial)
            if not trial.is_finished():
                self._live[trial.trial_id] = trial
                self._pending += trial.status == Trial.PENDING
            self._scheduler.on_trial_add(self, trial)

    @blamed
    def start_trials(self, now: float) -> None:
        """Starts what there is room for. now: seconds, of any clock that does not go back."""
        while not self.stopped:
            self._add_trials(now)
            chosen = self._scheduler.choose_trial_to_run(self)
            lacking = chosen and self._room.lacks(chosen.placement_group_factory)
            if chosen is not None and lacking:
                self._room.warn(chosen, lacking, now)
                waiting = (one for one in self._live.values() if one.status == Trial.PENDING)
                chosen = next((one for one in waiting if not self._lacks(one)), None)
            if chosen is None or chosen.trial_id in self._active or self._obstacle(chosen):
                return
            self._begin(chosen)

    def why_waiting(self, trial: Trial) -> str | None:
        """Why a trial that is not over does not run; None: it runs, or is over."""
        if trial.is_finished() or trial.status == Trial.RUNNING:
            return None
        if trial.trial_id in self._active:
            return "its process ends"
        obstacle = self._obstacle(trial)
        if obstacle is None:
            held = trial.status == Trial.PAUSED
            return f"{type(self._scheduler).__name__} holds it" if held else "others come first"
        return obstacle

    def first_waiting(self) -> str:
        """For the one that looks on: the first trial that waits, and why; empty: none does."""
        for trial in self._live.values():
            reason = self.why_waiting(trial)
            if reason is not None:
                return f"{trial} waits: {reason}"
        return ""

    def is_finished(self) -> bool:
        """Whether there is nothing more to do."""
        return not self._active and (self.stopped or (not self._live and self._source.finished))

    @blamed
    def check_progress(self, now: float) -> None:
        """TuneError: nothing runs, and nothing will. When nothing runs, after start_trials."""
        if self._active or self.is_finished():
            self._barren_since = None
            return
        if any(map(self._lacks, self._live.values())):
            return  # A node may join.
        if self._live and self.first_error is not None:
            # Schedulers that hold trials back until others have come as far may wait for one that
            # has failed: then the first of those goes on.
            self._begin(next(iter(self._live.values())))
            return
        if self._live and not any(not h.settled for h in self._restore_from.values()):
            states = collections.Counter(trial.status for trial in self._live.values())
            raise TuneError(
                f"no trial runs, and {type(self._scheduler).__name__} chooses none of "
                + ", ".join(f"{count} {status}" for status, count in states.items())
            )
        if self._barren_since is None:
            self._barren_since = now
        if now - self._barren_since > _SEARCH_PATIENCE_S:
            self.stopped = True

    @blamed
    def on_batch(
        self, trial: Trial, results: list[tuple[dict[str, Any], Any]], ended: bool
    ) -> None:
        """Results of a trial in order, each with what was reported of it, and whether the trial has
        ended behind them. Its process waits for Continue, Save or End."""
        activity = self._active.get(trial.trial_id)
        if activity is None or activity.phase is not Phase.RUNNING:
            return  # It was ended meanwhile.
        activity.phase = Phase.DECIDING
        decision = self.CONTINUE
        for result, reported in results:
            decision = self._on_result(trial, result, reported)
            if decision != self.CONTINUE or trial.is_finished():
                break
        if trial.is_finished() or activity.phase is Phase.ENDING:
            return
        if decision == self.CONTINUE and ended:
            trial.last_result[fields.DONE] = True
            trial.last_result.setdefault(fields.TRIAL_ID, trial.trial_id)
            trial.last_result.setdefault("config", trial.config)
            decision = self.STOP
        decision, saves = activity.behind(decision, self.CONTINUE)
        first_saves = saves and activity.phase is not Phase.SAVING
        (self._save if first_saves else self._decide)(trial, decision)

    @blamed
    def on_checkpoint(
        self, trial: Trial, checkpoint: Checkpoint, number: int, result: dict[str, Any]
    ) -> None:
        """A checkpoint of the trial is complete, with the result that it belongs to."""
        trial.kept.add(checkpoint, result, number)
        for kept in trial.kept.surplus():
            self.commands.append(Delete(kept))
        self._tell(self._callbacks.on_checkpoint, trial, checkpoint=checkpoint)
        self._tell(self._callbacks.on_trial_save, trial)
        self._mark(trial)

    @blamed
    def on_saved(self, trial: Trial, checkpoint: Checkpoint | None, number: int) -> None:
        """The trial has saved, as Save said; None: it had nothing new."""
        activity = self._active.get(trial.trial_id)
        trial.is_saving = False
        if checkpoint is not None:
            self.on_checkpoint(trial, checkpoint, number, dict(trial.last_result))
        self._settle(trial)
        if activity is None or activity.phase is not Phase.SAVING:
            return
        activity.phase = Phase.DECIDING
        after, activity.after = activity.after, None
        if after == self.PAUSE:
            self.pause_trial(trial, should_checkpoint=False)
        elif after is not None:
            self._act(trial, after)

    @blamed
    def on_failed(self, trial: Trial, error: BaseException, text: str) -> None:
        """The trial has raised, or its process has died. text: for its file."""
        activity = self._active.get(trial.trial_id)
        if activity is None or activity.phase is Phase.ENDING:
            return
        trial.is_saving = False
        trial.num_failures += 1
        trial.error, trial.error_text = error, text
        self.first_error = self.first_error or error
        self.commands.append(WriteError(trial))
        self._settle(trial)
        if trial.should_recover():
            self._end(trial, failed=True)
            self._scheduler.on_trial_error(self, trial)
            self._set_status(trial, Trial.PENDING)
            self._live[trial.trial_id] = self._live.pop(trial.trial_id)  # Behind the others.
            self._trials.remove(trial)
            self._trials.append(trial)
            self._scheduler.on_trial_add(self, trial)
            self._tell(self._callbacks.on_trial_recover, trial)
            return
        self._scheduler.on_trial_error(self, trial)
        self._source.on_complete(trial, None, error=True)
        self._tell(self._callbacks.on_trial_error, trial)
        self._finish(trial, Trial.ERROR)
        if self.settings.fail_fast:
            self.stop_all()

    @blamed
    def on_ended(self, trial: Trial) -> None:
        """What the trial held is free."""
        activity = self._active.pop(trial.trial_id)
        self._room.free(activity.resources)

    def stop_all(self) -> None:
        """Ends all trials; none begins any more."""
        self.stopped = True
        for trial in self.get_live_trials():
            if trial.status == Trial.RUNNING:
                self.stop_trial(trial)
            else:
                self._finish(trial, Trial.TERMINATED)

    @blamed
    def stop_if_told(self) -> None:
        """Asks the stopper whether all shall end."""
        if not self.stopped and self._stopper.stop_all():
            self.stop_all()

    # Inside.

    def _tell(self, listener: Callable[..., None], trial: Trial, **more: Any) -> None:
        listener(iteration=self.iteration, trials=self._trials, trial=trial, **more)

    def _add_trials(self, now: float) -> None:
        while self._pending < self._source.most_pending:
            trial = self._source.next()
            if trial is None:
                return
            self._barren_since = None
            self._trials.append(trial)
            self._live[trial.trial_id] = trial
            self._pending += 1
            self._scheduler.on_trial_add(self, trial)
            self._mark(trial)

    def _lacks(self, trial: Trial) -> str | None:
        return self._room.lacks(trial.placement_group_factory)

    def _obstacle(self, trial: Trial) -> str | None:
        donor = self._restore_from.get(trial.trial_id)
        if donor is not None and not donor.settled:
            return "the trial that it goes on from saves"
        return self._room.waits_for(trial.placement_group_factory, len(self._active))

    def _begin(self, trial: Trial) -> None:
        donor = self._restore_from.get(trial.trial_id)
        kept = (donor.kept if donor is not None else None) or trial.kept.newest or trial.begin_from
        resources = trial.placement_group_factory.required_resources
        self._active[trial.trial_id] = Activity(Phase.RUNNING, resources)
        self._room.take(resources)
        self._set_status(trial, Trial.RUNNING)
        trial.init_local_path()
        self._tell(self._callbacks.on_trial_start, trial)
        if kept is not None:
            self._tell(self._callbacks.on_trial_restore, trial)
        known = kept.result if kept is not None else {}
        self.commands.append(
            Begin(
                trial,
                kept.checkpoint if kept is not None else None,
                known.get(fields.TRAINING_ITERATION, 0),
                known.get(fields.TIME_TOTAL_S, 0.0),
            )
        )

    def began(self, trial: Trial) -> None:
        """The trial has begun, from its checkpoint where it has one: a donor's may go."""
        self._release(self._restore_from.pop(trial.trial_id, None))

    def _on_result(self, trial: Trial, result: dict[str, Any], reported: Any) -> str:
        flat = flatten(result)
        self.settings.check(flat, self._scheduler.metric, self._source.search_alg.metric)
        if self._stopper(trial.trial_id, result) or trial.should_stop(flat):
            decision = self.STOP
            result[fields.DONE] = True
        else:
            decision = self._scheduler.on_trial_result(self, trial, flat)
            if decision == self.STOP:
                result[fields.DONE] = True
            elif not trial.is_finished():
                self._source.on_result(trial, flat)
        self._tell(self._callbacks.on_trial_result, trial, result=result)
        trial.update_last_result(result, reported)
        self._mark(trial)
        return decision

    def _decide(self, trial: Trial, decision: str) -> None:
        activity = self._active[trial.trial_id]
        if activity.phase is Phase.SAVING:  # The scheduler has asked for it.
            if decision != self.NOOP:
                activity.after = decision
            return
        if decision == self.STOP and self._saves_at_end(trial):
            self._save(trial, self.STOP)
            return
        self._act(trial, decision)

    def _has_news(self, trial: Trial) -> bool:
        """Whether it has done anything since its newest checkpoint."""
        newest = trial.kept.newest
        return newest is None or newest.result.get(fields.TRAINING_ITERATION) != (
            trial.last_result.get(fields.TRAINING_ITERATION)
        )

    def _saves_at_end(self, trial: Trial) -> bool:
        settings = self.settings
        return settings.checkpoint_at_end and settings.saves_on_demand and self._has_news(trial)

    def _act(self, trial: Trial, decision: str) -> None:
        if decision == self.CONTINUE:
            self._active[trial.trial_id].phase = Phase.RUNNING
            self.commands.append(Continue(trial))
        elif decision == self.PAUSE:
            self.pause_trial(trial)
        elif decision == self.STOP:
            self.stop_trial(trial)
        elif decision != self.NOOP:
            raise TuneError(
                f"{type(self._scheduler).__name__}.on_trial_result() gave {decision!r}: want "
                "TrialScheduler.CONTINUE, PAUSE, STOP or NOOP"
            )

    def _save(self, trial: Trial, after: str | None) -> None:
        activity = self._active[trial.trial_id]
        trial.is_saving = True
        if activity.waits_to_save(after):
            return
        activity.phase, activity.after = Phase.SAVING, after
        self.commands.append(Save(trial))

    def _settle(self, trial: Trial) -> None:
        """The trial's checkpoint of now is there, or will not be."""
        handle = self._saves.get(trial.trial_id)
        if handle is None or handle.settled:
            return
        handle.settled = True
        handle.kept = trial.kept.newest
        if handle.kept is not None:
            waiting = sum(one is handle for one in self._restore_from.values())
            handle.kept.pins += 1 + waiting

    def _release(self, handle: SaveHandle | None) -> None:
        if handle is not None and handle.kept is not None:
            handle.kept.pins -= 1

    def _end(self, trial: Trial, failed: bool = False) -> None:
        activity = self._active.get(trial.trial_id)
        if activity is not None and activity.phase is not Phase.ENDING:
            activity.phase = Phase.ENDING
            self.commands.append(End(trial, failed))

    def _finish(self, trial: Trial, status: str) -> None:
        self._end(trial, failed=status == Trial.ERROR)
        self._settle(trial)
        self._release(self._restore_from.pop(trial.trial_id, None))
        self._set_status(trial, status)
        self._live.pop(trial.trial_id, None)

    def _set_status(self, trial: Trial, status: str) -> None:
        if trial.trial_id in self._live:
            self._pending += (status == Trial.PENDING) - (trial.status == Trial.PENDING)
        trial.set_status(status)
        self._mark(trial)

    def _mark(self, trial: Trial) -> None:
        self.dirty[trial.trial_id] = trial

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Puts an experiment together and runs it, new or taken up again: what Tuner and run have in
common."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from typing import Any

import sheaf
from sheaf import cloudpickle
from sheaf.air import storage
from sheaf.air.config import RunConfig
from sheaf.tune.callback import Callback, CallbackList
from sheaf.tune.error import TuneError
from sheaf.tune.execution.activity import Settings
from sheaf.tune.execution.blame import blamed
from sheaf.tune.execution.controller import Controller
from sheaf.tune.execution.driver import Driver, Plan
from sheaf.tune.execution.experiment_files import set_aside
from sheaf.tune.execution.experiment_log import ExperimentLog, Found
from sheaf.tune.execution.mirror import Mirror
from sheaf.tune.execution.placement_groups import resource_dict_to_pg_factory
from sheaf.tune.execution.processes import Processes
from sheaf.tune.execution.trial_records import (
    check_checkpoints,
    given_checkpoint,
    no_collection,
    pack,
    trial_of,
    unpack,
)
from sheaf.tune.execution.trial_source import SearcherSource, TrialSource, VariantSource
from sheaf.tune.experiment.experiment import name_of
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.progress_reporter import ProgressReporter, reporter_for
from sheaf.tune.result import DEFAULT_METRIC
from sheaf.tune.schedulers.trial_scheduler import FIFOScheduler, ObjectiveScheduler
from sheaf.tune.search.basic_variant import BasicVariantGenerator
from sheaf.tune.search.concurrency_limiter import ConcurrencyLimiter
from sheaf.tune.search.searcher import Searcher, set_properties
from sheaf.tune.search.variant_generator import parse_spec_vars
from sheaf.tune.stopper import (
    CombinedStopper,
    FunctionStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
)
from sheaf.tune.trainable.trainable import Trainable
from sheaf.tune.trainable.util import resources_of
from sheaf.tune.tune_config import ResumeConfig, TuneConfig

_logger = logging.getLogger(__name__)
HOME = "~/sheaf_results"


@dataclasses.dataclass
class Ask:
    """What an experiment is told. `resources`: of each trial; None: as the trainable says.
    `begin_from`: the path of a checkpoint that trials begin from; None: they begin anew."""

    trainable: Any
    space: dict[str, Any]
    tune: TuneConfig
    run: RunConfig
    resources: Any = None
    begin_from: str | None = None


@dataclasses.dataclass
class Done:
    """What has become of an experiment. `error`: of the first trial that failed. `interrupted`:
    Ctrl-C has ended it."""

    trials: list[Trial]
    path: str
    filesystem: Any
    metric: str | None
    mode: str | None
    error: BaseException | None = None
    interrupted: bool = False


def run_experiment(
    ask: Ask, path: str, filesystem: Any, found: Found | None, resume: ResumeConfig | None
) -> Done:
    """Runs an experiment to the end. found: what is left of an earlier run. Inside a task it is an
    actor of its own that does: it holds no CPU, where a task would hold what its trials need."""
    if not _is_in_task():
        return ExperimentRun(ask, path, filesystem, found).go(resume)
    actor: Any = sheaf.remote(num_cpus=0)(_Elsewhere).remote()
    try:
        done: Done = sheaf.get(actor.run.remote(ask, path, filesystem, found, resume))
        return done
    finally:
        sheaf.kill(actor)


class _Elsewhere:
    def run(self, *given: Any) -> Done:
        return run_experiment(*given)


def _can_be_stored(callback: Any) -> bool:
    """Else an experiment that is taken up goes without it."""
    try:
        cloudpickle.dumps(callback)
    except Exception as error:
        _logger.warning("%r will not be there after Tuner.restore: %s", callback, error)
        return False
    return True


def _is_in_task() -> bool:
    if not sheaf.is_initialized():
        return False
    context = sheaf.get_runtime_context()
    return context.get_task_id() is not None and context.get_actor_id() is None


class ExperimentRun:
    """One run of an experiment. found: what is left of an earlier run. Not thread-safe."""

    def __init__(self, ask: Ask, path: str, filesystem: Any, found: Found | None):
        self._found = found
        self._ask, self._path, self._filesystem = ask, path, filesystem
        self._is_class = isinstance(ask.trainable, type) and issubclass(ask.trainable, Trainable)
        config = ask.tune
        # Before searcher and scheduler are told of the experiment: a restore tells them again.
        self._settings = pack(self._make_settings())
        self._scheduler = config.scheduler or FIFOScheduler()
        self._first = None if ask.begin_from is None else given_checkpoint(ask.begin_from)
        self._stop: dict[str, float] = {}
        self._stopper = self._make_stopper()
        self._source = self._make_source()
        self._set_properties()
        self._mirror = None if filesystem is None else Mirror(filesystem, path)
        self._local = path if self._mirror is None else self._mirror.local

    def go(self, resume: ResumeConfig | None) -> Done:
        """Runs it to the end."""
        found = self._found
        if not sheaf.is_initialized():
            sheaf.init()
        os.makedirs(self._local, exist_ok=True)
        if found is None:
            set_aside(self._filesystem, self._path)
        if self._mirror is None:
            return self._run(resume)
        try:
            if found is not None:
                dirnames = [one["dirname"] for one in found.trials.values()]
                self._mirror.fetch(found.searcher_folder, [name for name in dirnames if name])
            self._mirror.start()
            return self._run(resume)
        finally:
            self._mirror.close()

    def _run(self, resume: ResumeConfig | None) -> Done:
        found = self._found
        callbacks = CallbackList(self._make_callbacks())
        controller = self._make_controller(callbacks)
        trials = []
        if found is not None:
            trials = self._restore(found, resume or ResumeConfig())
        log = ExperimentLog(
            self._local, self._settings, self._source, self._scheduler, self._stopper, self._mirror
        )
        if found is not None:
            log.keep(trials, found)
        controller.add_restored(trials)
        blamed(callbacks.setup)(
            stop=self._ask.run.stop,
            num_samples=self._ask.tune.num_samples,
            total_num_samples=self._source.total,
            experiment_path=self._path,
        )
        driver = Driver(
            controller,
            Processes(self._ask.trainable, self._ask.run.worker_runtime_env),
            log,
            self._make_plan(),
            self._make_tell(controller),
        )
        interrupted = driver.run()
        blamed(callbacks.on_experiment_end)(trials=controller.get_trials())
        metric, mode = self.objective()
        return Done(
            controller.get_trials(),
            self._path,
            self._filesystem,
            metric,
            mode,
            controller.first_error,
            interrupted,
        )

    def objective(self) -> tuple[str | None, str | None]:
        """The metric and mode, of whoever has them."""
        config = self._ask.tune
        metric, mode = config.metric, config.mode
        for one in (self._scheduler, self._source.search_alg):
            metric = metric or getattr(one, "metric", None)
            mode = mode or getattr(one, "_mode", None) or getattr(one, "mode", None)
        return (None if metric == DEFAULT_METRIC and not mode else metric), mode

    # Parts.

    def _make_stopper(self) -> Stopper:
        stop = self._ask.run.stop
        parts: list[Stopper] = []
        if isinstance(stop, (list, tuple)):
            parts += stop
        elif isinstance(stop, Stopper):
            parts.append(stop)
        elif isinstance(stop, dict):
            self._stop = stop
        elif callable(stop):
            parts.append(FunctionStopper(stop))
        elif stop is not None:
            raise TypeError(f"stop={stop!r}: want a dict, a function or a Stopper")
        if self._ask.tune.budget_s is not None:
            parts.append(TimeoutStopper(self._ask.tune.budget_s))
        if not parts:
            return NoopStopper()
        return parts[0] if len(parts) == 1 else CombinedStopper(*parts)

    def _make_source(self) -> TrialSource:
        config, ask = self._ask.tune, self._ask
        algorithm = config.search_alg or BasicVariantGenerator()
        if isinstance(algorithm, BasicVariantGenerator):
            if config.max_concurrent_trials and not algorithm.max_concurrent:
                algorithm.max_concurrent = config.max_concurrent_trials
            return VariantSource(algorithm, ask.space, config.num_samples, self.make_trial)
        if not isinstance(algorithm, Searcher):
            raise TypeError(f"search_alg={algorithm!r}: want a Searcher or a BasicVariantGenerator")
        if config.max_concurrent_trials:
            if isinstance(algorithm, ConcurrencyLimiter):
                if algorithm.max_concurrent != config.max_concurrent_trials:
                    raise ValueError(
                        f"max_concurrent_trials={config.max_concurrent_trials} and "
                        f"ConcurrencyLimiter(max_concurrent={algorithm.max_concurrent}): give one"
                    )
            else:
                algorithm = ConcurrencyLimiter(algorithm, config.max_concurrent_trials)
        return SearcherSource(algorithm, ask.space, config.num_samples, self.make_trial)

    def _set_properties(self) -> None:
        """Tells searcher and scheduler of the experiment. Those of a restored one are not refused:
        journals of before had them when they were told already."""
        config, ask, anew = self._ask.tune, self._ask, self._found is None
        search = self._source.search_alg
        spec = {"config": ask.space, "num_samples": config.num_samples}
        taken = set_properties(search, config.metric, config.mode, ask.space, {"spec": spec})
        if anew and isinstance(self._source, SearcherSource) and not taken:
            _, domains, grids = parse_spec_vars(ask.space)
            if domains or grids:
                raise TuneError(
                    f"{type(search).__name__} has a space of its own, and param_space has "
                    f"{len(domains) + len(grids)} domains as well: leave one of them out"
                )
        if not self._scheduler.set_search_properties(config.metric, config.mode) and anew:
            given = config.metric or config.mode
            if given and getattr(self._scheduler, "metric", None) is not None:
                raise ValueError(
                    f"metric={config.metric!r} and mode={config.mode!r} were given to TuneConfig "
                    f"and to {type(self._scheduler).__name__}: leave one of them out"
                )
        if isinstance(self._scheduler, ObjectiveScheduler):
            self._scheduler.require_objective()  # Before a trial begins.

    def make_trial(
        self, trial_id: str, config: dict[str, Any], chosen: dict[str, Any], tag: str
    ) -> Trial:
        """A trial of this experiment."""
        ask = self._ask
        factory = (
            resources_of(ask.trainable, config)
            if ask.resources is None
            else resource_dict_to_pg_factory(
                ask.resources(config) if callable(ask.resources) else ask.resources
            )
        )
        return Trial(
            name_of(ask.trainable),
            config=config,
            trial_id=trial_id,
            evaluated_params=chosen,
            experiment_tag=tag,
            placement_group_factory=factory,
            stopping_criterion=self._stop,
            checkpoint_config=ask.run.checkpoint_config,
            max_failures=ask.run.failure_config.max_failures,
            experiment_path=self._path,
            local_experiment_path=self._local,
            trial_name_creator=ask.tune.trial_name_creator,
            trial_dirname_creator=ask.tune.trial_dirname_creator,
            begin_from=self._first,
        )

    def _make_callbacks(self) -> list[Callback]:
        from sheaf.tune.logger.defaults import with_loggers

        callbacks = list(self._ask.run.callbacks)
        for callback in callbacks:
            if not hasattr(callback, "on_trial_result"):
                raise TypeError(f"callbacks: {callback!r} is no sheaf.tune.Callback")
        return with_loggers(callbacks)

    def _make_controller(self, callbacks: CallbackList) -> Controller:
        run = self._ask.run
        settings = Settings(
            metric=self._ask.tune.metric,
            fail_fast=run.failure_config.fail_fast,
            max_concurrent=self._ask.tune.max_concurrent_trials or 0,
            checkpoint_at_end=self._saves_at_end(),
            saves_on_demand=self._is_class,
            strict_metrics=os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING", "0") != "1",
        )
        return Controller(self._source, self._scheduler, self._stopper, callbacks, settings)

    def _saves_at_end(self) -> bool:
        """A class that can save does, unless it is told not to."""
        told = self._ask.run.checkpoint_config.checkpoint_at_end
        if told is not None or not self._is_class:
            return bool(told)
        return self._ask.trainable.save_checkpoint is not Trainable.save_checkpoint

    def _make_plan(self) -> Plan:
        run = self._ask.run
        names: tuple[str, str] | None = None
        if isinstance(run.log_to_file, str):
            names = (run.log_to_file, run.log_to_file)
        elif isinstance(run.log_to_file, (tuple, list)):
            names = (run.log_to_file[0], run.log_to_file[1])
        elif run.log_to_file:
            names = ("stdout", "stderr")
        looks = type(self._scheduler) is not FIFOScheduler
        looks = looks or type(self._stopper) not in (NoopStopper, TimeoutStopper)
        return Plan(
            experiment=os.path.basename(self._path),
            filesystem=self._filesystem,
            path=self._path,
            is_class=self._is_class,
            decided=looks,
            reuse_actors=self._ask.tune.reuse_actors,
            checkpoint_frequency=run.checkpoint_config.checkpoint_frequency,
            checkpoint_at_end=self._saves_at_end(),
            log_to_file=names,
            shows_errors=getattr(run.verbose, "value", run.verbose) != 0,
        )

    def _make_tell(self, controller: Controller) -> Any:
        reporter: ProgressReporter = self._ask.run.progress_reporter or reporter_for(
            self._ask.run.verbose
        )
        metric, mode = self.objective()
        reporter.setup(
            start_time=time.time(),
            total_samples=self._source.total,
            metric=metric if isinstance(metric, str) else None,
            mode=mode if isinstance(mode, str) else None,
        )

        def tell(last: bool) -> None:
            if reporter.should_report(controller.get_trials(), done=last):
                debug = self._scheduler.debug_string() if not last else ""
                waits = controller.first_waiting() if not last else ""
                reporter.report(controller.get_trials(), last, debug, waits)

        return tell

    def _make_settings(self) -> dict[str, Any]:
        """What a restore needs besides the trainable."""
        ask = self._ask
        run = dataclasses.replace(ask.run)
        tune = dataclasses.replace(ask.tune)
        run.callbacks, run.progress_reporter = (), None
        tune.search_alg = tune.scheduler = None
        objects = {
            "search_alg": ask.tune.search_alg,
            "scheduler": ask.tune.scheduler,
            "callbacks": [one for one in ask.run.callbacks if _can_be_stored(one)],
        }
        return {
            "trainable": name_of(ask.trainable),
            "space": ask.space,
            "tune": tune,
            "run": run,
            "objects": objects,
            "resources": ask.resources,
            "begin_from": ask.begin_from,
        }

    # Taking up.

    def _restore(self, found: Found, resume: ResumeConfig) -> list[Trial]:
        with no_collection():
            records = found.trials.values()
            trials = [
                trial_of(one, self._filesystem, self.make_trial, found.renewed) for one in records
            ]
        for trial in trials:
            self._resume(trial, resume)
        open_trials = sum(not trial.is_finished() for trial in trials)
        if found.source is not None:
            self._source.set_state(unpack(found.source), open_trials)
        if isinstance(self._source, SearcherSource):
            found.restore_searcher(self._source.search_alg, self._local)
        found.restore_scheduler(self._scheduler, self._local)
        found.restore_stopper(self._stopper, self._local)
        for trial in trials:
            if not trial.has_reported_at_least_once:
                self._stopper.forget(trial.trial_id)
        return trials

    def _resume(self, trial: Trial, resume: ResumeConfig) -> None:
        kinds = {Trial.TERMINATED: resume.finished, Trial.ERROR: resume.errored}
        kind = getattr(kinds.get(trial.status, resume.unfinished), "value", None)
        if kind == "skip":
            if not trial.is_finished():
                trial.status = Trial.TERMINATED
            return
        trial.status = Trial.PENDING
        trial.num_failures = 0
        trial.error = trial.error_text = None
        if kind == "restart":
            if trial.path is not None and self._mirror is not None:
                self._mirror.remove(str(trial.dirname))
            elif trial.path is not None:
                storage.files_of(None).remove(trial.path)
            again = self.make_trial(
                trial.trial_id, trial.config, trial.evaluated_params, trial.experiment_tag
            )
            dirname = trial.dirname
            trial.__dict__.update(again.__dict__)
            trial.dirname = dirname
        else:
            check_checkpoints(trial, self._filesystem)
            trial.last_result.pop("done", None)

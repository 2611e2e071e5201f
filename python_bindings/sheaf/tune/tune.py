# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments by one call: run, and run_experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sheaf.air import storage
from sheaf.air.config import CheckpointConfig, FailureConfig, RunConfig
from sheaf.tune.analysis.experiment_analysis import ExperimentAnalysis
from sheaf.tune.error import TuneError
from sheaf.tune.execution.experiment_files import JOURNAL
from sheaf.tune.execution.experiment_log import Found
from sheaf.tune.execution.run_experiment import Ask, run_experiment
from sheaf.tune.experiment.experiment import Experiment
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.schedulers import create_scheduler
from sheaf.tune.search import create_searcher
from sheaf.tune.tune_config import ResumeConfig, TuneConfig
from sheaf.tune.tuner import analysis_of, found_trainable, new_folder


def run(
    run_or_experiment: Any,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: Any = None,
    config: dict[str, Any] | None = None,
    resources_per_trial: Any = None,
    num_samples: int = 1,
    storage_path: str | None = None,
    storage_filesystem: Any = None,
    search_alg: Any = None,
    scheduler: Any = None,
    checkpoint_config: CheckpointConfig | None = None,
    verbose: Any = None,
    progress_reporter: Any = None,
    log_to_file: Any = False,
    trial_name_creator: Any = None,
    trial_dirname_creator: Any = None,
    sync_config: Any = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    chdir_to_trial_dir: Any = None,
    local_dir: str | None = None,
) -> ExperimentAnalysis:
    """Runs an experiment. Ctrl-C ends it in order, behind what is saved; a second one at once.

    Args:
        run_or_experiment: a function that takes the configuration, a class derived from Trainable,
            the name of one that is registered, a trainer, or an Experiment.
        name: of the experiment's folder; None: a new one.
        metric: by which trials are compared.
        mode: "min" or "max" is best.
        stop: what ends a trial: see RunConfig.
        time_budget_s: seconds after which all trials end.
        config: the space: see Tuner.
        resources_per_trial: amounts by resource, as {"cpu": 2, "gpu": 0.5}, or a
            PlacementGroupFactory.
        num_samples: how often the space is sampled; -1: without end.
        storage_path: the folder around that of the experiment.
        storage_filesystem: one of pyarrow's or fsspec's, with the path inside it.
        search_alg: a Searcher, or the name of one.
        scheduler: a TrialScheduler, or the name of one.
        checkpoint_config: which checkpoints stay.
        verbose: how much is shown: see RunConfig.
        progress_reporter: what shows it.
        log_to_file: whether what trials print goes into files.
        trial_name_creator: makes the name of a trial.
        trial_dirname_creator: makes the name of a trial's folder.
        sync_config: not looked at.
        export_formats: not looked at.
        max_failures: how often a trial may fail; -1: without bound.
        fail_fast: whether the first failure ends the experiment.
        restore: the path of a checkpoint that each trial begins from.
        resume: whether an experiment of this name is taken up: True or "AUTO" where there is one,
            "ERRORED_ONLY" its failed trials alone; with "+ERRORED" behind it, these as well.
        resume_config: says so in more detail.
        reuse_actors: whether a process runs one trial after another.
        raise_on_failed_trial: whether it raises at the end when a trial has failed.
        callbacks: what is done beside it.
        max_concurrent_trials: how many run at once.
        keep_checkpoints_num: as CheckpointConfig.num_to_keep.
        checkpoint_score_attr: as CheckpointConfig.checkpoint_score_attribute; "min-NAME": the least
            is best.
        checkpoint_freq: as CheckpointConfig.checkpoint_frequency.
        checkpoint_at_end: as CheckpointConfig.checkpoint_at_end.
        chdir_to_trial_dir: not looked at: see RAY_CHDIR_TO_TRIAL_DIR.
        local_dir: as storage_path.

    Returns:
        What has become of the trials.

    Raises:
        TuneError: a trial has failed, or what it was told does not fit.
        FileNotFoundError: `restore` has no checkpoint.
    """
    given = dict(locals())
    if isinstance(run_or_experiment, Experiment):
        return _run_described(run_or_experiment, given)
    trainable, of_trainer = found_trainable(run_or_experiment)
    run_config = RunConfig(
        name=name or (of_trainer.name if of_trainer else None),
        storage_path=storage_path or local_dir or (of_trainer.storage_path if of_trainer else None),
        storage_filesystem=storage_filesystem,
        failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
        checkpoint_config=_checkpoints(
            checkpoint_config,
            keep_checkpoints_num,
            checkpoint_score_attr,
            checkpoint_freq,
            checkpoint_at_end,
        ),
        verbose=verbose,
        stop=stop,
        callbacks=callbacks or (),
        progress_reporter=progress_reporter,
        log_to_file=log_to_file,
    )
    tune_config = TuneConfig(
        mode=mode,
        metric=metric,
        search_alg=create_searcher(search_alg) if isinstance(search_alg, str) else search_alg,
        scheduler=create_scheduler(scheduler) if isinstance(scheduler, str) else scheduler,
        num_samples=num_samples,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        reuse_actors=reuse_actors,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
    )
    ask = Ask(trainable, config or {}, tune_config, run_config, resources_per_trial, restore)
    filesystem, path = new_folder(ask)
    found, how = _taken_up(filesystem, path, resume, resume_config)
    done = run_experiment(ask, path, filesystem, found, how)
    if fail_fast == "raise" and done.error is not None:
        raise done.error
    failed = [trial for trial in done.trials if trial.status == Trial.ERROR]
    if failed and raise_on_failed_trial and not done.interrupted:
        raise TuneError(
            f"{len(failed)} of {len(done.trials)} trials have failed: "
            + ", ".join(map(str, failed[:10]))
            + f"; the first by {failed[0].error_text}"
        ) from failed[0].error
    return analysis_of(done)


def _run_described(experiment: Experiment, given: dict[str, Any]) -> ExperimentAnalysis:
    rest = {name: one for name, one in given.items() if name != "run_or_experiment"}
    return run(experiment.trainable, **{**rest, **experiment.spec, "name": experiment.name})


def _checkpoints(
    config: CheckpointConfig | None,
    keep: int | None,
    score: str | None,
    frequency: int,
    at_end: bool,
) -> CheckpointConfig:
    config = config or CheckpointConfig()
    least = bool(score and score.startswith("min-"))
    return dataclasses.replace(
        config,
        num_to_keep=keep or config.num_to_keep,
        checkpoint_score_attribute=(
            score.removeprefix("min-") if score else config.checkpoint_score_attribute
        ),
        checkpoint_score_order="min" if least else config.checkpoint_score_order,
        checkpoint_frequency=frequency or config.checkpoint_frequency,
        checkpoint_at_end=at_end or bool(config.checkpoint_at_end),  # Tuner alone saves unasked.
    )


def _taken_up(
    filesystem: Any, path: str, resume: bool | str | None, how: ResumeConfig | None
) -> tuple[Found | None, ResumeConfig | None]:
    """The experiment that is taken up, and what of it; (None, None): a new one."""
    if not resume and how is None:
        return None, None
    there = JOURNAL in storage.files_of(filesystem).names(path)
    word, *more = str(resume or "").upper().split("+")
    if not there:
        if word == "AUTO" or not resume:
            return None, None
        raise ValueError(f"resume={resume!r}: there is no experiment in {path}")
    kinds = ResumeConfig.ResumeType
    if how is None:
        how = ResumeConfig()
        if word == "ERRORED_ONLY":
            how = ResumeConfig(unfinished=kinds.SKIP, errored=kinds.RESUME)
        elif "ERRORED" in more:
            how.errored = kinds.RESUME
        elif "RESTART_ERRORED" in more:
            how.errored = kinds.RESTART
    return Found(path, filesystem), how


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Any],
    scheduler: Any = None,
    verbose: Any = None,
    progress_reporter: Any = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
) -> list[Trial]:
    """Runs experiments, one after another.

    Args:
        experiments: an Experiment, a list of them, or a dict from names to arguments of `run`, with
            the trainable as `run`.
        scheduler: see run.
        verbose: see run.
        progress_reporter: see run.
        resume: see run.
        resume_config: see run.
        reuse_actors: see run.
        raise_on_failed_trial: see run.
        concurrent: not looked at.
        callbacks: see run.

    Returns:
        The trials of all.

    Raises:
        TuneError: a trial has failed, or what was told does not fit.
    """
    if isinstance(experiments, Experiment):
        wanted = [experiments]
    elif isinstance(experiments, Mapping):
        wanted = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    else:
        wanted = list(experiments)
    trials: list[Trial] = []
    for experiment in wanted:
        trials += run(
            experiment,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
        ).trials
    return trials

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Tuner: runs an experiment, and takes up one that was interrupted."""

from __future__ import annotations

import copy
import os
import time
import uuid
from typing import Any

from sheaf.air import storage
from sheaf.air.config import RunConfig
from sheaf.tune.analysis.experiment_analysis import ExperimentAnalysis
from sheaf.tune.error import TuneError
from sheaf.tune.execution.experiment_files import JOURNAL
from sheaf.tune.execution.experiment_log import Found
from sheaf.tune.execution.references import are_lost, replaced
from sheaf.tune.execution.run_experiment import HOME, Ask, Done, run_experiment
from sheaf.tune.execution.trial_records import trials_of, unpack
from sheaf.tune.experiment.experiment import name_of
from sheaf.tune.registry import check_trainable, get_trainable_cls
from sheaf.tune.result_grid import ResultGrid
from sheaf.tune.trainable.of_trainer import as_function
from sheaf.tune.tune_config import ResumeConfig, TuneConfig


class Tuner:
    """Runs trials of a trainable, each with a configuration of a space.

    Args:
        trainable: a function that takes the configuration, a class derived from Trainable, the name
            of one that is registered, or a trainer of sheaf.train.
        param_space: the space: nested dicts and lists with domains (uniform, choice, grid_search
            and so on) in them.
        tune_config: how trials are chosen, and which is the best.
        run_config: where results go, which checkpoints stay, how often trials may fail.

    Raises:
        TypeError: an argument has the wrong type; the text has the value and what is wanted.
        TuneError: no trainable is registered under the name.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: dict[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        _tuner_kwargs: dict[str, Any] | None = None,
    ):
        for name, value, kind in (
            ("tune_config", tune_config, TuneConfig),
            ("run_config", run_config, RunConfig),
        ):
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"{name}={value!r}: want a {kind.__name__}")
        if param_space is not None and not isinstance(param_space, dict):
            to_dict = getattr(param_space, "to_dict", None)  # Of RLlib-like configurations.
            if to_dict is None:
                raise TypeError(f"param_space={param_space!r}: want a dict")
            param_space = to_dict()
        trainable, of_trainer = found_trainable(trainable)
        self._ask = Ask(
            trainable,
            param_space or {},
            tune_config or TuneConfig(),
            run_config or of_trainer or RunConfig(),
        )
        self._found: Found | None = None
        self._resume: ResumeConfig | None = None
        self._path: str | None = None
        self._filesystem: Any = None
        self._grid: ResultGrid | None = None

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: dict[str, Any] | None = None,
        storage_filesystem: Any = None,
        _resume_config: ResumeConfig | None = None,
    ) -> Tuner:
        """Takes up an experiment whose process has ended, however it did. Trials that have ended
        well stay as they are.

        Args:
            path: of the experiment's folder.
            trainable: the one that it had.
            resume_unfinished: whether trials that have not ended go on from their checkpoints.
            resume_errored: whether trials that have failed go on from their checkpoints.
            restart_errored: whether trials that have failed begin anew.
            param_space: the same space with new references to objects, where those in it are of a
                session that has ended; None: the one it had.
            storage_filesystem: one of pyarrow's or fsspec's, with `path` inside it.

        Returns:
            A Tuner, whose `fit` goes on, and whose `get_results` says what there is.

        Raises:
            FileNotFoundError: there is no experiment.
            ValueError: it had another trainable, or another space.
        """
        filesystem, inside = storage.resolve(path, storage_filesystem)
        found = Found(inside, filesystem)
        said = unpack(found.settings)
        trainable, _ = found_trainable(trainable)
        if name_of(trainable) != said["trainable"]:
            raise ValueError(
                f"trainable={name_of(trainable)!r}: the experiment in {inside} had "
                f"{said['trainable']!r}; give the same one"
            )
        tune, run = said["tune"], said["run"]
        tune.search_alg = said["objects"]["search_alg"]
        tune.scheduler = said["objects"]["scheduler"]
        run.callbacks = tuple(said["objects"]["callbacks"])
        if resume_errored and restart_errored:
            raise ValueError("resume_errored=True and restart_errored=True: choose one of them")
        kinds = ResumeConfig.ResumeType
        errored = kinds.RESUME if resume_errored else kinds.SKIP
        made = cls.__new__(cls)
        space = said["space"]
        if param_space is not None:
            found.renewed = replaced(space, param_space)
            space = param_space
        made._ask = Ask(trainable, space, tune, run, said["resources"], said["begin_from"])
        made._found, made._path, made._filesystem = found, inside, filesystem
        made._resume = _resume_config or ResumeConfig(
            unfinished=kinds.RESUME if resume_unfinished else kinds.SKIP,
            errored=kinds.RESTART if restart_errored else errored,
        )
        made._grid = None
        return made

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Tells whether there is an experiment to take up.

        Args:
            path: of its folder.
            storage_filesystem: one of pyarrow's or fsspec's, with `path` inside it.

        Returns:
            Whether there is.
        """
        filesystem, inside = storage.resolve(path, storage_filesystem)
        return JOURNAL in storage.files_of(filesystem).names(inside)

    def fit(self) -> ResultGrid:
        """Runs the experiment, or goes on with it. Joins a cluster first, as sheaf.init() does,
        where the process has not joined one. Ctrl-C ends it in order, behind what is saved; a
        second one at once.

        Returns:
            The results. Trials that have failed are among them, with their errors; and, behind
            Ctrl-C, those that have not ended.

        Raises:
            TuneError: what it was told does not fit, or nothing can go on; or a searcher,
                scheduler, stopper or callback has raised its __cause__.
            ValueError: the space of a restored experiment has references of another session.
            Exception: with FailureConfig(fail_fast="raise"), what a trial raised.
        """
        if self._path is None:
            self._filesystem, self._path = new_folder(self._ask)
        ask = self._ask
        if self._found is not None and are_lost(ask.space):
            raise ValueError(
                "the space has references to objects of a session that has ended: give "
                "Tuner.restore(param_space=...) the same space with new ones"
            )
        if self._found is None:  # What searchers and schedulers learn is of one experiment.
            ask.tune = copy.copy(ask.tune)
        done = run_experiment(ask, self._path, self._filesystem, self._found, self._resume)
        if ask.run.failure_config.fail_fast == "raise" and done.error is not None:
            raise done.error
        self._grid = ResultGrid(analysis_of(done))
        return self._grid

    def get_results(self) -> ResultGrid:
        """Says what an experiment has reached that has run already.

        Returns:
            The results.

        Raises:
            RuntimeError: it has not run.
        """
        if self._grid is not None:
            return self._grid
        if self._path is None or self._found is None:
            raise RuntimeError("get_results(): nothing has run yet; call fit() first")
        config = self._ask.tune
        return ResultGrid(
            ExperimentAnalysis(
                self._path,
                storage_filesystem=self._filesystem,
                trials=trials_of(self._found, self._path, self._filesystem),
                default_metric=config.metric,
                default_mode=config.mode,
            )
        )


def found_trainable(trainable: Any) -> tuple[Any, RunConfig | None]:
    """What a Tuner was given as a function or class, with the RunConfig of a trainer. TypeError: it
    is none."""
    if trainable is None:
        raise TuneError("trainable=None: want a function, or a class derived from Trainable")
    if isinstance(trainable, str):
        return get_trainable_cls(trainable), None
    if hasattr(trainable, "fit") and not isinstance(trainable, type):
        return as_function(trainable), getattr(trainable, "_run_config", None)
    check_trainable(trainable)
    return trainable, None


def new_folder(ask: Ask) -> tuple[Any, str]:
    """(file system, path) of the experiment's folder."""
    filesystem, root = storage.resolve(ask.run.storage_path or HOME, ask.run.storage_filesystem)
    name = ask.run.name or (
        f"{name_of(ask.trainable)}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{uuid.uuid4().hex[:6]}"
    )
    return filesystem, f"{root}/{name}"


def analysis_of(done: Done) -> ExperimentAnalysis:
    """What has become of an experiment that has run."""
    several = isinstance(done.metric, (list, tuple))
    return ExperimentAnalysis(
        done.path,
        storage_filesystem=done.filesystem,
        trials=done.trials,
        default_metric=None if several else done.metric,
        default_mode=None if several or not isinstance(done.mode, str) else done.mode,
    )

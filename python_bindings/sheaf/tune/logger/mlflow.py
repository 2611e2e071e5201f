# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Results for MLflow."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sheaf.air import session
from sheaf.air.rows import flatten
from sheaf.tune.context import TuneContext
from sheaf.tune.logger.logger import LoggerCallback

if TYPE_CHECKING:
    from sheaf.tune.experiment.trial import Trial


class MLflowLoggerCallback(LoggerCallback):
    """Makes a run of MLflow for each trial, with its configuration as parameters and the numbers of
    its results as metrics.

    Args:
        tracking_uri: of MLflow's server, or a database; None: as MLflow is configured.
        registry_uri: of its registry of models.
        experiment_name: of the experiment; None: the name of the experiment's folder.
        tags: of each run.
        save_artifact: whether the trial's folder is copied to MLflow at the end.

    Raises:
        ImportError: mlflow is not installed.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        save_artifact: bool = False,
    ):
        _mlflow()
        self._uris = (tracking_uri, registry_uri)
        self._name, self._tags, self._saves = experiment_name, dict(tags or {}), save_artifact
        self._client: Any = None
        self._experiment: Any = None
        self._runs: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_experiment": None}

    def setup(
        self,
        stop: Any = None,
        num_samples: int | None = None,
        total_num_samples: int | None = None,
        **info: Any,
    ) -> None:
        """Connects to MLflow.

        Args:
            stop: not looked at.
            num_samples: not looked at.
            total_num_samples: not looked at.
            **info: the path of the experiment.
        """
        mlflow = _mlflow()
        self._client = mlflow.MlflowClient(*self._uris)
        name = self._name or str(info.get("experiment_path", "tune")).rsplit("/", 1)[-1]
        found = self._client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else self._client.create_experiment(name)

    def log_trial_start(self, trial: Trial) -> None:
        """Makes the trial's run, once.

        Args:
            trial: the one.
        """
        if trial.trial_id in self._runs:
            return
        tags = {**self._tags, "trial_name": str(trial)}
        run = self._client.create_run(self._experiment, tags=tags, run_name=str(trial))
        self._runs[trial.trial_id] = run.info.run_id
        for name, value in flatten(trial.config).items():
            self._client.log_param(run.info.run_id, name, str(value)[:500])

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Logs the numbers of a result.

        Args:
            iteration: how often the controller has acted.
            trial: whose it is.
            result: it.
        """
        step = result["training_iteration"]
        shown = {name: value for name, value in result.items() if name != "config"}
        for name, value in flatten(shown).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._client.log_metric(self._runs[trial.trial_id], name, value, step=step)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Ends the trial's run.

        Args:
            trial: the one.
            failed: whether it has failed.
        """
        run = self._runs.get(trial.trial_id)
        if run is None:
            return
        if self._saves:
            self._client.log_artifacts(run, trial.local_path)
        self._client.set_terminated(run, "FAILED" if failed else "FINISHED")


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = True,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Starts a run of MLflow inside a trial's function or a trainer's loop. It ends with it.

    Args:
        config: is logged as parameters.
        tracking_uri: of MLflow's server, or a database.
        registry_uri: of its registry of models.
        experiment_id: of the experiment; None: it is found by its name.
        experiment_name: of the experiment; None: that of the trial's.
        tracking_token: for MLflow's server.
        artifact_location: where a new experiment keeps files.
        run_name: of the run; None: the name of the trial, or of the trainer's run.
        create_experiment_if_not_exists: whether it may be new.
        tags: of the run.
        rank_zero_only: of the workers of a trainer, only the first has a run.

    Returns:
        The module mlflow; for workers without a run an object whose functions do nothing.

    Raises:
        ImportError: mlflow is not installed.
        RuntimeError: it is called outside of a trial and a trainer's loop.
        ValueError: there is no such experiment, and none may be made.
    """
    mlflow = _mlflow()
    context = session.current().context()
    if rank_zero_only and context.get_world_rank() != 0:
        return _Nothing()
    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    name = experiment_name or context.get_experiment_name()
    if experiment_id is None and mlflow.get_experiment_by_name(name) is None:
        if not create_experiment_if_not_exists:
            raise ValueError(f"experiment_name={name!r}: MLflow has no such experiment")
        if artifact_location:
            mlflow.create_experiment(name, artifact_location)
    mlflow.set_experiment(
        **({"experiment_id": experiment_id} if experiment_id else {"experiment_name": name})
    )
    trial = isinstance(context, TuneContext)  # A trainer has none.
    own_name = context.get_trial_name() if trial else context.get_experiment_name()
    mlflow.start_run(run_name=run_name or own_name, tags=tags)
    session.at_end(lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED"))
    mlflow.log_params({name: str(one)[:500] for name, one in flatten(config or {}).items()})
    return mlflow


class _Nothing:
    """Stands for mlflow where nothing shall be logged."""

    def __getattr__(self, name: str) -> Any:
        return _Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Nothing()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise ImportError("this needs mlflow: pip install mlflow") from None
    return mlflow

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is done beside training, in the driver's process: JSON lines, TensorBoard, MLflow, or a
class of one's own.

A callback that raises ends the run with its exception.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.air.result import Result
from sheaf.air.rows import encode


@dataclasses.dataclass(frozen=True)
class RunContext:
    """The run that a callback is told about.

    Args:
        name: of the run.
        path: of its folder.
        config: what the loop is called with.
    """

    name: str
    path: str
    config: dict[str, Any]


class UserCallback:
    """What is done beside training, in the driver's process: derive from it and override what is
    wanted. Its methods are called by one thread; what they raise ends the run.
    """

    def on_start(self, run_context: RunContext, history: list[dict[str, Any]]) -> None:
        """Called before the first loop.

        Args:
            run_context: the run.
            history: what was reported before, in order; not empty when a run goes on.
        """

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Called when all workers have reported a step.

        Args:
            run_context: the run.
            metrics: by rank, the first with what Result.metrics_history has.
            checkpoint: the one of this step, durable by now; None: it has none.
        """

    def after_rollback(self, run_context: RunContext, reports: int) -> None:
        """Called when the group goes on from a checkpoint, so that later steps are done again.

        Args:
            run_context: the run.
            reports: how many of the steps count still.
        """

    def after_exception(
        self, run_context: RunContext, worker_exceptions: dict[int, BaseException]
    ) -> None:
        """Called when workers have failed.

        Args:
            run_context: the run.
            worker_exceptions: what they raised, by rank.
        """

    def on_end(self, run_context: RunContext, result: Result) -> None:
        """Called when the run is over.

        Args:
            run_context: the run.
            result: what was reached; its `error` says how it ended.
        """


class JsonLinesCallback(UserCallback):
    """Writes a line of JSON per step, each step once.

    Args:
        path: a local file; None: metrics.jsonl in the run's folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self._path = None if path is None else os.fspath(path)
        self._rows: list[str] = []

    def on_start(self, run_context: RunContext, history: list[dict[str, Any]]) -> None:
        """Writes what was reported before.

        Args:
            run_context: the run.
            history: what was reported before, in order; not empty when a run goes on.
        """
        self._path = self._path or os.path.join(run_context.path, "metrics.jsonl")
        self._rows = [encode(row) for row in history]
        self._write()

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Adds a line.

        Args:
            run_context: the run.
            metrics: by rank; those of rank 0 are written.
            checkpoint: not looked at.
        """
        assert self._path is not None
        self._rows.append(encode(metrics[0]))
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(self._rows[-1] + "\n")

    def after_rollback(self, run_context: RunContext, reports: int) -> None:
        """Takes back the lines that no longer count.

        Args:
            run_context: the run.
            reports: how many lines stay.
        """
        del self._rows[reports:]
        self._write()

    def _write(self) -> None:
        assert self._path is not None
        temporary = f"{self._path}.{os.getpid()}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(row + "\n" for row in self._rows)
        os.replace(temporary, self._path)


class TensorBoardCallback(UserCallback):
    """Writes numbers as scalars for TensorBoard.

    Args:
        path: the folder for them; None: `tensorboard` in the run's folder.

    Raises:
        ImportError: neither torch with tensorboard nor tensorboardX is installed.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self._path = path
        self._make = _summary_writer()
        self._writer: Any = None

    def on_start(self, run_context: RunContext, history: list[dict[str, Any]]) -> None:
        """Opens a file behind what was reported before.

        Args:
            run_context: the run.
            history: what was reported before, in order; not empty when a run goes on.
        """
        self._folder = os.fspath(self._path or os.path.join(run_context.path, "tensorboard"))
        self._writer = self._make(self._folder, len(history) + 1)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Adds the numbers of a step.

        Args:
            run_context: the run.
            metrics: by rank; those of rank 0 are written.
            checkpoint: not looked at.
        """
        for name, value in _numbers(metrics[0]).items():
            self._writer.add_scalar(name, value, metrics[0]["training_iteration"])
        self._writer.flush()

    def after_rollback(self, run_context: RunContext, reports: int) -> None:
        """Opens a new file, which says what of the old one no longer counts.

        Args:
            run_context: the run.
            reports: how many steps count still.
        """
        self._writer.close()  # A new file says what of the old one no longer counts.
        self._writer = self._make(self._folder, reports + 1)

    def on_end(self, run_context: RunContext, result: Result) -> None:
        """Closes the file.

        Args:
            run_context: the run.
            result: not looked at.
        """
        self._writer.close()


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ImportError(
                "TensorBoardCallback needs torch with tensorboard, or "
                "tensorboardX: pip install tensorboardX"
            ) from None
    return lambda folder, first: SummaryWriter(folder, purge_step=first)


class MLflowCallback(UserCallback):
    """Logs numbers as metrics of an MLflow run.

    Args:
        tracking_uri: of MLflow's server; None: as MLflow is configured.
        experiment_name: of the experiment; None: the name of the run.

    Raises:
        ImportError: mlflow is not installed.
    """

    def __init__(self, tracking_uri: str | None = None, experiment_name: str | None = None):
        try:
            import mlflow
        except ImportError:
            raise ImportError("MLflowCallback needs mlflow: pip install mlflow") from None
        self._mlflow: Any = mlflow
        self._uri, self._experiment = tracking_uri, experiment_name
        self._logged = 0

    def on_start(self, run_context: RunContext, history: list[dict[str, Any]]) -> None:
        """Starts the run of MLflow.

        Args:
            run_context: the run.
            history: what was reported before, in order; not empty when a run goes on.
        """
        if self._uri:
            self._mlflow.set_tracking_uri(self._uri)
        self._mlflow.set_experiment(self._experiment or run_context.name)
        self._mlflow.start_run(run_name=run_context.name)
        self._mlflow.log_params(
            {name: str(value)[:500] for name, value in run_context.config.items()}
        )
        self._logged = len(history)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Logs the numbers of a step that was not logged before.

        Args:
            run_context: the run.
            metrics: by rank; those of rank 0 are logged.
            checkpoint: not looked at.
        """
        step = metrics[0]["training_iteration"]
        if (
            step > self._logged
        ):  # MLflow keeps what it got; a step that is done again gives the same.
            self._mlflow.log_metrics(_numbers(metrics[0]), step=step)
            self._logged = step

    def on_end(self, run_context: RunContext, result: Result) -> None:
        """Ends the run of MLflow.

        Args:
            run_context: the run.
            result: tells whether it has failed.
        """
        self._mlflow.end_run("FAILED" if result.error else "FINISHED")


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }

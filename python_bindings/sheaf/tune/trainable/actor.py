# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The process of a trial: an actor whose calls come one after another."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

import sheaf
import sheaf.tune.context  # Ahead of the forks: report needs it.
from sheaf.air import session as air_session
from sheaf.air import storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.trainable.class_session import ClassSession
from sheaf.tune.trainable.function_session import FunctionSession
from sheaf.tune.trainable.messages import Batch, Place, Saved, TrialSpec
from sheaf.tune.trainable.trainable import Trainable

_STOP_S = 0.5  # How long a function has to leave its report.


class TrialActor:
    """Runs one trial, or several one after another. trainable: a function, or a class derived from
    Trainable."""

    def __init__(self, trainable: Any):
        self._trainable = trainable
        self._session: FunctionSession | ClassSession | None = None
        self._used: Trainable | None = None
        self._outputs: _Outputs | None = None

    def begin(self, spec: TrialSpec, checkpoint: Checkpoint | None) -> Batch:
        """Begins a trial; its first results, with the place. Raises what the trial raises."""
        folder = spec.path if spec.filesystem is None else self._make_folder()
        os.makedirs(folder, exist_ok=True)
        if os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0":
            os.environ.setdefault("TUNE_ORIG_WORKING_DIR", os.getcwd())
            os.chdir(folder)
        if spec.log_to_file:
            self._outputs = _Outputs(folder, spec.log_to_file)
            if spec.filesystem is not None:
                air_session.at_end(lambda failed: self._store_outputs(spec, folder))
        if isinstance(self._trainable, type) and issubclass(self._trainable, Trainable):
            used, self._used = self._used, None
            # A Trainable may ask for its context while it is set up.
            air_session.set_session(FunctionSession(spec, lambda config: None, checkpoint))
            self._session = ClassSession(spec, self._trainable, checkpoint, used)
        else:
            self._session = FunctionSession(spec, self._trainable, checkpoint)
        air_session.set_session(self._session)
        batch = self._results_of(self._session.begin)
        return Batch(batch.rows, batch.ended, _place())

    def _make_folder(self) -> str:
        """To work in, until the trial is over."""
        import shutil
        import tempfile  # They take as long as a short trial.

        folder, before = tempfile.mkdtemp(prefix="sheaf-trial-"), os.getcwd()

        def leave(failed: bool) -> None:
            os.chdir(before)
            shutil.rmtree(folder, ignore_errors=True)

        air_session.at_end(leave)
        return folder

    def _store_outputs(self, spec: TrialSpec, folder: str) -> None:
        """What was printed into the files that log_to_file names, into the trial's folder."""
        assert spec.log_to_file is not None
        files = storage.files_of(spec.filesystem)
        files.make_folder(spec.path)
        for name in set(spec.log_to_file):
            with open(os.path.join(folder, name), "rb") as file:
                files.write(f"{spec.path}/{name}", file.read())

    def take(self) -> Batch:
        """The trial goes on: its next results. Raises what the trial raises."""
        assert self._session is not None
        return self._results_of(self._session.take)

    def _results_of(self, take: Callable[[], Batch]) -> Batch:
        try:
            return take()
        except BaseException:
            if isinstance(self._session, ClassSession):
                with contextlib.suppress(Exception):  # What it raised before counts.
                    self._session.trainable.stop()
            air_session.run_endings(failed=True)
            raise

    def save(self) -> Saved:
        """Saves now."""
        assert self._session is not None
        return Saved(self._session.save())

    def stop(self, again: bool) -> bool:
        """Ends the trial. again: the process shall run another. False: its function does not
        end."""
        stopped, self._session = self._session, None
        if isinstance(stopped, ClassSession) and again:
            self._used = stopped.trainable
        elif isinstance(stopped, ClassSession):
            stopped.trainable.stop()
        ended = stopped is None or stopped.stop(_STOP_S)
        air_session.run_endings(failed=False)
        air_session.set_session(None)
        if self._outputs is not None:
            self._outputs.close()
            self._outputs = None
        return ended


def _place() -> Place:
    context = sheaf.get_runtime_context()
    try:
        log = os.path.basename(os.readlink("/proc/self/fd/2"))
    except OSError:
        log = ""
    return Place(os.getpid(), os.uname().nodename, context.get_node_id(), log)


class _Tee:
    """Writes to a stream and a file."""

    def __init__(self, stream: TextIO, file: TextIO):
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        self._file.write(text)
        self._file.flush()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Outputs:
    """What a trial prints, in files of its folder as well."""

    def __init__(self, path: str, names: tuple[str, str]):
        self._before = sys.stdout, sys.stderr
        paths = [os.path.join(path, name) for name in names]
        out = open(paths[0], "a", encoding="utf-8")  # noqa: SIM115
        err = out if paths[0] == paths[1] else open(paths[1], "a", encoding="utf-8")  # noqa: SIM115
        self._files = {out, err}
        sys.stdout, sys.stderr = _Tee(sys.stdout, out), _Tee(sys.stderr, err)

    def close(self) -> None:
        sys.stdout, sys.stderr = self._before
        for file in self._files:
            file.close()

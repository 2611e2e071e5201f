# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments whose folder lies in a storage that is no folder of this machine, as the driver and
the trials see it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest
import sheaf
from conftest import wait_until
from sheaf import tune
from sheaf.air import storage
from sheaf.tune.execution.experiment_files import JOURNAL, read_journal, second_of
from sheaf.tune.execution.journal import encode_line
from sheaf.tune.execution.mirror import Mirror
from sheaf.tune.search import Searcher


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def count(config):
    """Counts to 6, a checkpoint with each; stops at `hold` until its file is there."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            start = json.loads((pathlib.Path(folder) / "n.json").read_text())
    print("begins at", start)
    pathlib.Path("scratch").write_text("x")  # The working directory is a folder of this machine.
    for n in range(start + 1, 7):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "n.json").write_text(json.dumps(n))
            saved = tune.Checkpoint.from_directory(folder)
            tune.report(
                {"n": n, "from": start, "x": config["x"], "cwd": os.getcwd()}, checkpoint=saved
            )
        while n == 3 and config.get("hold") and not os.path.exists(config["hold"]):
            time.sleep(0.05)


def fsspec_folder(root):
    """A file system whose root is a folder: nothing of it is a path of this machine."""
    fsspec = pytest.importorskip("fsspec")
    return {
        "storage_path": "runs",
        "storage_filesystem": fsspec.filesystem("dir", path=str(root), target_protocol="file"),
    }


def pyarrow_folder(root):
    fs = pytest.importorskip("pyarrow.fs")
    return {
        "storage_path": "runs",
        "storage_filesystem": fs.SubTreeFileSystem(str(root), fs.LocalFileSystem()),
    }


def fsspec_uri(root):
    pytest.importorskip("fsspec")
    return {"storage_path": f"local://{root}/runs"}


def file_uri(root):
    return {"storage_path": f"file://{root}/runs"}


PLACES = [fsspec_folder, pyarrow_folder, fsspec_uri, file_uri]


@pytest.mark.parametrize("place", PLACES)
def test_an_experiment_is_in_its_storage(place, tmp_path, monkeypatch):
    where = place(tmp_path)
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    results = tune.Tuner(
        count,
        param_space={"x": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="n", mode="max"),
        run_config=tune.RunConfig(
            name="e",
            verbose=0,
            log_to_file=True,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
            **where,
        ),
    ).fit()
    assert not results.errors
    there = tmp_path / "runs" / "e"
    assert (there / JOURNAL).stat().st_size > 0
    trials = sorted(path for path in there.iterdir() if path.is_dir())
    assert len(trials) == 2
    for trial in trials:
        kept = sorted(path.name for path in trial.glob("checkpoint_*"))
        assert kept == ["checkpoint_000004", "checkpoint_000005"]
        assert len((trial / "result.json").read_text().splitlines()) == 6
        assert len((trial / "progress.csv").read_text().splitlines()) == 7
        assert "begins at 0" in (trial / "stdout").read_text()
    best = results.get_best_result()
    with best.checkpoint.as_directory() as folder:
        assert (pathlib.Path(folder) / "n.json").read_text() == "6"
    assert [row["n"] for row in best.metrics_history] == [1, 2, 3, 4, 5, 6]
    path = where["storage_path"] + "/e"
    filesystem = where.get("storage_filesystem")
    assert tune.Tuner.can_restore(path, filesystem)
    again = tune.Tuner.restore(path, count, storage_filesystem=filesystem).get_results()
    assert [one.metrics["n"] for one in again] == [6, 6]
    assert again[0].best_checkpoints[-1][0] == results[0].best_checkpoints[-1][0]
    assert not list(own.iterdir())
    if place is not file_uri:  # Else trials work in their own folders.
        assert not any(os.path.exists(one.metrics["cwd"]) for one in results)


@pytest.mark.parametrize("place", ["fsspec_folder", "pyarrow_folder"])
def test_an_experiment_whose_program_is_killed_goes_on_from_its_storage(
    place, tmp_path, monkeypatch
):
    globals()[place](tmp_path)  # Skips where the package is missing.
    program = f"""
        import pathlib, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import sheaf
        from sheaf import tune
        from test_storage import Counting, count, {place}
        sheaf.init(num_cpus=2, log_to_driver=False)
        tune.Tuner(
            count,
            tune_config=tune.TuneConfig(search_alg=Counting(), num_samples=4, max_concurrent_trials=2),
            param_space={{"hold": {str(tmp_path / "go")!r}}},
            run_config=tune.RunConfig(name="e", verbose=0, **{place}(pathlib.Path({str(tmp_path)!r}))),
        ).fit()
    """
    killed = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TMPDIR": str(tmp_path)},  # What a kill leaves goes with the test.
    )
    where = globals()[place](tmp_path)
    files, path = storage.files_of(where["storage_filesystem"]), "runs/e"

    def two_have_saved():  # What has come to the storage says so.
        records, _ = read_journal(where["storage_filesystem"], path)
        newest = {one["id"]: one for record in records for one in record.get("trials", ())}
        return sum(one["next_checkpoint"] == 3 for one in newest.values()) == 2

    wait_until(two_have_saved)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    (tmp_path / "go").touch()
    assert len(list(tmp_path.glob("sheaf-tune-*"))) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    filesystem = where["storage_filesystem"]
    results = tune.Tuner.restore(path, count, storage_filesystem=filesystem).fit()
    assert len(results) == 4 and not results.errors
    assert sorted(one.metrics["x"] for one in results) == [1, 2, 3, 4]  # The searcher went on.
    assert sorted(one.metrics["from"] for one in results) == [0, 0, 3, 3]
    for result in results:
        assert [row["n"] for row in result.metrics_history] == [1, 2, 3, 4, 5, 6]
        assert files.names(result.path)
    assert not list(tmp_path.glob("sheaf-tune-*"))  # What the killed one has left is gone, too.
    states = [name for name in files.names(path) if name.startswith("searcher-state-")]
    assert len(states) == 1 and files.names(f"{path}/{states[0]}") == ["state", "state.wrapper"]


class Counting(Searcher):
    """Suggests 1, 2, 3 and so on; its state is in a file."""

    n = 0

    def suggest(self, trial_id):
        self.n += 1
        return {"x": self.n}

    def on_trial_complete(self, trial_id, result=None, error=False):
        pass

    def save(self, checkpoint_path):
        pathlib.Path(checkpoint_path).write_text(str(self.n))

    def restore(self, checkpoint_path):
        self.n = int(pathlib.Path(checkpoint_path).read_text())


def test_a_copy_of_the_journal_that_was_cut_short_is_not_used(tmp_path):
    filesystem = fsspec_folder(tmp_path)["storage_filesystem"]
    mirror = Mirror(filesystem, "e")
    whole = tmp_path / "e" / JOURNAL
    mirror.start()
    line = encode_line({"settings": 1})
    pathlib.Path(mirror.local, JOURNAL).write_bytes(line * 3 + line[:5])
    mirror.push()
    assert whole.read_bytes() == line * 3  # Whole records alone.
    whole.write_bytes(line + line[:7])
    assert len(read_journal(filesystem, "e")[0]) == 3
    pathlib.Path(second_of(str(whole))).write_bytes(line[:7])
    whole.write_bytes(line * 2)
    assert len(read_journal(filesystem, "e")[0]) == 2
    mirror.close()


def test_a_storage_has_the_state_that_its_journal_names_at_each_moment(tmp_path):
    """Whatever the last write was that came through before the program was killed."""
    filesystem = fsspec_folder(tmp_path)["storage_filesystem"]
    mirror, writes = Mirror(filesystem, "e"), []

    def named():
        records, _ = read_journal(filesystem, "e")
        return records[-1]["searcher"] if records else None

    def after_each(call):
        def called(*given):
            call(*given)
            writes.append(given[0])
            files = storage.files_of(filesystem)
            assert named() is None or files.names(f"e/searcher-state-{named()}") == ["a", "state"]

        return called

    mirror._files.write = after_each(mirror._files.write)
    mirror._files.remove = after_each(mirror._files.remove)
    local = pathlib.Path(mirror.local)
    mirror.start()
    for number in range(3):
        folder = local / f"searcher-state-{number}"
        folder.mkdir()
        (folder / "a").write_text("wrapper")
        (folder / "state").write_text(str(number))
        with open(local / JOURNAL, "ab") as file:
            file.write(encode_line({"searcher": number}))
        shutil.rmtree(local / f"searcher-state-{number - 1}", ignore_errors=True)
        mirror.push()
        assert named() == number
    assert writes[-1] == "e/searcher-state-1"
    mirror.close()


def test_a_storage_that_fails_ends_the_experiment_and_keeps_its_files(tmp_path):
    class Breaks(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            shutil.rmtree(tmp_path / "runs")
            (tmp_path / "runs").write_text("no folder any more")

    run = tune.RunConfig(name="e", verbose=0, callbacks=[Breaks()], **fsspec_folder(tmp_path))
    with pytest.raises(OSError, match="the experiment's files are in ") as raised:
        tune.Tuner(lambda config: {"v": 1}, run_config=run).fit()
    local = pathlib.Path(str(raised.value).rpartition(" ")[2])
    assert (local / JOURNAL).stat().st_size > 0
    shutil.rmtree(local.parent)


def test_a_uri_that_nobody_knows_is_refused(monkeypatch):
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="no package knows this URI .*fsspec"):
        storage.resolve("nosuch://bucket/x")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install fsspec"):
        storage.resolve("s3://bucket/x")

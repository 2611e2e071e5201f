# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Whose folder is whose: of trials that are called alike, of experiments of one name, and what is in
them."""

import json
import os
import pathlib

import pytest
import sheaf
from sheaf import tune
from sheaf.tune.logger import LoggerCallback


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def tuner(trainable, folder, values=(0, 1), run=None, **config):
    return tune.Tuner(
        trainable,
        param_space={"x": tune.grid_search(list(values))},
        tune_config=tune.TuneConfig(**config),
        run_config=tune.RunConfig(name="e", storage_path=str(folder), verbose=0, **(run or {})),
    )


def report_x(config):
    return {"x": config["x"]}


def rows_of(result):
    lines = (pathlib.Path(result.path) / "result.json").read_text().splitlines()
    return [json.loads(line)["x"] for line in lines]


class Opens(LoggerCallback):
    """Writes into the trial's folder from the beginning."""

    def log_trial_start(self, trial):
        with open(f"{trial.local_path}/begun", "w") as file:
            file.write(str(trial))


@pytest.mark.parametrize(
    "alike",
    [
        {"trial_dirname_creator": lambda trial: "same"},
        {"trial_name_creator": lambda trial: "same", "trial_dirname_creator": str},
    ],
)
def test_trials_that_are_called_alike_have_folders_of_their_own(alike, tmp_path):
    grid = tuner(report_x, tmp_path, range(3), **alike).fit()
    assert not grid.errors
    assert len({result.path for result in grid}) == 3
    assert [rows_of(result) for result in grid] == [[0], [1], [2]]
    assert os.path.basename(grid[0].path) == "same"


def test_a_callback_may_write_into_a_trials_folder_when_it_starts(tmp_path):
    grid = tuner(report_x, tmp_path, run={"callbacks": [Opens()]}).fit()
    assert not grid.errors
    assert all((pathlib.Path(result.path) / "begun").exists() for result in grid)


class Plain(tune.Trainable):
    def step(self):
        return {"x": self.config["x"], "done": True}


class Saves(Plain):
    def save_checkpoint(self, checkpoint_dir):
        return {"x": self.config["x"]}

    def load_checkpoint(self, checkpoint):
        assert checkpoint == {"x": self.config["x"]}


def test_a_class_that_can_save_does_at_the_end_unless_it_is_told_not_to(tmp_path):
    def kept(kind, name, at_end=None):
        run = {"checkpoint_config": tune.CheckpointConfig(checkpoint_at_end=at_end)}
        grid = tuner(kind, tmp_path / name, run=run).fit()
        assert not grid.errors
        return [result.checkpoint is not None for result in grid]

    assert kept(Saves, "unset") == [True, True]
    assert kept(Saves, "no", at_end=False) == [False, False]
    assert kept(Plain, "cannot") == [False, False]


@pytest.mark.parametrize("where", ["folder", "storage"])
def test_a_second_experiment_of_one_name_is_the_one_that_is_restored(where, tmp_path):
    more = {}
    if where == "storage":
        pytest.importorskip("pyarrow")
        from pyarrow import fs

        more = {"storage_filesystem": fs.LocalFileSystem()}
    space = {"trial_dirname_creator": lambda trial: f"trial_{trial.config['x']}"}
    first = tuner(report_x, tmp_path, range(4), run=more, **space).fit()
    second = tuner(report_x, tmp_path, range(2, 4), run=more, **space).fit()
    again = tune.Tuner.restore(str(tmp_path / "e"), report_x, **more)
    assert [one.path for one in again.get_results()] == [one.path for one in second]
    assert [one.config["x"] for one in again.fit()] == [2, 3]
    assert [rows_of(result) for result in first][:2] == [[0], [1]]
    kept = {name for name in os.listdir(tmp_path / "e") if name.startswith("experiment.")}
    assert "experiment.journal.before" in kept


def test_a_second_fit_of_one_tuner_is_an_experiment_of_its_own(tmp_path):
    one = tuner(report_x, tmp_path)
    one.fit()
    last = one.fit()
    restored = tune.Tuner.restore(str(tmp_path / "e"), report_x).get_results()
    assert [result.path for result in restored] == [result.path for result in last]

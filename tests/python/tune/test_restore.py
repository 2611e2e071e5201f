# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments whose driver is killed, or interrupted, and that are taken up again: nothing that was
over is lost or run twice, the rest goes on from its checkpoints, the searcher too."""

import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import sheaf
from conftest import wait_until
from sheaf import tune
from sheaf.tune.execution.experiment_log import JOURNAL, Found
from sheaf.tune.search import ConcurrencyLimiter, Searcher

STEPS, TRIALS = 5, 10

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
import sheaf
from sheaf import tune
from test_restore import TRIALS, train
sheaf.init(num_cpus=4, log_to_driver=False)
tune.Tuner(
    train,
    param_space={"n": tune.grid_search(list(range(TRIALS))), "x": tune.uniform(0, 1), "folder": sys.argv[1]},
    tune_config=tune.TuneConfig(metric="v", mode="max"),
    run_config=tune.RunConfig(name="e", storage_path=sys.argv[1], verbose=0),
).fit()
"""


def train(config):
    """Counts, and saves each step."""
    start, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = json.loads((pathlib.Path(folder) / "step").read_text())
    with open(f"{config['folder']}/begun", "a") as file:
        file.write(f"{config['n']}\n")
    for step in range(start + 1, STEPS + 1):
        time.sleep(0.01)
        os.makedirs("made", exist_ok=True)
        (pathlib.Path("made") / "step").write_text(str(step))
        tune.report({"v": config["n"] * step}, checkpoint=tune.Checkpoint.from_directory("made"))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.mark.parametrize("seed", range(3))
def test_a_driver_that_is_killed_anywhere_loses_nothing(tmp_path, seed):
    draw = random.Random(seed)
    (tmp_path / "begun").touch()
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), os.path.dirname(__file__)],
        start_new_session=True,
    )
    journal = tmp_path / "e" / JOURNAL
    wanted = draw.randrange(1000, 30000)  # Bytes of the journal, at which it is killed.
    wait_until(
        lambda: driver.poll() is not None or journal.exists() and journal.stat().st_size >= wanted
    )
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    with open(journal, "rb+") as file:  # And what the disk had not got is torn.
        file.truncate(journal.stat().st_size - draw.randrange(20))
    over = {one["config"]["n"] for one in Found(str(tmp_path / "e")).trials.values()
            if one["status"] == "TERMINATED"}  # fmt: skip
    begun = collections.Counter((tmp_path / "begun").read_text().split())
    grid = tune.Tuner.restore(str(tmp_path / "e"), train, resume_errored=True).fit()
    assert [result.config["n"] for result in grid] == list(range(TRIALS)) and not grid.num_errors
    assert [result.metrics["v"] for result in grid] == [n * STEPS for n in range(TRIALS)]
    assert all(result.metrics["training_iteration"] == STEPS for result in grid)
    now = collections.Counter((tmp_path / "begun").read_text().split())
    assert all(now[str(n)] == begun[str(n)] for n in over), "what was over has run again"
    assert tune.Tuner.restore(str(tmp_path / "e"), train).get_results().get_best_result()


class Walk(Searcher):
    """Suggests numbers that depend on all that it was told."""

    def __init__(self):
        super().__init__("v", "max")
        self.draw, self.told = random.Random(5), []

    def suggest(self, trial_id):
        return {"x": self.draw.random() + sum(self.told)}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append(result["v"])

    def save(self, checkpoint_path):
        with open(checkpoint_path, "w") as file:
            state = self.draw.getstate()
            json.dump([[state[0], list(state[1]), state[2]], self.told], file)

    def restore(self, checkpoint_path):
        with open(checkpoint_path) as file:
            state, self.told = json.load(file)
        self.draw.setstate((state[0], tuple(state[1]), state[2]))


class Interrupts(tune.Callback):
    """Ends the experiment behind so many trials."""

    def __init__(self, trials):
        self.left = trials

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def walk(folder, callbacks=()):
    return tune.Tuner(
        lambda config: {"v": config["x"]},
        tune_config=tune.TuneConfig(
            search_alg=ConcurrencyLimiter(Walk(), 1), num_samples=12, metric="v", mode="max"
        ),
        run_config=tune.RunConfig(name="walk", storage_path=folder, verbose=0, callbacks=callbacks),
    )


def test_a_searcher_goes_on_as_if_nothing_had_happened(tmp_path):
    whole = [result.config["x"] for result in walk(tmp_path / "whole").fit()]
    with pytest.raises(KeyboardInterrupt):
        walk(tmp_path, [Interrupts(5)]).fit()
    again = tune.Tuner.restore(str(tmp_path / "walk"), lambda config: {"v": config["x"]})
    again._ask.run.callbacks = ()
    assert [result.config["x"] for result in again.fit()] == whole


def test_what_has_failed_goes_on_begins_anew_or_stays(tmp_path):
    def fails(config):
        if not os.path.exists(config["mend"]):
            raise ValueError("not yet")
        tune.report({"v": 1})

    mend = tmp_path / "mend"
    tuner = tune.Tuner(
        fails,
        param_space={"mend": str(mend)},
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    )
    assert tuner.fit().num_errors == 1
    path = str(tmp_path / "e")
    assert tune.Tuner.restore(path, fails).fit().num_errors == 1
    assert isinstance(tune.Tuner.restore(path, fails).get_results().errors[0], ValueError)
    assert tune.Tuner.restore(path, fails, resume_errored=True).fit().num_errors == 1
    mend.touch()
    grid = tune.Tuner.restore(path, fails, restart_errored=True).fit()
    assert grid.num_errors == 0 and grid[0].metrics["v"] == 1
    with pytest.raises(ValueError, match="the experiment in .* had 'fails'"):
        tune.Tuner.restore(path, train)


def test_run_takes_up_where_it_is_told(tmp_path):
    def once(**more):
        return tune.run(
            lambda config: {"v": config["x"]},
            config={"x": tune.uniform(0, 1)},
            num_samples=3,
            name="r",
            storage_path=str(tmp_path),
            verbose=0,
            **more,
        ).results

    with pytest.raises(ValueError, match="there is no experiment"):
        once(resume=True)
    first = once(resume="AUTO")
    assert once(resume=True) == first == once(resume="AUTO")

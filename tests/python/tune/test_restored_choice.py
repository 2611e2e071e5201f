# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments with schedulers and searchers that are told their metric and space by TuneConfig and
param_space: they are taken up again like others."""

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import types

import pytest
import sheaf
from sheaf import tune
from sheaf.tune.execution.experiment_files import JOURNAL
from sheaf.tune.execution.journal import encode_line, read_records
from sheaf.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from sheaf.tune.search import ConcurrencyLimiter
from sheaf.tune.search.hyperopt import HyperOptSearch
from sheaf.tune.search.optuna import OptunaSearch

TRIALS = 6
CHOICES = {
    "asha": lambda: {"scheduler": ASHAScheduler(max_t=4, grace_period=1)},
    "hyperband": lambda: {"scheduler": HyperBandScheduler(max_t=4)},
    "median": lambda: {"scheduler": MedianStoppingRule(grace_period=1)},
    "pbt": lambda: {
        "scheduler": PopulationBasedTraining(
            perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 1)}
        )
    },
    "optuna": lambda: {"search_alg": OptunaSearch(seed=3)},
    "hyperopt": lambda: {"search_alg": HyperOptSearch(random_state_seed=3)},
    "limited optuna": lambda: {"search_alg": ConcurrencyLimiter(OptunaSearch(seed=3), 2)},
    "limited hyperopt": lambda: {"search_alg": ConcurrencyLimiter(HyperOptSearch(), 2)},
}


class Counts(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"v": self.n * self.config["x"], "done": self.n == 4}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


class Ends(tune.Callback):
    """Ends the driver's process at the third result of the experiment that has no mark yet."""

    def __init__(self, how, mark):
        self.how, self.mark, self.left = how, mark, 3

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1
        if self.left == 0 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), self.how)


def tuner(folder, choice, how=signal.SIGINT):
    return tune.Tuner(
        Counts,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            metric="v", mode="max", num_samples=TRIALS, **CHOICES[choice]()
        ),
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), verbose=0, callbacks=[Ends(how, f"{folder}/mark")]
        ),
    )


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def made(choice):
    """Skips what stands on a package that is not installed."""
    for package in ("optuna", "hyperopt"):
        if package in choice:
            pytest.importorskip(package, reason=f"{package} is not installed")
    return choice


def take_up(folder):
    grid = tune.Tuner.restore(str(folder / "e"), Counts).fit()
    assert (len(grid), grid.num_errors) == (TRIALS, 0), grid.errors
    assert all("v" in result.metrics for result in grid)
    return grid


@pytest.mark.parametrize("choice", CHOICES)
def test_what_ctrl_c_has_ended_is_taken_up(choice, tmp_path):
    tuner(tmp_path, made(choice)).fit()
    assert (tmp_path / "mark").exists()
    first = take_up(tmp_path)
    assert [one.metrics for one in take_up(tmp_path)] == [one.metrics for one in first]


_PROGRAM = """
import sys, signal, pathlib, sheaf
sys.path.insert(0, sys.argv[3])
import test_restored_choice as of
sheaf.init(num_cpus=4, log_to_driver=False)
of.tuner(pathlib.Path(sys.argv[1]), sys.argv[2], signal.SIGKILL).fit()
"""


@pytest.mark.parametrize("choice", ["asha", "pbt", "limited optuna"])
def test_what_was_killed_is_taken_up(choice, tmp_path):
    made(choice)
    driver = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), choice, os.path.dirname(__file__)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        timeout=120,
        check=False,
    )
    assert driver.returncode == -signal.SIGKILL
    take_up(tmp_path)


def test_a_journal_whose_scheduler_was_told_already_is_taken_up(tmp_path):
    """As those of before were written."""
    tuner(tmp_path, "asha").fit()
    journal = tmp_path / "e" / JOURNAL
    records, _ = read_records(journal.read_bytes())
    packed = json.loads(json.dumps(records[0]["settings"]))
    told = ASHAScheduler(max_t=4, grace_period=1)
    assert told.set_search_properties("v", "max")
    scheduler = {"__pickled__": base64.b64encode(pickle.dumps(told)).decode()}
    packed["objects"]["scheduler"] = scheduler
    records[0]["settings"] = packed
    journal.write_bytes(b"".join(map(encode_line, records)))
    take_up(tmp_path)


def adds(config):
    value = sheaf.get(config["data"]) + sheaf.get(config["each"])
    if config["fails"] == value:
        raise ValueError("not with these")
    return {"v": value}


def space_of(data, each, fails=6):
    each = tune.grid_search([sheaf.put(one) for one in each])
    return {"data": sheaf.put(data), "each": each, "fails": fails, "drawn": tune.uniform(0, 1)}


def restored(folder, space):
    return tune.Tuner.restore(str(folder / "e"), adds, restart_errored=True, param_space=space)


def test_new_references_stand_where_those_of_another_session_stood(tmp_path):
    run = tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0)
    first = tune.Tuner(adds, param_space=space_of(5, [1, 2]), run_config=run).fit()
    assert first.num_errors == 1
    sheaf.shutdown()
    sheaf.init(num_cpus=4, log_to_driver=False)
    assert [one.metrics.get("v") for one in restored(tmp_path, None).get_results()] == [None, 7]
    with pytest.raises(ValueError, match="give Tuner.restore.param_space"):
        restored(tmp_path, None).fit()
    for other in (
        space_of(5, [1, 2], fails=0),
        space_of(5, [1, 2, 3]),
        {**space_of(5, [1, 2]), "drawn": tune.uniform(0, 2)},
        {**space_of(5, [1, 2]), "more": 1},
        {**space_of(5, [1, 2]), "data": 5},
    ):
        with pytest.raises(ValueError, match="the experiment has .* there"):
            restored(tmp_path, other)
    grid = restored(tmp_path, space_of(50, [10, 20])).fit()
    assert not grid.errors
    assert [one.metrics["v"] for one in grid] == [60, 7]
    # The journal has the new ones now: in the same session they are there still.
    assert not restored(tmp_path, None).fit().errors


@pytest.mark.parametrize("kind", [HyperBandScheduler, HyperBandForBOHB])
def test_a_trial_that_was_out_when_it_was_interrupted_ends_with_its_next_result(kind):
    scheduler = kind(max_t=4, metric="v", mode="max")
    trial = types.SimpleNamespace(trial_id="a", status="RUNNING")
    scheduler.on_trial_add(None, trial)
    scheduler._bracket(trial).cleanup_trial("a")
    again = scheduler.on_trial_result(None, trial, {"training_iteration": 1, "v": 1})
    assert again == scheduler.STOP

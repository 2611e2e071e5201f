# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What callbacks, stoppers and users hear of an experiment, and what becomes of what they raise."""

import logging
import pathlib
import shutil

import pytest
import sheaf
from sheaf import tune
from sheaf.tune.logger import LoggerCallback
from sheaf.tune.schedulers import FIFOScheduler
from sheaf.tune.search import Searcher
from sheaf.tune.stopper import CombinedStopper, MaximumIterationStopper, Stopper


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def fit(trainable, folder, space=None, run=None, **config):
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(**config),
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), **{"verbose": 0, **(run or {})}
        ),
    ).fit()


def saves(config):
    for step in range(3):
        pathlib.Path("made").mkdir(exist_ok=True)
        tune.report({"v": step // 2}, checkpoint=tune.Checkpoint.from_directory("made"))


class Ear(LoggerCallback):
    def __init__(self):
        self.steps, self.saved = [], 0

    def on_step_begin(self, iteration, trials, **info):
        self.steps.append(("begin", iteration))

    def on_step_end(self, iteration, trials, **info):
        self.steps.append(("end", iteration))

    def log_trial_save(self, trial):
        self.saved += 1
        assert trial.checkpoint is not None


def test_callbacks_hear_of_steps_and_of_what_functions_save(tmp_path):
    ear = Ear()
    assert not fit(saves, tmp_path, run={"callbacks": [ear]}).errors
    assert ear.saved == 3
    begun = [number for what, number in ear.steps if what == "begin"]
    ended = [number for what, number in ear.steps if what == "end"]
    assert begun == list(range(len(begun))) and ended == [number + 1 for number in begun]


class Raises(Stopper, FIFOScheduler, Searcher, tune.Callback):
    """On purpose, as whatever it is used."""

    def __init__(self):
        FIFOScheduler.__init__(self)

    def __call__(self, trial_id, result):
        raise ArithmeticError("on purpose")

    def stop_all(self):
        return False

    def on_trial_result(self, *args, **kwargs):
        raise ArithmeticError("on purpose")


class RaisingSearcher(Searcher):
    def suggest(self, trial_id):
        raise ArithmeticError("on purpose")


class RaisingSetup(tune.Callback):
    def setup(self, **info):
        raise ArithmeticError("on purpose")


@pytest.mark.parametrize(
    "given",
    [
        {"run": {"stop": Raises()}},
        {"run": {"stop": lambda trial_id, result: 1 / 0}},
        {"run": {"callbacks": [Raises()]}},
        {"run": {"callbacks": [RaisingSetup()]}},
        {"scheduler": Raises()},
        {"search_alg": RaisingSearcher()},
    ],
)
def test_what_takes_part_and_raises_is_the_cause_of_a_tune_error(given, tmp_path):
    with pytest.raises(tune.TuneError, match="has ended the experiment") as raised:
        fit(lambda config: {"v": 1}, tmp_path, **given)
    assert isinstance(raised.value.__cause__, ArithmeticError)


class EndsAt(tune.Callback):
    def __init__(self, bound):
        self.left = bound

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Steps(tune.Trainable):
    def setup(self, config):
        self.n = 0

    def step(self):
        self.n += 1
        return {"n": self.n}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


@pytest.mark.parametrize("combined", [False, True])
def test_a_stopper_keeps_its_count_over_a_restore(combined, tmp_path):
    stop = MaximumIterationStopper(6)
    run = {
        "stop": CombinedStopper(stop) if combined else stop,
        "callbacks": [EndsAt(4)],
        "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1),
    }
    with pytest.raises(KeyboardInterrupt):
        fit(Steps, tmp_path, run=run)
    again = tune.Tuner.restore(str(tmp_path / "e"), Steps)
    again._ask.run.callbacks = ()
    # Of the fourth result only the stopper knew, so that it comes once more.
    assert 5 <= again.fit()[0].metrics["n"] <= 6


def fails_at_three(config):
    for step in range(10):
        if step == 3 and not pathlib.Path(config["mark"]).exists():
            raise ValueError("not yet")
        tune.report({"n": step})


def test_a_stopper_counts_anew_for_a_trial_that_begins_anew(tmp_path):
    space = {"mark": str(tmp_path / "mark")}
    grid = fit(fails_at_three, tmp_path, space, run={"stop": MaximumIterationStopper(5)})
    assert grid.num_errors == 1
    (tmp_path / "mark").touch()
    again = tune.Tuner.restore(str(tmp_path / "e"), fails_at_three, restart_errored=True).fit()
    assert again[0].metrics["n"] == 4


class Cleans(tune.Trainable):
    def step(self):
        if self.iteration == self.config["at"]:
            raise ValueError("in step")
        return {"n": self.iteration}

    def cleanup(self):
        pathlib.Path(self.config["mark"]).touch()


@pytest.mark.parametrize("at", [0, 2])
def test_cleanup_is_called_after_an_error_in_a_step(at, tmp_path):
    mark = tmp_path / "clean"
    grid = fit(Cleans, tmp_path, {"at": at, "mark": str(mark)})
    assert "in step" in str(grid.errors[0])
    assert mark.exists()


class FailsOnce(Steps):
    def step(self):
        mark = pathlib.Path(self.config["mark"])
        if self.n == 3 and not mark.exists():
            mark.touch()
            raise ValueError("once")
        return {**super().step(), "done": self.n == 5, "begun": self.begun}

    def setup(self, config):
        super().setup(config)
        self.begun = 0

    def load_checkpoint(self, checkpoint):
        super().load_checkpoint(checkpoint)
        self.begun = self.n


@pytest.mark.parametrize("failures", [0, 1])
def test_results_and_checkpoints_before_an_error_in_a_step_count(failures, tmp_path):
    run = {
        "failure_config": tune.FailureConfig(max_failures=failures),
        "checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1),
    }
    result = fit(FailsOnce, tmp_path, {"mark": str(tmp_path / "mark")}, run)[0]
    assert [row["n"] for row in result.metrics_history] == [1, 2, 3, 4, 5][: 5 if failures else 3]
    assert result.metrics["begun"] == (3 if failures else 0)
    assert len(result.best_checkpoints) == (5 if failures else 3)


def test_a_trial_may_remove_its_folder(tmp_path):
    def train(config):
        shutil.rmtree(tune.get_context().get_trial_dir())
        tune.report({"v": 1})

    assert fit(train, tmp_path)[0].metrics["v"] == 1


@pytest.mark.parametrize(("verbose", "shown"), [(0, False), (1, True), (None, True)])
def test_what_a_trial_raises_is_shown(verbose, shown, tmp_path, caplog):
    with caplog.at_level(logging.ERROR):
        fit(lambda config: 1 / 0, tmp_path, run={"verbose": verbose})
    assert ("ZeroDivisionError" in caplog.text and "in <lambda>" in caplog.text) == shown


def test_results_have_slices(tmp_path):
    grid = fit(lambda config: {"x": config["x"]}, tmp_path, {"x": tune.grid_search([1, 2, 3])})
    assert [result.metrics["x"] for result in grid[1:]] == [2, 3]
    assert grid[-1].metrics["x"] == 3


def test_of_equal_checkpoints_the_first_is_the_best(tmp_path):
    result = fit(saves, tmp_path)[0]
    assert result.get_best_checkpoint("v", "min").path.endswith("checkpoint_000000")
    analysis = tune.ExperimentAnalysis(str(tmp_path / "e"), default_metric="v", default_mode="min")
    best = analysis.get_best_checkpoint(analysis.trials[0])
    assert best.path.endswith("checkpoint_000000")

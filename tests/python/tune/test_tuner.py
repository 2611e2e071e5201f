# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.tune: experiments of functions and classes on real processes."""

import json
import math
import os
import pathlib
import pickle
import signal
import time

import pytest
import sheaf
from conftest import wait_until
from sheaf import tune
from sheaf.exceptions import RayError
from sheaf.tune.schedulers import ASHAScheduler, HyperBandScheduler, PopulationBasedTraining
from sheaf.util.state import list_train_runs


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, num_gpus=2, log_to_driver=False)
    yield
    sheaf.shutdown()


def fit(trainable, space=None, folder=None, run=None, **config):
    """Runs an experiment named "e" in the folder."""
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(**{"metric": "v", "mode": "max", **config}),
        run_config=tune.RunConfig(name="e", storage_path=folder, verbose=0, **(run or {})),
    ).fit()


def save(folder, state):
    (pathlib.Path(folder) / "state.json").write_text(json.dumps(state))
    return tune.Checkpoint.from_directory(folder)


def load(checkpoint, otherwise=0):
    if checkpoint is None:
        return otherwise
    with checkpoint.as_directory() as folder:
        return json.loads((pathlib.Path(folder) / "state.json").read_text())


def count(config):
    """Counts to `steps` and saves each step; fails once where `mark` is not there yet."""
    start = load(tune.get_checkpoint())
    for step in range(start + 1, config["steps"] + 1):
        if step == config.get("fail_at") and not os.path.exists(config["mark"]):
            open(config["mark"], "w").close()
            if config.get("how") == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("fails once")
        os.makedirs("made", exist_ok=True)
        tune.report({"v": step, "from": start}, checkpoint=save("made", step))


class Counter(tune.Trainable):
    def setup(self, config):
        self.n = config.get("first", 0)
        self.made = [config.get("x")]

    def step(self):
        self.n += 1
        return {"v": self.n, "x": self.config.get("x"), "made": len(self.made)}

    def save_checkpoint(self, checkpoint_dir):
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        self.n = checkpoint["n"]


class Reusable(Counter):
    def reset_config(self, new_config):
        self.n = 0
        self.made.append(new_config.get("x"))
        return True


def test_a_grid_and_samples_give_results_in_order(tmp_path):
    def train(config):
        for step in range(3):
            tune.report({"v": config["a"] * 10 + step, "b": config["nested"]["b"]})

    grid = fit(
        train,
        {"a": tune.grid_search([1, 2]), "nested": {"b": tune.uniform(0, 1)}},
        tmp_path,
        num_samples=2,
    )
    assert [result.config["a"] for result in grid] == [1, 2, 1, 2]
    assert len({result.config["nested"]["b"] for result in grid}) == 4
    assert (grid.num_errors, grid.num_terminated, len(grid)) == (0, 4, 4)
    best = grid.get_best_result()
    assert best.metrics["v"] == 22 and best.metrics["training_iteration"] == 3
    assert grid.get_best_result("v", "min", scope="all").metrics["v"] == 12
    assert grid.get_best_result("v", "max", scope="avg").config["a"] == 2
    assert [row["v"] for row in best.metrics_history] == [20, 21, 22]
    assert grid.experiment_path == str(tmp_path / "e")


def test_the_files_of_a_trial_are_rays(tmp_path):
    grid = fit(count, {"steps": 2}, tmp_path)
    folder = pathlib.Path(grid[0].path)
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [row["training_iteration"] for row in rows] == [1, 2]
    assert {
        "training_iteration", "trial_id", "date", "timestamp", "time_this_iter_s", "time_total_s",
        "pid", "hostname", "node_ip", "config", "time_since_restore", "iterations_since_restore",
        "experiment_tag", "done", "checkpoint_dir_name",
    } <= set(rows[0])  # fmt: skip
    assert json.loads((folder / "params.json").read_text()) == {"steps": 2}
    assert pickle.loads((folder / "params.pkl").read_bytes()) == {"steps": 2}
    assert (folder / "progress.csv").read_text().splitlines()[0].startswith("v,from,")
    assert (folder / "checkpoint_000001" / "state.json").read_text() == "2"
    again = tune.Result.from_path(folder)
    assert again.metrics["v"] == 2 and load(again.checkpoint) == 2 and again.config == {"steps": 2}


def test_what_a_function_returns_is_its_last_result(tmp_path):
    assert fit(lambda config: {"v": 3}, folder=tmp_path).get_best_result().metrics["v"] == 3
    grid = fit(lambda config: 4.5, folder=tmp_path, metric=None, mode=None)
    assert grid[0].metrics["_metric"] == 4.5
    assert fit(lambda config: None, folder=tmp_path)[0].metrics["done"] is True


def test_old_and_new_forms_of_report(tmp_path):
    def train(config):
        tune.report(v=1)
        sheaf.air.session.report({"v": 2})
        sheaf.train.report({"v": 3})
        tune.report({"v": 4, "done": True})
        tune.report({"v": 5})

    grid = fit(train, folder=tmp_path)
    assert [row["v"] for row in grid[0].metrics_history] == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="the function of a Tuner"):
        tune.report({"v": 1})


def test_a_trial_knows_itself(tmp_path):
    def train(config):
        context = tune.get_context()
        tune.report(
            {
                "v": 1,
                "name": context.get_trial_name(),
                "id": context.get_trial_id(),
                "where": [context.get_trial_dir(), os.getcwd()],
                "experiment": context.get_experiment_name(),
                "cpus": context.get_trial_resources().required_resources["CPU"],
                "rank": sheaf.train.get_context().get_world_rank(),
            }
        )

    told = fit(tune.with_resources(train, {"cpu": 2}), folder=tmp_path)[0].metrics
    assert told["name"] == f"train_{told['id']}" and told["id"] == told["trial_id"]
    assert told["where"] == [told["where"][0]] * 2 and told["experiment"] == "e"
    assert (told["cpus"], told["rank"]) == (2, 0)


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("failures", [0, 1])
def test_a_failed_trial_goes_on_from_its_checkpoint_or_is_an_error(tmp_path, how, failures):
    config = {"steps": 5, "fail_at": 4, "mark": str(tmp_path / "mark"), "how": how}
    grid = fit(
        count,
        {**config, "other": tune.grid_search([0, 1])},
        tmp_path,
        {"failure_config": tune.FailureConfig(max_failures=failures)},
        max_concurrent_trials=1,
    )
    assert grid.num_errors == 1 - failures and grid[1].metrics["v"] == 5
    if failures:
        assert grid[0].metrics["from"] == 3 and grid[0].metrics["training_iteration"] == 5
        return
    assert isinstance(grid[0].error, RayError) and grid.errors == [grid[0].error]
    text = (pathlib.Path(grid[0].path) / "error.txt").read_text()
    assert ("fails once" if how == "raise" else "killed by signal 9") in text


def test_fail_fast_ends_all_and_raise_raises(tmp_path):
    def train(config):
        if config["x"] == 0:
            raise ArithmeticError("at once")
        time.sleep(60)

    space = {"x": tune.grid_search([1, 0, 2])}
    began = time.monotonic()
    run = {"failure_config": tune.FailureConfig(fail_fast=True)}
    grid = fit(train, space, tmp_path / "a", run)
    assert grid.num_errors == 1 and time.monotonic() - began < 30
    run = {"failure_config": tune.FailureConfig(fail_fast="raise")}
    with pytest.raises(ArithmeticError):
        fit(train, space, tmp_path / "b", run)


@pytest.mark.parametrize(
    "stop", [{"v": 3}, lambda trial_id, result: result["v"] >= 3, {"training_iteration": 3}]
)
@pytest.mark.parametrize("kind", ["function", "class"])
def test_stop_ends_a_trial_behind_the_result_that_meets_it(tmp_path, stop, kind):
    marks = tmp_path / "cleaned"

    def train(config):
        try:
            step = 0
            while True:
                step += 1
                tune.report({"v": step})
        finally:
            marks.touch()

    grid = fit(train if kind == "function" else Counter, folder=tmp_path, run={"stop": stop})
    assert [row["v"] for row in grid[0].metrics_history] == [1, 2, 3]
    assert grid[0].metrics["done"] is True and marks.exists() == (kind == "function")


def test_a_class_saves_as_it_is_told(tmp_path):
    checkpoints = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    run = {"stop": {"training_iteration": 5}, "checkpoint_config": checkpoints}
    grid = fit(Counter, folder=tmp_path, run=run)
    kept = [metrics["training_iteration"] for _, metrics in grid[0].best_checkpoints]
    assert kept == [2, 4, 5] and grid[0].checkpoint.path.endswith("checkpoint_000002")


def test_the_best_checkpoints_and_the_newest_stay(tmp_path):
    def train(config):
        for value in (5, 1, 4, 2):
            os.makedirs("made", exist_ok=True)
            tune.report({"v": value}, checkpoint=save("made", value))

    keep = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="v")
    grid = fit(train, folder=tmp_path, run={"checkpoint_config": keep})
    assert [load(checkpoint) for checkpoint, _ in grid[0].best_checkpoints] == [5, 4]
    assert sorted(path.name for path in pathlib.Path(grid[0].path).glob("checkpoint_*")) == [
        "checkpoint_000000",
        "checkpoint_000002",
        "checkpoint_000003",  # What a restart goes on from.
    ]
    assert load(grid[0].get_best_checkpoint("v", "max")) == 5


def test_processes_are_used_again_on_request(tmp_path):
    def pids(trainable, **more):
        stop = {"stop": {"training_iteration": 2}}
        space = {"x": tune.grid_search([1, 2, 3])}
        grid = fit(trainable, space, tmp_path, stop, max_concurrent_trials=1, **more)
        assert [result.metrics.get("x", 0) for result in grid] in ([1, 2, 3], [0, 0, 0])
        return [result.metrics["pid"] for result in grid], grid[2].metrics.get("made")

    def train(config):
        for step in range(9):
            tune.report({"v": step})

    assert len(set(pids(train)[0])) == 3
    assert len(set(pids(train, reuse_actors=True)[0])) == 1
    assert pids(Counter, reuse_actors=True)[1] == 1
    used, made = pids(Reusable, reuse_actors=True)
    assert len(set(used)) == 1 and made == 3


def test_the_scheduler_decides_before_a_trial_goes_on(tmp_path):
    def train(config):
        for step in range(1, 10):
            (tmp_path / f"{config['x']}-{step}").touch()
            tune.report({"v": config["x"] * step})

    scheduler = ASHAScheduler(max_t=9, grace_period=3, reduction_factor=3)
    space = {"x": tune.grid_search([3, 2, 1])}
    grid = fit(train, space, tmp_path, scheduler=scheduler, max_concurrent_trials=1)
    assert [result.metrics["training_iteration"] for result in grid] == [9, 3, 3]
    assert not (tmp_path / "1-4").exists()


def test_hyperband_pauses_and_goes_on(tmp_path):
    scheduler = HyperBandScheduler(max_t=9, reduction_factor=3)
    space = {
        "x": tune.grid_search(list(range(9))),
        "first": tune.sample_from(lambda spec: spec.config.x * 100),
    }
    grid = fit(Counter, space, tmp_path, {"stop": {"training_iteration": 9}}, scheduler=scheduler)
    lengths = [result.metrics["training_iteration"] for result in grid]
    assert grid.num_errors == 0 and max(lengths) == 9 and lengths.count(9) < 9
    best = grid.get_best_result()
    assert best.config["x"] == 8 and best.metrics["v"] == 809


@pytest.mark.parametrize("kind", ["function", "class"])
def test_pbt_goes_on_from_the_checkpoint_of_a_better_trial(tmp_path, kind):
    def train(config):
        state = load(tune.get_checkpoint(), {"v": 0, "step": 0})
        while True:
            state = {"v": state["v"] + config["x"], "step": state["step"] + 1}
            os.makedirs("made", exist_ok=True)
            tune.report(state, checkpoint=save("made", state))

    class Train(tune.Trainable):
        def setup(self, config):
            self.state = {"v": 0, "step": 0}

        def step(self):
            state = self.state
            self.state = {"v": state["v"] + self.config["x"], "step": state["step"] + 1}
            return dict(self.state)

        def save_checkpoint(self, checkpoint_dir):
            return self.state

        def load_checkpoint(self, checkpoint):
            self.state = checkpoint

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"x": [1, 2, 3, 100]},
        quantile_fraction=0.25,
        resample_probability=0,
        synch=True,
    )
    grid = fit(
        train if kind == "function" else Train,
        {"x": tune.grid_search([1, 2, 3, 100])},
        tmp_path,
        {"stop": {"training_iteration": 8}},
        scheduler=scheduler,
    )
    assert grid.num_errors == 0
    assert all(r.metrics["step"] == r.metrics["training_iteration"] == 8 for r in grid)
    assert sorted(result.metrics["v"] for result in grid)[0] >= 200  # The worst took the best's.


def test_a_time_budget_ends_even_a_trial_that_hangs(tmp_path):
    began = time.monotonic()
    grid = fit(lambda config: time.sleep(600), folder=tmp_path, time_budget_s=0.5)
    assert time.monotonic() - began < 20 and grid[0].error is None


def test_callbacks_hear_of_everything(tmp_path):
    class Ear(tune.Callback):
        def __init__(self):
            self.heard = []

        def setup(self, **info):
            self.heard.append("setup")

        def on_trial_start(self, iteration, trials, trial, **info):
            self.heard.append("start")

        def on_trial_result(self, iteration, trials, trial, result, **info):
            self.heard.append(result["v"])
            result["more"] = 1

        def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
            self.heard.append("checkpoint")

        def on_trial_complete(self, iteration, trials, trial, **info):
            self.heard.append("complete")

        def on_experiment_end(self, trials, **info):
            self.heard.append(len(trials))

    ear = Ear()
    grid = fit(count, {"steps": 1}, tmp_path, {"callbacks": [ear]})
    assert ear.heard == ["setup", "start", "checkpoint", 1, "complete", 1]
    assert grid[0].metrics_history[0]["more"] == 1

    class Bad(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            raise OSError("no room")

    with pytest.raises(tune.TuneError, match="OSError: no room") as raised:
        fit(count, {"steps": 1}, tmp_path / "bad", {"callbacks": [Bad()]})
    assert isinstance(raised.value.__cause__, OSError)


def test_parameters_are_stored_once_and_come_with_resources(tmp_path):
    def train(config, data, scale=1):
        tune.report({"v": sum(data) * scale, "pid": os.getpid()})

    class Summing(Counter):
        def setup(self, config, data):
            super().setup(config)
            self.n = sum(data)

    bound = tune.with_resources(tune.with_parameters(train, data=[1, 2], scale=2), {"gpu": 0.5})
    assert fit(bound, folder=tmp_path)[0].metrics["v"] == 6
    run = {"stop": {"training_iteration": 1}}
    assert fit(tune.with_parameters(Summing, data=[3, 4]), None, tmp_path, run)[0].metrics["v"] == 8


def test_bundles_are_for_what_a_trial_starts(tmp_path):
    def train(config):
        @sheaf.remote(num_cpus=1)
        def inner():
            return 7

        tune.report({"v": sheaf.get(inner.remote())})

    bundles = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    space = {"x": tune.grid_search([0, 1, 2, 3])}
    grid = fit(tune.with_resources(train, bundles), space, tmp_path)
    assert [result.metrics["v"] for result in grid] == [7] * 4
    wait_until(lambda: sheaf.available_resources().get("CPU") == 4)


def test_what_a_trial_prints_goes_into_files(tmp_path):
    def train(config):
        print("hello from the trial")
        tune.report({"v": 1})

    grid = fit(train, folder=tmp_path, run={"log_to_file": True})
    assert "hello from the trial" in (pathlib.Path(grid[0].path) / "stdout").read_text()


def test_a_trainer_is_tuned_with_its_workers(tmp_path):
    def loop(config):
        for step in range(3):
            # The workers of all trials share the driver's folder, so each trial has its own.
            made = tmp_path / f"made_{config['lr']}"
            made.mkdir(exist_ok=True)
            first = sheaf.train.get_context().get_world_rank() == 0
            value = config["lr"] * config["scale"] * (step + 1)
            sheaf.train.report({"v": value}, checkpoint=save(made, step) if first else None)

    trainer = sheaf.train.DataParallelTrainer(
        loop,
        train_loop_config={"scale": 10, "lr": 0},
        scaling_config=sheaf.train.ScalingConfig(num_workers=2),
    )
    grid = fit(trainer, {"train_loop_config": {"lr": tune.grid_search([1, 2])}}, tmp_path)
    assert [result.metrics["v"] for result in grid] == [30, 60], grid.errors
    assert load(grid.get_best_result().checkpoint) == 2
    assert [row["v"] for row in grid[1].metrics_history] == [20, 40, 60]
    runs = [run for run in list_train_runs() if run.path.startswith(str(tmp_path))]
    assert {run.name for run in runs} == {pathlib.Path(result.path).name for result in grid}


def test_run_is_the_old_form(tmp_path):
    analysis = tune.run(
        "counting" if tune.register_trainable("counting", count) is None else "",
        config={"steps": tune.grid_search([1, 3])},
        name="old",
        storage_path=str(tmp_path),
        metric="v",
        mode="max",
        resources_per_trial={"cpu": 0.5},
        verbose=0,
    )
    assert analysis.best_config == {"steps": 3} and analysis.best_result["v"] == 3
    assert load(analysis.best_checkpoint) == 3 and len(analysis.trials) == 2
    assert analysis.get_best_config("v", "min") == {"steps": 1}
    assert list(analysis.results.values())[1]["v"] == 3
    read = tune.ExperimentAnalysis(tmp_path / "old", default_metric="v", default_mode="max")
    assert read.best_config == {"steps": 3}
    with pytest.raises(tune.TuneError, match="1 of 1 trials have failed"):
        tune.run(lambda config: 1 / 0, storage_path=str(tmp_path), verbose=0)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tune.TuneConfig(mode="best"), ValueError, "mode='best'"),
        (lambda: tune.TuneConfig(num_samples=0), ValueError, "num_samples=0"),
        (lambda: tune.Tuner(3), TypeError, "want a function"),
        (lambda: tune.Tuner(int), TypeError, "derived from sheaf.tune.Trainable"),
        (lambda: tune.Tuner("nobody"), tune.TuneError, "none of this name"),
        (lambda: tune.Tuner(count, param_space=[1]), TypeError, "want a dict"),
        (lambda: tune.with_resources(count, {"cpu": -1}), ValueError, "not negative"),
        (lambda: tune.FailureConfig(max_failures=1, fail_fast=True), ValueError, "leave one"),
        (lambda: tune.Tuner.restore("/nowhere", count), FileNotFoundError, "has no experiment"),
        (lambda: tune.Tuner(count).get_results(), RuntimeError, "call fit"),
        (lambda: tune.Result.from_path("/nowhere"), RuntimeError, "no folder"),
    ],
)
def test_what_does_not_fit_is_said(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_metric_that_is_not_reported_is_said(tmp_path):
    with pytest.raises(tune.TuneError, match="metric 'los' was not reported; got v"):
        fit(lambda config: tune.report({"v": 1}), folder=tmp_path, metric="los")


def test_values_that_are_no_numbers_are_never_the_best(tmp_path):
    def train(config):
        tune.report({"v": config["v"]})

    grid = fit(train, {"v": tune.grid_search([math.nan, 1.0, math.inf])}, tmp_path)
    assert grid.get_best_result().metrics["v"] == 1.0
    assert grid.get_best_result(mode="max", filter_nan_and_inf=True).config == {"v": 1.0}

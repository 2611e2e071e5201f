# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments of ray.tune: Tuner and tune.run, their results, files, checkpoints and errors."""

import json
import os
import pathlib
import tempfile

import ray
from program import main, outcome, program, say
from ray import tune
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from tuning import fit, folder, say_trials


def double(config):
    return {"y": config["x"] * 2}


def steps(config):
    for step in range(3):
        tune.report({"y": config["x"] * step, "step": step})


@program
def a_function_that_returns():
    say_trials(fit(double, {"x": tune.grid_search([1, 2, 3])}), "y", "training_iteration", "done")


@program
def a_function_that_reports():
    say_trials(
        fit(steps, {"x": tune.grid_search([1, 2])}), "y", "step", "training_iteration", "done"
    )


@program
def a_function_that_returns_a_number():
    say_trials(fit(lambda config: config["x"] + 0.5, {"x": 1}), "_metric")


@program
def a_function_that_says_nothing():
    results = fit(lambda config: None, {"x": 1})
    say(len(results), results.num_errors, results.num_terminated, results[0].error)


@program
def keys_of_a_result():
    result = fit(double, {"x": 1})[0]
    wanted = "y training_iteration trial_id date timestamp time_this_iter_s time_total_s pid hostname node_ip config done time_since_restore iterations_since_restore experiment_tag"
    say(
        [name for name in wanted.split() if name not in result.metrics],
        result.metrics["config"],
        result.metrics["experiment_tag"],
    )
    say(
        result.config,
        result.error,
        result.checkpoint,
        isinstance(result.path, str),
        type(result).__name__,
    )


@program
def results_of_an_experiment():
    results = fit(double, {"x": tune.grid_search([3, 1, 2])}, metric="y", mode="max")
    say(len(results), [result.config["x"] for result in results], results[1].metrics["y"])
    say(
        results.get_best_result().config,
        results.get_best_result(mode="min").config,
        results.get_best_result("y", "min").config,
    )
    say(results.errors, results.num_errors, results.num_terminated)
    outcome(lambda: results[7])


@program
def the_best_of_last_or_all():
    def up_and_down(config):
        for value in (1, config["peak"], 2):
            tune.report({"y": value})

    results = fit(up_and_down, {"peak": tune.grid_search([5, 9])}, metric="y", mode="max")
    say(
        results.get_best_result(scope="all").config,
        results.get_best_result(scope="all").metrics["y"],
    )


@program
def the_best_needs_an_objective():
    results = fit(double, {"x": tune.grid_search([1, 2])})
    outcome(results.get_best_result, words=["metric"])
    outcome(results.get_best_result, metric="y", words=["mode"])
    say(results.get_best_result("y", "max").config)
    outcome(results.get_best_result, "nonsense", "max")


@program
def random_configurations():
    search = BasicVariantGenerator(random_state=4)
    say_trials(fit(double, {"x": tune.randint(0, 100)}, num_samples=5, search_alg=search), "y")


@program
def points_first():
    search = BasicVariantGenerator(points_to_evaluate=[{"x": 7}, {"x": 8}], random_state=1)
    say_trials(
        fit(
            double,
            {"x": tune.randint(0, 5), "k": tune.grid_search([1, 2])},
            num_samples=2,
            search_alg=search,
        ),
        "y",
    )


@program
def grids_and_samples():
    results = fit(double, {"x": tune.grid_search([1, 2]), "z": tune.uniform(0, 1)}, num_samples=3)
    say(
        len(results),
        sorted(result.config["x"] for result in results),
        len({result.config["z"] for result in results}),
    )


@program
def values_that_depend():
    say_trials(
        fit(
            double,
            {"a": tune.grid_search([1, 2]), "x": tune.sample_from(lambda spec: spec.config.a * 10)},
        ),
        "y",
    )


@program
def errors_of_trials():
    def fails(config):
        if config["x"] == 2:
            raise ValueError("two is bad")
        return {"y": 1}

    results = fit(fails, {"x": tune.grid_search([1, 2, 3])})
    say(
        results.num_errors,
        results.num_terminated,
        len(results.errors),
        "two is bad" in str(results.errors[0]),
    )
    say([result.error is None for result in results])


@program
def errors_after_reports():
    def fails(config):
        tune.report({"y": 1})
        tune.report({"y": 2})
        raise RuntimeError("late")

    result = fit(fails, {"x": 1})[0]
    say(result.metrics["y"], result.metrics["training_iteration"], "late" in str(result.error))


@program
def trials_that_are_tried_again():
    with folder() as path:

        def fails(config):
            mark = pathlib.Path(path) / "tried"
            tried = len(mark.read_text()) if mark.exists() else 0
            mark.write_text("x" * (tried + 1))
            if tried < 2:
                raise RuntimeError("not yet")
            return {"tried": tried}

        failures = tune.FailureConfig(max_failures=3)
        say_trials(fit(fails, {"x": 1}, run={"failure_config": failures}), "tried")


def saves(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as there:
            start = json.loads((pathlib.Path(there) / "state").read_text())
    for step in range(start + 1, 6):
        with tempfile.TemporaryDirectory() as here:
            (pathlib.Path(here) / "state").write_text(json.dumps(step))
            tune.report(
                {"step": step, "start": start}, checkpoint=tune.Checkpoint.from_directory(here)
            )
        if step == config.get("fails_at") and start == 0:
            raise RuntimeError("fails once")


@program
def checkpoints_of_trials():
    with folder() as path:
        tuner = tune.Tuner(
            saves, param_space={"x": 1}, run_config=tune.RunConfig(storage_path=path, verbose=0)
        )
        result = tuner.fit()[0]
        with result.checkpoint.as_directory() as there:
            say((pathlib.Path(there) / "state").read_text())
        say(
            len(result.best_checkpoints),
            sorted(name for name in os.listdir(result.path) if name.startswith("checkpoint")),
        )


@program
def checkpoints_are_kept():
    with folder() as path:
        kept = tune.CheckpointConfig(num_to_keep=2)
        run = tune.RunConfig(storage_path=path, verbose=0, checkpoint_config=kept)
        result = tune.Tuner(saves, param_space={"x": 1}, run_config=run).fit()[0]
        say([metrics["step"] for _, metrics in result.best_checkpoints])
        say(len([name for name in os.listdir(result.path) if name.startswith("checkpoint")]))


@program
def the_best_checkpoints_are_kept():
    def zigzag(config):
        for score in (3, 9, 1, 8, 2):
            with tempfile.TemporaryDirectory() as here:
                tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory(here))

    kept = tune.CheckpointConfig(
        num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max"
    )
    result = fit(zigzag, {"x": 1}, run={"checkpoint_config": kept})[0]
    say(sorted(metrics["score"] for _, metrics in result.best_checkpoints), result.metrics["score"])


@program
def trials_go_on_from_checkpoints():
    failures = tune.FailureConfig(max_failures=1)
    result = fit(saves, {"fails_at": 3}, run={"failure_config": failures})[0]
    say(result.metrics["step"], result.metrics["start"], result.error)


@program
def files_of_a_trial():
    with folder() as path:
        run = tune.RunConfig(storage_path=path, name="exp", verbose=0)
        results = tune.Tuner(steps, param_space={"x": 5}, run_config=run).fit()
        trial = pathlib.Path(results[0].path)
        say(
            trial.parent == pathlib.Path(path) / "exp",
            results.experiment_path == str(pathlib.Path(path) / "exp"),
        )
        say(
            [
                name
                for name in ("result.json", "progress.csv", "params.json", "params.pkl")
                if not (trial / name).exists()
            ]
        )
        say([json.loads(line)["y"] for line in (trial / "result.json").read_text().splitlines()])
        say(json.loads((trial / "params.json").read_text()))
        header, *rows = (trial / "progress.csv").read_text().splitlines()
        say(header.split(",")[:2], len(rows), "config/x" in header)


class Counter(tune.Trainable):
    def setup(self, config):
        self.total = config.get("start", 0)

    def step(self):
        self.total += 1
        return {"total": self.total, "done": self.total >= 4}

    def save_checkpoint(self, there):
        (pathlib.Path(there) / "total").write_text(str(self.total))

    def load_checkpoint(self, there):
        self.total = int((pathlib.Path(there) / "total").read_text())


@program
def a_class_of_ones_own():
    say_trials(fit(Counter, {"start": tune.grid_search([0, 2])}), "total", "training_iteration")


@program
def a_class_that_saves():
    kept = tune.CheckpointConfig(checkpoint_at_end=True)
    with folder() as path:
        run = tune.RunConfig(storage_path=path, verbose=0, checkpoint_config=kept)
        result = tune.Tuner(Counter, param_space={}, run_config=run).fit()[0]
        with result.checkpoint.as_directory() as there:
            say((pathlib.Path(there) / "total").read_text())


@program
def a_class_is_stopped():
    say_trials(fit(Counter, {}, run={"stop": {"training_iteration": 2}}), "total")


@program
def large_arguments():
    table = list(range(1000))

    def sums(config, data, extra=1):
        return {"sum": sum(data) + config["x"] + extra}

    say_trials(fit(tune.with_parameters(sums, data=table), {"x": tune.grid_search([1, 2])}), "sum")
    say_trials(fit(tune.with_parameters(sums, data=table, extra=5), {"x": 0}), "sum")


@program
def resources_of_trials():
    def cpus(config):
        return {"cpus": ray.get_runtime_context().get_assigned_resources().get("CPU")}

    say_trials(fit(tune.with_resources(cpus, {"cpu": 2}), {}), "cpus")
    say_trials(fit(tune.with_resources(cpus, {"cpu": 0.5}), {}), "cpus")


@program
def contexts_of_trials():
    def looks(config):
        context = tune.get_context()
        return {
            "name": context.get_experiment_name(),
            "id": context.get_trial_id() == tune.get_context().get_trial_id(),
            "dir": context.get_trial_dir().endswith(context.get_trial_dir().split("/")[-1]),
        }

    say_trials(fit(looks, {}, run={"name": "looks"}), "name", "id", "dir")


@program
def names_of_trials():
    results = fit(
        double,
        {"x": tune.grid_search([1, 2])},
        trial_name_creator=lambda trial: f"n{trial.config['x']}",
        trial_dirname_creator=lambda trial: f"d{trial.config['x']}",
    )
    say(sorted(pathlib.Path(result.path).name for result in results))


class Down(Searcher):
    def __init__(self, count):
        super().__init__(metric="y", mode="max")
        self.left = count
        self.told = []

    def suggest(self, trial_id):
        if not self.left:
            return Searcher.FINISHED
        self.left -= 1
        return {"x": self.left}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((result["y"] if result else None, error))


@program
def a_searcher_of_ones_own():
    search = Down(3)
    say_trials(fit(double, {"fixed": 1}, num_samples=10, search_alg=search), "y")
    say(sorted(search.told))


@program
def a_searcher_is_limited():
    search = Down(4)
    results = fit(double, {}, num_samples=3, search_alg=ConcurrencyLimiter(search, 1))
    say([result.config["x"] for result in results], search.told)


@program
def a_searcher_and_a_grid():
    class Takes(Down):
        def set_search_properties(self, metric, mode, config, **spec):
            say(sorted(config))
            return True

    say_trials(
        fit(double, {"k": 5}, num_samples=2, search_alg=Takes(2), metric="y", mode="max"), "y"
    )


@program
def tune_run_as_of_old():
    with folder() as path:
        analysis = tune.run(
            steps,
            config={"x": tune.grid_search([1, 3, 2])},
            metric="y",
            mode="max",
            storage_path=path,
            verbose=0,
        )
        say(
            analysis.best_config,
            analysis.best_result["y"],
            analysis.best_trial.status,
            len(analysis.trials),
        )
        say(
            analysis.get_best_config("y", "min"),
            analysis.get_best_trial("y", "min").last_result["y"],
        )
        say(
            sorted(trial.config["x"] for trial in analysis.trials),
            {trial.status for trial in analysis.trials},
        )


@program
def tune_run_fails():
    def fails(config):
        raise ValueError("no")

    with folder() as path:
        outcome(tune.run, fails, storage_path=path, verbose=0)
        analysis = tune.run(fails, storage_path=path, verbose=0, raise_on_failed_trial=False)
        say([trial.status for trial in analysis.trials])


@program
def callbacks_are_called():
    events = []

    class Notes(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            events.append(("result", result["y"]))

        def on_trial_complete(self, iteration, trials, trial, **info):
            events.append(("complete", trial.config["x"]))

        def on_experiment_end(self, trials, **info):
            events.append(("end", len(trials)))

    fit(steps, {"x": 2}, run={"callbacks": [Notes()]})
    say(events)


@program
def bad_arguments_of_tuner():
    outcome(lambda: tune.TuneConfig(mode="best"))
    outcome(lambda: fit(double, {"x": 1}, metric="y", mode="best"))
    outcome(lambda: fit(5, {"x": 1}))
    outcome(lambda: tune.Tuner(double, param_space=[1]).fit())


@program
def metrics_that_are_missing():
    outcome(lambda: fit(double, {"x": 1}, metric="nonsense", mode="max"), words=["nonsense"])


@program
def experiments_are_restored():
    with folder() as path:
        run = tune.RunConfig(storage_path=path, name="exp", verbose=0)
        say(tune.Tuner.can_restore(f"{path}/exp"))
        tune.Tuner(double, param_space={"x": tune.grid_search([1, 2])}, run_config=run).fit()
        say(tune.Tuner.can_restore(f"{path}/exp"))
        tuner = tune.Tuner.restore(f"{path}/exp", trainable=double)
        say_trials(tuner.get_results(), "y")
        say_trials(tuner.fit(), "y")
        outcome(tune.Tuner.restore, f"{path}/other", trainable=double)


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Schedulers and stoppers of ray.tune, without experiments, and small experiments with them."""

import datetime
import json
import pathlib
import random
import tempfile

import numpy as np
from program import main, outcome, program, say
from ray import cloudpickle, tune
from ray.tune import schedulers
from ray.tune.schedulers import TrialScheduler, create_scheduler
from ray.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from tuning import fit, say_trials


@program
def decisions_have_names():
    say(TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP, TrialScheduler.NOOP)
    for name in ("FIFOScheduler", "ASHAScheduler", "HyperBandScheduler", "MedianStoppingRule"):
        scheduler = getattr(schedulers, name)()
        say(
            name,
            scheduler.supports_buffered_results,
            scheduler.metric,
            isinstance(scheduler, TrialScheduler),
        )
    say(schedulers.ASHAScheduler is schedulers.AsyncHyperBandScheduler)


@program
def objectives_of_schedulers():
    scheduler = schedulers.ASHAScheduler()
    say(
        scheduler.set_search_properties("m", "max"),
        scheduler.metric,
        scheduler.set_search_properties("n", None),
    )
    say(scheduler.set_search_properties(None, None))
    scheduler = schedulers.HyperBandScheduler(metric="m", mode="min")
    say(scheduler.set_search_properties("n", "max"), scheduler.metric)
    scheduler = schedulers.MedianStoppingRule()
    say(scheduler.set_search_properties(None, "max"), scheduler.metric)
    scheduler = schedulers.FIFOScheduler()
    say(scheduler.set_search_properties(None, "max"), scheduler.metric, scheduler.debug_string())


@program
def bad_arguments_of_asha():
    for arguments in (
        {"max_t": 0},
        {"grace_period": 0},
        {"grace_period": 10, "max_t": 5},
        {"reduction_factor": 1},
        {"brackets": 0},
        {"mode": "best"},
    ):
        outcome(schedulers.ASHAScheduler, **arguments)


@program
def bad_arguments_of_others():
    outcome(schedulers.HyperBandScheduler, max_t=0)
    outcome(schedulers.HyperBandScheduler, mode="best")
    outcome(schedulers.MedianStoppingRule, mode="best")


@program
def bad_arguments_of_pbt():
    pbt = schedulers.PopulationBasedTraining
    outcome(pbt)
    outcome(pbt, hyperparam_mutations={"a": 1})
    outcome(pbt, hyperparam_mutations={"a": tune.sample_from(lambda spec: 1)})
    good = {"a": [1, 2]}
    outcome(pbt, hyperparam_mutations=good, quantile_fraction=0.6)
    outcome(pbt, hyperparam_mutations=good, quantile_fraction=-0.1)
    outcome(pbt, hyperparam_mutations=good, perturbation_interval=0)
    outcome(pbt, hyperparam_mutations=good, mode="best")


@program
def schedulers_by_name():
    for name in (
        "fifo",
        "async_hyperband",
        "asynchyperband",
        "median_stopping_rule",
        "medianstopping",
        "HyperBand",
        "hb_bohb",
        "resource_changing",
    ):
        say(name, type(create_scheduler(name, nonsense=1)).__name__)
    say(type(create_scheduler("pbt", hyperparam_mutations={"a": [1]})).__name__)
    outcome(create_scheduler, "nonsense", words=["must be one of"])


@program
def nothing_stops():
    stopper = NoopStopper()
    say(stopper("t", {}), stopper.stop_all(), isinstance(stopper, Stopper))
    outcome(lambda: Stopper()("t", {}))
    outcome(lambda: Stopper().stop_all())


@program
def stops_after_reports():
    stopper = MaximumIterationStopper(2)
    say([stopper(name, {}) for name in "abaab"], stopper.stop_all())


@program
def stops_by_a_function():
    stopper = FunctionStopper(lambda trial_id, result: result["x"] > 2)
    say(stopper("a", {"x": 1}), stopper("a", {"x": 3}), stopper.stop_all())
    say(
        FunctionStopper.is_valid_function(len),
        FunctionStopper.is_valid_function(stopper),
        FunctionStopper.is_valid_function(3),
    )

    class Alike:
        def __call__(self, trial_id, result):
            return False

        def stop_all(self):
            return False

    outcome(FunctionStopper.is_valid_function, Alike())


@program
def stops_by_several():
    stopper = CombinedStopper(MaximumIterationStopper(3), FunctionStopper(lambda t, r: r["x"] > 5))
    say(stopper("a", {"x": 1}), stopper("a", {"x": 9}), stopper("a", {"x": 1}), stopper.stop_all())


@program
def stops_trials_that_stay():
    stopper = TrialPlateauStopper("m", std=0.1, num_results=3, grace_period=4)
    say([bool(stopper("a", {"m": value})) for value in (1, 1, 1, 1, 5, 1, 1, 1)])
    say([bool(stopper("b", {"m": value})) for value in (1, 2, 3, 4, 5, 6)], stopper.stop_all())
    stopper = TrialPlateauStopper("m", metric_threshold=2.0, mode="min")
    say([bool(stopper("a", {"m": 3.0})) for _ in range(5)])
    say([bool(stopper("b", {"m": 1.0})) for _ in range(5)])
    outcome(TrialPlateauStopper, "m", metric_threshold=1.0)


@program
def stops_experiments_that_stay():
    stopper = ExperimentPlateauStopper("m", std=0.01, top=3, mode="max", patience=1)
    say([bool(stopper("a", {"m": value})) for value in (1, 2, 3, 3, 3, 3, 3)], stopper.stop_all())
    stopper = ExperimentPlateauStopper("m", top=2)
    say([bool(stopper("a", {"m": value})) for value in (5, 4, 4)])
    for arguments in ({"mode": "best"}, {"top": 1}, {"patience": -1}, {"std": 0}, {"std": 1}):
        outcome(ExperimentPlateauStopper, "m", **arguments)


@program
def stops_after_time():
    say(TimeoutStopper(100).stop_all(), TimeoutStopper(datetime.timedelta(seconds=100)).stop_all())
    stopper = TimeoutStopper(0)
    say(stopper("t", {}), stopper.stop_all())
    outcome(TimeoutStopper, "100")


@program
def stoppers_are_pickled():
    for stopper in (
        MaximumIterationStopper(2),
        TimeoutStopper(5),
        NoopStopper(),
        ExperimentPlateauStopper("m"),
        CombinedStopper(NoopStopper()),
    ):
        say(type(cloudpickle.loads(cloudpickle.dumps(stopper))).__name__)


@program
def policy_files():
    outcome(schedulers.PopulationBasedTrainingReplay, "/nowhere/at/all")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "pbt_policy_x.txt"
        path.write_text("no json\n")
        outcome(schedulers.PopulationBasedTrainingReplay, str(path), words=["Could not read"])
        rows = [
            ["2", "1", 4, 5, {"lr": 1}, {"lr": 2}],
            ["3", "2", 6, 7, {"lr": 2}, {"lr": 4}],
            ["4", "3", 8, 9, {"lr": 4}, {"lr": 8}],
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        replay = schedulers.PopulationBasedTrainingReplay(str(path))
        say(replay.config, replay.current_config, replay.debug_string())
        path.write_text(
            "".join(
                json.dumps(row) + "\n" for row in [["9", "8", 1, 2, {"lr": 7}, {"lr": 9}], *rows]
            )
        )
        say(schedulers.PopulationBasedTrainingReplay(str(path)).config)


def steps(config):
    for step in range(1, config.get("steps", 8) + 1):
        tune.report({"score": config["x"] * step, "step": step})


@program
def asha_stops_the_worst():
    scheduler = schedulers.ASHAScheduler(
        time_attr="step", max_t=8, grace_period=2, reduction_factor=2
    )
    results = fit(
        steps,
        {"x": tune.grid_search([4, 3, 2, 1])},
        metric="score",
        mode="max",
        scheduler=scheduler,
        max_concurrent_trials=1,
    )
    say_trials(results, "step", "score")
    say(results.get_best_result().config, scheduler.debug_string().splitlines()[0])


@program
def asha_stops_at_the_end():
    scheduler = schedulers.ASHAScheduler(time_attr="step", max_t=3, metric="score", mode="max")
    say_trials(fit(steps, {"x": tune.grid_search([1])}, scheduler=scheduler), "step")
    scheduler = schedulers.ASHAScheduler(
        time_attr="step", max_t=3, metric="score", mode="max", stop_last_trials=False
    )
    say_trials(fit(steps, {"x": tune.grid_search([1])}, scheduler=scheduler), "step")


@program
def median_stops_the_worst():
    rule = schedulers.MedianStoppingRule(time_attr="step", grace_period=2, min_samples_required=2)
    results = fit(
        steps,
        {"x": tune.grid_search([5, 6, 7, 1])},
        metric="score",
        mode="max",
        scheduler=rule,
        max_concurrent_trials=1,
    )
    say_trials(results, "step")
    say(rule.debug_string())


@program
def a_scheduler_of_ones_own():
    class Third(schedulers.FIFOScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            assert trial in tune_controller.get_trials()
            return self.STOP if result["step"] == 3 and trial.config["x"] == 2 else self.CONTINUE

    say_trials(fit(steps, {"x": tune.grid_search([1, 2])}, scheduler=Third()), "step")


@program
def a_scheduler_without_objective():
    outcome(lambda: fit(steps, {"x": 1}, scheduler=schedulers.ASHAScheduler()), words=["metric"])


@program
def a_stopper_ends_trials():
    say_trials(
        fit(steps, {"x": tune.grid_search([1, 2])}, run={"stop": MaximumIterationStopper(4)}),
        "step",
    )
    say_trials(fit(steps, {"x": tune.grid_search([1, 2])}, run={"stop": {"score": 5}}), "step")
    say_trials(
        fit(
            steps,
            {"x": tune.grid_search([1, 2])},
            run={"stop": lambda trial_id, result: result["step"] >= 2},
        ),
        "step",
    )


class Counter(tune.Trainable):
    def setup(self, config):
        self.total = 0

    def step(self):
        self.total += self.config["lr"]
        return {"total": self.total}

    def save_checkpoint(self, folder):
        (pathlib.Path(folder) / "total").write_text(str(self.total))

    def load_checkpoint(self, folder):
        self.total = float((pathlib.Path(folder) / "total").read_text())


@program
def pbt_copies_the_best():
    random.seed(1)
    np.random.seed(1)
    scheduler = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [1, 10, 100]},
        quantile_fraction=0.5,
        resample_probability=0,
        synch=True,
    )
    results = fit(
        Counter,
        {"lr": tune.grid_search([1, 100])},
        metric="total",
        mode="max",
        scheduler=scheduler,
        run={"stop": {"training_iteration": 6}},
    )
    totals = sorted(result.metrics["total"] for result in results)
    say(len(totals), totals[1], totals[0] > 200, results.num_errors)


@program
def pbt_fills_configurations():
    scheduler = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=100,
        hyperparam_mutations={"lr": [3], "more": {"a": [4]}},
    )
    say_trials(
        fit(
            Counter,
            {},
            metric="total",
            mode="max",
            scheduler=scheduler,
            run={"stop": {"training_iteration": 2}},
        ),
        "total",
    )


@program
def hyperband_halves():
    scheduler = schedulers.HyperBandScheduler(
        metric="total", mode="max", max_t=4, reduction_factor=2
    )
    results = fit(
        Counter,
        {"lr": tune.grid_search([1, 2, 3, 4])},
        scheduler=scheduler,
        run={"stop": {"training_iteration": 4}},
    )
    say(len(results), results.num_errors, results.get_best_result("total", "max").config)


if __name__ == "__main__":
    main()

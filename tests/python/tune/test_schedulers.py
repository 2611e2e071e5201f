# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What schedulers do that the recorded decisions do not show: states that outlive a process, donors
that have no checkpoint yet, replayed policies, resources that change."""

import json
import math
import pickle
import random

import pytest
import scheduler_traces
from scheduler_traces import Anything, Controller, Trial
from sheaf.tune import schedulers
from sheaf.tune.schedulers.pb2 import PB2
from sheaf.tune.search import Searcher, sample
from sheaf.tune.search.basic_variant import BasicVariantGenerator

LIBRARY = Anything(**{**vars(sample), **vars(schedulers)})


def result(iteration, score, **more):
    return {"training_iteration": iteration, "score": score, **more}


class Exploiting(Controller):
    """Writes down who went on from what."""

    def __init__(self, scheduler):
        super().__init__(scheduler)
        self.exploits = []
        self.checkpoints = {}
        self.asked = []

    def add(self, number, config, status=Trial.RUNNING):
        trial = Trial(number, config)
        trial.status = status
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)
        return trial

    def save_now(self, trial):
        self.asked.append(trial.trial_id)
        return self.checkpoints.get(trial.trial_id)

    def exploit(self, trial, checkpoint, config, tag):
        self.exploits.append((trial.trial_id, checkpoint, tag))
        super().exploit(trial, checkpoint, config, tag)


def pbt(**arguments):
    settings = {
        "time_attr": "training_iteration",
        "metric": "score",
        "mode": "max",
        "perturbation_interval": 1,
        "hyperparam_mutations": {"x": [1, 2, 3]},
        "log_config": False,
    }
    return schedulers.PopulationBasedTraining(**{**settings, **arguments})


def test_a_donor_without_a_checkpoint_is_asked_again():
    scheduler = pbt(quantile_fraction=0.5)
    controller = Exploiting(scheduler)
    bad, good = controller.add(0, {"x": 1}), controller.add(1, {"x": 2})
    assert scheduler.on_trial_result(controller, good, result(1, 10)) == "CONTINUE"
    assert controller.asked == []  # One trial alone is no donor.
    assert scheduler.on_trial_result(controller, bad, result(1, 1)) == "CONTINUE"
    assert controller.asked == ["t001"] and controller.exploits == []  # It is saving.
    controller.checkpoints["t001"] = "a checkpoint"
    assert scheduler.on_trial_result(controller, bad, result(2, 1)) == "NOOP"
    assert [each[:2] for each in controller.exploits] == [("t000", "a checkpoint")]
    assert bad.experiment_tag.startswith("0@perturbed[x=")


def test_pbt_writes_its_policy_and_replays_it(tmp_path):
    scheduler = pbt(quantile_fraction=0.5, log_config=True, resample_probability=0)
    controller = Exploiting(scheduler)
    bad, good = controller.add(0, {"x": 1}), controller.add(1, {"x": 2})
    for trial in (bad, good):
        trial.local_experiment_path = str(tmp_path)
        trial.last_result = result(4, 0)
    controller.checkpoints["t001"] = "a checkpoint"
    scheduler.on_trial_result(controller, good, result(4, 10))
    scheduler.on_trial_result(controller, bad, result(4, 1))
    rows = [json.loads(line) for line in (tmp_path / "pbt_policy_t000.txt").open()]
    assert rows == [["0", "1", 4, 4, {"x": 2}, bad.config]]
    assert (tmp_path / "pbt_global.txt").read_text() == (
        tmp_path / "pbt_policy_t000.txt"
    ).read_text()

    replay = schedulers.PopulationBasedTrainingReplay(str(tmp_path / "pbt_policy_t000.txt"))
    controller = Exploiting(replay)
    trial = controller.add(0, {})
    assert trial.config == {"x": 2}
    controller.checkpoints["t000"] = "its own"
    assert replay.on_trial_result(controller, trial, result(3, 0)) == "CONTINUE"
    assert replay.on_trial_result(controller, trial, result(4, 0)) == "NOOP"
    assert controller.exploits[0][1] == "its own" and trial.config == bad.config
    assert replay.on_trial_result(controller, trial, result(5, 0)) == "CONTINUE"
    with pytest.raises(ValueError, match="More than one trial"):
        controller.add(1, {})


def test_pbt_is_not_for_searchers():
    scheduler = pbt()
    controller = Exploiting(scheduler)
    controller.search_alg = BasicVariantGenerator()
    controller.add(0, {"x": 1})
    controller.search_alg = Searcher()
    with pytest.raises(ValueError, match="Search algorithms cannot be used"):
        controller.add(1, {"x": 1})


class Restarting(Controller):
    """Puts a copy of the scheduler in its place, now and then, as a restored experiment does."""

    make = None
    restarts = 0

    def renew(self):
        state = pickle.loads(pickle.dumps(self.scheduler.get_state()))
        self.scheduler = self.make()
        self.scheduler.set_state(state)
        for trial in self.trials:
            self.scheduler.on_trial_add(self, trial)
        self.restarts += 1


def numpy_random():
    import numpy as np

    return np.random


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedulers.ASHAScheduler(metric="loss", mode="min", max_t=20, brackets=2),
        lambda: schedulers.MedianStoppingRule("training_iteration", "loss", "min", grace_period=2),
        lambda: schedulers.HyperBandScheduler(metric="loss", mode="min", max_t=9),
        lambda: pbt(
            metric="loss", mode="min", perturbation_interval=2, hyperparam_mutations={"x": [1, 2]}
        ),
    ],
    ids=["asha", "median", "hyperband", "pbt"],
)
def test_a_state_goes_on(make):
    for seed in range(20):
        logs = []
        for restarting in (False, True):
            random.seed(seed)
            numpy_random().seed(seed)
            chance, experiment = scheduler_traces.drawn(seed, early_ends=0, length=1000)
            controller = Restarting(make())
            controller.make = make
            controller.save_now = lambda trial: "saved"
            logs.append(run_with_restarts(controller, chance, experiment, restarting))
            assert not restarting or controller.restarts > 3
        assert logs[0] == logs[1], seed


def run_with_restarts(controller, chance, experiment, restarting):
    for number in range(experiment["trials"]):
        trial = Trial(number, {"x": chance.uniform(0, 3)})
        controller.trials.append(trial)
        controller.scheduler.on_trial_add(controller, trial)
    for event in range(200):
        if restarting and event % 10 == 9:
            controller.renew()
        running = [trial for trial in controller.trials if trial.status == Trial.RUNNING]
        while len(running) < experiment["slots"]:
            chosen = controller.scheduler.choose_trial_to_run(controller)
            if chosen is None:
                break
            controller.note("r", chosen)
            chosen.status = Trial.RUNNING
            running.append(chosen)
        if running:
            scheduler_traces.report(controller, chance, chance.choice(running), experiment)
    return " ".join(controller.log)


def test_hyperband_waits_for_no_trial_that_is_lost():
    lost = 0
    for seed in range(200):
        random.seed(seed)
        chance, experiment = scheduler_traces.drawn(
            seed, early_ends=0.01, errors=0.03, length=1000, events=3000
        )
        scheduler = schedulers.HyperBandScheduler(metric="loss", mode="min", max_t=27)
        controller = Controller(scheduler)
        log = scheduler_traces.run(
            controller,
            chance,
            lambda number, chance=chance: Trial(number, {"x": chance.uniform(0, 3)}),
            experiment,
        )
        lost += log.count("E")
        assert all(trial.is_finished() for trial in controller.trials), seed
    assert lost > 100


class Bundles:
    def __init__(self, bundles, strategy="PACK"):
        self.bundles = bundles
        self.strategy = strategy

    @property
    def required_resources(self):
        total = {}
        for bundle in self.bundles:
            for kind, amount in bundle.items():
                total[kind] = total.get(kind, 0) + amount
        return total

    def __eq__(self, other):
        return self.bundles == other.bundles


def changing(count, cpus, **arguments):
    scheduler = schedulers.ResourceChangingScheduler(
        schedulers.FIFOScheduler(), schedulers.DistributeResources(**arguments)
    )
    controller = Controller(scheduler)
    controller.total_resources = lambda: {"CPU": cpus, "GPU": 0}
    for number in range(count):
        trial = Trial(number, {})
        trial.placement_group_factory = Bundles([{"CPU": 1}])
        trial.update_resources = lambda new, trial=trial: setattr(
            trial, "placement_group_factory", new
        )
        trial.status = Trial.RUNNING
        controller.trials.append(trial)
        scheduler.on_trial_add(controller, trial)
    return scheduler, controller


def test_resources_are_shared_evenly_and_given_back():
    scheduler, controller = changing(2, cpus=6)
    first, second = controller.trials
    for trial in controller.trials:
        assert scheduler.on_trial_result(controller, trial, result(1, 0)) == "PAUSE"
        trial.status = Trial.PAUSED
        scheduler.choose_trial_to_run(controller)
        trial.status = Trial.RUNNING
    assert [t.placement_group_factory.bundles for t in (first, second)] == [
        [{"CPU": 3}],
        [{"CPU": 3}],
    ]
    assert scheduler.on_trial_result(controller, first, result(2, 0)) == "CONTINUE"
    second.status = Trial.TERMINATED
    assert scheduler.on_trial_result(controller, first, result(3, 0)) == "PAUSE"
    first.status = Trial.PAUSED
    assert scheduler.choose_trial_to_run(controller) is first
    assert first.placement_group_factory.bundles == [{"CPU": 6}]


def test_resources_have_a_limit():
    scheduler, controller = changing(1, cpus=9, increase_by={"CPU": 2}, increase_by_times=2)
    (trial,) = controller.trials
    assert scheduler.on_trial_result(controller, trial, result(1, 0)) == "PAUSE"
    trial.status = Trial.PAUSED
    scheduler.choose_trial_to_run(controller)
    assert trial.placement_group_factory.bundles == [{"CPU": 5}]


def test_resources_come_as_bundles():
    scheduler, controller = changing(1, cpus=3, add_bundles=True)
    (trial,) = controller.trials
    assert scheduler.on_trial_result(controller, trial, result(1, 0)) == "PAUSE"
    trial.status = Trial.PAUSED
    scheduler.choose_trial_to_run(controller)
    assert trial.placement_group_factory.bundles == [{"CPU": 1}] * 3


def test_all_goes_to_the_best():
    scheduler, controller = changing(2, cpus=6)
    scheduler._allocate = schedulers.DistributeResourcesToTopJob()
    assert scheduler.set_search_properties("score", "max")
    worse, better = controller.trials
    worse.last_result, better.last_result = result(1, 1), result(1, 2)
    assert scheduler.on_trial_result(controller, worse, worse.last_result) == "CONTINUE"
    assert scheduler.on_trial_result(controller, better, better.last_result) == "PAUSE"
    better.status = Trial.PAUSED
    scheduler.choose_trial_to_run(controller)
    assert better.placement_group_factory.bundles == [{"CPU": 5}]


def test_pb2_stays_within_its_bounds():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    scheduler = PB2(
        time_attr="training_iteration",
        metric="score",
        mode="max",
        perturbation_interval=1,
        hyperparam_bounds={"lr": [0.1, 1.0], "in": {"a": [10, 20]}},
        quantile_fraction=0.5,
        log_config=False,
    )
    numpy_random().seed(1)
    random.seed(1)
    noise = random.Random(2)
    controller = Exploiting(scheduler)
    trials = [controller.add(number, {"in": {}}) for number in range(4)]
    controller.checkpoints = {trial.trial_id: "a checkpoint" for trial in trials}
    for iteration in range(1, 9):
        for trial in trials:
            assert 0.1 <= trial.config["lr"] <= 1 and 10 <= trial.config["in"]["a"] <= 20
            trial.status = Trial.RUNNING
            score = 1 - math.fabs(trial.config["lr"] - 0.7) + noise.gauss(0, 0.3)
            scheduler.on_trial_result(controller, trial, result(iteration, score))
    assert len(controller.exploits) > 3
    # Copies of trials that have reported twice get values of the model, not the donor's.
    assert len({tag.split("@")[1] for _, _, tag in controller.exploits}) > 3

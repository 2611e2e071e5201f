# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The controller of an experiment in a world of virtual time: processes that take a while, fail and
die at random. One seed is one run, event by event."""

import collections
import hashlib
import heapq
import random

import pytest
from sheaf import tune
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import CheckpointConfig
from sheaf.tune.callback import CallbackList
from sheaf.tune.execution.activity import Settings
from sheaf.tune.execution.commands import Begin, Continue, Delete, End, Save
from sheaf.tune.execution.controller import Controller
from sheaf.tune.execution.result_rows import ResultRows
from sheaf.tune.execution.trial_source import SearcherSource, VariantSource
from sheaf.tune.experiment.trial import Trial
from sheaf.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from sheaf.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from sheaf.tune.stopper import NoopStopper
from sheaf.tune.trainable.messages import Row

STEPS = 9


class Process:
    """One trial in its process: where it stands, and what it is asked."""

    def __init__(self, trial, checkpoint, iteration):
        self.trial, self.step = trial, iteration
        self.rows = ResultRows(trial, iteration, 0.0)
        self.alive = True
        self.steps = True  # Its next results are on their way.
        self.from_checkpoint = checkpoint


class World:
    """Carries out the commands of a controller; each takes a random time. Checks what must hold:
    resources are never overdrawn, a checkpoint that is restored from exists, nothing starves."""

    def __init__(
        self, seed, scheduler, trials, searcher=None, failures=0.0, classes=True, keep=None, path=""
    ):
        self.random = random.Random(seed)
        self.now, self.number = 0.0, 0
        self.events, self.processes, self.files = [], {}, {}
        self.trace = hashlib.sha256()
        self.failures, self.classes = failures, classes
        self.begun = collections.Counter()
        self.handled = 0
        make = lambda trial_id, config, chosen, tag: Trial(
            "sim",
            config=config,
            trial_id=trial_id,
            evaluated_params=chosen,
            experiment_tag=tag,
            stopping_criterion={"training_iteration": STEPS},
            max_failures=1 if failures else 0,
            checkpoint_config=CheckpointConfig(num_to_keep=keep),
            experiment_path=str(path),
        )
        space = {"x": tune.uniform(0, 1)}
        if searcher is None:
            generator = BasicVariantGenerator(random_state=seed)
            source = VariantSource(generator, space, trials, make)
        else:
            source = SearcherSource(searcher, {}, trials, make)
        self.source = source
        scheduler.set_search_properties("v", "max")
        settings = Settings(metric="v", saves_on_demand=classes, capacity={"CPU": 4.0})
        self.controller = Controller(source, scheduler, NoopStopper(), CallbackList(), settings)

    def at(self, delay, event):
        self.number += 1
        heapq.heappush(self.events, (self.now + delay, self.number, event))

    def run(self):
        controller = self.controller
        while True:
            controller.start_trials(self.now)
            while controller.commands:
                self.carry_out(controller.commands.popleft())
                assert len(self.processes) <= 4, "more than four CPUs"
            controller.dirty.clear()
            if controller.is_finished():
                break
            controller.check_progress(self.now)
            while controller.commands:
                self.carry_out(controller.commands.popleft())
            if not self.events:
                self.at(1.0, lambda: None)
            self.now, _, event = heapq.heappop(self.events)
            event()
            self.handled += 1
        assert not self.processes and not any(controller._room.used.values())
        return controller.get_trials()

    def note(self, *what):
        self.trace.update(repr(what).encode())

    def carry_out(self, command):
        trial = command.trial if not isinstance(command, Delete) else None
        self.note(
            type(command).__name__, trial.trial_id[-5:] if trial and self.source_is_grid else ""
        )
        if isinstance(command, Begin):
            if command.checkpoint is not None:
                assert command.checkpoint.path in self.files, "restores from what is deleted"
                assert self.files[command.checkpoint.path] == command.iteration
            process = Process(trial, command.checkpoint, command.iteration)
            assert trial.trial_id not in self.processes, "begun twice"
            self.processes[trial.trial_id] = process
            self.begun[trial.trial_id] += 1
            self.at(self.random.expovariate(1.0), lambda: self.begin(process))
        elif isinstance(command, Continue):
            process = self.processes[trial.trial_id]
            assert not process.steps, "told to go on twice"
            process.steps = True
            self.at(self.random.expovariate(1.0), lambda: self.step(process))
        elif isinstance(command, Save):
            process = self.processes[trial.trial_id]
            assert not process.steps, "told to save amid a step: its state would be of the next"
            self.at(self.random.expovariate(2.0), lambda: self.saved(process))
        elif isinstance(command, End):
            process = self.processes[trial.trial_id]
            process.alive = False
            self.at(self.random.expovariate(5.0), lambda: self.ended(process))
        elif isinstance(command, Delete):
            del self.files[command.kept.checkpoint.path]

    @property
    def source_is_grid(self):
        return isinstance(self.source, VariantSource)

    def begin(self, process):
        if process.alive:
            self.controller.began(process.trial)
        self.step(process)

    def step(self, process):
        if not process.alive:
            return
        if self.random.random() < self.failures:
            process.alive = False
            self.controller.on_failed(process.trial, OSError("died"), "died")
            return
        process.step += 1
        trial = process.trial
        checkpoint = None
        if not self.classes:
            checkpoint = self.write(trial, process.step)
        row = Row({"v": trial.config["x"] * process.step}, self.now, 1.0, checkpoint)
        result = process.rows.result(row)
        if checkpoint is not None:
            made = Checkpoint(f"/sim/{trial.trial_id}/{checkpoint[0]}")
            self.controller.on_checkpoint(trial, made, checkpoint[1], result)
        process.steps = False
        self.controller.on_batch(trial, [(result, row.metrics)], ended=False)

    def write(self, trial, step):
        number = trial.kept.next_number
        name = f"checkpoint_{number:06d}"
        self.files[f"/sim/{trial.trial_id}/{name}"] = step
        return name, number

    def saved(self, process):
        if not process.alive:
            return
        of = process.trial.last_result.get("training_iteration", 0)
        assert process.step == of, "state and result are of two steps"
        name, number = self.write(process.trial, process.step)
        made = Checkpoint(f"/sim/{process.trial.trial_id}/{name}")
        self.controller.on_saved(process.trial, made, number)

    def ended(self, process):
        del self.processes[process.trial.trial_id]
        self.controller.on_ended(process.trial)


SCHEDULERS = {
    "fifo": FIFOScheduler,
    "asha": lambda: ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=3),
    "hyperband": lambda: HyperBandScheduler(max_t=STEPS),
    "median": lambda: MedianStoppingRule(grace_period=1, min_samples_required=2),
    "pbt": lambda: PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": lambda: 0.5}
    ),
    "pbt in step": lambda: PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": lambda: 0.5}, synch=True
    ),
}


@pytest.mark.parametrize("seed", range(20))
def test_who_is_asked_to_save_amid_a_step_saves_behind_it_and_goes_on(seed):
    world = World(seed, FIFOScheduler(), 3)

    def save_all():
        for process in list(world.processes.values()):
            if process.alive:
                world.controller.save_now(process.trial)

    for when in range(1, 12):
        world.at(when, save_all)
    trials = world.run()
    assert [trial.last_result["training_iteration"] for trial in trials] == [STEPS] * 3


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("failures", [0.0, 0.05])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_no_trial_is_lost_and_none_starves(tmp_path, name, failures, classes):
    for seed in range(12):
        more = {"failures": failures, "classes": classes, "keep": 2, "path": tmp_path}
        world = World(seed, SCHEDULERS[name](), 24, **more)
        trials = world.run()
        assert len(trials) == 24 and {trial.status for trial in trials} <= {"TERMINATED", "ERROR"}
        assert failures or not any(trial.status == "ERROR" for trial in trials)
        for trial in trials:
            steps = trial.last_result.get("training_iteration", 0)
            assert steps <= STEPS
            if name in ("fifo", "pbt") and trial.status == "TERMINATED":
                assert steps == STEPS


def test_one_seed_is_one_run():
    def trace(seed):
        random.seed(seed)  # PBT draws from here.
        scheduler = SCHEDULERS["asha"]()
        world = World(seed, scheduler, 50, failures=0.05)
        world.source._prefix = "fixed"
        world.run()
        return world.trace.hexdigest()

    assert trace(3) == trace(3) != trace(4)


def test_many_events_stay_linear():
    world = World(1, FIFOScheduler(), 3000, classes=False, keep=1)
    trials = world.run()
    assert len(trials) == 3000 and world.handled > 27000
    assert len(world.files) == 3000  # One checkpoint each.


def test_a_searcher_is_asked_only_for_what_can_run():
    class Counting(Searcher):
        open = most = asked = 0

        def suggest(self, trial_id):
            self.open += 1
            self.asked += 1
            self.most = max(self.most, self.open)
            return {"x": self.asked / 100}

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.open -= 1

    searcher = Counting("v", "max")
    World(1, FIFOScheduler(), 40, searcher).run()
    assert (searcher.asked, searcher.open) == (40, 0) and searcher.most <= 5
    limited = Counting("v", "max")
    World(1, FIFOScheduler(), 40, ConcurrencyLimiter(limited, 2)).run()
    assert limited.most == 2


def test_a_scheduler_that_chooses_nothing_is_named():
    class Never(FIFOScheduler):
        def choose_trial_to_run(self, tune_controller):
            return None

    with pytest.raises(tune.TuneError, match="Never chooses none of 3 PENDING"):
        World(1, Never(), 3).run()


def test_each_trial_that_waits_says_why():
    world = World(1, FIFOScheduler(), 4)
    controller, settings = world.controller, world.controller.settings
    settings.nodes = [{"CPU": 2.0}, {"CPU": 2.0, "GPU": 1.0}]
    controller.start_trials(0.0)
    first, *_, last = trials = controller.get_trials()
    assert [trial.status for trial in trials] == [Trial.RUNNING] * 4
    assert controller.first_waiting() == "" and controller.why_waiting(first) is None
    world = World(1, FIFOScheduler(), 6)
    controller, settings = world.controller, world.controller.settings
    settings.nodes = [{"CPU": 2.0}, {"CPU": 2.0, "GPU": 1.0}]
    controller.start_trials(0.0)
    *_, fifth, last = controller.get_trials()
    assert controller.why_waiting(fifth) == "it needs CPU: 1; free are CPU: 0"
    settings.max_concurrent = 4
    assert controller.why_waiting(fifth) == "max_concurrent_trials=4 run"
    last.update_resources({"cpu": 3})
    assert controller.why_waiting(last) == ("no node has CPU: 3; the nodes have 2 x CPU: 2")
    last.update_resources(tune.PlacementGroupFactory([{"CPU": 2}] * 3))
    assert controller.why_waiting(last) == "all nodes together have less than CPU: 6: CPU: 4"
    last.update_resources(
        tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 1, "CPU": 2}], "STRICT_PACK")
    )
    assert "no node has CPU: 3, GPU: 1" in controller.why_waiting(last)
    assert controller.first_waiting().endswith("waits: max_concurrent_trials=4 run")


def test_a_trial_that_no_node_can_run_lets_the_others_ahead_and_is_no_deadlock(caplog):
    world = World(2, FIFOScheduler(), 3)
    controller, settings = world.controller, world.controller.settings
    settings.nodes = [{"CPU": 4.0}]
    controller._add_trials(0.0)
    large = controller.get_trials()[0]
    large.update_resources({"cpu": 5})
    world.at(
        1000.0, lambda: settings.nodes.append({"CPU": 8.0}) or settings.capacity.update(CPU=12.0)
    )
    with caplog.at_level("WARNING"):
        world.run()
    assert [trial.status for trial in controller.get_trials()] == [Trial.TERMINATED] * 3
    assert world.now >= 1000 and "cannot run: no node has CPU: 5" in caplog.text

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Random experiments for schedulers, without a runtime: a fake controller that looks like Ray's and
like Sheaf's, and what a scheduler decides, as text.

    PYTHON_WITH_RAY tests/python/tune/scheduler_traces.py       # writes traces/schedulers.json.gz

One seed is one experiment; each kind of scheduler has SEEDS of them. The recorded decisions are Ray's."""

import gzip
import hashlib
import json
import pathlib
import random

SEEDS = 1000
RECORDED = pathlib.Path(__file__).parent / "traces" / "schedulers.json.gz"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Anything:
    """An object with the attributes it is made with."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


STATUSES = ["PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"]


class Trial:
    """A trial that both libraries' schedulers can work with."""

    PENDING, RUNNING, PAUSED, TERMINATED, ERROR = STATUSES

    def __init__(self, number, config):
        self.number = number
        self.trial_id = f"t{number:03}"
        self.config = config
        self.evaluated_params = {}
        self.status = self.PENDING
        self.experiment_tag = str(number)
        self.is_saving = False
        self.last_result = {}
        self.checkpoint = None
        self.iteration = 0
        self.temporary_state = Anything(saving_to=None)
        keep = Anything(num_to_keep=None)
        self.run_metadata = Anything(checkpoint_manager=Anything(checkpoint_config=keep))

    def is_finished(self):
        return self.status in (self.TERMINATED, self.ERROR)

    def set_config(self, config):
        self.config = config

    def set_experiment_tag(self, tag):
        self.experiment_tag = tag


class Controller:
    """Runs trials in a few slots and writes down what becomes of them."""

    search_alg = None

    def __init__(self, scheduler, synch=False):
        self.scheduler = scheduler
        self.synch = synch
        self.trials = []
        self.reporting = None
        self.log = []

    def get_trials(self):
        return self.trials

    def get_live_trials(self):
        return [trial for trial in self.trials if not trial.is_finished()]

    def pause_trial(self, trial, should_checkpoint=True):
        trial.status = Trial.PAUSED

    def stop_trial(self, trial, why="x"):
        self.note(why, trial)
        if trial.status == Trial.RUNNING:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        elif not trial.is_finished():
            self.scheduler.on_trial_remove(self, trial)
        trial.status = Trial.TERMINATED

    def _schedule_trial_save(self, trial, result=None):
        return "saved"

    def save_now(self, trial):
        # Ray asks only the trial that reports, or, where all have come, one that is paused.
        if trial is self.reporting or self.synch:
            return "saved"
        return None

    def exploit(self, trial, checkpoint, config, tag):
        trial.status = Trial.PAUSED
        trial.set_config(config)
        trial.set_experiment_tag(tag)

    def note(self, what, trial):
        self.log.append(what + _DIGITS[trial.number])


def run(controller, chance, make_trial, experiment):
    """Runs an experiment to its end. Returns what happened: for each event a letter and a trial."""
    scheduler = controller.scheduler
    for number in range(experiment["trials"]):
        trial = make_trial(number)
        controller.trials.append(trial)
        scheduler.on_trial_add(controller, trial)
    for _ in range(experiment["events"]):
        running = [trial for trial in controller.trials if trial.status == Trial.RUNNING]
        while len(running) < experiment["slots"]:
            chosen = scheduler.choose_trial_to_run(controller)
            if chosen is None:
                break
            controller.note("r", chosen)
            chosen.status = Trial.RUNNING
            running.append(chosen)
        if not running:
            break
        report(controller, chance, chance.choice(running), experiment)
    return " ".join(controller.log)


def report(controller, chance, trial, experiment):
    scheduler = controller.scheduler
    if chance.random() < experiment["errors"]:
        controller.note("E", trial)
        trial.status = Trial.ERROR
        scheduler.on_trial_error(controller, trial)
        return
    trial.iteration += 1
    loss = trial.config["x"] / trial.iteration + chance.gauss(0, experiment["noise"])
    if chance.random() < experiment["nans"]:
        loss = float("nan")
    result = {
        "training_iteration": trial.iteration,
        "time_total_s": trial.iteration * 1.5,
        "loss": round(loss, experiment["digits"]),
    }
    trial.last_result = result
    if trial.iteration >= experiment["length"] or chance.random() < experiment["early_ends"]:
        controller.stop_trial(trial, "D")
        return
    controller.reporting = trial
    decision = scheduler.on_trial_result(controller, trial, result)
    controller.note(decision[0].lower(), trial)
    if decision == "STOP":
        controller.stop_trial(trial)
    elif decision == "PAUSE":
        trial.status = Trial.PAUSED
        trial.checkpoint = "saved"


def drawn(seed, **fixed):
    """An experiment, by its seed."""
    chance = random.Random(seed)
    experiment = {
        "trials": chance.randint(2, 30),
        "slots": chance.randint(1, 8),
        "length": chance.choice([8, 20, 40]),
        "noise": chance.choice([0, 0.1, 1]),
        "digits": chance.choice([1, 6]),  # Equal scores are common with one digit.
        "errors": 0,
        "nans": 0,
        "early_ends": chance.choice([0, 0.02]),
        "events": 400,
        **{name: value(chance) if callable(value) else value for name, value in fixed.items()},
    }
    return chance, experiment


def _plain(number, chance):
    return Trial(number, {"x": chance.uniform(0, 3)})


def asha(library, seed):
    chance, experiment = drawn(seed, errors=lambda c: c.choice([0, 0.02]))
    scheduler = library.AsyncHyperBandScheduler(
        metric="loss",
        mode=chance.choice(["min", "max"]),
        max_t=chance.choice([10, 20, 27]),
        grace_period=chance.choice([1, 2, 5]),
        reduction_factor=chance.choice([2, 3, 4, 2.5]),
        brackets=chance.choice([1, 1, 2, 3]),
        stop_last_trials=chance.choice([True, False]),
    )
    return run(Controller(scheduler), chance, lambda n: _plain(n, chance), experiment)


def median(library, seed):
    chance, experiment = drawn(seed, nans=lambda c: c.choice([0, 0.02]))
    scheduler = library.MedianStoppingRule(
        time_attr=chance.choice(["training_iteration", "time_total_s"]),
        metric="loss",
        mode=chance.choice(["min", "max"]),
        grace_period=chance.choice([1, 3, 6]),
        min_samples_required=chance.choice([1, 3, 5]),
        min_time_slice=chance.choice([0, 2, 5]),
        hard_stop=chance.choice([True, False]),
    )
    return run(Controller(scheduler), chance, lambda n: _plain(n, chance), experiment)


def hyperband(library, seed):
    # No trial is lost after a bracket was halved: Ray lets the rest of the bracket wait for ever then.
    chance, experiment = drawn(seed, length=1000, early_ends=0, trials=lambda c: c.randint(2, 36))
    cls = chance.choice([library.HyperBandScheduler] * 3 + [library.HyperBandForBOHB])
    scheduler = cls(
        metric="loss",
        mode=chance.choice(["min", "max"]),
        max_t=chance.choice([9, 16, 27]),
        reduction_factor=chance.choice([2, 3, 4]),
        stop_last_trials=chance.choice([True, True, False]),
    )
    controller = Controller(scheduler)
    listener = Anything(on_pause=lambda trial_id: None, on_unpause=lambda trial_id: None)
    controller.search_alg = Anything(searcher=listener)
    return run(controller, chance, lambda n: _plain(n, chance), experiment)


def pbt(library, seed):
    chance, experiment = drawn(
        seed, nans=lambda c: c.choice([0, 0.02]), trials=lambda c: c.randint(2, 12)
    )
    synch = chance.random() < 0.4
    if synch:
        experiment["early_ends"] = 0
    mutations = {
        "x": chance.choice(
            [library.uniform(0, 3), library.loguniform(0.1, 3), lambda: random.random()]
        ),
        "layers": chance.choice([[1, 2, 4, 8], (1, 2, 3)]),
        "size": library.randint(1, 100),
        "inner": {"rate": library.uniform(0, 1), "kind": ["a", "b", "c"]},
    }
    scheduler = library.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="loss",
        mode=chance.choice(["min", "max"]),
        perturbation_interval=chance.choice([1, 2, 4]),
        burn_in_period=chance.choice([0, 0, 5]),
        hyperparam_mutations=mutations,
        quantile_fraction=chance.choice([0, 0.25, 0.5]),
        resample_probability=chance.choice([0, 0.25, 1]),
        perturbation_factors=chance.choice([(1.2, 0.8), (2, 0.5)]),
        log_config=False,
        synch=synch,
    )

    def make_trial(number):
        config = {"x": chance.uniform(0, 3), "inner": {"rate": 0.5, "kind": "b"}, "fixed": number}
        if chance.random() < 0.5:
            config.update(layers=2, size=7)
        return Trial(number, config)

    controller = Controller(scheduler, synch)
    events = run(controller, chance, make_trial, experiment)
    ends = [[trial.experiment_tag, trial.config] for trial in controller.trials]
    return f"{events} {json.dumps(ends, sort_keys=True)}"


KINDS = {"asha": asha, "hyperband": hyperband, "median": median, "pbt": pbt}


def decide(kind, library, seed):
    """What a scheduler decides in one experiment."""
    import numpy as np

    np.random.seed(seed)
    random.seed(seed)
    return KINDS[kind](library, seed)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def record():
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from ray import tune
    from ray.tune import schedulers

    library = Anything(**{**vars(tune), **vars(schedulers)})
    answers = {
        kind: {
            "ray": [digest(decide(kind, library, seed)) for seed in range(SEEDS)],
            "first": [decide(kind, library, seed) for seed in range(3)],
        }
        for kind in KINDS
    }
    RECORDED.parent.mkdir(exist_ok=True)
    # Without a time in its header the file is the same each time.
    RECORDED.write_bytes(gzip.compress(json.dumps(answers).encode(), mtime=0))


if __name__ == "__main__":
    record()

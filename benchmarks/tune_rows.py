# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The rows of bench_tune.py: experiments that run on Sheaf and, with BENCH_TUNE_OF=ray, on Ray; and
their floors. Each function is told a count, and returns its figure. A slow side may do fewer than
the row says: then its figure is scaled, without what the first alone takes."""

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import postgres_server

REPORTERS = 8
DIGITS = pathlib.Path(__file__).resolve().parents[1] / "examples" / "data" / "digits.npz"
TARGET, EPOCHS = 0.97, 27


def library(name=""):
    """The package, or a module of its."""
    package = os.environ.get("BENCH_TUNE_OF", "sheaf")
    return importlib.import_module(f"{package}.{name}" if name else package)


def one_report(config):
    library("tune").report({"loss": config["x"]})


def noop(config):
    return {"loss": config["x"]}


def fit(trainable, trials, space=None, look=None, **config):
    """(seconds, results) of an experiment. look: is called with its folder, before that goes."""
    tune = library("tune")
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)} if space is None else space,
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, **config),
            run_config=tune.RunConfig(name="bench", storage_path=folder, verbose=0),
        )
        began = time.perf_counter()
        results = tuner.fit()
        spent = time.perf_counter() - began
        assert results.num_errors == 0, results.errors
        if look is not None:
            return look(f"{folder}/bench")
    return spent


def of_many(measure, count, wanted):
    """What `wanted` would take, by what one and what `count` take: the first has the start that all
    need once."""
    if count == wanted:
        return measure(count)
    first = measure(1)
    return first + (measure(count) - first) * (wanted - 1) / (count - 1)


def loggers(wanted):
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0" if wanted else "1"


# Short trials.


def one_trial(count):
    fit(noop, 1)
    return statistics.median(fit(noop, 1) for _ in range(count))


def floor_function_call(count):
    began = time.perf_counter()
    for _ in range(1000 * count):
        noop({"x": 1})
    return (time.perf_counter() - began) / (1000 * count)


def fresh_processes(count):
    loggers(False)
    fit(one_report, 1)
    return of_many(lambda trials: fit(one_report, trials), count, 1000)


def floor_forks(count):
    began = time.perf_counter()
    for _ in range(count):
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return (time.perf_counter() - began) * 1000 / count


def fresh_actors(count):
    """One after another: made, called, killed."""
    runtime = library()

    class Echo:
        def call(self):
            return 1

    kind = runtime.remote(Echo)

    def take(actors):
        began = time.perf_counter()
        for _ in range(actors):
            handle = kind.remote()
            runtime.get(handle.call.remote())
            runtime.kill(handle)
        return time.perf_counter() - began

    take(1)
    return of_many(take, count, 1000)


def reused_processes(count):
    loggers(False)
    fit(one_report, 1)
    return of_many(lambda trials: fit(one_report, trials, reuse_actors=True), count, 1000)


def actor_calls(count):
    runtime = library()

    class Echo:
        def call(self, value):
            return value

    handle = runtime.remote(Echo).remote()
    runtime.get(handle.call.remote(0))
    began = time.perf_counter()
    for value in range(count):
        runtime.get(handle.call.remote(value))
    return (time.perf_counter() - began) * 1000 / count


def ten_times_as_many(count):
    """Ten times the trials, by ten times the time."""
    loggers(False)
    short = statistics.median(fit(one_report, count, reuse_actors=True) for _ in range(3))
    return fit(one_report, 10 * count, reuse_actors=True) / (10 * short)


def memory_of_trials(count):
    """Resident kilobytes of this process for each trial, while all results are held."""
    loggers(False)
    page = os.sysconf("SC_PAGE_SIZE")
    resident = lambda: int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * page
    fit(one_report, 100, reuse_actors=True)
    gc.collect()
    before = resident()
    tune = library("tune")
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            one_report,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(num_samples=count, reuse_actors=True),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        gc.collect()
        used = resident() - before
        assert len(results) == count
    return used / count / 1000


def restored(count):
    loggers(False)
    tune = library("tune")

    def restore(trials):
        def look(path):
            began = time.perf_counter()
            again = tune.Tuner.restore(path, one_report).get_results()
            assert len(again) == trials
            return time.perf_counter() - began

        return fit(one_report, trials, look=look, reuse_actors=True)

    return of_many(restore, count, 10_000)


def floor_of_restore(count):
    """To read the bytes of the journal, as JSON, without the collection of garbage."""
    loggers(False)

    def look(path):
        gc.disable()
        began = time.perf_counter()
        records = [
            json.loads(line[9:])
            for line in (pathlib.Path(path) / "experiment.journal").read_bytes().splitlines()
        ]
        spent = time.perf_counter() - began
        gc.enable()
        assert len(records) > 1
        return spent

    return of_many(
        lambda trials: fit(one_report, trials, look=look, reuse_actors=True), count, 10_000
    )


# Reports.


def _reports(count, wanted):
    tune = library("tune")
    loggers(wanted)

    def loop(config):
        for step in range(count):
            tune.report({"loss": step})

    return REPORTERS * count / fit(tune.with_resources(loop, {"cpu": 0.25}), REPORTERS)


def reports_without_loggers(count):
    return _reports(count, False)


def reports_with_loggers(count):
    return _reports(count, True)


def stream_items(count):
    """Of a generator in another process, one after another."""
    runtime = library()

    def items():
        for step in range(count):
            yield {"loss": step}

    stream = runtime.remote(items).options(num_returns="streaming").remote()
    began = time.perf_counter()
    for ref in stream:
        runtime.get(ref)
    return count / (time.perf_counter() - began)


# Optuna.


def _objective(config):
    return (config["x"] - 2) ** 2 + config["y"] ** 2


def searched_by_tpe(count):
    loggers(False)
    tune = library("tune")
    optuna_search = library("tune.search.optuna").OptunaSearch
    space = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}
    trainable = tune.with_resources(lambda config: {"loss": _objective(config)}, {"cpu": 0.5})
    more = {"max_concurrent_trials": 4, "reuse_actors": True}
    return of_many(
        lambda trials: fit(trainable, trials, space, search_alg=optuna_search(seed=1), **more),
        count,
        1000,
    )


def _ask_for(trial):
    return _objective({name: trial.suggest_float(name, -5, 5) for name in ("x", "y")})


def tpe_alone(count):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    began = time.perf_counter()
    study.optimize(_ask_for, n_trials=count)
    return (time.perf_counter() - began) * 1000 / count


@contextlib.contextmanager
def _shared_storage(kind):
    """What makes the storage of a study, in any process."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sheaf":
            journal = importlib.import_module("sheaf.util.optuna").SheafJournal("bench_tune")
            try:
                yield lambda: importlib.import_module("optuna.storages").JournalStorage(journal)
            finally:
                journal.delete()
        elif kind == "journal":
            yield lambda: _journal_file(f"{folder}/journal")
        elif kind == "sqlite":
            yield lambda: _database(f"sqlite:///{folder}/study.db")
        else:
            with postgres_server.running() as url:
                yield lambda: _database(url)


def _journal_file(path):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(path))


def _database(url):
    from optuna.storages import RDBStorage

    return RDBStorage(url)


def _shared_study(kind, count, processes=4):
    """Milliseconds a trial, of processes that work on one study."""
    import optuna

    runtime = library()
    random = optuna.samplers.RandomSampler

    def work(storage, trials):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.load_study(
            study_name="s", storage=storage(), sampler=random(seed=os.getpid())
        )
        study.optimize(_ask_for, n_trials=trials)

    with _shared_storage(kind) as storage:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(study_name="s", storage=storage(), sampler=random(seed=1))
        task = runtime.remote(work).options(num_cpus=0.25)
        runtime.get([task.remote(storage, 1) for _ in range(processes)])  # Imports Optuna.
        began = time.perf_counter()
        runtime.get([task.remote(storage, count // processes) for _ in range(processes)])
        spent = time.perf_counter() - began
        assert len(study.trials) == count // processes * processes + processes
    return 1000 * spent / count


def study_in_sheaf_journal(count):
    return _shared_study("sheaf", count)


def study_in_journal_file(count):
    return _shared_study("journal", count)


def study_in_sqlite(count):
    return _shared_study("sqlite", count)


def study_in_postgres(count):
    return _shared_study("postgres", count)


def study_in_memory(count):
    """One process, whose study nobody shares."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    began = time.perf_counter()
    study.optimize(_ask_for, n_trials=count)
    return 1000 * (time.perf_counter() - began) / count


# Schedulers.

MEGABYTES = 10


def exploits(count):
    """Milliseconds from the decision that a member goes on from another's checkpoint until it has
    loaded that, the median of about `count`; of eight members that save at each fourth step."""
    loggers(False)
    tune = library("tune")
    decided, spent = {}, []  # By trial: when.

    class Watched(library("tune.schedulers").PopulationBasedTraining):
        def on_trial_result(self, controller, trial, result):
            if result["loaded"] > decided.get(trial.trial_id, float("inf")):
                spent.append(result["loaded"] - decided.pop(trial.trial_id))
            before = self._num_perturbations
            decision = super().on_trial_result(controller, trial, result)
            if self._num_perturbations > before:
                decided[trial.trial_id] = time.time()
            return decision

    class Member(tune.Trainable):
        def setup(self, config):
            self.score, self.loaded, self.bytes = 0.0, 0.0, os.urandom(MEGABYTES << 20)

        def step(self):
            self.score += self.config["rate"]
            return {"loss": -self.score, "loaded": self.loaded}

        def save_checkpoint(self, folder):
            (pathlib.Path(folder) / "bytes").write_bytes(self.bytes)
            (pathlib.Path(folder) / "score").write_text(str(self.score))

        def load_checkpoint(self, folder):
            self.bytes = (pathlib.Path(folder) / "bytes").read_bytes()
            self.score = float((pathlib.Path(folder) / "score").read_text())
            self.loaded = time.time()

        def reset_config(self, config):
            return True

    scheduler = Watched(
        time_attr="training_iteration",
        perturbation_interval=4,
        hyperparam_mutations={"rate": [1.0, 2.0, 3.0]},
        quantile_fraction=0.5,
    )
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(Member, {"cpu": 0.25}),
            param_space={"rate": tune.grid_search([1.0 + n / 10 for n in range(8)])},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", scheduler=scheduler, reuse_actors=True
            ),
            run_config=tune.RunConfig(
                name="bench",
                storage_path=folder,
                verbose=0,
                stop={"training_iteration": 4 * max(count // 4, 1) + 1},
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2, checkpoint_frequency=4),
            ),
        )
        results = tuner.fit()
        assert results.num_errors == 0, results.errors
    return 1000 * statistics.median(spent)


def copies_of_a_file(count):
    with tempfile.TemporaryDirectory() as folder:
        first = pathlib.Path(folder) / "first"
        first.write_bytes(os.urandom(MEGABYTES << 20))
        began = time.perf_counter()
        for _ in range(count):
            shutil.copyfile(first, pathlib.Path(folder) / "second")
        return 1000 * (time.perf_counter() - began) / count


def _learn(config, images, labels):
    """One hidden layer, on half of the digits; the accuracy on the other half."""
    import numpy as np

    draw = np.random.default_rng(0)
    first = draw.normal(0, 0.1, (64, config["width"]))
    second = draw.normal(0, 0.1, (config["width"], 10))
    speed = [np.zeros_like(first), np.zeros_like(second)]
    given, wanted = images[::2], labels[::2]
    for _ in range(EPOCHS):
        for _ in range(20):
            hidden = np.tanh(given @ first)
            scores = np.exp(hidden @ second)
            errors = scores / scores.sum(axis=1, keepdims=True)
            errors[np.arange(len(wanted)), wanted] -= 1
            back = (errors @ second.T) * (1 - hidden**2)
            gradients = given.T @ back / len(wanted), hidden.T @ errors / len(wanted)
            for at, weights in enumerate((first, second)):
                speed[at] = 0.9 * speed[at] - config["rate"] * gradients[at]
                weights += speed[at]
        guesses = np.argmax(np.tanh(images[1::2] @ first) @ second, axis=1)
        library("tune").report({"loss": 1 - float((guesses == labels[1::2]).mean())})


def _seconds_to_target(count, kind):
    import numpy as np

    loggers(False)
    tune = library("tune")

    class Reached(tune.Stopper):
        def __init__(self):
            self.reached = False

        def __call__(self, trial_id, result):
            self.reached = self.reached or result["loss"] <= 1 - TARGET
            return self.reached

        def stop_all(self):
            return self.reached

    with np.load(DIGITS) as file:
        images, labels = file["x"] / 16.0, file["y"].astype(int)
    grid = kind == "grid"
    rates = [10 ** (-3 + n / 3) for n in range(7)]
    space = {
        "rate": tune.grid_search(rates) if grid else tune.loguniform(1e-3, 0.1),
        "width": tune.grid_search([8, 16, 32, 64]) if grid else tune.choice([8, 16, 32, 64]),
    }
    scheduler = None
    if kind == "asha":
        scheduler = library("tune.schedulers").ASHAScheduler(
            max_t=EPOCHS, grace_period=3, reduction_factor=3
        )
    search = library("tune.search").BasicVariantGenerator(random_state=count)
    stop = Reached()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        tune.Tuner(
            tune.with_parameters(_learn, images=images, labels=labels),
            param_space=space,
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=1 if grid else 28,
                scheduler=scheduler,
                search_alg=search,
            ),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, stop=stop),
        ).fit()
        spent = time.perf_counter() - began
    if scheduler is not None:
        print(f"  {scheduler.debug_string()}", flush=True)
    return spent


def digits_by_asha(count):
    return _seconds_to_target(count, "asha")


def digits_at_random(count):
    return _seconds_to_target(count, "random")


def digits_by_grid(count):
    return _seconds_to_target(count, "grid")


@dataclasses.dataclass
class Row:
    """`peer_count`: what a slower library does of it; 0: nothing. `needs`: modules, without which
    the row is left out; `programs`: those likewise."""

    measure: Callable[[int], float]
    count: int
    peer_count: int
    unit: str
    floor: Callable[[int], float] | None = None
    floor_count: int = 0
    needs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    better: str = "lower"


_OPTUNA = ("optuna",)
ROWS = {
    "Tuner of one trial": Row(one_trial, 5, 2, "s", floor_function_call, 10),
    "1,000 trials, fresh processes": Row(fresh_processes, 1000, 20, "s", floor_forks, 1000),
    "1,000 actors, fresh processes": Row(fresh_actors, 200, 20, "s", floor_forks, 1000),
    "1,000 trials, processes used again": Row(reused_processes, 1000, 50, "s", actor_calls, 1000),
    "10,000 trials, by 10 times 1,000": Row(ten_times_as_many, 1000, 0, "times"),
    "driver's memory, 10,000 trials": Row(memory_of_trials, 10_000, 0, "kB a trial"),
    "restore of 10,000 trials": Row(restored, 10_000, 50, "s", floor_of_restore, 10_000),
    "reports, no loggers": Row(
        reports_without_loggers, 5000, 200, "/s", stream_items, 20_000, better="higher"
    ),
    "reports, all loggers": Row(
        reports_with_loggers, 5000, 50, "/s", stream_items, 20_000, better="higher"
    ),
    "OptunaSearch, TPE, 1,000 trials": Row(
        searched_by_tpe, 1000, 50, "s", tpe_alone, 1000, needs=_OPTUNA
    ),
    "Optuna, 4 processes: SheafJournal": Row(
        study_in_sheaf_journal, 100, 0, "ms a trial", study_in_memory, 100,
        needs=("optuna", "sheaf.util.optuna"),
    ),
    "Optuna, 4 processes: journal file": Row(
        study_in_journal_file, 100, 0, "ms a trial", study_in_memory, 100, needs=_OPTUNA
    ),
    "Optuna, 4 processes: SQLite": Row(
        study_in_sqlite, 100, 0, "ms a trial", study_in_memory, 100,
        needs=("optuna", "sqlalchemy"),
    ),
    "Optuna, 4 processes: PostgreSQL": Row(
        study_in_postgres, 100, 0, "ms a trial", study_in_memory, 100,
        needs=("optuna", "sqlalchemy", "psycopg2"), programs=postgres_server.PROGRAMS,
    ),
    "PBT, an exploit of 10 MB": Row(exploits, 100, 12, "ms", copies_of_a_file, 50),
    "digits to 97 %, ASHA": Row(digits_by_asha, 1, 1, "s"),
    "digits to 97 %, random": Row(digits_at_random, 1, 1, "s"),
    "digits to 97 %, grid": Row(digits_by_grid, 1, 1, "s"),
}  # fmt: skip

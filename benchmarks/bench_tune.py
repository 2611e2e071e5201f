# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments of sheaf.tune on this machine, beside what their parts cost alone.

    ./do bench tune [--peer ray --peer-python PATH] [--json FILE] [--rows NAME,...]

A peer runs the same rows in its own process; rows that take it more than ten minutes are left out.
"""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPORTS, REPORTERS = 5000, 8


def library():
    """(runtime, its tune), by the environment's word."""
    name = os.environ.get("BENCH_TUNE_OF", "sheaf")
    return importlib.import_module(name), importlib.import_module(f"{name}.tune")


def one_report(config):
    library()[1].report({"loss": config["x"]})


def many_reports(config):
    report = library()[1].report
    for step in range(REPORTS):
        report({"loss": step})


def fit(trainable, trials, restore=False, **config):
    """(seconds, results) of an experiment."""
    _, tune = library()
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, **config),
            run_config=tune.RunConfig(name="bench", storage_path=folder, verbose=0),
        )
        began = time.perf_counter()
        results = tuner.fit()
        spent = time.perf_counter() - began
        if restore:
            began = time.perf_counter()
            again = tune.Tuner.restore(f"{folder}/bench", trainable).get_results()
            assert len(again) == trials
            spent = time.perf_counter() - began
    assert results.num_errors == 0, results.errors
    return spent


def loggers(wanted):
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "0" if wanted else "1"


def tuner_of_one_trial():
    fit(one_report, 1)
    return statistics.median(fit(one_report, 1) for _ in range(5)), "s"


def thousand_trials_fresh():
    loggers(False)
    return fit(one_report, 1000), "s"


def thousand_trials_reused():
    loggers(False)
    return fit(one_report, 1000, reuse_actors=True), "s"


def ten_thousand_trials_reused():
    loggers(False)
    return fit(one_report, 10000, reuse_actors=True), "s"


def restore_of_ten_thousand():
    loggers(False)
    return fit(one_report, 10000, restore=True, reuse_actors=True), "s"


def _reports(wanted):
    _, tune = library()
    loggers(wanted)
    spent = fit(tune.with_resources(many_reports, {"cpu": 0.25}), REPORTERS)
    return REPORTS * REPORTERS / spent, "1/s"


def reports_without_loggers():
    return _reports(False)


def reports_with_loggers():
    return _reports(True)


def floor_thousand_actor_calls():
    """What a process that is used again costs at least."""
    runtime, _ = library()

    class Echo:
        def call(self, value):
            return value

    handle = runtime.remote(Echo).remote()
    runtime.get(handle.call.remote(0))
    began = time.perf_counter()
    for value in range(1000):
        runtime.get(handle.call.remote(value))
    return time.perf_counter() - began, "s"


def floor_hundred_fresh_actors():
    """What a fresh process costs at least."""
    runtime, _ = library()

    class Echo:
        def call(self):
            return 1

    kind = runtime.remote(Echo)
    began = time.perf_counter()
    for _ in range(100):
        handle = kind.remote()
        runtime.get(handle.call.remote())
        runtime.kill(handle)
    return (time.perf_counter() - began) * 10, "s for 1,000"


ROWS = [
    tuner_of_one_trial,
    floor_hundred_fresh_actors,
    thousand_trials_fresh,
    floor_thousand_actor_calls,
    thousand_trials_reused,
    ten_thousand_trials_reused,
    restore_of_ten_thousand,
    reports_without_loggers,
    reports_with_loggers,
]
_SHORT_FOR_PEERS = {"tuner_of_one_trial", "reports_without_loggers", "reports_with_loggers"}


def run_rows(wanted):
    runtime, _ = library()
    runtime.init(num_cpus=2, log_to_driver=False)
    figures = {}
    for row in ROWS:
        if not wanted or row.__name__ in wanted:
            figure, unit = row()
            figures[row.__name__] = {"figure": figure, "unit": unit}
            print(f"{row.__name__:32} {figure:12,.3f} {unit}", flush=True)
    runtime.shutdown()
    return figures


def run_peer(name, python):
    """The rows that a peer does in minutes, in its own Python."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [python, __file__, "--json", file.name, "--rows", ",".join(_SHORT_FOR_PEERS)]
        environment = {**os.environ, "BENCH_TUNE_OF": name}
        environment.pop("PYTHONPATH", None)
        subprocess.run(command, env=environment, check=True, timeout=900)
        found = json.loads(pathlib.Path(file.name).read_text())
    return found["rows"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--rows", default="")
    parser.add_argument("--peer")
    parser.add_argument("--peer-python", default=sys.executable)
    arguments = parser.parse_args()
    wanted = {name for name in arguments.rows.split(",") if name}
    unknown = wanted - {row.__name__ for row in ROWS}
    if unknown:
        parser.error(f"--rows: there is no {', '.join(sorted(unknown))}")
    result = {"rows": run_rows(wanted)}
    if arguments.peer:
        print(f"{arguments.peer}:", flush=True)
        result["peer"] = run_peer(arguments.peer, arguments.peer_python)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

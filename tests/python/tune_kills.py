# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments whose driver is killed at a random byte of the journal, and that are taken up again:

    tune_kills.py [--kills 50] [--seed N]

Nothing that was over is lost or run twice, the rest goes on from its checkpoints, and a searcher
with a seed suggests what it does when nothing happens. Prints how many of each there were.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import sheaf
from conftest import wait_until
from sheaf import tune
from sheaf.tune.execution.experiment_files import JOURNAL
from sheaf.tune.execution.experiment_log import Found
from sheaf.tune.search import ConcurrencyLimiter, Searcher

STEPS, TRIALS = 5, 10


def train(config):
    """Counts, and saves each step."""
    start, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = json.loads((pathlib.Path(folder) / "step").read_text())
    with open(f"{config['folder']}/begun", "a") as file:
        file.write(f"{config['n']}\n")
    for step in range(start + 1, STEPS + 1):
        os.makedirs("made", exist_ok=True)
        (pathlib.Path("made") / "step").write_text(str(step))
        saved = tune.Checkpoint.from_directory("made")
        tune.report({"v": config["n"] * step, "from": start}, checkpoint=saved)


class Walk(Searcher):
    """Suggests numbers that depend on all that it was told."""

    def __init__(self):
        super().__init__("v", "max")
        self.draw, self.told = random.Random(5), []

    def suggest(self, trial_id):
        return {"n": self.draw.random() + sum(self.told) / 100}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append(result["v"])

    def save(self, checkpoint_path):
        with open(checkpoint_path, "w") as file:
            state = self.draw.getstate()
            json.dump([[state[0], list(state[1]), state[2]], self.told], file)

    def restore(self, checkpoint_path):
        with open(checkpoint_path) as file:
            state, self.told = json.load(file)
        self.draw.setstate((state[0], tuple(state[1]), state[2]))


def tuner(folder, searched, callbacks=()):
    """An experiment of a grid, or of what Walk suggests one after another."""
    space = {"folder": str(folder)}
    if not searched:
        space["n"] = tune.grid_search(list(range(TRIALS)))
    config = tune.TuneConfig(metric="v", mode="max")
    if searched:
        config.search_alg, config.num_samples = ConcurrencyLimiter(Walk(), 1), TRIALS
    return tune.Tuner(
        train,
        param_space=space,
        tune_config=config,
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), verbose=0, callbacks=list(callbacks)
        ),
    )


_PROGRAM = """
import sys, sheaf, tune_kills
sheaf.init(num_cpus=4, log_to_driver=False)
tune_kills.tuner(sys.argv[1], sys.argv[2] == "True").fit()
"""


def begun(folder):
    return collections.Counter((pathlib.Path(folder) / "begun").read_text().split())


def kill_a_driver(folder, seed, searched):
    """Kills the driver of an experiment anywhere, and tears off what its disk may not have got."""
    draw = random.Random(seed)
    (folder / "begun").touch()
    driver = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(folder), str(searched)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    journal = folder / "e" / JOURNAL
    wanted = draw.randrange(1000, 170_000)  # Bytes, at which it is killed: of nearly all there are.
    try:
        wait_until(
            lambda: (
                driver.poll() is not None or journal.exists() and journal.stat().st_size >= wanted
            ),
            f"seed {seed}: a driver does not end",
            seconds=120,
        )
    finally:
        if driver.poll() is None:  # Else it was over before so much was written.
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    told = journal.read_bytes().index(b"\n") + 1  # The first record is on the disk at once.
    with open(journal, "rb+") as file:
        file.truncate(max(told, journal.stat().st_size - draw.randrange(20)))


def check(folder, seed, searched, undisturbed):
    """How many trials were over, and how many had begun, when the driver was killed.
    AssertionError: something is lost, or has run twice, or goes another way."""
    kill_a_driver(folder, seed, searched)
    records = Found(str(folder / "e")).trials.values()
    over = [str(one["config"]["n"]) for one in records if one["status"] == "TERMINATED"]
    before = begun(folder)
    grid = tune.Tuner.restore(str(folder / "e"), train, resume_errored=True).fit()
    wanted = undisturbed if searched else list(range(TRIALS))
    found = [result.config["n"] for result in grid]
    assert found == wanted and not grid.num_errors, (seed, found, wanted, grid.errors)
    assert [result.metrics["v"] for result in grid] == [n * STEPS for n in wanted]
    assert all(result.metrics["training_iteration"] == STEPS for result in grid)
    now = begun(folder)
    assert all(now[n] == before[n] for n in over), "what was over has run again"
    again = tune.Tuner.restore(str(folder / "e"), train).get_results()
    assert len(again) == TRIALS and again.get_best_result().metrics["v"] == max(wanted) * STEPS
    return len(over), len(records)


def what_is_suggested(folder):
    """By a Walk that nothing disturbs."""
    (folder / "begun").touch()
    return [result.config["n"] for result in tuner(folder, True).fit()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    sheaf.init(num_cpus=4, log_to_driver=False)
    over = made = partial = 0
    with tempfile.TemporaryDirectory() as scratch:
        folders = (pathlib.Path(scratch) / str(number) for number in range(given.kills + 1))
        first = next(folders)
        first.mkdir()
        undisturbed = what_is_suggested(first)
        for number, folder in enumerate(folders):
            folder.mkdir()
            counts = check(folder, given.seed + number, number % 2 == 1, undisturbed)
            over, made = over + counts[0], made + counts[1]
            partial += 0 < counts[0] < TRIALS
    print(
        f"{given.kills} kills, {partial} of them amid the trials: {over} trials over and "
        f"{made - over} not, none lost, none run twice, all suggestions as undisturbed"
    )
    sheaf.shutdown()


if __name__ == "__main__":
    main()

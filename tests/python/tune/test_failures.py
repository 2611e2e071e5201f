# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What becomes of experiments when processes, nodes, disks, searchers, callbacks and users fail
them."""

import json
import logging
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest
import sheaf
from conftest import joined_cluster, wait_until
from sheaf import tune
from sheaf.tune.execution.experiment_files import JOURNAL
from sheaf.tune.execution.experiment_log import Found
from sheaf.tune.execution.interrupts import Interrupts
from sheaf.tune.search import Searcher

# A node's silence is noticed within about 5 s; the rest is room for a machine under load.
NODE_LOST_S = 30


def fit(trainable, folder, space=None, num_samples=1, run=None, **config):
    return tuner(trainable, folder, space, num_samples, run, **config).fit()


def tuner(trainable, folder, space=None, num_samples=1, run=None, **config):
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(num_samples=num_samples, metric="v", mode="max", **config),
        run_config=tune.RunConfig(name="e", storage_path=folder, verbose=0, **(run or {})),
    )


def save(state):
    os.makedirs("made", exist_ok=True)
    (pathlib.Path("made") / "state").write_text(json.dumps(state))
    return tune.Checkpoint.from_directory("made")


def load():
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return json.loads((pathlib.Path(folder) / "state").read_text())


def records(folder):
    """Of the trials in the journal of an experiment that runs."""
    try:
        return list(Found(str(folder / "e")).trials.values())
    except FileNotFoundError:
        return []


def one_report(config):
    return {"v": config.get("n", 1)}


class TestOneNode:
    @pytest.fixture(scope="class", autouse=True)
    def cluster(self):
        sheaf.init(num_cpus=4, num_gpus=1, log_to_driver=False)
        yield
        sheaf.shutdown()

    def test_a_killed_trial_says_how_it_died_and_the_others_do_not_notice(self, tmp_path):
        def train(config):
            print("the last words", flush=True)
            for step in range(10):
                tune.report({"v": step})
                if config["n"] == 1 and step == 3:
                    time.sleep(0.5)  # Reports that nobody waits for are fetched by then.
                    os.kill(os.getpid(), signal.SIGKILL)

        space = {"n": tune.grid_search([0, 1, 2])}
        grid = fit(tune.with_resources(train, {"cpu": 1, "gpu": 0.3}), tmp_path, space)
        assert [result.metrics["training_iteration"] for result in grid] == [10, 4, 10]
        assert grid.num_errors == 1 and grid[1].error is not None
        text = (pathlib.Path(grid[1].path) / "error.txt").read_text()
        assert "killed by signal 9" in text and "the last words" in text, text
        assert [result.metrics["iterations_since_restore"] for result in grid] == [10, 4, 10]

    def test_what_a_killed_trial_held_is_free_at_once(self, tmp_path):
        def train(config):
            if config["n"] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"v": 1}

        began = time.monotonic()
        space = {"n": tune.grid_search([0, 1])}
        grid = fit(tune.with_resources(train, {"cpu": 4, "gpu": 1}), tmp_path, space)
        assert grid.num_errors == 1 and grid[1].metrics["v"] == 1
        assert time.monotonic() - began < 20

    @pytest.mark.parametrize("what", ["searcher", "callback"])
    def test_what_raises_ends_the_experiment_and_the_state_stays(self, tmp_path, what):
        class Suggests(Searcher):
            def suggest(self, trial_id):
                self.asked = getattr(self, "asked", 0) + 1
                if what == "searcher" and self.asked == 3:
                    raise RuntimeError("on purpose")
                return {"n": self.asked}

            def on_trial_complete(self, trial_id, result=None, error=False):
                pass

        class Listens(tune.Callback):
            def on_trial_complete(self, iteration, trials, trial, **info):
                if what == "callback" and trial.config["n"] == 2:
                    raise RuntimeError("on purpose")

        with pytest.raises(tune.TuneError, match="RuntimeError: on purpose .*test_failures"):
            fit(
                one_report, tmp_path, num_samples=5, search_alg=Suggests(),
                run={"callbacks": [Listens()]}, max_concurrent_trials=1,
            )  # fmt: skip
        left = tune.Tuner.restore(str(tmp_path / "e"), one_report).get_results()
        assert [result.metrics["v"] for result in left if result.metrics][:1] == [1]
        wait_until(lambda: sheaf.available_resources().get("CPU") == 4, "a trial still runs")

    def test_a_journal_that_cannot_grow_stops_the_experiment_with_its_state_whole(self, tmp_path):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            # This process alone writes the journal; those of trials have been started by the node.
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limit[1]))
            with pytest.raises(OSError):
                fit(one_report, tmp_path, {"n": tune.grid_search(list(range(500)))})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        path = tmp_path / "e"
        over = [one for one in Found(str(path)).trials.values() if one["status"] == "TERMINATED"]
        assert 0 < len(over) < 500 and (path / JOURNAL).stat().st_size <= 300_000
        wait_until(lambda: sheaf.available_resources().get("CPU") == 4, "a trial still runs")
        grid = tune.Tuner.restore(str(path), one_report).fit()
        assert [result.metrics["v"] for result in grid] == list(range(500))

    def test_a_journal_that_is_cut_or_damaged_anywhere_is_taken_up(self, tmp_path):
        fit(one_report, tmp_path, {"n": tune.grid_search(list(range(20)))})
        path = tmp_path / "e" / JOURNAL
        data = path.read_bytes()
        first = data.index(b"\n") + 1  # Without what it was told there is no experiment.
        for cut in [*range(first, len(data), 97), len(data)]:
            path.write_bytes(data[:cut])
            trials = Found(str(tmp_path / "e")).trials.values()
            assert [one["config"]["n"] for one in trials] == list(range(len(trials)))
            for one in trials:
                assert (
                    one["status"] != "TERMINATED" or one["last_result"]["v"] == one["config"]["n"]
                )
        for at in range(first, len(data), 97):
            path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            trials = Found(str(tmp_path / "e")).trials.values()
            assert sorted(one["config"]["n"] for one in trials)[:19] in (
                [n for n in range(20) if n != left_out][:19] for left_out in range(21)
            )
        path.write_bytes(data[: first - 1][:20] + b"?" + data[21:])
        with pytest.raises(tune.TuneError, match="is damaged"):
            tune.Tuner.restore(str(tmp_path / "e"), one_report)
        path.write_bytes(data[: first + (len(data) - first) // 2])
        grid = tune.Tuner.restore(str(tmp_path / "e"), one_report).fit()
        assert [result.metrics["v"] for result in grid] == list(range(20))

    def test_trials_begin_from_a_checkpoint_that_is_given(self, tmp_path):
        def count(config):
            start = load()
            for step in range(start + 1, start + 3):
                tune.report({"v": step}, checkpoint=save(step))

        grid = fit(count, tmp_path)
        analysis = tune.run(
            count, restore=grid[0].checkpoint.path, storage_path=str(tmp_path), verbose=0
        )
        last = analysis.trials[0].last_result
        assert (last["v"], last["training_iteration"]) == (4, 4)
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            tune.run(count, restore=str(tmp_path / "nothing"), storage_path=str(tmp_path))

    def test_a_task_runs_an_experiment_whose_trials_need_all_cpus(self, tmp_path):
        @sheaf.remote(num_cpus=1)
        def outer(folder):
            grid = fit(tune.with_resources(one_report, {"cpu": 4}), folder, {"n": 7})
            return grid[0].metrics["v"], grid.experiment_path

        assert sheaf.get(outer.remote(tmp_path), timeout=60) == (7, str(tmp_path / "e"))


def test_ctrl_c_ends_in_order_and_once_more_at_once():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts.asked
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Interrupts():  # Somebody has decided already.
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED = """
import sys, sheaf, test_failures
sheaf.init(num_cpus=2, log_to_driver=False)
grid = test_failures.tuner(
    test_failures.waits, sys.argv[1], {"n": test_failures.tune.grid_search([0, 1, 2, 3])}
).fit()
print([result.metrics and result.metrics["v"] for result in grid], grid.num_terminated)
"""


def waits(config):
    """Goes on when there is a file `go`, except for the first two."""
    tune.report({"v": config["n"]})
    while config["n"] > 1 and not os.path.exists("../../go"):
        time.sleep(0.05)


def test_an_interrupted_experiment_gives_what_there_is_and_is_taken_up(tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip

    wait_until(lambda: [one["last_result"].get("v") for one in records(tmp_path)] == [0, 1, 2, 3])
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=30)
    assert driver.returncode == 0, err
    assert out == "[0, 1, 2, 3] 2\n" and "the experiment stops" in err
    (tmp_path / "go").touch()
    sheaf.init(num_cpus=2, log_to_driver=False)
    try:
        grid = tune.Tuner.restore(str(tmp_path / "e"), waits).fit()
    finally:
        sheaf.shutdown()
    assert grid.num_terminated == 4 and [result.metrics["v"] for result in grid] == [0, 1, 2, 3]


def test_a_trial_goes_on_elsewhere_when_its_node_is_lost(tmp_path):
    def count(config):
        start = load()
        for step in range(start + 1, 4):
            node = sheaf.get_runtime_context().get_node_id()
            result = {"v": step, "from": start, "at": time.time(), "node": node}
            tune.report(result, checkpoint=save(step))
            while step == 2 and start == 0:
                time.sleep(0.1)  # Until its node is lost.

    others = [{"num_cpus": 1}, {"num_cpus": 1}]
    with joined_cluster({"num_cpus": 0}, *others) as cluster:
        lost = []

        def lose():
            last = wait_until(
                lambda: next(
                    (r for one in records(tmp_path) if (r := one["last_result"]).get("v") == 2),
                    None,
                )
            )
            node = next(node for node in cluster.worker_nodes if node.node_id == last["node"])
            lost.append(time.time())
            cluster.remove_node(node, allow_graceful=False)

        thread = threading.Thread(target=lose)
        thread.start()
        grid = fit(count, tmp_path, run={"failure_config": tune.FailureConfig(max_failures=1)})
        thread.join()
    last = grid[0].metrics
    assert (last["v"], last["from"], grid.num_errors) == (3, 2, 0)
    assert last["at"] - lost[0] < NODE_LOST_S
    assert last["node_ip"]


def test_a_trial_that_no_node_can_run_waits_for_one_that_can(tmp_path, caplog):
    events = []

    class Watches(tune.Callback):
        def on_trial_complete(self, iteration, trials, trial, **info):
            events.append(([one.status for one in trials], trial.config["cpus"]))
            if trial.config["cpus"] == 1:
                cluster.add_node(num_cpus=4)

    def needs(config):
        return tune.PlacementGroupFactory([{"CPU": config["cpus"]}])

    with joined_cluster({"num_cpus": 2}, {"num_cpus": 2}) as cluster:
        caplog.set_level(logging.WARNING, "sheaf.tune")
        grid = fit(
            tune.with_resources(lambda config: {"v": config["cpus"]}, needs),
            tmp_path,
            {"cpus": tune.grid_search([3, 1])},
            run={"callbacks": [Watches()]},
        )
    assert [result.metrics["v"] for result in grid] == [3, 1]
    assert events[0] == (["PENDING", "RUNNING"], 1)
    assert "no node has CPU: 3; the nodes have 2 x CPU: 2" in caplog.text

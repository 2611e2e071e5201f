# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster tells of training runs: while they go on, after their end, and after the death of
whoever ran them."""

import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest
import sheaf
from conftest import is_running, wait_until
from sheaf import train
from sheaf.cluster_utils import _program
from sheaf.train.run_record import RunRecord, Series
from sheaf.util import metrics
from sheaf.util import train_run_store as store
from sheaf.util.state import get_train_run, list_train_runs
from sheaf.util.state.exception import RayStateApiException
from test_train import trainer


def waits(config):
    """Reports a step, and the others when it may."""
    train.report({"loss": 0.5, "phase": "first"})
    gate = pathlib.Path(config["scratch"])
    while not gate.exists():
        threading.Event().wait(0.01)
    for step in range(config["steps"]):
        train.report({"loss": 0.5 / (step + 2), "phase": "others"})


def newest():
    return list_train_runs(limit=1)[0]


def test_a_run_is_told_while_it_goes_on_and_when_it_has_ended(node, tmp_path):
    results = []
    work = threading.Thread(
        target=lambda: results.append(trainer(tmp_path, 2, loop=waits, steps=4).fit())
    )
    work.start()
    wait_until(lambda: list_train_runs(filters=[("steps", "=", 1)]), "the first step is not told")
    row = newest()
    assert (row.name, row.state, row.workers, row.attempts) == ("run", "RUNNING", 2, 1)
    assert row.metrics == {"loss": 0.5, "phase": "first"}
    assert row.path == str(tmp_path / "out" / "run") and row.end_time_ms is None
    ranks = get_train_run(row.run_id).ranks
    assert [rank["rank"] for rank in ranks] == [0, 1]
    assert all(is_running(rank["pid"]) for rank in ranks)
    actors = {row.actor_id: row.pid for row in sheaf.util.state.list_actors(limit=1000)}
    assert [actors[rank["actor_id"]] for rank in ranks] == [rank["pid"] for rank in ranks]
    (tmp_path / "scratch").mkdir()
    work.join()
    row = get_train_run(row.run_id)
    assert (row.state, row.steps, row.message) == ("FINISHED", 5, "")
    assert row.metrics == {"loss": 0.1, "phase": "others"}
    assert row.start_time_ms < row.end_time_ms
    assert row.series["metrics"] == {"loss": [one["loss"] for one in results[0].metrics_history]}
    assert row.series["steps"] == [1, 2, 3, 4, 5]


def test_a_group_that_is_formed_anew_says_why(node, tmp_path):
    result = trainer(tmp_path, 3, steps=6, max_failures=1, fail=[(0, 1, 3, "die")]).fit()
    row = get_train_run(newest().run_id)
    assert (row.state, row.attempts, row.steps) == ("FINISHED", 2, 6)
    first, second = row.formed
    assert first["why"] == "" and first["from_step"] == 0
    assert second["why"].startswith("rank 1 (pid ") and "is lost" in second["why"]
    assert second["kept"] == 2
    assert row.checkpoint == result.checkpoint.path
    assert [one["text"] for one in row.events] == [event.text for event in result.events]
    assert row.series["steps"] == [1, 2, 3, 4, 5, 6]  # Each once, also those that were made twice.
    for name, least in (("steps", 6), ("groups_formed", 2), ("step_seconds_count", 4)):
        line = rf'ray_train_{name}{{[^}}]*run="run"[^}}]*}} (\S+)'
        wait_until(
            lambda line=line, least=least: any(
                float(value) >= least
                for text in metrics.scrape().values()
                for value in re.findall(line, text)
            ),
            f"{line} is not served",
        )


def test_a_run_that_fails_says_how(node, tmp_path):
    with pytest.raises(train.TrainingFailedError):
        trainer(tmp_path, 2, steps=6, fail=[(0, 0, 2, "raise")]).fit()
    row = newest()
    assert row.state == "ERRORED"
    assert "rank 0 cannot do step 2" in row.message


def test_a_run_whose_driver_is_killed_is_over(node, tmp_path):
    program = (
        "import pathlib, sys, sheaf\n"
        "from test_train_runs import trainer, waits\n"
        "sheaf.init(log_to_driver=False)\n"  # The node of SHEAF_ADDRESS.
        "trainer(pathlib.Path(sys.argv[1]), 1, loop=waits, steps=1).fit()\n"
    )
    session = sheaf.get_runtime_context().gcs_address
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={
            **os.environ,
            "SHEAF_ADDRESS": session,
            "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path]),
        },
    )
    path = str(tmp_path / "out" / "run")
    try:
        wait_until(lambda: list_train_runs(filters=[("path", "=", path), ("steps", "=", 1)]))
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    wait_until(lambda: newest().state == "ABORTED", "the run goes on without its driver")
    row = newest()
    assert row.path == path and "its driver died" in row.message and ", at 20" in row.message
    assert row.start_time_ms < row.end_time_ms + 1000
    said = subprocess.run(
        [_program(), "list", "train-runs", "--json", f"--address={session}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)["train_runs"]
    assert (told[0]["run_id"], told[0]["state"]) == (row.run_id, "ABORTED")
    assert told[0]["message"] == row.message and told[0]["metrics"] == row.metrics


def test_the_oldest_runs_go(node, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_RUNS", 2)
    for number in range(3):
        trainer(tmp_path / str(number), 1, steps=1).fit()
    rows = list_train_runs()
    assert [row.path for row in rows] == [str(tmp_path / f"{n}/out/run") for n in (2, 1)]
    left = sheaf._core.key_list(store.SPACE, "")
    assert len(left) == 6  # Three keys of each.
    assert get_train_run("none") is None
    with pytest.raises(RayStateApiException, match="there are run_id"):
        list_train_runs(filters=[("cats", "=", 1)])


def test_odd_metrics_cost_a_run_and_its_record_nothing(node, tmp_path):
    def loop(config):
        train.report({"large": 10**400, "half": "\ud800", "nested": {1: {2: 3}, "": 0.5}})

    assert trainer(tmp_path, 1, loop=loop).fit().metrics["large"] == 10**400
    row = newest()
    assert (row.state, row.metrics["half"]) == ("FINISHED", "?")
    assert row.metrics["nested/1/2"] == 3 and row.metrics["large"].startswith("1000")


@pytest.mark.parametrize("record", [b"\xff", b"[]", b"{}", b'{"state": "RUNNING"}'])
def test_what_is_no_record_is_a_row_of_which_nothing_is_known(node, record):
    try:
        for kind in (store.RUN, store.GROUP, store.HISTORY):
            sheaf._core.key_put(store.SPACE, f"{kind}zz", record, True)
        assert newest().run_id == "zz"
        assert get_train_run("zz").state in ("UNKNOWN", "RUNNING", "ABORTED")
    finally:
        for kind in (store.RUN, store.GROUP, store.HISTORY):
            sheaf._core.key_delete(store.SPACE, f"{kind}zz")


def test_a_record_that_cannot_be_written_costs_a_word_alone(node, caplog):
    def pages():
        raise OSError("the store is full")

    with caplog.at_level(logging.WARNING):
        writer = store.Writer("x", pages)
        writer.changed(soon=True)
        writer.close()
    assert [one.getMessage() for one in caplog.records] == [
        "the record of this training run is not written: the store is full; the run goes on"
    ]


def test_what_is_recorded_is_bounded_whatever_is_reported(node):
    record = RunRecord("n" * 5000, "/" + "p" * 5000)
    metrics = {"nan": float("nan"), "deep": {"a": {"b": 2}}, "text": "t" * 5000, "yes": True}
    metrics |= {f"m{i}": 10**i for i in range(100)} | {"list": list(range(100_000))}
    for step in range(1000):
        record.reported(step + 1, metrics, None)
        record.happened("e" * 5000, step)
    pages = record._pages()
    assert len(pages[store.RUN]) < 16_000 and len(pages[store.HISTORY]) < 100_000
    told = json.loads(pages[store.RUN])["metrics"]
    assert told["nan"] == "nan" and told["deep/a/b"] == 2 and told["yes"] is True
    assert len(told) == 16 and len(told["text"]) == 80


def test_a_series_keeps_the_whole_run_with_fewer_points():
    series = Series()
    for step in range(1, 10_001):
        series.add(step, step * 10, {"x": step, "word": "w"})
    told = series.as_json()
    assert 50 <= len(told["steps"]) <= 100
    assert told["steps"][0] == 1 and told["steps"][-1] > 9_800
    assert told["metrics"] == {"x": told["steps"]}
    series.cut(5_000)
    assert series.as_json()["steps"][-1] <= 5_000

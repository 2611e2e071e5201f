# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python do what they say."""

import collections
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import WAIT_S, joined_cluster

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_word_count_counts_words(tmp_path):
    for index, text in enumerate(["one two two", "Two, three!", "three one THREE"]):
        (tmp_path / f"{index}.txt").write_text(text)
    said = run("word_count.py", *sorted(map(str, tmp_path.iterdir())))
    assert said.splitlines()[0] == "8 words, 3 different, in 3 files"
    assert {line.split()[1]: int(line.split()[0]) for line in said.splitlines()[1:]} == {
        "two": 3,
        "three": 3,
        "one": 2,
    }


def test_the_counter_counts():
    assert run("counter.py").splitlines() == [
        "[101, 102]",
        "after four tasks: 142",
        "a counter only grows",
    ]


def test_a_group_adds_up():
    assert run("groups.py") == "[0.5, 0.5]\n"


def test_digits_are_recognised():
    assert float(re.search(r"recognised: (0\.\d+)", run("digits.py")).group(1)) > 0.85


def test_accumulated_and_clipped_gradients_give_the_weights_of_one_process():
    said = re.search(
        r"recognised: (0\.\d+), (\d+) of 60 steps clipped, the weights of one process to (\S+)",
        run("train_accumulate.py"),
    )
    assert (
        float(said.group(1)) > 0.8 and 0 < int(said.group(2)) < 60 and float(said.group(3)) < 1e-9
    ), said.group(0)


@pytest.mark.parametrize(("way", "trials"), [("asha", 12), ("population", 4)])
def test_a_search_finds_a_good_learning_rate(way, trials):
    said = re.search(r"(\d+) trials, (\d+) epochs; .*: (\S+)%", run("tune_digits.py", way))
    assert int(said.group(1)) == trials and float(said.group(3)) > 80, said.group(0)
    assert way != "asha" or int(said.group(2)) < 12 * 27  # Bad trials have ended early.


def test_a_study_of_optuna_is_shared_by_nodes_and_goes_on():
    pytest.importorskip("optuna", reason="optuna is not installed")
    with joined_cluster({"num_cpus": 1}, {"num_cpus": 1}) as cluster:
        run("optuna_digits.py", cluster.address, "12")
        said = run("optuna_digits.py", cluster.address, "12")
    found = re.search(r"24 trials on 2 nodes, (\d+) pruned; .*: (\S+)%", said)
    assert int(found.group(1)) > 0 and float(found.group(2)) > 80, said


def test_a_search_of_hyperopt_finds_a_good_learning_rate():
    pytest.importorskip("hyperopt", reason="hyperopt is not installed")
    said = run("hyperopt_digits.py")
    assert float(re.search(r"20 trials; .*: (\S+)%", said).group(1)) > 80, said


def test_flights_are_counted_and_late_ones_told_from_others():
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    folder = EXAMPLES.parent / "data" / "flights"
    said = run("flights.py")
    names = dict(line.split(",") for line in (folder / "airlines.csv").read_text().splitlines()[1:])
    delays = collections.defaultdict(list)
    for row in parquet.read_table(folder / "flights.parquet").to_pylist():
        if row["arr_delay"] is not None:
            delays[names[row["carrier"]]].append(row["arr_delay"] > 15)
    lines = [
        f"{name} {100 * sum(late) / len(late):.0f} % of {len(late):,}"
        for name, late in delays.items()
    ]
    found = [re.sub(" +", " ", line).strip(" \u2588") for line in said.splitlines()]
    assert set(lines) <= set(found) and len(lines) == 16
    first, last = map(float, re.search(r"loss (\S+) to (\S+)", said).groups())
    assert last < first and float(re.search(r"another, (\d+) %", said).group(1)) > 62, said

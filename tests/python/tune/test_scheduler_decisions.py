# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Schedulers decide as Ray's do: 1,000 random experiments of each kind, against what Ray 2.60 decided.
scheduler_traces.py records them."""

import gzip
import json
import logging

import pytest
from scheduler_traces import KINDS, RECORDED, SEEDS, Anything, decide, digest
from sheaf.tune import schedulers
from sheaf.tune.schedulers import async_hyperband, hyperband_bracket
from sheaf.tune.search import sample

LIBRARY = Anything(**{**vars(sample), **vars(schedulers)})


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def recorded():
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_decisions(kind, recorded):
    for seed, text in enumerate(recorded[kind]["first"]):
        assert decide(kind, LIBRARY, seed) == text, seed
    differing = [
        seed
        for seed in range(SEEDS)
        if digest(decide(kind, LIBRARY, seed)) != recorded[kind]["ray"][seed]
    ]
    assert len(recorded[kind]["ray"]) == SEEDS
    assert not differing, (
        f"{len(differing)} experiments go another way, {differing[:10]} among them"
    )


def _cut_later(bracket, recorded, original):
    return None if len(recorded) < 2 else original(bracket, recorded)


def _keep_the_worst(bracket, metric, metric_op, original):
    return original(bracket, metric, -metric_op)


def _forget_one(rule, trial_id, time, original):
    return original(rule, trial_id, time)[1:]


def _spare_the_worst(scheduler, original):
    lower, upper = original(scheduler)
    return lower[1:], upper


@pytest.mark.parametrize(
    ("kind", "altered", "method", "alteration"),
    [
        ("asha", async_hyperband._Bracket, "cutoff", _cut_later),
        ("hyperband", hyperband_bracket.Bracket, "successive_halving", _keep_the_worst),
        ("median", schedulers.MedianStoppingRule, "_means_of_others", _forget_one),
        ("pbt", schedulers.PopulationBasedTraining, "_quantiles", _spare_the_worst),
    ],
)
def test_another_rule_is_seen(kind, altered, method, alteration, recorded, monkeypatch):
    original = getattr(altered, method)
    changed = lambda *given: alteration(*given, original=original)
    monkeypatch.setattr(altered, method, changed)
    answers = recorded[kind]["ray"]
    differing = sum(digest(decide(kind, LIBRARY, seed)) != answers[seed] for seed in range(100))
    assert differing > 20, differing

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Schedulers decide as Ray's do: 1,000 random experiments of each kind, against what Ray 2.60 decided.
scheduler_traces.py records them."""

import gzip
import json
import logging

import pytest
from scheduler_traces import KINDS, RECORDED, SEEDS, Anything, decide, digest
from sheaf.tune import schedulers
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


def test_another_rule_is_seen(recorded, monkeypatch):
    from sheaf.tune.schedulers import async_hyperband

    cutoff = async_hyperband._Bracket.cutoff
    monkeypatch.setattr(
        async_hyperband._Bracket,
        "cutoff",
        lambda self, recorded: None if len(recorded) < 2 else cutoff(self, recorded),
    )
    answers = recorded["asha"]["ray"]
    differing = sum(digest(decide("asha", LIBRARY, seed)) != answers[seed] for seed in range(100))
    assert differing > 20, differing

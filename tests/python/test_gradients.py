# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Gradients in buckets: the same as a plain all-reduce, and what compression does to them."""

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S
from sheaf.util.collective import Group
from sheaf.util.collective.gradients import GradientReducer

pytestmark = pytest.mark.usefixtures("node")
SHAPES = {"head": (10, 3), "body": (70, 70), "tail": 100}


@sheaf.remote(num_cpus=0)
class Rank:
    def run(self, function, rank, name):
        with Group(2, rank, name, arena_bytes=64 << 20) as group:
            result = function(group)
            group.barrier()
            return result


def on_both(function, name):
    actors = [Rank.remote() for _ in range(2)]
    return sheaf.get(
        [actor.run.remote(function, rank, name) for rank, actor in enumerate(actors)],
        timeout=WAIT_S,
    )


def gradient(rank, name, step=0):
    shape = SHAPES[name] if isinstance(SHAPES[name], tuple) else (SHAPES[name],)
    return np.random.default_rng([rank, step, len(name)]).normal(size=shape).astype("float32")


@pytest.mark.parametrize("bucket_bytes", [1, 1 << 20])
def test_buckets_give_what_one_all_reduce_gives(bucket_bytes):
    def work(group):
        reducer = GradientReducer(group, SHAPES, bucket_bytes=bucket_bytes)
        for step in range(2):
            for name in sorted(
                SHAPES, reverse=bool(group.rank)
            ):  # Ranks need not be ready in the same order.
                reducer[name][:] = gradient(group.rank, name, step)
                reducer.mark_ready(name)
            with pytest.raises(ValueError, match="ready already"):
                reducer.mark_ready("head")
            reducer.finish()
            for name in SHAPES:
                plain = gradient(group.rank, name, step)
                group.all_reduce(plain, "average")
                np.testing.assert_array_equal(reducer[name], plain)
        return len(reducer), list(reducer)

    assert on_both(work, f"buckets-{bucket_bytes}") == [(3, list(SHAPES))] * 2


def test_fp16_is_the_same_to_its_rounding():
    def work(group):
        reducer = GradientReducer(group, SHAPES, compression="fp16", op="sum")
        for name in SHAPES:
            reducer[name][:] = gradient(group.rank, name)
        reducer.finish()
        return max(
            float(np.abs(reducer[name] - gradient(0, name) - gradient(1, name)).max())
            for name in SHAPES
        )

    assert all(0 < difference < 8 / 1024 for difference in on_both(work, "fp16"))


def test_topk_sends_the_true_gradient_over_the_steps():
    def work(group):
        reducer = GradientReducer(group, SHAPES, compression="topk", keep=0.05, op="sum")
        got = np.zeros((70, 70))
        for _ in range(100):
            for name in SHAPES:
                reducer[name][:] = gradient(group.rank, name) if name == "body" else 0
            reducer.finish()
            assert np.count_nonzero(reducer["body"]) < 0.11 * got.size
            got += reducer["body"]
        true = 100 * (gradient(0, "body").astype("float64") + gradient(1, "body"))
        return float(np.abs(got - true).mean() / np.abs(true).mean())

    assert all(missing < 0.5 for missing in on_both(work, "topk"))


def test_wrong_arrays_and_options_are_refused():
    with Group(1, 0, "alone") as group:
        for arrays, options, words in [
            ({}, {}, "no arrays"),
            ({"a": (0, 2)}, {}, "has no values"),
            ({"a": 1}, {"op": "max"}, "'sum' or 'average'"),
            ({"a": 1}, {"compression": "zip"}, "compression='zip'"),
            ({"a": 1}, {"keep": 0}, "keep=0"),
        ]:
            with pytest.raises(ValueError, match=words):
                GradientReducer(group, arrays, **options)

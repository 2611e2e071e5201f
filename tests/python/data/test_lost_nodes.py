# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A node is lost with blocks on it: they are made again, as they were. `./do soak data_kills` has
more of it."""

import gc
import time

import data_kills
import numpy as np
import pyarrow as pa
import pytest
from conftest import joined_cluster
from sheaf import data

FAR = {"resources": {"far": 0.1}}  # Options of what runs on the node that is lost.


@pytest.fixture(scope="module")
def cluster():
    with joined_cluster(data_kills.HEAD, {**data_kills.SIDE, "resources": {"far": 2}}) as cluster:
        yield cluster


def lose(cluster):
    (far,) = cluster.worker_nodes
    cluster.remove_node(far, allow_graceful=False)
    cluster.add_node(**data_kills.SIDE, resources={"far": 2})


def test_blocks_of_rows_that_the_driver_made_are_made_again(cluster):
    rows = data.range(200_000, override_num_blocks=4)  # So few that they are made in the driver.
    blocks = rows.map_batches(lambda batch: {"twice": 2 * batch["id"]}, **FAR).materialize()
    lose(cluster)
    assert blocks.sum("twice") == 200_000 * 199_999


@pytest.mark.parametrize("several", [False, True], ids=["one run", "a run of a run"])
def test_blocks_of_a_dataset_that_is_no_more_are_made_again(cluster, several):
    """What they were made of lies as long as they do, though nobody else has it."""
    rows = data.from_arrow(pa.table({"id": np.arange(200_000)}), override_num_blocks=4)
    blocks = rows.map_batches(lambda batch: {"twice": 2 * batch["id"]}, **FAR).materialize()
    if several:
        blocks = blocks.map_batches(lambda batch: {"twice": batch["twice"]}, **FAR).materialize()
    part = blocks.limit(150_000).materialize()
    del rows, blocks
    gc.collect()
    lose(cluster)
    assert part.sum("twice") == 150_000 * 149_999


def test_a_shuffle_without_a_seed_is_one_order_though_its_blocks_are_made_again(cluster):
    def slowly(batch):
        time.sleep(0.01)
        return batch

    rows = data.range(100_000, override_num_blocks=4).map_batches(lambda batch: batch, **FAR)
    shuffled = rows.random_shuffle(num_blocks=200, **FAR).map_batches(slowly, **FAR)
    found = []
    for batch in shuffled.iter_batches(batch_size=None, prefetch_batches=0):
        found.append(batch["id"])
        if len(found) == 25:
            lose(cluster)
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(100_000))

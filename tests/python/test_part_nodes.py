# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Parts of values that lie on another node, on disk, or went with their node."""

import numpy as np
import pytest
import sheaf
from sheaf.cluster_utils import Cluster
from sheaf.experimental import get_object_locations
from sheaf.util.parts import Parts, get_parts

MB = 1 << 20


@sheaf.remote(num_returns=2)
def split(count, size):
    parts = Parts([np.full(size, i, np.uint8) for i in range(count)])
    return parts, parts.places


@pytest.fixture
def two_nodes():
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 64 * MB}
    )
    cluster.add_node(num_cpus=2, object_store_memory=64 * MB, resources={"far": 2})
    sheaf.init(address=cluster.address)
    yield cluster
    sheaf.shutdown()
    cluster.shutdown()


def test_of_another_node_parts_alone_move(two_nodes):
    refs = [split.options(resources={"far": 1}).remote(4, MB) for _ in range(4)]
    places = sheaf.get([place for _, place in refs])
    before = sheaf.nodes()
    read = get_parts([(ref, of[2]) for (ref, _), of in zip(refs, places, strict=True)])
    assert all(part.shape == (MB,) and (part == 2).all() for part in read)
    [head, far] = sorted(before, key=lambda node: "far" in node["Resources"])
    for ref, _ in refs:  # No whole copy has come.
        [row] = get_object_locations([ref]).values()
        assert row["node_ids"] == [far["NodeID"]]
        assert row["object_size"] > 4 * MB
        assert row["did_spill"] is None
    del read


def test_what_is_on_disk_is_read_by_parts(two_nodes):
    # Five times the stores, so most of it is on disk by the end.
    refs = [
        split.options(resources={"far": 1} if i % 2 else {}).remote(8, 2 * MB) for i in range(24)
    ]
    places = sheaf.get([place for _, place in refs])
    for part in (0, 5):
        for (ref, _), of in zip(refs, places, strict=True):
            [value] = get_parts([(ref, of[part])])
            assert (value == part).all()


def test_a_part_of_what_its_node_took_with_it_is_made_anew(two_nodes):
    @sheaf.remote(num_returns=2, max_retries=3, resources={"soft": 0.001})
    def anywhere():
        parts = Parts([np.full(MB, i, np.uint8) for i in range(4)])
        return parts, parts.places

    node = two_nodes.add_node(num_cpus=1, object_store_memory=64 * MB, resources={"soft": 1})
    ref, places = anywhere.remote()
    places = sheaf.get(places)
    two_nodes.add_node(num_cpus=1, object_store_memory=64 * MB, resources={"soft": 1})
    two_nodes.remove_node(node, allow_graceful=False)
    [value] = get_parts([(ref, places[3])], timeout=60)
    assert (value == 3).all()

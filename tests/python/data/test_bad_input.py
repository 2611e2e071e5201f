# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What wrong functions, columns, groups and sorts are told: the culprit, by name."""

import pytest
import sheaf
from sheaf import data


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def wrong(batch):
    batch["id"][0] = 7
    return batch


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda d: d.map(lambda row: None), "Map(<lambda>)"),
        (lambda d: d.map_batches(lambda b: 3), "want a batch"),
        (lambda d: d.map_batches(lambda b: {"a": [1], "b": [1, 2]}), "'a' 1, 'b' 2"),
        (lambda d: d.map_batches(wrong), "read-only"),
        (lambda d: d.select_columns(["idd"]), "did you mean 'id'"),
        (lambda d: d.map(lambda row: {"l": [row["id"]]}).sort("l"), "'l' is list"),
        (
            lambda d: d.map(lambda row: {"l": [row["id"]]}).groupby("l").count(),
            "column 'l' is list",
        ),
        (lambda d: d.groupby("id").mean("k"), "no column 'k'"),
        (lambda d: d.repartition(0), "num_blocks=0"),
        (lambda d: d.groupby("id", num_partitions=-1), "num_partitions=-1"),
        (lambda d: d.iter_batches(batch_size=0), "batch_size=0"),
    ],
)
def test_it_names_the_culprit(use, said):
    with pytest.raises(Exception) as caught:
        use(data.range(4)).take_all()
    assert said in str(caught.value)

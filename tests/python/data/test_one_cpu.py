# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors of pools and what feeds them take turns where there is one CPU, and keep what their
constructors have made."""

import os
import pathlib

import numpy as np
import pytest
import sheaf
from sheaf import data


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=1, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def wide(batch):
    """1 MB for each row."""
    return {"id": batch["id"], "x": np.zeros((len(batch["id"]), 1 << 17))}


class Model:
    """Leaves a mark for each that is made."""

    def __init__(self, folder, name):
        (pathlib.Path(folder) / f"{name}-{os.getpid()}").touch()

    def __call__(self, batch):
        return batch


def limited(count):
    """As many rows as blocks of 1 MB, of which 8 may be there at once."""
    dataset = data.range(count, override_num_blocks=count).map_batches(wide)
    limits = data.ExecutionResources.for_limits(object_store_memory=8e6)
    dataset.context.execution_options = data.ExecutionOptions(resource_limits=limits)
    return dataset


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["one pool", "two pools"])
def test_an_actor_is_made_once(tmp_path, names):
    rows = limited(60)
    for name in names:
        rows = rows.map_batches(
            Model, fn_constructor_args=(str(tmp_path), name), concurrency=1, batch_size=1
        )
    seen = [int(number) for batch in rows.iter_batches(batch_size=None) for number in batch["id"]]
    assert sorted(seen) == list(range(60))
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == names

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What workers of sheaf.train get of datasets: parts, or the whole (DataConfig)."""

import json

import numpy as np
import pytest
from sheaf import data, train


def read(folder):
    """A loop: writes what its worker gets of each dataset."""

    def loop():
        got = {
            "train": [row["id"] for row in train.get_dataset_shard("train").iter_rows()],
            "valid": [row["id"] for row in train.get_dataset_shard("valid").iter_rows()],
            "array": train.get_dataset_shard("array").tolist(),
        }
        rank = train.get_context().get_world_rank()
        (folder / f"{rank}.json").write_text(json.dumps(got))

    return loop


def told(folder, config):
    train.DataParallelTrainer(
        read(folder),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=folder / "out", progress=False),
        datasets={
            "train": data.range(8, override_num_blocks=4),
            "valid": data.range(4),
            "array": np.arange(4),
        },
        dataset_config=config,
    ).fit()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_datasets_that_are_not_named_come_whole(node, tmp_path):
    ordered = data.ExecutionOptions(preserve_order=True)
    config = train.DataConfig(datasets_to_split=["train"], execution_options={"train": ordered})
    first, second = told(tmp_path, config)
    assert sorted(first["train"] + second["train"]) == list(range(8))
    assert len(first["train"]) == len(second["train"]) == 4
    assert first["valid"] == second["valid"] == [0, 1, 2, 3]
    assert first["array"] == second["array"] == [0, 1, 2, 3]


def test_a_class_of_the_users_says_what_workers_get(node, tmp_path):
    class Reversed(train.DataConfig):
        def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
            made = super().configure(datasets, world_size)
            return [
                {**one, "train": datasets["valid"].limit(rank + 1).iterator()}
                for rank, one in enumerate(made)
            ]

    first, second = told(tmp_path, Reversed())
    assert first["train"] == [0] and second["train"] == [0, 1]
    assert first["array"] == [0, 1] and second["array"] == [2, 3]


def test_mistakes_about_what_is_split(tmp_path):
    with pytest.raises(TypeError, match="datasets_to_split='train': want 'all' or a list"):
        train.DataConfig(datasets_to_split="train")
    with pytest.raises(TypeError, match="dataset_config=3: want a DataConfig"):
        train.DataParallelTrainer(print, dataset_config=3)
    with pytest.raises(ValueError, match="datasets_to_split has 'other'; the trainer got"):
        train.DataParallelTrainer(
            print, datasets={"train": [1]}, dataset_config=train.DataConfig(["other"])
        )


def test_a_copy_of_a_dataset_has_settings_of_its_own():
    first = data.range(3)
    second = first.copy(first)
    second.context.execution_options.preserve_order = True
    assert not first.context.execution_options.preserve_order

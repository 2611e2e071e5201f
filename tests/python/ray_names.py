# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs know of Ray and tests/peer/answers/surface.json does not have, which is recorded of
Ray Core: names of Ray Train, and options of methods. test_names.py looks for them in sheaf,
from_ray.py tells users."""

TRAIN = """
    report get_context get_checkpoint Checkpoint ScalingConfig RunConfig FailureConfig
    CheckpointConfig get_dataset_shard
"""

# What calls name of each: ray.train.NAME(keyword=...).
TRAIN_KEYWORDS = {
    "ScalingConfig": """
        num_workers use_gpu resources_per_worker placement_strategy accelerator_type
    """,
    "RunConfig": "name storage_path failure_config checkpoint_config callbacks",
    "report": "metrics checkpoint checkpoint_dir_name",
}

METHOD_OPTIONS = """
    num_returns concurrency_group max_task_retries retry_exceptions
    _generator_backpressure_num_objects _num_objects_per_yield enable_task_events
    tensor_transport
"""

# Options that Ray checks at .options() and has in no table.
PLACING = "placement_group placement_group_bundle_index placement_group_capture_child_tasks"

# Libraries beside Ray Core and Ray Train.
LIBRARIES = ["data", "serve", "rllib", "llm", "dag", "workflow"]

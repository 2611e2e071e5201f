# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of Ray Data that Sheaf does not have: they exist, and say what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_OWN_READER = "write a Datasource and use read_datasource, or read_sql where there is a connection"
_OWN_SINK = "write a Datasink and use write_datasink"
FUNCTIONS = {
    **dict.fromkeys(
        [
            "read_audio",
            "read_avro",
            "read_bigquery",
            "read_clickhouse",
            "read_databricks_tables",
            "read_delta",
            "read_delta_sharing_tables",
            "read_hudi",
            "read_iceberg",
            "read_kafka",
            "read_lance",
            "read_lerobot",
            "read_mcap",
            "read_mongo",
            "read_orc",
            "read_snowflake",
            "read_unity_catalog",
            "read_videos",
            "read_zarr",
        ],
        _OWN_READER,
    ),
    "from_spark": "write Parquet from Spark and use read_parquet",
    "from_mars": "use from_pandas_refs",
    "from_daft": "use from_arrow(df.to_arrow())",
    "from_dask": "use from_pandas_refs with the partitions",
    "from_modin": "use from_pandas",
    "from_tf": "use from_numpy, or read_tfrecords",
    "list_stats_summaries": "use Dataset.stats()",
}
METHODS = {
    **dict.fromkeys(
        [
            "write_bigquery",
            "write_clickhouse",
            "write_delta",
            "write_iceberg",
            "write_kafka",
            "write_lance",
            "write_mongo",
            "write_orc",
            "write_snowflake",
            "write_turbopuffer",
        ],
        _OWN_SINK,
    ),
    "to_spark": "use write_parquet and read it from Spark",
    "to_mars": "use to_pandas_refs",
    "to_daft": "use to_arrow_refs",
    "to_dask": "use to_pandas_refs",
    "to_modin": "use to_pandas_refs",
    "to_tf": "use iter_batches, whose arrays TensorFlow takes",
    "iter_tf_batches": "use iter_batches, whose arrays TensorFlow takes",
    "iter_jax_batches": "use iter_batches, whose arrays JAX takes",
    "to_random_access_dataset": "sort it and keep its blocks in actors of your own",
    "streaming_train_test_split": "use train_test_split, or filter by a hash of a column",
    "mix": "use union and random_shuffle",
    "summary": "use aggregate",
    "get_stats_summary": "use stats()",
}


def function(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError, and says what to use instead."""

    def absent(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not in Sheaf: {instead}")

    absent.__name__ = absent.__qualname__ = name
    absent.__doc__ = f"Not in Sheaf: {instead}. Raises NotImplementedError."
    return absent

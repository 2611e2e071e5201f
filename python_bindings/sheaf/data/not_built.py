# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of Ray Data that Sheaf does not have: they exist, and say what to use instead."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NoReturn

_OWN_READER = "write a Datasource and use read_datasource, or read_sql where there is a connection"
_OWN_SINK = "write a Datasink and use write_datasink"
FUNCTIONS = {
    **dict.fromkeys(
        [
            "read_audio",
            "read_bigquery",
            "read_clickhouse",
            "read_databricks_tables",
            "read_delta_sharing_tables",
            "read_hudi",
            "read_kafka",
            "read_lerobot",
            "read_mcap",
            "read_mongo",
            "read_snowflake",
            "read_unity_catalog",
            "read_videos",
            "read_zarr",
        ],
        _OWN_READER,
    ),
    "from_spark": "write Parquet from Spark and use read_parquet",
    "from_mars": "use from_pandas_refs",
    "list_stats_summaries": "use Dataset.stats()",
    "configure_logging": "use Python's logging",
    **dict.fromkeys(
        [
            "Catalog",
            "CatalogAccessMode",
            "ClickHouseTableSettings",
            "DatabricksUnityCatalog",
            "KafkaAuthConfig",
            "ReaderFormat",
            "ResolvedSource",
        ],
        _OWN_READER,
    ),
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
    "to_random_access_dataset": "sort it and keep its blocks in actors of your own",
    "get_stats_summary": "use stats()",
    "iter_internal_ref_bundles": "use to_arrow_refs",
    "map_batches_internal": "use map_batches",
}


class SinkMode(enum.IntEnum):
    """What is done to a table of ClickHouse that is written to."""

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3


def function(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError, and says what to use instead."""

    def absent(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not in Sheaf: {instead}")

    absent.__name__ = absent.__qualname__ = name
    absent.__doc__ = f"Not in Sheaf: {instead}. Raises NotImplementedError."
    return absent

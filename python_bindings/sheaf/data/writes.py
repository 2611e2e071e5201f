# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets to files and other places, by sinks of sheaf.data.datasource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sheaf.data import plan, transforms
from sheaf.data.compute import task_options

if TYPE_CHECKING:
    from sheaf.data.dataset import Dataset


class Writes:
    """The writing methods of Dataset."""

    def write_datasink(
        self: Dataset,  # type: ignore[misc]
        datasink: Any,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Writes through a sink: one call of its write() for each task.

        Args:
            datasink: a Datasink.
            ray_remote_args: options of remote functions, for its tasks.
            concurrency: tasks at a time; None: as many as fit.
        """
        options = task_options("write", None, None, concurrency, ray_remote_args or {})
        rows = datasink.min_rows_per_write or 0
        node = plan.Map(
            (self._plan,),
            f"Write{datasink.get_name()}",
            transforms.write(datasink),
            datasink,
            options,
            rows=rows,
            default_options=ray_remote_args is None and concurrency is None,
        )
        datasink.on_write_start(plan.known_schema(self._plan))
        try:
            results = [row for table in self._with(node)._tables_now(None) for row in _rows(table)]
            datasink.on_write_complete(_result(results))
        except BaseException as error:
            datasink.on_write_failed(error)
            raise


def _rows(table: Any) -> list[dict[str, Any]]:
    from sheaf.data.block import table_to_rows

    return list(table_to_rows(table))


def _result(rows: list[dict[str, Any]]) -> Any:
    from sheaf.data.datasource.datasink import WriteResult

    return WriteResult(
        sum(row["num_rows"] for row in rows),
        sum(row["size_bytes"] for row in rows),
        [row["write_return"] for row in rows],
    )

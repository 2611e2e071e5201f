# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What init(job_config=...) takes."""

from __future__ import annotations

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class JobConfig:
    """Settings of a job, for init(job_config=...).

    Args:
        code_search_path: at most one library or program of C++, as sheaf.cross_language.load takes
            it; folders are put in front of Python's search path.
        runtime_env: as init takes it.
        ray_namespace: as init takes `namespace`.
        ignored: what Sheaf has no use for.

    Raises:
        ValueError: the search path is no list.
    """

    def __init__(
        self,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        ray_namespace: str | None = None,
        **ignored: Any,
    ):
        if isinstance(code_search_path, str):
            raise ValueError(f"code_search_path={code_search_path!r}: want a list of paths")
        self.code_search_path = list(code_search_path or [])
        self.runtime_env = runtime_env
        self.ray_namespace = ray_namespace

    def set_runtime_env(self, runtime_env: dict[str, Any] | None) -> None:
        """Changes the runtime environment of all tasks and actors of the job.

        Args:
            runtime_env: as init takes it.
        """
        self.runtime_env = runtime_env

    def set_ray_namespace(self, ray_namespace: str) -> None:
        """Changes where named actors are made and found.

        Args:
            ray_namespace: as init takes `namespace`.
        """
        self.ray_namespace = ray_namespace

    def apply(self) -> None:
        """Takes over the code search path, before the job begins.

        Raises:
            ValueError: a path does not exist, or two are libraries.
        """
        import os
        import sys

        from sheaf import cross_language  # For the jobs that have one.

        libraries = [path for path in self.code_search_path if not os.path.isdir(path)]
        if len(libraries) > 1:
            raise ValueError(
                f"code_search_path={self.code_search_path!r}: one library or "
                "program at most; put all into one"
            )
        for path in libraries:
            cross_language.load(path)
        sys.path[:0] = [
            os.path.abspath(path) for path in self.code_search_path if os.path.isdir(path)
        ]

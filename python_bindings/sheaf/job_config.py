# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What init(job_config=...) takes."""

from __future__ import annotations

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class JobConfig:
    """Settings of a job, for init(job_config=...).

    Args:
        jvm_options: without effect.
        code_search_path: at most one library or program of C++, as sheaf.cross_language.load takes
            it; folders are put in front of Python's search path.
        runtime_env: as init takes it.
        metadata: texts by name, which Sheaf does not read.
        ray_namespace: as init takes `namespace`.
        default_actor_lifetime: "non_detached"; "detached" is not in Sheaf.

    Raises:
        ValueError: the search path is no list, or the lifetime is none.
        NotImplementedError: actors would be detached by default.
    """

    def __init__(
        self,
        jvm_options: list[str] | None = None,
        code_search_path: list[str] | None = None,
        runtime_env: dict[str, Any] | None = None,
        _client_job: bool = False,
        metadata: dict[str, str] | None = None,
        ray_namespace: str | None = None,
        default_actor_lifetime: str = "non_detached",
        _disable_job_level_lineage_reconstruction: bool = False,
        _py_driver_sys_path: list[str] | None = None,
    ):
        if isinstance(code_search_path, str):
            raise ValueError(f"code_search_path={code_search_path!r}: want a list of paths")
        self.code_search_path = list(code_search_path or [])
        self.jvm_options = list(jvm_options or [])
        self.runtime_env = runtime_env or {}
        self.metadata = dict(metadata or {})
        self.ray_namespace = ray_namespace
        self.py_logging_config: Any = None
        self.set_default_actor_lifetime(default_actor_lifetime)

    @classmethod
    def from_json(cls, job_config_json: dict[str, Any]) -> JobConfig:
        """Returns the settings of these fields.

        Args:
            job_config_json: a dict of what the constructor takes, and of `code_search_path`.
        """
        names = ("jvm_options", "code_search_path", "runtime_env", "metadata", "ray_namespace")
        return cls(**{name: job_config_json.get(name) for name in names})

    def set_metadata(self, key: str, value: str) -> None:
        """Adds a text that Sheaf does not read.

        Args:
            key: its name.
            value: the text.
        """
        self.metadata[key] = value

    def set_default_actor_lifetime(self, default_actor_lifetime: str) -> None:
        """Says how long actors live that do not say it themselves.

        Args:
            default_actor_lifetime: "non_detached".

        Raises:
            ValueError: it is no lifetime.
            NotImplementedError: "detached": give each class `lifetime="detached"`.
        """
        if default_actor_lifetime == "detached":
            raise NotImplementedError(
                "default_actor_lifetime='detached' is not in Sheaf: give the classes "
                "lifetime='detached' and names"
            )
        if default_actor_lifetime != "non_detached":
            raise ValueError(
                f"default_actor_lifetime={default_actor_lifetime!r}: want 'non_detached' or "
                "'detached'"
            )

    def set_py_logging_config(self, logging_config: Any = None) -> None:
        """Says how loggers write.

        Args:
            logging_config: a LoggingConfig, as init takes it.
        """
        self.py_logging_config = logging_config

    def ensure_logging_config(self, logging_config: Any = None) -> None:
        """The same where nothing is said yet.

        Args:
            logging_config: a LoggingConfig, as init takes it.
        """
        if self.py_logging_config is None:
            self.py_logging_config = logging_config

    def set_runtime_env(self, runtime_env: dict[str, Any] | None, validate: bool = False) -> None:
        """Changes the runtime environment of all tasks and actors of the job.

        Args:
            runtime_env: as init takes it.
            validate: whether it is checked now.

        Raises:
            ValueError: it is checked, and a field is wrong.
        """
        if validate:
            from sheaf import runtime_env as module  # Where it is checked.

            module.check(runtime_env or {})
        self.runtime_env = runtime_env or {}

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

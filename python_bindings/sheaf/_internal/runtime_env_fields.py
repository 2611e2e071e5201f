# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs read of a runtime environment, and the form of its field `config`."""

from __future__ import annotations

from typing import Any


class Fields(dict):  # type: ignore[type-arg]
    """The questions that RuntimeEnv answers about its fields. Those that Sheaf refuses are not
    there: None, or nothing of them."""

    extensions_fields = {"_ray_release", "_ray_commit", "_inject_current_ray"}

    def get(self, name: str, default: Any = None, data_class: Any = None) -> Any:
        """Returns a field.

        Args:
            name: of the field.
            default: what is returned where it is not there.
            data_class: what makes it of the field's dict; None: it is returned as it is.
        """
        value = super().get(name, default)
        if data_class is None or not isinstance(value, dict):
            return value
        return data_class(**value)

    def get_extension(self, key: str) -> Any:
        """Returns a field that only Ray itself sets.

        Args:
            key: its name.

        Raises:
            ValueError: it is none of these.
        """
        if key not in self.extensions_fields:
            raise ValueError(f"{key!r}: want one of {', '.join(sorted(self.extensions_fields))}")
        return self.get(key)

    def env_vars(self) -> dict[str, str]:
        """Returns the variables."""
        return dict(self.get("env_vars") or {})

    def working_dir(self) -> str:
        """Returns the directory; "": there is none."""
        return str(self.get("working_dir") or "")

    def py_modules(self) -> list[Any]:
        """Returns the modules."""
        return list(self.get("py_modules") or [])

    def py_executable(self) -> str | None:
        """Returns the field py_executable."""
        return self.get("py_executable")

    def working_dir_uri(self) -> str | None:
        """Returns the directory, or None: there is none."""
        return self.get("working_dir")

    def py_modules_uris(self) -> list[Any]:
        """Returns the modules."""
        return self.py_modules()

    def has_working_dir(self) -> bool:
        """Returns whether there is a directory."""
        return bool(self.get("working_dir"))

    def has_pip(self) -> bool:
        """Returns whether pip installs packages."""
        return bool(self.get("pip"))

    def has_uv(self) -> bool:
        """Returns whether uv installs packages."""
        return bool(self.get("uv"))

    def has_conda(self) -> bool:
        """Returns whether there is a conda environment: never, Sheaf makes none."""
        return bool(self.get("conda"))

    def has_py_container(self) -> bool:
        """Returns whether there is a container: never, Sheaf starts none."""
        return bool(self.get("container"))

    def pip_config(self) -> dict[str, Any]:
        """Returns what pip installs; {}: nothing."""
        return self._installer("pip")

    def uv_config(self) -> dict[str, Any]:
        """Returns what uv installs; {}: nothing."""
        return self._installer("uv")

    def _installer(self, name: str) -> dict[str, Any]:
        given = self.get(name) or {}
        return dict(given) if isinstance(given, dict) else {"packages": given}

    def image_uri(self) -> str | None:
        """Returns the field image_uri."""
        return self.get("image_uri")

    def java_jars(self) -> list[str]:
        """Returns the field java_jars."""
        return list(self.get("java_jars") or [])

    def nsight(self) -> Any:
        """Returns the field _nsight."""
        return self.get("_nsight")

    def rocprof_sys(self) -> Any:
        """Returns the field _rocprof_sys."""
        return self.get("_rocprof_sys")


class RuntimeEnvConfig(dict):  # type: ignore[type-arg]
    """The field `config` of a runtime environment.

    Args:
        setup_timeout_seconds: how long the environment may take to be made; -1: no bound.
        eager_install: without effect: it is made when the first call wants it.
        log_files: without effect.

    Raises:
        ValueError: the time is not above 0.
        TypeError: a value has the wrong type.
    """

    known_fields = {"setup_timeout_seconds", "eager_install", "log_files"}

    def __init__(
        self,
        setup_timeout_seconds: int = 600,
        eager_install: bool = True,
        log_files: list[str] | None = None,
    ):
        if not isinstance(setup_timeout_seconds, int):
            raise TypeError(
                f"setup_timeout_seconds={setup_timeout_seconds!r}: setup_timeout_seconds must be "
                "of type int"
            )
        if setup_timeout_seconds <= 0 and setup_timeout_seconds != -1:
            raise ValueError(f"setup_timeout_seconds={setup_timeout_seconds}: want seconds, or -1")
        if not isinstance(eager_install, bool):
            raise TypeError(f"eager_install={eager_install!r}: eager_install must be a boolean")
        if log_files is not None and not (
            isinstance(log_files, list) and all(isinstance(name, str) for name in log_files)
        ):
            raise TypeError(f"log_files={log_files!r}: want a list of str")
        super().__init__(
            setup_timeout_seconds=setup_timeout_seconds,
            eager_install=eager_install,
            log_files=log_files or [],
        )

    @classmethod
    def default_config(cls) -> RuntimeEnvConfig:
        """Returns the one without arguments."""
        return cls()

    @staticmethod
    def parse_and_validate_runtime_env_config(
        config: dict[str, Any] | RuntimeEnvConfig,
    ) -> RuntimeEnvConfig:
        """Returns the same as a RuntimeEnvConfig.

        Args:
            config: a dict of its fields.

        Raises:
            TypeError: it is no dict, or has another field.
        """
        if isinstance(config, RuntimeEnvConfig):
            return config
        if not isinstance(config, dict):
            raise TypeError(f"runtime_env config={config!r}: want a dict, or a RuntimeEnvConfig")
        return RuntimeEnvConfig(**config)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a plain dict."""
        return dict(self)

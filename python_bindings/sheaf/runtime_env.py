# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runtime environments: what a worker finds when it starts."""

from __future__ import annotations

from typing import Any

_KNOWN = {
    "working_dir", "py_modules", "py_executable", "excludes", "pip", "uv", "conda", "container", "image_uri", "env_vars",
    "worker_process_setup_hook", "java_jars", "config", "_nsight", "_rocprof_sys", "_ray_release", "_ray_commit",
    "_inject_current_ray",
}
_IGNORED = {"config", "excludes", "_ray_release", "_ray_commit", "_inject_current_ray"}


class RuntimeEnv(dict):  # type: ignore[type-arg]
    """A runtime environment: a dict with checked keys."""

    def __init__(self, **fields: Any):
        super().__init__({name: value for name, value in fields.items() if value is not None})
        variables(self)


def variables(runtime_env: dict[str, Any]) -> dict[str, str]:
    """The variables of env_vars. ValueError, TypeError: a field is unknown or wrong. NotImplementedError: one is not there yet."""
    if not isinstance(runtime_env, dict):
        raise TypeError(f"runtime_env={runtime_env!r}: want a dict, as {{'env_vars': {{'NAME': 'value'}}}}")
    for name in runtime_env:
        if name not in _KNOWN:
            raise ValueError(f"runtime_env has no field '{name}': there are " + ", ".join(sorted(n for n in _KNOWN if n[0] != "_")))
        if name != "env_vars" and name not in _IGNORED:
            raise NotImplementedError(f"runtime_env['{name}'] is not in Sheaf yet; env_vars is")
    given = runtime_env.get("env_vars") or {}
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"runtime_env env_vars {name!r}: {value!r}: names and values are str")
    return dict(given)

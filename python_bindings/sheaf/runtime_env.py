# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runtime environments: what a worker finds when it starts. Here: the fields, and the names under
which they travel.

A worker belongs to one environment. Directories go to the cluster's key-value store once, named by
the hash of what they hold; runtime_env_setup.py fetches them and installs packages in the worker,
before its first call.
"""

from __future__ import annotations

import os
import types

from sheaf._internal.runtime_env_fields import Fields, RuntimeEnvConfig

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

    from sheaf._internal.runtime_env_package import Package

__all__ = ["Fields", "Plan", "RuntimeEnv", "RuntimeEnvConfig", "check", "plan"]

# base/config.h: of a worker with an environment, what Plan.entries are, in hexadecimal.
VARIABLE = "SHEAF_RUNTIME_ENVIRONMENT"
_KNOWN = {
    "working_dir",
    "py_modules",
    "py_executable",
    "excludes",
    "pip",
    "uv",
    "conda",
    "container",
    "image_uri",
    "env_vars",
    "worker_process_setup_hook",
    "java_jars",
    "config",
    "_nsight",
    "_rocprof_sys",
    "_ray_release",
    "_ray_commit",
    "_inject_current_ray",
}
_IGNORED = {"_ray_release", "_ray_commit", "_inject_current_ray"}
_SERVED = {
    "env_vars",
    "working_dir",
    "py_modules",
    "excludes",
    "pip",
    "uv",
    "config",
    "worker_process_setup_hook",
}
_MAX_HOOK_BYTES = 16 * 1024  # It is part of what each worker is started with.
# Of the dict form of pip and uv: the key of the packages' check, and of further arguments.
_OPTIONS = {
    "pip": ("pip_check", "pip_install_options", "pip_version"),
    "uv": ("uv_check", "uv_pip_install_options", "uv_version"),
}


class RuntimeEnv(Fields):
    """A runtime environment: a dict with checked keys.

    Args:
        py_modules: paths or modules.
        py_executable: not in Sheaf.
        working_dir: a path; or an archive: https://, gcs:// (a package of the cluster).
        pip: a list of requirements, the path of a requirements file, or a dict.
        conda: not in Sheaf.
        container: not in Sheaf.
        env_vars: a dict; "${NAME}" in a value is what the worker would have had there.
        worker_process_setup_hook: a function, or "module.function".
        nsight: not in Sheaf.
        rocprof_sys: not in Sheaf.
        config: {"setup_timeout_seconds": seconds}.
        image_uri: not in Sheaf.
        uv: as pip.
        kwargs: excludes (patterns, as in .gitignore).

    Raises:
        ValueError: a field is unknown, or its value wrong.
        TypeError: a value has the wrong type.
        NotImplementedError: Ray has the field, and Sheaf has not.
    """

    known_fields = _KNOWN

    def __init__(
        self,
        *,
        py_modules: list[Any] | None = None,
        py_executable: str | None = None,
        working_dir: Any = None,
        pip: Any = None,
        conda: Any = None,
        container: Any = None,
        env_vars: dict[str, str] | None = None,
        worker_process_setup_hook: Any = None,
        nsight: Any = None,
        rocprof_sys: Any = None,
        config: dict[str, Any] | None = None,
        _validate: bool = True,
        image_uri: str | None = None,
        uv: Any = None,
        **kwargs: Any,
    ):
        kwargs.update(
            py_modules=py_modules,
            py_executable=py_executable,
            working_dir=working_dir,
            pip=pip,
            conda=conda,
            container=container,
            env_vars=env_vars,
            worker_process_setup_hook=worker_process_setup_hook,
            config=config,
            image_uri=image_uri,
            uv=uv,
        )
        kwargs.setdefault("_nsight", nsight)
        kwargs.setdefault("_rocprof_sys", rocprof_sys)
        super().__init__({name: value for name, value in kwargs.items() if value is not None})
        if _validate:
            check(self)
            if "config" in self:
                self["config"] = RuntimeEnvConfig(**self["config"])

    def set(self, name: str, value: Any) -> None:
        """Changes a field.

        Args:
            name: of the field.
            value: as the constructor takes it.

        Raises:
            ValueError: the field is unknown, or its value wrong.
            TypeError: the value has the wrong type.
            NotImplementedError: Ray has the field, and Sheaf has not.
        """
        self[name] = value
        check(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a plain dict."""
        return dict(self)

    def serialize(self) -> str:
        """Returns the fields as JSON."""
        import json

        return json.dumps(self, sort_keys=True)

    @classmethod
    def deserialize(cls, serialized_runtime_env: str) -> RuntimeEnv:
        """Returns the environment that serialize has written.

        Args:
            serialized_runtime_env: what serialize gave.

        Raises:
            ValueError: it is no such JSON.
        """
        import json

        return cls(_validate=False, **json.loads(serialized_runtime_env))


class Plan:
    """A checked environment, as workers get it.

    Args:
        entries: environment variables, and fields as "@name".
        packages: the directories and wheels in it, for upload().
    """

    def __init__(self, entries: dict[str, str], packages: list[Package]):
        self.entries = entries
        self._packages = packages

    def upload(self) -> None:
        """Puts what the cluster does not have yet into its key-value store.

        Raises:
            RayError: the cluster did not answer.
        """
        for package in self._packages:
            package.upload()


def entries_of_worker() -> dict[str, str]:
    """Returns the entries of this worker's environment; {}: it has none of its own."""
    data = bytes.fromhex(os.environ.get(VARIABLE, ""))
    return dict(
        part.decode("utf-8", "surrogateescape").split("=", 1) for part in data.split(b"\0") if part
    )


def check(runtime_env: Any) -> None:
    """Checks the fields of an environment.

    Args:
        runtime_env: a dict of them.

    Raises:
        ValueError: a field is unknown, or its value wrong.
        TypeError: it is no dict, or a value has the wrong type.
        NotImplementedError: Ray has the field, and Sheaf has not.
    """
    if not isinstance(runtime_env, dict):
        raise TypeError(
            f"runtime_env={runtime_env!r}: runtime_env must be a dict, as "
            "{'env_vars': {'NAME': 'value'}}"
        )
    for name in runtime_env:
        if name not in _KNOWN:
            raise ValueError(
                f"runtime_env has no field '{name}': there are "
                + ", ".join(sorted(n for n in _KNOWN if n[0] != "_"))
            )
        if name == "conda":
            raise NotImplementedError(
                "runtime_env['conda'] is not in Sheaf, which makes no conda "
                "environments: name the packages under 'pip' or 'uv', as "
                "{'pip': ['numpy==2.1']}, or start the nodes inside of the environment"
            )
        if name not in _SERVED and name not in _IGNORED:
            raise NotImplementedError(
                f"runtime_env['{name}'] is not in Sheaf; there are " + ", ".join(sorted(_SERVED))
            )
    variables = runtime_env.get("env_vars") or {}
    if not isinstance(variables, dict) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in variables.items()
    ):
        raise TypeError(
            f"runtime_env['env_vars'] must be of type Dict[str, str], names and values are str: "
            f"{variables!r}"
        )
    if "" in variables:
        raise ValueError("runtime_env['env_vars'] has a variable without a name")
    _check_paths(runtime_env)
    excludes = runtime_env.get("excludes") or []
    if not isinstance(excludes, list) or not all(isinstance(e, str) for e in excludes):
        raise TypeError(
            f"runtime_env excludes={excludes!r}: want a list of patterns, as ['*.log', '/data/']"
        )
    if runtime_env.get("pip") and runtime_env.get("uv"):
        raise ValueError("runtime_env has pip and uv: one of them installs the packages")
    for tool in ("pip", "uv"):
        if runtime_env.get(tool):
            _packages(tool, runtime_env[tool])
    _timeout(runtime_env)


def _check_paths(runtime_env: dict[str, Any]) -> None:
    """The types of working_dir and py_modules, and whether local ones are there."""
    modules = runtime_env.get("py_modules") or []
    if not isinstance(modules, list):
        raise TypeError(f"runtime_env py_modules={modules!r}: want a list of paths or modules")
    paths = [("py_modules", module) for module in modules if not hasattr(module, "__path__")]
    if runtime_env.get("working_dir") is not None:
        paths.append(("working_dir", runtime_env["working_dir"]))
    for field, value in paths:
        path = value if isinstance(value, types.ModuleType) else _path(field, value)
        if isinstance(path, str) and "://" not in path and not os.path.exists(path):
            kind = "package directory, module or wheel" if field == "py_modules" else "directory"
            raise ValueError(f"runtime_env {field}={path!r}: this is no {kind}")


def plan(runtime_env: Any) -> Plan:
    """Checks an environment, reads its directories, and names their contents.

    Args:
        runtime_env: a dict of its fields.

    Returns:
        What workers get, and what is to be uploaded first.

    Raises:
        ValueError: as check; or a path is no directory, module or wheel, or holds more than 256
            MiB.
        TypeError: as check.
        NotImplementedError: as check; or a path is a URL.
    """
    check(runtime_env)
    entries = dict(runtime_env.get("env_vars") or {})
    packages: list[Package] = []
    excludes = runtime_env.get("excludes") or []
    if runtime_env.get("working_dir") is not None:
        from sheaf._internal import runtime_env_package  # Archives and hashes.

        path = _path("working_dir", runtime_env["working_dir"])
        if "://" in path:
            entries["@working_dir"] = runtime_env_package.name_of_uri(path)
            packages += runtime_env_package.uploaded(path)
        else:
            packages.append(runtime_env_package.of_directory(path, excludes))
            entries["@working_dir"] = packages[-1].name
    if runtime_env.get("py_modules"):
        from sheaf._internal import runtime_env_package  # Archives and hashes.

        names = []
        for module in _list("py_modules", runtime_env["py_modules"]):
            if isinstance(module, str) and "://" in module:
                names.append(runtime_env_package.name_of_uri(module))
                packages += runtime_env_package.uploaded(module)
                continue
            packages.append(runtime_env_package.of_module(module, excludes))
            names.append(packages[-1].name)
        entries["@py_modules"] = " ".join(names)
    for tool in ("pip", "uv"):
        if runtime_env.get(tool):
            entries["@packages"] = _packages(tool, runtime_env[tool])
    if runtime_env.get("worker_process_setup_hook") is not None:
        entries["@setup_hook"] = _hook(runtime_env["worker_process_setup_hook"])
    timeout = _timeout(runtime_env)
    if timeout is not None:
        entries["@timeout"] = str(timeout)
    if entries and not any(name[0] == "@" for name in entries):
        entries["@variables"] = (
            ""  # So that the worker knows its environment, for the calls that it makes.
        )
    return Plan(entries, packages)


def described(entries: dict[str, str]) -> RuntimeEnv:
    """Gives the environment that a plan's entries make.

    Args:
        entries: as Plan has them.

    Returns:
        The environment; directories by the names under which the cluster keeps them.
    """
    import json

    fields: dict[str, Any] = {
        "env_vars": {name: value for name, value in entries.items() if name[0] != "@"} or None
    }
    fields["working_dir"] = entries.get("@working_dir")
    fields["py_modules"] = entries.get("@py_modules", "").split() or None
    if "@packages" in entries:
        wanted = json.loads(entries["@packages"])
        fields[wanted["tool"]] = wanted["packages"]
    if "@timeout" in entries:
        fields["config"] = {"setup_timeout_seconds": float(entries["@timeout"])}
    return RuntimeEnv(_validate=False, **fields)  # Its directories are names in the cluster.


def _hook(hook: Any) -> str:
    """What a worker calls before its first call: "module.function" as it is, a function as its
    pickle in hexadecimal."""
    if isinstance(hook, str):
        if "." not in hook:
            raise ValueError(
                f"runtime_env worker_process_setup_hook={hook!r}: want a function, "
                "or its name as 'module.function'"
            )
        return hook
    if not callable(hook):
        raise TypeError(
            f"runtime_env worker_process_setup_hook={hook!r}: want a function, or "
            "its name as 'module.function'"
        )
    from sheaf._internal import serialization  # For hooks alone.

    data, references = serialization.dumps(hook)
    if references or len(data) > _MAX_HOOK_BYTES:
        raise ValueError(
            f"runtime_env worker_process_setup_hook={hook!r}: holds references or "
            f"{len(data)} bytes: name it as 'module.function'"
        )
    return ":" + data.hex()


def _timeout(runtime_env: dict[str, Any]) -> float | None:
    config = runtime_env.get("config")
    if config is None:
        return None
    if not isinstance(config, dict):
        raise TypeError(
            f"runtime_env['config'] must be of type dict or RuntimeEnvConfig, got {config!r}"
        )
    timeout = config.get("setup_timeout_seconds")
    if timeout is None or timeout == -1:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"runtime_env config setup_timeout_seconds={timeout!r}: want seconds")
    if timeout <= 0:
        raise ValueError(
            f"runtime_env config setup_timeout_seconds={timeout!r}: want seconds above 0"
        )
    return float(timeout)


def _path(field: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"runtime_env {field}={value!r}: want the path of a directory")
    return os.fspath(value)


def _list(field: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"runtime_env {field}={value!r}: want a list")
    return list(value)


def _packages(tool: str, value: Any) -> str:
    """What pip or uv installs, as JSON that is equal for equal environments."""
    import json

    check_key, options_key, version_key = _OPTIONS[tool]
    if not isinstance(value, (str, os.PathLike, list, tuple, dict)):
        raise TypeError(f"runtime_env['{tool}'] must be of type str, List[str] or dict: {value!r}")
    given = value if isinstance(value, dict) else {"packages": value}
    for name in given:
        if name not in ("packages", check_key, options_key, version_key):
            raise ValueError(
                f"runtime_env {tool} has no key '{name}': there are packages, "
                f"{check_key}, {options_key}"
            )
    if "packages" not in given:
        raise ValueError(f"runtime_env['{tool}'] must include field 'packages': {value!r}")
    packages = given["packages"]
    if not isinstance(packages, (str, os.PathLike, list, tuple)):
        raise ValueError(f"runtime_env['{tool}']['packages'] must be a str or a list: {value!r}")
    if isinstance(packages, (str, os.PathLike)):
        try:
            with open(packages, encoding="utf-8") as file:
                packages = [line.split(" #")[0].strip() for line in file]
        except OSError as error:
            raise ValueError(
                f"runtime_env {tool}={value!r}: {error.strerror}: want a list of "
                "requirements, or a requirements file"
            ) from None
        packages = [line for line in packages if line and line[0] != "#"]
    packages = _list(tool, packages)
    if not all(isinstance(package, str) for package in packages):
        raise TypeError(
            f"runtime_env {tool}={value!r}: want requirements as str, as ['requests==2.31']"
        )
    # Lines of a requirements file that are options (--index-url URL) are arguments in front of the
    # others.
    options = [word for line in packages if line.startswith("-") for word in line.split(None, 1)]
    wanted = {
        "tool": tool,
        "packages": sorted(line for line in packages if not line.startswith("-")),
        "options": options + [str(option) for option in given.get(options_key) or ()],
        "check": bool(given.get(check_key)),
    }
    return json.dumps(wanted, sort_keys=True)

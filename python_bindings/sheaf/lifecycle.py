# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How a Python process joins a cluster and leaves it."""

from __future__ import annotations

import atexit
import os
import sys
from _collections_abc import Mapping  # collections.abc brings more modules.

from sheaf import _core, _version, cluster, ids, options
from sheaf._internal import tracing
from sheaf._internal.program import executable, interpreter_flags

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_IGNORED = {
    "logging_format",
    "enable_resource_isolation",
    "cgroup_path",
    "system_reserved_cpu",
    "system_reserved_memory",
    "proxy_server_url",
    "_redis_password",
    "_redis_username",
    "_system_config",
    "_temp_dir",
    "_node_ip_address",
    "_metrics_export_port",
    "_memory",
    "_driver_object_store_memory",
    "_enable_object_reconstruction",
    "_plasma_directory",
    "_node_name",
    "enable_task_events",
    "log_to_driver_dedup",
}
CLUSTER_VARIABLE = "SHEAF_CLUSTER"  # The head of a Cluster, for init("auto") beside it.
_SUBMISSION = (
    "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Of a submitted command: its environment, its metadata.
)
_LONGEST_FLAG = 100_000  # Bytes: the kernel takes no argument of a program of more than 128 KiB.
_context: Context | None = None
_entries: dict[str, str] = {}  # Of the environment that init was given.


def _dashboard_of(session: str) -> str:
    """HOST:PORT of the dashboard of the node of this session; "": it has none."""
    try:
        with open(os.path.join(session, "dashboard")) as file:
            return file.read().strip().partition("://")[2]
    except OSError:
        return ""


class Context(Mapping):  # type: ignore[type-arg]
    """What init gives: the address of the node, and what Ray programs read of it; a mapping of
    address_info.

    As a context manager it ends the session at the end of the block.

    Args:
        session: the session directory of the node.
    """

    def __init__(self, session: str):
        self.dashboard_url = _dashboard_of(session)
        self.address_info: dict[str, Any] = {
            "node_ip_address": "127.0.0.1",
            "address": session,
            "session_dir": session,
            "gcs_address": session,
            "webui_url": self.dashboard_url,
            "node_id": "",
            "object_store_address": session,
            "raylet_socket_name": session,
            "redis_address": None,
            "metrics_export_port": 0,
            "dashboard_agent_listen_port": 0,
        }
        self.python_version = sys.version.split()[0]
        self.ray_version = _version.__ray_version__
        self.ray_commit = _version.commit

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def disconnect(self) -> None:
        """Leaves the cluster, as sheaf.shutdown does."""
        shutdown()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: Any) -> None:
        shutdown()

    def __repr__(self) -> str:
        return f"Context(address={self.address_info['address']!r})"

    def _repr_html_(self) -> str:
        from sheaf._internal import notebook  # For notebooks alone.

        address = self.address_info["address"]
        if not _core.is_initialized():
            return notebook.table("Sheaf", {"session": address, "state": "ended"})
        amounts, free = cluster.cluster_resources(), cluster.available_resources()
        return notebook.session(address, len(cluster.nodes()), amounts, free)


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    include_dashboard: bool | None = None,
    dashboard_host: str | None = None,
    dashboard_port: int | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    ignore_reinit_error: bool = False,
    log_to_driver: bool = True,
    local_mode: bool = False,
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str | None = None,
    logging_config: Any = None,
    _tracing_startup_hook: str | None = None,
    **others: Any,
) -> Context:
    """Joins a cluster as a driver, or starts a node of its own.

    Not thread-safe. A process joins one cluster at a time. Options of Ray that mean nothing here
    are accepted.

    Args:
        address: None joins the node of SHEAF_ADDRESS, or starts one; "auto" joins the running node
            of this machine, or the cluster_utils.Cluster of this process; "local" always starts
            one; else the session directory of a node, as `sheaf start` prints it.
        num_cpus: CPUs of a node that is started; None: as many as there are.
        num_gpus: GPUs of it; None: those that are found.
        resources: further amounts of it, by name.
        labels: of it, for label selectors.
        object_store_memory: bytes of its object store; None: a part of the machine's memory.
        include_dashboard: whether the node that is started serves a dashboard; None: if one of the
            two below is given. The URL is in the context, and get_dashboard_url() has it.
        dashboard_host: the address that it listens on; None: 127.0.0.1. Beyond this machine it
            needs the token of a cluster (`sheaf token --http`).
        dashboard_port: its port; None: 8265, or the next that is free.
        namespace: where named actors are made and found; None: one of this job's own.
        runtime_env: of all tasks and actors (sheaf.runtime_env.RuntimeEnv, or a dict).
        ignore_reinit_error: whether a second call returns the context of the first.
        log_to_driver: whether what workers print is printed here, too.
        local_mode: no longer supported.
        job_config: a sheaf.job_config.JobConfig; its namespace and environment count where none is
            given here.
        configure_logging: False leaves `logging_level` without effect.
        logging_level: of the logger "sheaf" of this process.
        logging_config: a sheaf.LoggingConfig, for the loggers of the driver and of all workers.
        _tracing_startup_hook: "module:function", called here and in each worker, which tells
            OpenTelemetry where spans go (docs/tracing.md); None: calls have no spans of their own.
        others: names of Ray that have no effect.

    Returns:
        The address of the node; a context manager that leaves the cluster.

    Raises:
        ConnectionError: no node answers at `address`.
        RuntimeError: init was called already, and ignore_reinit_error is False; an unknown
            argument; local_mode.
        TypeError: a value has the wrong type.
        ValueError: a wrong value, or resources for a node that runs already.
    """
    global _context, _entries
    for name in others:
        if name not in _IGNORED:
            raise RuntimeError(_unknown(name))
    if _core.is_initialized():
        if ignore_reinit_error:
            return _context or _context_of_session()
        raise RuntimeError(
            "sheaf.init was called already: call sheaf.shutdown() first, or pass "
            "ignore_reinit_error=True (Maybe you called ray.init twice by accident?)"
        )
    if not isinstance(others.get("_system_config") or {}, dict):
        raise TypeError(f"_system_config={others['_system_config']!r}: want a dict")
    if local_mode:
        raise RuntimeError(
            "`local_mode` is no longer supported: a node of one's own starts in milliseconds"
        )
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace={namespace!r}: want a str")
    where = _address(address)
    if namespace is not None:
        if not isinstance(namespace, str):
            raise TypeError(f"namespace={namespace!r}: want a str")
        if not namespace:
            raise ValueError('namespace="" is not a valid namespace: want a name, or None')
    given = {
        "num_cpus": num_cpus,
        "num_gpus": num_gpus,
        "resources": resources,
        "labels": labels,
        "object_store_memory": object_store_memory,
    }
    flags = _node_flags(given)
    dashboard = _dashboard_flags(include_dashboard, dashboard_host, dashboard_port)
    if where and flags:
        raise ValueError(
            f"When connecting to an existing cluster, "
            f"{', '.join(n for n, v in given.items() if v is not None)} must not be provided: it "
            f"is of a node that is started; this one runs already ({where})"
        )
    if job_config is not None:
        job_config.apply()
        runtime_env = runtime_env or job_config.runtime_env
        namespace = namespace or job_config.ray_namespace
        logging_config = logging_config or job_config.py_logging_config
    metadata = job_config.metadata if job_config is not None else {}
    if _SUBMISSION in os.environ:
        from sheaf._internal import submitted  # For drivers that a submitted command starts.

        runtime_env, metadata = submitted.merge(os.environ[_SUBMISSION], runtime_env, metadata)
    plan = _environment(runtime_env)
    hook = _tracing_startup_hook and tracing.load_hook(_tracing_startup_hook)
    # Now: the handler of a signal that comes during an import of the first call sees half a module.
    from sheaf._internal import serialization, stacks  # noqa: F401

    if logging_level is not None and configure_logging:
        import logging

        level = logging_level.upper() if isinstance(logging_level, str) else logging_level
        logging.getLogger("sheaf").setLevel(level)
    if logging_config is not None:
        logging_config.apply()
    wanted = {
        "address": where,
        "executable": executable(),
        "flags": flags + dashboard,
        "namespace": namespace or "",
        "argv": worker_command(logging_config, _tracing_startup_hook),
        "entrypoint": " ".join(sys.argv) or "python",
        "environment": plan.entries if plan else {},
        "log_to_driver": log_to_driver,
        "metadata": _json(metadata),
    }
    session = _core.init(wanted)
    if session is None:  # Another thread was faster.
        return init(address, ignore_reinit_error=ignore_reinit_error)
    _entries = plan.entries if plan else {}
    tracing.watch()
    _context = _context_of_session()
    try:
        if hook:
            tracing.run_hook(hook)
        if plan:
            plan.upload()
    except BaseException:
        shutdown()
        raise
    return _context


def _context_of_session() -> Context:
    """Also for a thread that finds the session joined before the one that joins has said so."""
    if _core.is_worker():
        return Context("")
    made = Context(_core.session_directory())
    made.address_info["node_id"] = ids.node_id(_core.context()["node"])
    return made


def environment_entries() -> dict[str, str]:
    """The runtime environment of this driver, as runtime_env.Plan has it."""
    return _entries if _core.is_initialized() else {}


def _environment(runtime_env: Any) -> Any:
    """Of all calls of this program; what it holds is uploaded when there is a node."""
    if not runtime_env:
        return None
    from sheaf import runtime_env as module  # For programs that have one.

    return module.plan(runtime_env)


def _json(metadata: dict[str, str]) -> str:
    if not metadata:
        return ""
    import json

    return json.dumps(metadata)


def init_by_default() -> None:
    """init() for the first call of a program that does not call it."""
    if not _core.is_initialized():
        init()


def join_running() -> Context:
    """Joins the cluster that SHEAF_ADDRESS names, or the one that runs on this machine."""
    return init(address=_address(None) or "auto", log_to_driver=False)


def is_initialized() -> bool:
    """Returns whether this process has joined a cluster."""
    return _core.is_initialized()


def get_dashboard_url() -> str:
    """Tells where the dashboard of this process's node is.

    Returns:
        HOST:PORT; "" where the node has none: `sheaf dashboard` then serves one.

    Raises:
        RuntimeError: this process has joined no cluster.
    """
    if not _core.is_initialized():
        raise RuntimeError("Ray has not been started yet: call sheaf.init() first")
    return _dashboard_of(_core.session_directory())


def shutdown(*, wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """Leaves the cluster, and ends the node if init started it. Does nothing where there is none.

    References and handles of the session mean nothing afterwards. In a worker it does nothing.

    Args:
        wait_for_processes: without effect: the end of the node is always waited for.
    """
    global _context
    del wait_for_processes, _exiting_interpreter
    if _core.is_worker():
        return
    _context = None
    _core.shutdown()
    tracing.end_hook()
    if "sheaf.lent_references" in sys.modules:
        from sheaf import lent_references  # It is there: references were pickled.

        lent_references.forget()
    if "sheaf._internal.log_lines" in sys.modules:
        from sheaf._internal import log_lines  # It is there: lines were printed.

        log_lines.flush()


def _leave_at_exit() -> None:
    """Runs behind what the program registered after it imported sheaf: that may still call. Ctrl-C
    meanwhile has no traceback, for the program is over, but ends the process as it would have."""
    if _core.is_worker():
        return
    # Threads that still call get errors: a node that they start now would outlive the interpreter.
    _core.leave_for_good()
    import _signal  # type: ignore[import-not-found]  # What `signal` adds to it takes longer to import than this function takes.

    if _signal.getsignal(_signal.SIGINT) is not _signal.default_int_handler:
        shutdown()
        return
    _core.hold_interrupts()
    try:
        shutdown()
    finally:
        _core.restore_interrupts()


atexit.register(_leave_at_exit)


def worker_command(logging_config: Any = None, tracing_hook: str | None = None) -> list[str]:
    """The command that starts a worker of this process's job."""
    import json

    from sheaf._internal.preloading import PRELOADED

    start = {
        "path": [os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path],
        "argv": [sys.argv[0] if sys.argv else ""],
        "preload": [name for name in PRELOADED if name in sys.modules],
        "as_ray": "sheaf.as_ray" in sys.modules,
        "logging": logging_config and logging_config.to_dict(),
        "tracing_hook": tracing_hook,
        "cpp_library": getattr(sys.modules.get("sheaf.cross_language"), "_library", ""),
    }
    if getattr(sys, "frozen", False):  # There is no interpreter: the program starts itself.
        if not hasattr(sys, "_sheaf_frozen"):  # And each worker would run the user's code.
            raise RuntimeError(
                f"this program ({sys.executable}) was frozen without Sheaf's hook, so it cannot "
                "start workers: freeze it by PyInstaller, with --additional-hooks-dir="
                "FOLDER/sheaf/_pyinstaller where sheaf is not installed from its wheel"
            )
        return [sys.executable, "--sheaf-worker", json.dumps(start)]
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker", "start.py")
    flags = interpreter_flags()
    if "-P" not in flags:
        flags.append("-P")
    return [sys.executable, *flags, program, json.dumps(start)]


def _address(address: str | None) -> str:
    if address is None:
        address = os.environ.get("SHEAF_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if address is None or address == "local":
        return ""
    if not isinstance(address, str):
        raise TypeError(f"address={address!r}: want a str")
    if "://" in address:
        raise ValueError(
            f"address={address!r}: want 'auto', 'local', or the session directory of a node"
        )
    if address == "auto":
        return os.environ.get(CLUSTER_VARIABLE) or "latest"
    return address


def _node_flags(given: dict[str, Any]) -> list[str]:
    options.check(
        "task", {n: given[n] for n in ("num_cpus", "num_gpus", "resources", "object_store_memory")}
    )
    flags = []
    if given["num_cpus"] is not None:
        flags.append(f"--num-cpus={given['num_cpus']}")
    if given["num_gpus"] is not None:
        flags.append(f"--num-gpus={given['num_gpus']}")
    if given["object_store_memory"]:
        flags.append(f"--object-store-memory={int(given['object_store_memory'])}")
    if given["resources"]:
        flags.append(flag_of("resources", given["resources"], ":"))
    if given["labels"]:
        flags.append(flag_of("labels", given["labels"], "="))
    return flags


def _dashboard_flags(include: bool | None, host: str | None, port: int | None) -> list[str]:
    if include is not None and not isinstance(include, bool):
        raise TypeError(f"include_dashboard={include!r}: want True, False or None")
    if host is not None and not isinstance(host, str):
        raise TypeError(f"dashboard_host={host!r}: want a str")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int)):
        raise TypeError(f"dashboard_port={port!r}: want an int")
    if port is not None and not 0 <= port < 1 << 16:
        raise ValueError(f"dashboard_port={port}: want a port from 0 to 65535")
    if include is None and host is None and port is None:
        return []
    flags = [f"--include-dashboard={str(include is not False).lower()}"]
    if host is not None:
        flags.append(f"--dashboard-host={'127.0.0.1' if host == 'localhost' else host}")
    if port is not None:
        flags.append(f"--dashboard-port={port}")
    return flags


def flag_of(name: str, values: dict[str, Any], between: str) -> str:
    """The flag `--name` of `sheaf start` for these. ValueError: they are too many."""
    flag = f"--{name}=" + ",".join(f"{key}{between}{value}" for key, value in values.items())
    size = len(flag.encode())
    if size > _LONGEST_FLAG:
        raise ValueError(
            f"{name}: {len(values)} of them take {size} bytes, at most {_LONGEST_FLAG}: "
            "each node of the cluster keeps those of all others; use fewer, or shorter names"
        )
    return flag


def _unknown(name: str) -> str:
    import difflib
    import inspect

    known = [n for n in inspect.signature(init).parameters if n != "others"]
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"Unknown keyword argument(s): init has no argument '{name}': " + (
        f"did you mean {near[0]}?" if near else "there are: " + ", ".join(known)
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_core.forget_after_fork)

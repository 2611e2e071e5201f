# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""In a worker: makes its runtime environment, once, before its first call.

What is fetched or installed lies below the node's session, `environments/`, named by what it holds,
and is shared by the workers of the node. `NAME/` is complete when `NAME.done` is there, which holds
its size; its time is that of the last use. `NAME.lock` is locked by one worker at a time that makes
or removes it, and shared by all that use it until they end; locks end with their holders. Those
that waited for one that failed get its error (`NAME.failed`) instead of trying again. When all have
more bytes than SHEAF_ENVIRONMENT_BYTES (10 GiB), those go that were not used for longest and that
nobody uses; what a worker left that died over it goes too.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import site
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from sheaf import _core, runtime_env
from sheaf._internal import runtime_env_package
from sheaf.exceptions import RuntimeEnvSetupError

_TIMEOUT_S = 600.0
_PAUSE_S = 0.02
_LIMIT = "SHEAF_ENVIRONMENT_BYTES"
_DEFAULT_LIMIT = 10 << 30
_UNFINISHED_S = 3600.0  # What failed, or whose maker died, is kept for so long after the last try.
_SHOWN_LINES = 12
_MOST_UNPACKED = 64 << 20
_MOST_UNPACKED_FOLD = 20
_SYMBOLIC_LINK = 0o12  # The kind of a file, of the mode that a zip entry has.

_made = False
key_get = _core.key_get  # Of the cluster: a process that is no member of it asks otherwise.


def ensure() -> None:
    """Makes the environment, unless that is done. RuntimeEnvSetupError: it cannot be made; the next
    call tries again."""
    global _made
    if _made:
        return
    wanted = runtime_env.entries_of_worker()
    make(wanted)
    if "@setup_hook" in wanted:
        _call_hook(wanted["@setup_hook"])
    _made = True


def make(wanted: dict[str, str]) -> None:
    """Makes the environment of these entries in this process: its directory, what it can import,
    and the variables that tell its children. RuntimeEnvSetupError: it cannot be made."""
    deadline = time.monotonic() + float(wanted.get("@timeout", _TIMEOUT_S))
    in_front: list[str] = []
    if "PYTHONPATH" in wanted:  # A worker has the driver's sys.path instead of its variable's.
        folders = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        sys.path[:] = folders + [one for one in sys.path if one not in folders]
    try:
        if "@working_dir" in wanted:
            folder = _unpacked(wanted["@working_dir"], deadline)
            os.chdir(folder)
            in_front.append(folder)
        in_front += [_unpacked(name, deadline) for name in wanted.get("@py_modules", "").split()]
        if "@packages" in wanted:
            in_front.append(_installed(wanted["@packages"], deadline))
    except (OSError, LookupError, zipfile.BadZipFile) as error:
        raise RuntimeEnvSetupError(
            f"the runtime environment could not be made: {type(error).__name__}: {error}"
        ) from None
    if in_front:
        sys.path[:0] = in_front
        # For the programs that user code starts.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [*in_front, *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        for folder in in_front:
            if folder.endswith("site-packages"):
                site.addsitedir(folder)  # For its .pth files; that it is in front already counts.


def _call_hook(hook: str) -> None:
    """The user's function that prepares a worker (runtime_env._hook has the form)."""
    import importlib
    import pickle
    import traceback

    try:
        if hook.startswith(":"):
            pickle.loads(bytes.fromhex(hook[1:]))()
        else:
            module, _, name = hook.rpartition(".")
            getattr(importlib.import_module(module), name)()
    except Exception:
        raise RuntimeEnvSetupError(
            "runtime_env worker_process_setup_hook raised:\n" + traceback.format_exc().rstrip()
        ) from None


def _folder(name: str) -> str:
    # base/config.h: SESSION/JOB. A command that was submitted, and is no worker, has none.
    job = os.environ.get("SHEAF_JOB")
    session = os.path.dirname(job) if job else os.environ["SHEAF_ADDRESS"]
    return os.path.join(session, "environments", name)


_in_use: list[Any] = []  # The locked files of what this process uses, open until it ends.


def keep_in_use() -> None:
    """What this process uses stays in use by the program that it becomes, and by its children."""
    for file in _in_use:
        os.set_inheritable(file.fileno(), True)


def _shared(name: str, deadline: float, make: Callable[[str], None]) -> str:
    """The directory `name`, made by `make(path)` in the first process that needs it."""
    path = _folder(name)
    asked = time.time()
    made = False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        file = open(path + ".lock", "w")  # noqa: SIM115 (the lock is kept)
        if _locks(file, fcntl.LOCK_SH):
            if os.path.exists(path + ".done"):
                os.utime(path + ".done")
                _in_use.append(file)
                if made:
                    _keep_within(os.path.dirname(path), int(os.environ.get(_LIMIT, _DEFAULT_LIMIT)))
                return path
            if _locks(file, fcntl.LOCK_EX):
                with file:
                    _make(path, asked, make)
                made = True
                continue
        file.close()
        if time.monotonic() > deadline:
            raise RuntimeEnvSetupError(f"another worker still makes {path}: the time is up")
        time.sleep(_PAUSE_S)


def _locks(file: Any, kind: int) -> bool:
    """Whether `file` could be locked, and is not one that was removed meanwhile."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(file.name))
    except (BlockingIOError, FileNotFoundError):
        return False


def _make(path: str, asked: float, make: Callable[[str], None]) -> None:
    """Under the lock. What failed since `asked` is not tried again."""
    if os.path.exists(path + ".done"):
        return
    with contextlib.suppress(OSError):
        if os.stat(path + ".failed").st_mtime >= asked:
            with open(path + ".failed", encoding="utf-8") as file:
                raise RuntimeEnvSetupError(file.read())
    shutil.rmtree(path, ignore_errors=True)  # Of one that died over it.
    try:
        make(path)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(_size_of(path)))
        os.rename(path + ".new", path + ".done")
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        if isinstance(error, RuntimeEnvSetupError):
            with open(path + ".failed", "w", encoding="utf-8") as file:
                file.write(error.error_message or "")
        raise


def _size_of(path: str) -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, folders, files in os.walk(path)
        for name in [*folders, *files]
    )


def _keep_within(folder: str, limit: int) -> None:
    """Removes what was not used for longest, until all have `limit` bytes or are in use, and what
    was left unfinished."""
    known = []
    for lock in os.listdir(folder):
        if not lock.endswith(".lock"):
            continue
        path = os.path.join(folder, lock.removesuffix(".lock"))
        try:
            with open(path + ".done", encoding="ascii") as file:
                known.append((os.fstat(file.fileno()).st_mtime, path, int(file.read())))
        except (FileNotFoundError, ValueError):
            if time.time() - os.stat(path + ".lock").st_mtime > _UNFINISHED_S:
                _remove(path)
    total = sum(size for _, _, size in known)
    for _, path, size in sorted(known):
        if total <= limit:
            return
        if _remove(path):
            total -= size


def _remove(path: str) -> bool:
    """False: somebody uses or makes it."""
    with contextlib.suppress(FileNotFoundError), open(path + ".lock", "r+") as file:
        if not _locks(file, fcntl.LOCK_EX):
            return False
        for ending in (".done", ".failed", ".new"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path + ending)
        shutil.rmtree(path, ignore_errors=True)
        os.remove(file.name)
    return True


def _unpacked(name: str, deadline: float) -> str:
    """The directory with the content of a package of runtime_env_package."""

    def make(path: str) -> None:
        with zipfile.ZipFile(io.BytesIO(content_of(name))) as archive:
            entries = archive.infolist()
            _check_size(name, entries, archive.fp)
            top = _only_folder(entries) if "://" in name else ""
            for entry in entries:
                target = os.path.join(path, _place(entry.filename, name).removeprefix(top))
                if not os.path.realpath(target).startswith(os.path.realpath(path) + os.sep):
                    raise RuntimeEnvSetupError(
                        f"the package {name} has a file outside of itself: {entry.filename}"
                    )
                if entry.is_dir() or (entry.external_attr >> 28) == _SYMBOLIC_LINK:
                    continue
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
                os.chmod(target, 0o644 | (entry.external_attr >> 16) & 0o111)
        os.makedirs(path, exist_ok=True)

    folder = name
    if "://" in name:
        folder = "uri-" + blake2b(name.encode(), digest_size=16).hexdigest()
    return _shared(folder, deadline, make)


def _check_size(name: str, entries: list[zipfile.ZipInfo], file: Any) -> None:
    """RuntimeEnvSetupError: what a small archive unpacks to would fill the disk."""
    packed = file.seek(0, os.SEEK_END)
    size = sum(entry.file_size for entry in entries)
    if size > max(_MOST_UNPACKED, _MOST_UNPACKED_FOLD * packed):
        raise RuntimeEnvSetupError(
            f"the package {name} of {packed} bytes unpacks to {size} bytes: at most "
            f"{_MOST_UNPACKED_FOLD} times as many, or {_MOST_UNPACKED}"
        )


def _only_folder(entries: list[zipfile.ZipInfo]) -> str:
    """The one folder at the top that holds all else, as archives of repositories have it, with its
    slash; "": there is none."""
    tops = {entry.filename.split("/", 1)[0] for entry in entries}
    only = tops.pop() + "/" if len(tops) == 1 else ""
    return only if all(entry.filename.startswith(only) for entry in entries) else ""


def content_of(name: str) -> bytes:
    """The bytes of a package of the cluster, or of an archive elsewhere. LookupError, OSError: it
    is not to be had."""
    if "://" not in name:
        return runtime_env_package.fetch(name, key_get)
    protocol = name.split("://", 1)[0]
    if protocol in ("http", "https"):
        import urllib.request

        with urllib.request.urlopen(name, timeout=60) as answer:
            content = answer.read(runtime_env_package.MAX_BYTES + 1)
    else:
        try:
            import fsspec  # What speaks all other protocols, where it is installed.
        except ImportError:
            raise LookupError(f"{name}: fsspec, which fetches it, is not installed here") from None
        with fsspec.open(name) as file:
            content = file.read(runtime_env_package.MAX_BYTES + 1)
    if len(content) > runtime_env_package.MAX_BYTES:
        raise LookupError(f"{name}: more than {runtime_env_package.MAX_BYTES} bytes")
    return bytes(content)


def _place(filename: str, package: str) -> str:
    """Where a file of a package belongs: in a wheel, NAME.data/purelib and platlib are the wheel's
    own top."""
    parts = filename.split("/")
    if (
        (package.startswith("whl-") or package.endswith(".whl"))
        and len(parts) > 2
        and parts[0].endswith(".data")
        and parts[1] in ("purelib", "platlib")
    ):
        return "/".join(parts[2:])
    return filename


def _installed(wanted: str, deadline: float) -> str:
    """The site-packages of a virtual environment with the packages; programs that user code starts
    find its commands first."""
    name = (
        "venv-" + blake2b((sys.version + sys.prefix + wanted).encode(), digest_size=16).hexdigest()
    )
    path = _shared(name, deadline, lambda place: _install(place, json.loads(wanted), deadline))
    os.environ["VIRTUAL_ENV"] = path
    os.environ["PATH"] = os.path.join(path, "bin") + os.pathsep + os.environ.get("PATH", os.defpath)
    return _site_packages(path)


def _site_packages(place: str) -> str:
    return os.path.join(
        place, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages"
    )


def _install(place: str, wanted: dict[str, Any], deadline: float) -> None:
    if getattr(sys, "frozen", False):
        raise RuntimeEnvSetupError(
            f"runtime_env {wanted['tool']}={wanted['packages']}: a frozen program "
            f"({sys.executable}) has no interpreter to install for; freeze it with these packages"
        )
    import venv

    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
    # What this worker can import counts as installed, be it of the system or of a virtual
    # environment.
    with open(
        os.path.join(_site_packages(place), "_of_the_worker.pth"), "w", encoding="utf-8"
    ) as file:
        file.writelines(
            entry + "\n"
            for entry in sys.path
            if entry.endswith("-packages") and os.path.isdir(entry)
        )
    python = os.path.join(place, "bin", "python")
    if wanted["tool"] == "uv":
        uv = shutil.which("uv")
        command = [uv] if uv else [sys.executable, "-m", "uv"]
        command += ["pip", "install", "--python", python]
        checking = [*command[:-3], "check", "--python", python]
    else:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "--disable-pip-version-check",
            "--no-input",
            "install",
        ]
        checking = [*command[:-1], "check"]
    _run([*command, *wanted["options"], *wanted["packages"]], wanted, deadline)
    if wanted["check"]:
        _run(checking, wanted, deadline)


def _run(command: list[str], wanted: dict[str, Any], deadline: float) -> None:
    tool = wanted["tool"]
    about = f"runtime_env {tool}={wanted['packages']}"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=max(0.1, deadline - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        raise RuntimeEnvSetupError(
            f"{about}: {tool} was not done in time; "
            f"config={{'setup_timeout_seconds': N}} gives it more"
        ) from None
    if done.returncode == 0:
        return
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if f"No module named {tool}" in done.stdout:
        raise RuntimeEnvSetupError(
            f"{about}: {tool} is not installed for {sys.executable} on this node"
        )
    raise RuntimeEnvSetupError(
        f"{about}: {tool} failed with exit status {done.returncode}:\n"
        + "\n".join(lines[-_SHOWN_LINES:])
    )

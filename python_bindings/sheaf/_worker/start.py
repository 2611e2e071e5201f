# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The program of a worker: `python -P start.py JSON`, started by the node; in a frozen program
the hook in sheaf/_pyinstaller calls `run`.

The first one of a job imports what workers need, then forks the others on request
(base/worker_template.h). One for calls of C++ (sheaf.cross_language) becomes that program, or hosts
that library; nothing of Sheaf's Python is loaded then.
"""

import json
import os
import sys


def become_cpp(path: str) -> None:
    """Ends the process, in any case."""
    if not os.path.isfile(path):
        sys.exit(
            f"sheaf: {path}, whose functions are called, is not on this node: put "
            "it there, at the same path"
        )
    import signal

    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # As Python has changed them.
        signal.signal(number, signal.SIG_DFL)
    if ".so" not in os.path.basename(path):
        try:
            os.execv(path, [path])
        except OSError as error:
            sys.exit(
                f"sheaf: {path} cannot be started: {error.strerror}: want a "
                "program, or a library whose name ends in .so"
            )
    import ctypes

    try:
        run = ctypes.CDLL(path).sheaf_run_worker
    except (OSError, AttributeError) as error:
        sys.exit(
            f"sheaf: {path} is no library of Sheaf: {error}: link it with "
            "libsheaf.so (find_package(Sheaf))"
        )
    sys.exit(run())


def run(text: str) -> None:
    """Becomes a worker; ends the process. `text`: what lifecycle.worker_command wrote."""
    for entry in bytes.fromhex(os.environ.get("SHEAF_RUNTIME_ENVIRONMENT", "")).split(b"\0"):
        if entry.startswith(b"@cpp="):
            become_cpp(os.fsdecode(entry[5:]))
    start = json.loads(text)
    if getattr(sys, "frozen", False):  # The program has its modules where it was unpacked.
        sys.path += [entry for entry in start["path"] if entry not in sys.path]
    else:
        sys.path[:] = start["path"]
    sys.argv[:] = start["argv"]

    from sheaf._worker import main  # The path comes first.

    if start["as_ray"]:
        import sheaf.as_ray  # noqa: F401
    main.main(start)


if __name__ == "__main__":
    run(sys.argv[1])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a template of workers imports before it forks them: what the driver had imported at init,
and what a fork has imported since."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from typing import Any

PRELOADED = {  # What is imported, if the driver or a fork has that on the left.
    "numpy": ["numpy"],
    "sheaf.data": ["sheaf._worker.arrow", "sheaf.data.tasks"],
    "sheaf.tune": ["sheaf.tune.trainable.actor"],
}
_LATE = {"numpy"}
_NUMBERS = list(PRELOADED)  # A wish is one byte, its number here.
_wishes: tuple[int, int] | None = None  # A pipe from the forks: its ends for reading and writing.
_loaded: set[str] = set()
_late: set[str] = set()  # For the forks behind the first one.
_forks = 0  # Of this process, so far.


def preload(names: list[str]) -> None:
    """Imports in the template what its forks would import each for itself. Libraries must have been
    told to start no threads, which do not survive a fork.

    Args:
        names: those on the left of PRELOADED; others are left out.
    """
    for name in names:
        _loaded.add(name)
        for module in PRELOADED.get(name, []):
            try:
                importlib.import_module(module)
            except Exception:  # Of any kind: the template must go on.
                pass  # The task that needs it will say so.
    # What is there now lives as long as the process: a collection of garbage in a fork would read
    # all of it, and copy each page that it notes something in.
    gc.collect()
    gc.freeze()


def preload_for_forks(names: list[str]) -> None:
    """The same, and from here on this process has imported for further forks what one of them has
    imported. The first fork does not wait for NumPy, which takes as long as all else until a job's
    first result: a call there that needs it imports it by itself, in the time that it would have
    waited.

    Args:
        names: as of preload.
    """
    global _wishes
    if _LATE.issuperset(names):  # Else others of them import it.
        _late.update(names)
    preload([name for name in names if name not in _late])
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.set_blocking(writes, False)
    _wishes = (reads, writes)
    sys.meta_path.insert(0, _Watch())  # type: ignore[arg-type]  # It finds nothing.


def fork() -> int:
    """os.fork, behind the imports that earlier forks asked for: the next worker waits for them as
    long as it would import them itself, and all others have them."""
    global _forks
    if _wishes is not None:
        try:
            asked = {_NUMBERS[number] for number in os.read(_wishes[0], 4096)}
        except (BlockingIOError, IndexError):
            asked = set()
        if _forks > 0:
            asked |= _late
        if asked - _loaded:
            preload(sorted(asked - _loaded))
    _forks += 1
    return os.fork()


class _Watch:
    """Sees in a fork what is imported there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Called for each module that is not there yet."""
        if name in PRELOADED and name not in _loaded:
            _wish(name)


def _wish(name: str) -> None:
    assert _wishes is not None
    _loaded.add(name)
    try:
        os.write(_wishes[1], bytes([_NUMBERS.index(name)]))
    except OSError:
        pass  # The template has gone, or has many to read.

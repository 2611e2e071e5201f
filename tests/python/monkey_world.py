# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The model of monkey.py: what a program holds, what each of its references must be, and what may
have happened instead."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import numpy
from monkey_remote import blob, digest, ray
from monkey_remote import remote as remote_function

_errors = ray.exceptions

WAIT_S = 60  # The bound of every wait: what takes longer hangs.

# Sizes at which the code changes its way: below, at and above each.
_LIMITS = [0, 8, 40, 1000, 24 << 10, 64 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
SIZES = sorted({max(0, limit + by) for limit in _LIMITS for by in (-1000, -100, -1, 0, 1, 100)})

# What a fault may turn a result into. Nothing else, and without faults nothing at all.
TOLERATED = {
    "none": (),
    "pauses": (),
    "workers": (_errors.WorkerCrashedError, _errors.RayActorError, _errors.ObjectLostError),
    "nodes": (
        _errors.WorkerCrashedError,
        _errors.RayActorError,
        _errors.ObjectLostError,
        _errors.NodeDiedError,
        _errors.RaySystemError,
    ),
}


class Wrong(AssertionError):
    """What came is not what the model says."""


@dataclasses.dataclass
class Blob:
    """Expected: blob(key, size, form)."""

    key: int
    size: int
    form: str

    def value(self) -> Any:
        return blob(self.key, self.size, self.form)

    def check(self, got: Any) -> None:
        want = self.value()
        if (
            type(got) is not type(want)
            or len(got) != len(want)
            or not (numpy.array_equal(got, want) if self.form == "array" else got == want)
        ):
            raise Wrong(
                f"want {self}, got {type(got).__name__} of "
                f"{len(got) if hasattr(got, '__len__') else '?'}: {str(got)[:80]}"
            )


@dataclasses.dataclass
class Plain:
    """Expected: exactly this value."""

    want: Any
    size: int = 0

    def value(self) -> Any:
        return self.want

    def check(self, got: Any) -> None:
        if type(got) is not type(self.want) or got != self.want:
            raise Wrong(f"want {str(self.want)[:100]}, got {str(got)[:100]}")


@dataclasses.dataclass
class Between:
    """Expected: a number from low to high, where threads or faults decide which."""

    low: int
    high: int
    size: int = 0

    def check(self, got: Any) -> None:
        if not self.low <= got <= self.high:
            raise Wrong(f"want {self.low} to {self.high}, got {got}")


@dataclasses.dataclass
class Raises:
    """Expected: this exception; for `Custom` ones with this key."""

    kind: type
    key: int | None = None
    size: int = 0


@dataclasses.dataclass
class Item:
    """A reference of the program, and what it must be."""

    ref: Any
    want: Any
    blame: list[
        set[type]
    ]  # Errors that are right as well: its own, and those of what it was made from.

    @property
    def more(self) -> tuple[type, ...]:
        return tuple(set().union(*self.blame))


class World:
    """One program under way: its random source, its references, its actors."""

    def __init__(self, seed: str, faults: str, store_bytes: int, nodes: int):
        self.rng = random.Random(seed)
        self.faults = faults
        self.tolerated = TOLERATED[faults]
        self.store_bytes = store_bytes
        self.nodes = nodes
        self.items: list[Item] = []
        self.actors: list[Any] = []
        self.ended = 0  # Results that a fault took.
        self.worker_ended: set[type] = (
            set()
        )  # What befalls objects that workers own, once a step has ended one.
        self.next_key = self.rng.randrange(1 << 40)

    def say(self, text: str) -> None:
        """The step that begins now, for who reads why it did not end."""
        sys.stderr.write(f"  {time.strftime('%T')} {text}\n")
        sys.stderr.flush()

    def key(self, count: int = 1) -> int:
        self.next_key += count
        return self.next_key - count

    def size(self, most: int) -> int:
        """At, below and above the limits, or anything between."""
        if self.rng.random() < 0.5:
            return self.rng.choice([size for size in SIZES if size <= most])
        return int(2 ** self.rng.uniform(0, (most + 1).bit_length() - 1))

    def count(self, most: int) -> int:
        return min(most, int(10 ** self.rng.uniform(0, len(str(most)))))

    def form(self) -> str:
        return self.rng.choice(["bytes", "array", "text"])

    def blob(self, most: int) -> Blob:
        return Blob(self.key(), self.size(most), self.form())

    def add(self, ref: Any, want: Any, *more: type, made_from: list[Item] | None = None) -> Item:
        item = Item(
            ref, want, [set(more), *(errors for item in made_from or () for errors in item.blame)]
        )
        self.items.append(item)
        return item

    def remote(self, name: str, /, **options: Any) -> Any:
        found = remote_function(name)
        return found.options(**options) if options else found

    def held_bytes(self) -> int:
        return sum(item.want.size for item in self.items)

    def room(self, part: float) -> int:
        """What the references may still take so that they are at most `part` of the store."""
        return max(0, int(part * self.store_bytes) - self.held_bytes())

    def readable(self) -> list[Item]:
        return [item for item in self.items if not isinstance(item.want, Raises)]

    def look(self, item: Item) -> None:
        """Gets one and compares it."""
        try:
            got = ray.get(item.ref, timeout=WAIT_S)
        except Exception as error:
            self.explain(item, error)
            return
        if isinstance(item.want, Raises):
            raise Wrong(f"want {item.want}, got a value: {str(got)[:100]}")
        item.want.check(got)

    def explain(self, item: Item, error: Exception) -> None:
        """Whether the model or a fault explains an error; raises it, or Wrong, if not."""
        if isinstance(error, ray.exceptions.GetTimeoutError):
            raise Wrong(f"nothing within {WAIT_S} s: want {item.want}") from None
        if isinstance(item.want, Raises) and isinstance(error, item.want.kind):
            if item.want.key is not None and error.key != item.want.key:
                raise Wrong(f"want {item.want}, got the exception of another call: {error.key}")
            return
        if isinstance(error, (*self.tolerated, *item.more)):
            self.ended += 1
            return
        cause = getattr(error, "cause", None)
        if self.tolerated and isinstance(cause, self.tolerated):  # In a nested call.
            self.ended += 1
            return
        raise Wrong(
            f"want {item.want}, got {type(error).__name__}: {str(error)[-1500:]}"
        ) from error

    def look_all(self, items: list[Item]) -> None:
        """Gets many in one call if none is to raise, else one by one."""
        if (
            items
            and not self.tolerated
            and not any(isinstance(item.want, Raises) or item.more for item in items)
        ):
            for item, got in zip(items, ray.get([item.ref for item in items], timeout=WAIT_S)):
                item.want.check(got)
            return
        for item in items:
            self.look(item)

    def drop(self, items: list[Item]) -> None:
        gone = {id(item) for item in items}
        self.items = [item for item in self.items if id(item) not in gone]

    def digest(self, items: list[Item]) -> int:
        return digest([item.want.value() for item in items])


def status(session: str = "") -> dict[str, Any]:
    """What the command says of a node."""
    program = os.environ.get("SHEAF_EXECUTABLE", "sheaf")
    done = subprocess.run(
        [program, "status", "--json", f"--address={session or os.environ['MONKEY_SESSION']}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        raise Wrong(f"sheaf status: {done.stderr.strip()}")
    return json.loads(done.stdout)


def own_mib(pid: int | str = "self") -> float:
    """Memory of a process that is no file's and not shared."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("Pss_Anon:")) / 1024
    except OSError:
        return 0

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the programs of monkey.py call: functions, classes of actors, and the values that they make.

All of it is plain and deterministic, so that monkey_world.py can tell each result without running
it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
import zlib

import numpy

ray = importlib.import_module(os.environ.get("RUNTIME", "sheaf"))

CPU = 0.1  # What a function holds: the machine is small, and the programs are many.


def blob(key: int, size: int, form: str):
    """`size` bytes that `key` determines; form: "bytes", "array" (of uint8) or "text"."""
    pattern = (b"%020d" % key) * (min(size, 1 << 16) // 20 + 1)
    data = (pattern * (size // len(pattern) + 1))[:size]
    return (
        numpy.frombuffer(data, numpy.uint8)
        if form == "array"
        else data.decode()
        if form == "text"
        else data
    )


def digest(value) -> int:
    """A number for a value of any kind that programs pass around."""
    if isinstance(value, numpy.ndarray):
        return zlib.crc32(value.tobytes(), 1)
    if isinstance(value, bytes):
        return zlib.crc32(value, 2)
    if isinstance(value, (list, tuple)):
        return zlib.crc32(b"".join(b"%d," % digest(one) for one in value), 3)
    return zlib.crc32(repr(value).encode(), 4)


class Custom(Exception):
    """An exception of the program's own, with whatever payload."""

    def __init__(self, key, payload=b""):
        super().__init__(key, payload)
        self.key = key
        self.payload = payload


def same(value):
    return value


def digest_all(*values, **named):
    return digest([*values, *(named[name] for name in sorted(named))])


def make(key, size, form):
    return blob(key, size, form)


def make_many(count, key, size, form):
    return tuple(blob(key + i, size, form) for i in range(count))


def digest_inside(refs):
    return digest(ray.get(refs, timeout=300))


def put_inside(key, size, count):
    return [ray.put(blob(key + i, size, "bytes")) for i in range(count)]


def step(array, add):
    return array + numpy.uint8(add)


def fail(key, size):
    raise Custom(key, blob(key, size, "bytes"))


def fan(depth, width):
    """The number of calls in a tree of nested calls."""
    if depth == 0:
        return 1
    return 1 + sum(
        ray.get([remote("fan").remote(depth - 1, width) for _ in range(width)], timeout=300)
    )


def descend(depth):
    """As deep as asked, each waiting for the next."""
    return 0 if depth == 0 else 1 + ray.get(remote("descend").remote(depth - 1), timeout=300)


def nap(seconds, value):
    time.sleep(seconds)
    return value


def die_once(mark, value):
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return value
    os._exit(3)


def fork_and(value):
    """What a library does that runs a helper: a child that ends, and Python's own pool."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return value


def items(count, key, size, fail_at):
    for i in range(count):
        if i == fail_at:
            raise Custom(key, b"")
        yield blob(key + i, size, "bytes")


_FUNCTIONS = {
    f.__name__: f
    for f in (
        # fmt: skip
        same,
        digest_all,
        make,
        make_many,
        digest_inside,
        put_inside,
        step,
        fail,
        fan,
        descend,
        nap,
        die_once,
        fork_and,
        items,
    )
}
_remote = {}


def remote(name: str):
    """The remote function of that name; made once in each process."""
    if name not in _remote:
        _remote[name] = ray.remote(num_cpus=CPU)(_FUNCTIONS[name])
    return _remote[name]


class Cell:
    """A number and some kept values; a plain actor, or with max_concurrency one of threads."""

    def __init__(self, start=0, weight=b""):
        self.value = start
        self.kept = {}
        self.lock = threading.Lock()
        self.weight = weight

    def add(self, n):
        with self.lock:
            self.value += n
            return self.value

    def same(self, value):
        return value

    def keep(self, name, boxed):
        self.kept[name] = boxed
        return len(self.kept)

    def kept_digest(self, name):
        return digest(ray.get(self.kept[name], timeout=300))

    def drop(self):
        self.kept.clear()

    def add_to(self, other, n):
        return ray.get(other.add.remote(n), timeout=300)

    def through_itself(self, handle, value):
        return ray.get(handle.same.remote(value), timeout=300)

    def later(self, handle, value):
        return [handle.same.remote(value)]

    def nap(self, seconds):
        time.sleep(seconds)

    def fail(self, key):
        raise Custom(key)

    def items(self, count, key, size):
        for i in range(count):
            yield blob(key + i, size, "bytes")

    def pid(self):
        return os.getpid()


class AsyncCell:
    """The same for an event loop."""

    def __init__(self, start=0, weight=b""):
        self.value = start
        self.weight = weight

    async def add(self, n):
        self.value += n
        return self.value

    async def same(self, value):
        await asyncio.sleep(0)
        return value

    async def through_itself(self, handle, value):
        return await handle.same.remote(value)

    async def digest_of(self, boxed):
        return digest(await boxed[0])

    async def nap(self, seconds):
        await asyncio.sleep(seconds)

    async def fail(self, key):
        raise Custom(key)

    async def items(self, count, key, size):
        for i in range(count):
            yield blob(key + i, size, "bytes")

    async def pid(self):
        return os.getpid()

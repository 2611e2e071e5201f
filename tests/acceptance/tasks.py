# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Map and reduce over real files: count the words of the Python standard library's sources."""

import collections
import pathlib
import re
import sysconfig

from runtime import ray

WORD = re.compile(r"[A-Za-z_]\w+")


def count(paths):
    words = collections.Counter()
    for path in paths:
        words.update(WORD.findall(pathlib.Path(path).read_text(errors="replace")))
    return words


@ray.remote
def count_batch(paths):
    return count(paths)


@ray.remote(num_returns=2)
def split(words):
    lower = {w: n for w, n in words.items() if w[0].islower()}
    return lower, {w: n for w, n in words.items() if not w[0].islower()}


@ray.remote
def merge(*parts):
    total = collections.Counter()
    for part in parts:
        total.update(part)
    return total


ray.init(num_cpus=2)
files = sorted(str(p) for p in pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
batches = [files[i::16] for i in range(16)]
halves = [split.remote(count_batch.remote(batch)) for batch in batches]
lower = merge.remote(*[a for a, _ in halves])
upper = merge.options(name="merge-upper").remote(*[b for _, b in halves])
got = collections.Counter()
for part in ray.get([lower, upper]):
    got.update(part)
expected = count(files)
assert got == expected
ready, rest = ray.wait([count_batch.remote(b) for b in batches], num_returns=4, timeout=60)
assert len(ready) >= 4 and len(ready) + len(rest) == 16
ray.shutdown()
assert not ray.is_initialized()
print(f"{len(files)} files, {sum(expected.values())} words")

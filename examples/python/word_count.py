# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Counts the words of text files: one task per file, and a tree of tasks that adds the counts.

python word_count.py FILE...        (without files: the texts of this repository)
"""

import pathlib
import re
import sys
from collections import Counter

import sheaf


@sheaf.remote
def count(path: str) -> Counter[str]:
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return Counter(re.findall(r"[a-z]+", text.lower()))


@sheaf.remote
def add(left: Counter[str], right: Counter[str]) -> Counter[str]:
    return left + right


def count_all(paths: list[str]) -> Counter[str]:
    counts = [count.remote(path) for path in paths]
    while (
        len(counts) > 1
    ):  # The references go from task to task; this program sees the last value only.
        counts = [
            add.remote(*counts[i : i + 2]) if i + 1 < len(counts) else counts[i]
            for i in range(0, len(counts), 2)
        ]
    return sheaf.get(counts[0])


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parents[2]
    files = sys.argv[1:] or [str(path) for path in sorted(root.glob("*.md"))]
    with sheaf.init():
        words = count_all(files)
    print(f"{sum(words.values())} words, {len(words)} different, in {len(files)} files")
    for word, times in words.most_common(5):
        print(f"{times:6} {word}")

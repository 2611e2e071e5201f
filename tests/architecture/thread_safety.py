# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a mutex guards (ABSL_GUARDED_BY) is touched under it alone, and clang warns of nothing.

Usage: thread_safety.py BUILD [--all | FILE...]

clang proves it (-Wthread-safety -Wall -Wextra), from the commands by which BUILD is compiled: of all
sources but tests that have a mutex (base/mutex.h) or include a header that has one, or of FILE, with
--all of all sources and tests (minutes). A source is looked at again when something that it includes
has changed. First a violation of each kind is planted, which must be found. Without clang this exits
with 77. JOBS=N looks at N at a time.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTEX = "base/mutex.h"
COMPILERS = ("clang++-19", "clang++")
SKIPPED = 77
PLANTED = """
#include "base/mutex.h"
struct Account {
  void Add() { ++sum; }
  sheaf::Mutex mutex;
  int sum ABSL_GUARDED_BY(mutex) = 0;
};
void Warn() { int unused; }
"""
FOUND = ("requires holding mutex 'mutex'", "unused variable 'unused'")


def arguments(entry: dict[str, str]) -> list[str]:
    """The flags of an entry of the compile database that say what the source means."""
    words = shlex.split(entry["command"])
    kept = [word for word in words if word.startswith(("-D", "-I", "-std="))]
    for at, word in enumerate(words):
        if word == "-isystem":
            kept += words[at : at + 2]
    return kept


def includes(path: pathlib.Path) -> list[str]:
    try:
        return re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), flags=re.M)
    except OSError:  # It lies in the build folder, or beside.
        return []


def has_mutex(source: pathlib.Path) -> bool:
    """Whether a source has a mutex, or one of the headers that it names."""
    named = includes(source)
    return MUTEX in named or any(MUTEX in includes(ROOT / header) for header in named)


def commands(build: pathlib.Path) -> Iterator[tuple[pathlib.Path, dict[str, str]]]:
    """Each source of the build and how it is compiled, those too that are compiled together."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        together = includes(file) if file.parent.name == "Unity" else [entry["file"]]
        for name in together:
            yield pathlib.Path(name), {**entry, "file": name}


class Check:
    def __init__(self, compiler: str, build: pathlib.Path):
        self.command = [compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Wthread-safety"]
        # Of libstdc++ itself: std::stable_sort uses what C++17 deprecates.
        self.command += ["-Wno-deprecated-declarations", "-Werror", "-ferror-limit=0"]
        self.stamps = build / "thread_safety"
        self.stamps.mkdir(exist_ok=True)

    def planted(self, entry: dict[str, str]) -> str:
        """What clang says about a violation."""
        return subprocess.run(
            [*self.command, *arguments(entry), "-x", "c++", "-"],
            input=PLANTED,
            text=True,
            capture_output=True,
            cwd=entry["directory"],
        ).stderr

    def __call__(self, entry: dict[str, str]) -> str | None:
        """What clang says about one source: empty when nothing is wrong. None: nothing has changed
        since it was looked at."""
        command = [*self.command, *arguments(entry), entry["file"]]
        key = hashlib.sha256("\0".join(command).encode()).hexdigest()[:24]
        stamp = self.stamps / key
        if self.is_fresh(stamp):
            return None
        includes = stamp.with_suffix(".d")
        done = subprocess.run(
            [*command, "-MD", "-MF", str(includes)],
            text=True,
            capture_output=True,
            cwd=entry["directory"],
        )
        if done.returncode != 0:
            stamp.unlink(missing_ok=True)
            return done.stderr or f"{entry['file']}: clang ended with {done.returncode}"
        words = includes.read_text().replace("\\\n", " ").split(":", 1)[1]
        includes.unlink()
        stamp.write_text("\n".join(shlex.split(words)))
        return ""

    @staticmethod
    def is_fresh(stamp: pathlib.Path) -> bool:
        """Whether all that the source includes is older than its stamp."""
        try:
            made = stamp.stat().st_mtime_ns
            return all(os.stat(file).st_mtime_ns < made for file in stamp.read_text().split("\n"))
        except OSError:
            return False


def main() -> int:
    build = pathlib.Path(sys.argv[1]).resolve()
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        print(f"skipped: none of {', '.join(COMPILERS)} is installed (apt-get install clang-19)")
        return SKIPPED
    everything = sys.argv[2:] == ["--all"]
    wanted = set() if everything else {str((ROOT / name).resolve()) for name in sys.argv[2:]}
    entries = {}
    for file, entry in commands(build):
        if str(file) in wanted or (
            not wanted
            and ROOT in file.parents
            and build not in file.parents
            and (everything or (not rules.is_test(file.relative_to(ROOT)) and has_mutex(file)))
        ):
            entries[entry["file"]] = entry
    check = Check(compiler, build)
    said = check.planted(next(iter(entries.values())))
    for violation in FOUND:
        if violation not in said:
            print(f"clang does not find what was planted: {violation}")
            return 1
    with concurrent.futures.ThreadPoolExecutor(
        int(os.environ.get("JOBS") or os.cpu_count() or 1)
    ) as pool:
        said = list(pool.map(check, entries.values()))
    for words in filter(None, said):
        print(words)
    wrong = sum(1 for words in said if words)
    looked = sum(1 for words in said if words is not None)
    print(f"{len(entries)} sources, {looked} looked at, {wrong} with errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

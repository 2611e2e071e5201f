# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a mutex guards (ABSL_GUARDED_BY) is touched under it alone, and clang warns of nothing.

Usage: thread_safety.py BUILD [--all | FILE...]

clang proves it (-Wthread-safety -Wall -Wextra), from the commands by which BUILD is compiled: of all
sources but tests that have a mutex (base/mutex.h) or include a header that has one, or of FILE, with
--all of all sources and tests (minutes). A source is looked at again when something that it includes
has changed. First a violation of each kind is planted, which must be found. Without clang this exits
with 77. JOBS=N looks at N at a time.
"""

import collections
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
import threading
from collections.abc import Iterator

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTEX = "base/mutex.h"
COMPILERS = ("clang++-19", "clang++")
SKIPPED = 77
# What cmake/precompiled.cmake has parsed once.
COMMON = "sheaf_precompiled_messages.dir/cmake_pch.hxx"
WORTH_IT = 10  # Sources of the same flags, from which on clang parses that once, too.
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


def dependencies(file: pathlib.Path) -> list[str]:
    """What clang has written there (-MD): all that a source includes. The file goes."""
    words = file.read_text().replace("\\\n", " ").split(":", 1)[1]
    file.unlink()
    return shlex.split(words)


class Check:
    def __init__(self, compiler: str, build: pathlib.Path, entries: list[dict[str, str]]):
        self.common = next(build.rglob(COMMON), None)
        self.count = collections.Counter(tuple(arguments(entry)) for entry in entries)
        self.headers: dict[tuple[str, ...], tuple[pathlib.Path, list[str]] | None] = {}
        self.lock = threading.Lock()
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

    def precompiled(self, given: tuple[str, ...]) -> tuple[pathlib.Path, list[str]] | None:
        """The common headers as clang wants them for these flags, and all that they include. None:
        few sources have them, or clang cannot."""
        with self.lock:
            if given not in self.headers:
                self.headers[given] = self.precompile(given)
            return self.headers[given]

    def precompile(self, given: tuple[str, ...]) -> tuple[pathlib.Path, list[str]] | None:
        if self.common is None or self.count[given] < WORTH_IT:
            return None
        key = hashlib.sha256("\0".join([*self.command, *given]).encode()).hexdigest()[:24]
        made = self.stamps / f"{key}.pch"
        source = self.stamps / f"{key}.hxx"
        named = re.findall(r"^#include <[^>]+>", self.common.read_text(), flags=re.M)
        if not source.exists() or source.read_text() != "\n".join(named):
            source.write_text("\n".join(named))  # Its time counts.
        compile_it = [word for word in self.command if word != "-fsyntax-only"]
        compile_it += [*given, "-x", "c++-header", str(source), "-o", str(made)]
        includes = made.with_suffix(".d")
        done = subprocess.run([*compile_it, "-MD", "-MF", str(includes)], capture_output=True)
        return (made, dependencies(includes)) if done.returncode == 0 else None

    def __call__(self, entry: dict[str, str]) -> str | None:
        """What clang says about one source: empty when nothing is wrong. None: nothing has changed
        since it was looked at."""
        command = [*self.command, *arguments(entry), entry["file"]]
        key = hashlib.sha256("\0".join(command).encode()).hexdigest()[:24]
        stamp = self.stamps / key
        if self.is_fresh(stamp):
            return None
        includes = stamp.with_suffix(".d")
        header, common = self.precompiled(tuple(arguments(entry))) or (None, [])
        include_it = [] if header is None else ["-include-pch", str(header)]
        done = subprocess.run(
            [*command, *include_it, "-MD", "-MF", str(includes)],
            text=True,
            capture_output=True,
            cwd=entry["directory"],
        )
        if done.returncode != 0:
            stamp.unlink(missing_ok=True)
            return done.stderr or f"{entry['file']}: clang ended with {done.returncode}"
        named = [name for name in dependencies(includes) if name != str(header)]
        stamp.write_text("\n".join([*named, *common]))
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
    check = Check(compiler, build, list(entries.values()))
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

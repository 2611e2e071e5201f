# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Writes docs/from_ray.md: what of Ray Core is the same in Sheaf, different, or absent. All of it is
asked of the package itself, so that it cannot lie: names are looked up, wrong values are tried, and
what is absent is called.

    ./do python tests/python/from_ray.py [--print]
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import pathlib
import re
import sys

import ray_names
import sheaf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peer"))

import compare_surface
import differences
import libraries as peer_libraries

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "from_ray.md"
PACKAGE = pathlib.Path(sheaf.__file__).parent
# What no option takes, or hardly any; what is wanted is in the words with which each is refused.
WRONG = (object(), -2, 10**12, "", {"CPU": 1}, {1: 2}, ["x"])


def found(name: str) -> object:
    """What `ray.NAME` is here. AttributeError: it is not there."""
    parts = name.split(".")
    for split in range(len(parts), -1, -1):
        try:
            module = importlib.import_module(".".join(["sheaf", *parts[:split]]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[split:], module)
    raise AttributeError(name)


def error_of(call, *args, **kwargs) -> str:
    """What a call that must fail says."""
    try:
        call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# --- the table of names ---------------------------------------------------------------------------


@functools.cache
def names() -> list[compare_surface.Name]:
    """All that Ray has, without the members of what is absent whole."""
    everything = compare_surface.compared()
    absent = {(n.module, n.name) for n in everything if n.kind == "absent"}
    return [n for n in everything if (n.module, n.name.rpartition(".")[0]) not in absent]


def code(module: str) -> str:
    return f"`{module}`" if re.fullmatch(r"ray[\w.]*", module) else module


def counts() -> list[str]:
    """A row for each module: how many names are the same, different and absent."""
    rows = []
    for module, group in itertools.groupby(names(), lambda n: n.module):
        kinds = [n.kind for n in group]
        numbers = " | ".join(str(kinds.count(kind)) for kind in ("same", "different", "absent"))
        rows.append(f"| {code(module)} | {numbers} |")
    kinds = [n.kind for n in names()]
    numbers = " | ".join(str(kinds.count(kind)) for kind in ("same", "different", "absent"))
    return [*rows, f"| all | {numbers} |"]


def with_reasons(kind: str) -> list[str]:
    """A row for each reason of a module, with the names that it is for."""
    rows: dict[tuple[str, str], list[str]] = {}
    for n in names():
        if n.kind == kind:
            reason = re.sub(r"^\S+ is not in Sheaf yet(; )?", "", n.reason)
            reason = reason or "Not in Sheaf."
            rows.setdefault((n.module, reason), []).append(f"`{n.name}`")
    return [f"| {code(m)} | {', '.join(found)} | {why} |" for (m, why), found in rows.items()]


def same() -> list[str]:
    """A line for each module: classes with their members in brackets."""
    rows = []
    for module, group in itertools.groupby(names(), lambda n: n.module):
        found: dict[str, list[str]] = {}
        for n in group:
            if n.kind == "same":
                name, _, member = n.name.partition(".")
                if not module.startswith("ray"):
                    name, member = n.name, ""
                found.setdefault(name, [])
                if member:
                    found[name].append(member)
        if found:
            text = ", ".join(f"{n} ({', '.join(m)})" if m else n for n, m in found.items())
            rows.append(f"- {code(module)}: {text}")
    return rows


def programs() -> list[str]:
    """Programs of tests/peer that say something else here, and are meant to."""
    return [f"| `{name}` | {known.reason} |" for name, known in differences.KNOWN.items()]


def libraries_on_top() -> list[str]:
    """Those that ./do peer libraries runs on both."""
    recorded = json.loads(peer_libraries.RECORDED.read_text())
    rows = []
    for area, of_area in peer_libraries.PACKAGES.items():
        comments = peer_libraries.what_it_does(area)
        for program in of_area:
            versions, end, day = recorded[program]
            rows.append(f"| {versions} | {comments[program]} | {end}, {day} |")
    return rows


# --- different -----------------------------------------------------------------------------------


def init_keywords() -> tuple[list[str], list[str]]:
    """Keywords of Ray's init: those that do something here, and those that are accepted only. An
    address that is refused keeps anything from starting."""
    known, ignored = [], []
    surface = compare_surface.of_ray()["ray"]["init"]
    for name in ["address", *re.findall(r"(\w+)=", surface.partition("*, ")[2])]:
        said = error_of(sheaf.init, "no://address", **{name: True}) if name != "address" else ""
        if "no://address" in said:
            signature = inspect.signature(sheaf.init).parameters
            (known if name in signature else ignored).append(name)
    return known, ignored


@functools.cache
def options_that_are_read() -> set[str]:
    """Names in `options.get("NAME")` and `options["NAME"]`, anywhere in the package."""
    read = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of, key = node.func.value, node.args[0] if node.args else None
                taken = node.func.attr in ("get", "pop")
            elif isinstance(node, ast.Subscript):
                of, key, taken = node.value, node.slice, True
            else:
                continue
            if taken and isinstance(key, ast.Constant) and ast.unparse(of).endswith("options"):
                read.add(key.value)
    return read


def apply_option(kind: str, name: str, value: object) -> None:
    """Gives the option as a program would, and makes nothing."""
    given = {name: value, **({"name": "x"} if name in ("lifetime", "get_if_exists") else {})}
    if kind == "task":
        sheaf.remote(**given)(lambda: None)
    elif kind == "actor":
        sheaf.remote(**given)(type("Class", (), {}))
    else:
        sheaf.method(**given)(lambda self: None)


def wanted(kind: str, name: str) -> str:
    """What an option takes, by the words with which wrong values are refused."""
    words: dict[str, None] = {}
    for wrong in WRONG:
        said = error_of(apply_option, kind, name, wrong).partition(f"{name}={wrong!r}: ")[2]
        if said.startswith(("want ", "at most ")) and ", got " not in said:
            words[said.removeprefix("want ").replace("at most 2147483647", "at most 2^31 - 1")] = (
                None
            )
    narrow = [w for w in words if not any(w != other and other.startswith(w) for other in words)]
    return "; ".join(narrow) or "-"


def options() -> list[str]:
    kinds: dict[str, list[str]] = {}
    surface = compare_surface.of_ray()
    for kind, listed in (
        ("task", [*surface["options of a remote function"], *ray_names.PLACING.split()]),
        ("actor", [*surface["options of a remote class"], *ray_names.PLACING.split()]),
        ("method", ray_names.METHOD_OPTIONS.split()),
    ):
        for name in listed:
            kinds.setdefault(name, [])
            if kind not in kinds[name]:
                kinds[name].append(kind)
    rows = []
    for name, of in kinds.items():
        takes = wanted(of[0], name)
        if name not in options_that_are_read():
            takes = "accepted, without effect"
        rows.append(f"| `{name}` | {', '.join(of)} | {takes} |")
    return rows


def environment() -> list[str]:
    rows = []
    for name in compare_surface.of_ray()["fields of a RuntimeEnv"]:
        said = error_of(sheaf.runtime_env.RuntimeEnv, **{name: {}})
        absent = said.startswith("NotImplementedError: ")
        if name[0] != "_":
            words = said.removeprefix("NotImplementedError: ").partition("; there are")[0]
            words = f"refused: {words}" if absent else "the same"
            rows.append(f"| `{name}` | {words} |")
    return rows


# --- absent --------------------------------------------------------------------------------------


def refused() -> list[str]:
    """What functions refuse by NotImplementedError, in their own words."""
    found_words = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            if ast.unparse(node.exc.func) != "NotImplementedError":
                continue
            words = "".join(
                part.value if isinstance(part, ast.Constant) else "..."
                for part in getattr(node.exc.args[0], "values", [node.exc.args[0]])
                if isinstance(part, (ast.Constant, ast.FormattedValue))
            )
            if words and not words.startswith("...") and "runtime_env['" not in words:
                found_words.add(words)
    return [f"- {words}" for words in sorted(found_words, key=str.lower)]


def lines(rows: list[str]) -> str:
    return "\n".join(rows)


def page() -> str:
    known, ignored = init_keywords()
    # Those that are there may want packages that are not.
    libraries = [
        name
        for name in ray_names.LIBRARIES
        if error_of(found, name) and importlib.util.find_spec(f"sheaf.{name}") is None
    ]
    address = error_of(sheaf.init, "ray://10.0.0.1:10001").partition(": want ")[2]
    misspelt = error_of(apply_option, "task", "num_cpu", 1).partition(": ")[2]
    return f"""\
# From Ray

What programs know of Ray {sheaf.__ray_version__} Core, and what of it is absent in Sheaf, different, or the same. `./do python tests/python/from_ray.py`
writes this page: the names, parameters and members of Ray are recorded (`tests/peer/answers/surface.json`), those of Sheaf are asked of the
package itself, and a test compares. What programs do on both is compared by `./do peer`.

**Changing over.** `import sheaf as ray`; or unchanged, also in workers and subprocesses, by `sheaf run --as-ray program.py`. Nodes are started
by `sheaf start` ([operate.md](operate.md)) instead of `ray start`.

| names of | same | different | absent |
|---|---|---|---|
{lines(counts())}

`./do peer libraries` installs these libraries and compares what a program of each says on both:

| packages | program | what both said |
|---|---|---|
{lines(libraries_on_top())}

A name is the same if every call that fits Ray's parameters fits Sheaf's and means the same, and if classes have the same public members and bases.

## Absent

No libraries: {", ".join(f"`ray.{name}`" for name in libraries)}. Their names raise AttributeError.
Most of these names can be imported, and raise NotImplementedError when they are used:

| of | names | instead, or why |
|---|---|---|
{lines(with_reasons("absent"))}

What functions refuse, in their own words (... is what was given):

{lines(refused())}

## Different

- **Version.** `sheaf.__version__` is Sheaf's own; `ray.__version__` of `--as-ray` is `sheaf.__ray_version__`, {sheaf.__ray_version__}, or what SHEAF_RAY_VERSION says.
- **Addresses.** `init(address)` wants {address}; or `HOST:PORT` of a cluster elsewhere, without a server of clients in between.
- **Unknown options** are refused where they are written: "{misspelt}".
- **init** has {", ".join(f"`{name}`" for name in known)}; it accepts, without effect: {", ".join(f"`{name}`" for name in ignored)}.
- **Calls that wait** are bounded by bytes, not only by `max_pending_calls`: [objects.md](objects.md).
- **Objects of a process that died** stay readable where somebody else holds a copy.
- **Tasks and calls that have ended** are counted all, and `list_tasks` shows those that run or wait; of short ones that have ended it shows a sample.

| of | names | how, and why |
|---|---|---|
{lines(with_reasons("different"))}

Options of tasks, actors and methods, with what they take (-: what Ray takes, and checked where it is used):

| option | of | takes |
|---|---|---|
{lines(options())}

Fields of `runtime_env`:

| field | here |
|---|---|
{lines(environment())}

Programs of `tests/peer` that say something else here:

| program | why |
|---|---|
{lines(programs()) or "| none | |"}

Programs that differ and shall not, until they are mended: {", ".join(f"`{name}`" for name in sorted(differences.OPEN)) or "none"}.

## The same

Classes with their members in brackets. [errors.md](errors.md) says what raises the exceptions and what to do.

{lines(same())}
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page())

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Writes docs/from_ray.md: what of Ray Core is the same in Sheaf, different, or absent. All of it is
asked of the package itself, so that it cannot lie: names are looked up, wrong values are tried, and
what is absent is called.

    ./do python tests/python/from_ray.py [--print]
"""

import ast
import enum
import functools
import importlib
import inspect
import pathlib
import re
import sys

import ray_names
import sheaf

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "from_ray.md"
PACKAGE = pathlib.Path(sheaf.__file__).parent
# What no option takes, or hardly any; what is wanted is in the words with which each is refused.
WRONG = (object(), -2, 10**12, "", {"CPU": 1}, {1: 2}, ["x"])
# Classes that programs name and do not make.
NOT_MADE = {
    "ActorClass",
    "ActorHandle",
    "ActorMethod",
    "ActorProxy",
    "DynamicObjectRefGenerator",
    "ObjectRefGenerator",
    "PlacementGroup",
    "RemoteFunction",
}


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


# --- the same ------------------------------------------------------------------------------------


@functools.cache
def stubs() -> dict[str, ast.arguments]:
    """The parameters of what the extension module has, which Python cannot be asked for."""
    tree = ast.parse(next(PACKAGE.rglob("_core.pyi")).read_text())
    return {f.name: f.args for f in tree.body if isinstance(f, ast.FunctionDef)}


def parameters(thing: object) -> str:
    """As "(value, *, timeout=None)", without types; of an enumeration its members; empty for what
    is not called."""
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return ", ".join(thing.__members__)
    if not callable(thing) or inspect.ismodule(thing):
        return ""
    if inspect.isclass(thing) and thing.__name__ in NOT_MADE:
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        if (arguments := stubs().get(getattr(thing, "__name__", ""))) is None:
            return ""
        for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            one.annotation = None
        return f"({ast.unparse(arguments)})"
    bare = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name == "self" or p.name[0] != "_" or p.default is inspect.Parameter.empty
    ]
    return re.sub(r"<(\w[\w.]*)[^>]*>", r"\1", str(inspect.Signature(bare)))


def is_absent(thing: object) -> bool:
    made = thing.__init__ if inspect.isclass(thing) else thing
    return getattr(getattr(made, "__code__", None), "co_name", "") == "absent"


def names_by_module() -> dict[str, list[str]]:
    modules: dict[str, list[str]] = {}
    for name in ray_names.CORE + ray_names.MORE:
        if name[:2] != "__" and not is_absent(found(name)):
            module, _, last = f"ray.{name}".rpartition(".")
            if "._" not in name and name[0] != "_" and module != "ray.exceptions":
                modules.setdefault(module, []).append(last)
    return {module: sorted(set(names), key=str.lower) for module, names in sorted(modules.items())}


def same() -> list[str]:
    rows = []
    for module, names in names_by_module().items():
        for name in names:
            thing = found(f"{module}.{name}".removeprefix("ray."))
            rows.append(f"| `{module}.{name}` | `{parameters(thing)}` |".replace("| `` |", "| |"))
    return rows


# --- different -----------------------------------------------------------------------------------


def init_keywords() -> tuple[list[str], list[str]]:
    """Keywords of Ray's init: those that do something here, and those that are accepted only. An
    address that is refused keeps anything from starting."""
    known, ignored = [], []
    for name in ray_names.KEYWORDS["init"].split():
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
    for kind, names in ray_names.OPTIONS.items():
        for name in names.split():
            kinds.setdefault(name, []).append(kind)
    rows = []
    for name, of in kinds.items():
        takes = wanted(of[0], name)
        if name not in options_that_are_read():
            takes = "accepted, without effect"
        rows.append(f"| `{name}` | {', '.join(of)} | {takes} |")
    return rows


def environment() -> list[str]:
    rows = []
    for name in ray_names.ENVIRONMENT:
        said = error_of(sheaf.runtime_env.RuntimeEnv, **{name: {}})
        absent = said.startswith("NotImplementedError: ")
        if name[0] != "_":
            words = said.removeprefix("NotImplementedError: ").partition("; there are")[0]
            words = f"refused: {words}" if absent else "the same"
            rows.append(f"| `{name}` | {words} |")
    return rows


# --- absent --------------------------------------------------------------------------------------


def absent() -> list[str]:
    rows = []
    for name in ray_names.CORE + ray_names.MORE:
        thing = found(name)
        if is_absent(thing):
            said = error_of(thing).removeprefix("NotImplementedError: ")
            instead = said.partition("; ")[2]
            rows.append(f"| `ray.{name}` | {instead} |")
    return rows


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


def exceptions() -> list[str]:
    rows = []
    for base, names in ray_names.EXCEPTIONS.items():
        kind = getattr(sheaf.exceptions, base)
        derived = [n for n in names.split() if issubclass(getattr(sheaf.exceptions, n), kind)]
        rows.append(f"| `{base}` | {', '.join(f'`{name}`' for name in derived)} |")
    return rows


def lines(rows: list[str]) -> str:
    return "\n".join(rows)


def page() -> str:
    known, ignored = init_keywords()
    context = [n for n in ray_names.CONTEXT if hasattr(sheaf.runtime_context.RuntimeContext, n)]
    libraries = [name for name in ray_names.LIBRARIES if error_of(found, name)]
    address = error_of(sheaf.init, "ray://10.0.0.1:10001").partition(": want ")[2]
    misspelt = error_of(apply_option, "task", "num_cpu", 1).partition(": ")[2]
    ray = sheaf.__ray_version__
    return f"""\
# From Ray

What programs know of Ray {ray} Core, and what of it is absent in Sheaf, different, or the same. `./do python tests/python/from_ray.py` writes this
page from the package itself, and a test compares. Ray's names are those of `tests/python/ray_names.py`.

**Changing over.** `import sheaf as ray`; or unchanged, also in workers and subprocesses, by `sheaf run --as-ray program.py`. Nodes are started
by `sheaf start` ([operate.md](operate.md)) instead of `ray start`.

## Absent

No libraries: {", ".join(f"`ray.{name}`" for name in libraries)}. Their names raise AttributeError.
These names can be imported, and raise NotImplementedError when they are used:

| name | use instead |
|---|---|
{lines(absent())}

What functions refuse, in their own words (... is what was given):

{lines(refused())}

## Different

- **Version.** `sheaf.__version__` is Sheaf's own; `ray.__version__` of `--as-ray` is `sheaf.__ray_version__`, {sheaf.__ray_version__}, or what SHEAF_RAY_VERSION says.
- **Addresses.** `init(address)` wants {address}; or `HOST:PORT` of a cluster elsewhere, without a server of clients in between.
- **Unknown options** are refused where they are written: "{misspelt}".
- **init** accepts, without effect: {", ".join(f"`{name}`" for name in ignored)}.
- **Calls that wait** are bounded by bytes, not only by `max_pending_calls`: [objects.md](objects.md).
- **Objects of a process that died** stay readable where somebody else holds a copy.

Options of tasks, actors and methods, with what they take (-: what Ray takes, and checked where it is used):

| option | of | takes |
|---|---|---|
{lines(options())}

Fields of `runtime_env`:

| field | here |
|---|---|
{lines(environment())}

## The same

**init** has {", ".join(f"`{name}`" for name in known)}.

**Exceptions** have the same names and bases. [errors.md](errors.md) says what raises them and what to do.

| base | derived |
|---|---|
{lines(exceptions())}

**The context** of `get_runtime_context()` has {", ".join(f"`{name}`" for name in context)}.

**Names**, with Sheaf's parameters:

| name | parameters |
|---|---|
{lines(same())}
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print(page(), end="")
    else:
        PAGE.write_text(page())

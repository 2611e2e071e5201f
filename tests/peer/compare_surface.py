# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Compares the public names of Ray (answers/surface.json) with those of Sheaf: same, different,
absent, each with its reason (surface_reasons.py).

    PYTHONPATH=build/python python tests/peer/compare_surface.py [--all] [MODULE]"""

import argparse
import ast
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import surface_reasons  # noqa: E402

RECORDED = HERE / "answers" / "surface.json"


class Name(NamedTuple):
    module: str
    name: str
    kind: str  # same, different, absent.
    ray: str
    sheaf: str
    reason: str


def of_ray():
    return json.loads(RECORDED.read_text())


def of_sheaf():
    """The same names, as Sheaf has them; in a process of its own, which starts a node."""
    done = subprocess.run(
        [sys.executable, "-m", "sheaf.as_ray", HERE / "surface.py", "--names", RECORDED],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
    )
    if done.returncode != 0:
        raise RuntimeError(f"surface.py fails: {done.stderr}")
    return json.loads(done.stdout)


def agree(ray, sheaf):
    """Whether a program that uses what Ray has can tell no difference."""
    if sheaf == "":
        return False
    if ray in ("there", sheaf):
        return True
    if ray.startswith("enum ") and sheaf.startswith("enum "):  # It may have more members.
        return ray.removesuffix("}") in sheaf
    (was, wants), (now, takes) = _called(ray), _called(sheaf)
    if was.startswith("attribute") and "attribute" in (was, now):
        was = now  # A class says the value, or its instances do.
    fit = wants == takes or "(?)" in (wants, takes)  # C does not tell.
    return was == now and (fit or _takes(wants, takes)) and _marks(ray, sheaf)


def _called(text):
    """(what it is, its parameters), without what no caller can tell."""
    text = text.partition("; ")[0]
    kind, bracket, rest = text.partition(" (")
    if kind.endswith("method"):  # Python 3.14 writes the mark for methods of C.
        rest = rest.replace("self, /", "self", 1)
    if kind.endswith(("class", "method", "function")):
        return re.sub(r"^(class|static) method", "unbound method", kind), (bracket + rest).strip()
    return text, ""


def _takes(wants, takes):
    """Whether every call that fits the parameters `wants` fits `takes`, too, and means the same."""
    want, take = (ast.parse(f"def f{text or '()'}: 0").body[0].args for text in (wants, takes))
    if want.vararg and not take.vararg or want.kwarg and not take.kwarg:
        return False
    by_place = [[*a.posonlyargs, *a.args] for a in (want, take)]
    defaults = [_defaults(a) for a in (want, take)]
    for k, one in enumerate(by_place[0]):
        if k >= len(by_place[1]) or by_place[1][k].arg != one.arg:
            return False
        if k < len(take.posonlyargs) and k >= len(want.posonlyargs):
            return False
    named = {a.arg for a in [*take.args, *take.kwonlyargs]}
    for one in want.kwonlyargs:
        if one.arg not in named and not take.kwarg:
            return False
    for name, default in defaults[1].items():
        if (
            name not in defaults[0]
            and default is None
            or defaults[0].get(name) not in (None, default)
        ):
            return False
    return True


def _defaults(arguments):
    """{parameter: its default as text, or None}."""
    out = {}
    by_place = [*arguments.posonlyargs, *arguments.args]
    none = [None] * (len(by_place) - len(arguments.defaults))
    for one, default in zip(by_place, [*none, *arguments.defaults], strict=True):
        out[one.arg] = default and ast.unparse(default)
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        out[one.arg] = default and ast.unparse(default)
    return out


def _marks(ray, sheaf):
    """The special methods of Ray's class are there; the bases are, too."""
    for word in ("is", "has"):
        pattern = rf"; {word} ([^;]*)"
        wanted, there = (re.search(pattern, text) for text in (ray, sheaf))
        names = set(re.split(r",? ", wanted[1])) if wanted else set()
        if names - set(re.split(r",? ", there[1]) if there else ()):
            return False
    return True


def reason_of(module, name):
    """(the key that fits, its reason), or ("", "")."""
    for key, reason in surface_reasons.REASONS.items():
        if fnmatch.fnmatchcase(f"{module} {name}", key):
            return key, reason
    return "", ""


def compared(ray=None, sheaf=None):
    """[Name] of all that Ray has."""
    ray, sheaf = ray or of_ray(), sheaf or of_sheaf()
    out = []
    for module, names in ray.items():
        for name, text in names.items():
            here = sheaf.get(module, {}).get(name, "")
            refused = here.startswith("absent: ")
            kind = "absent" if not here or refused else "same" if agree(text, here) else "different"
            reason = here[8:] if refused else reason_of(module, name)[1] if kind != "same" else ""
            out.append(Name(module, name, kind, text, here, reason))
    return out


def stale(names):
    """Reasons that no name needs."""
    used = {
        reason_of(n.module, n.name)[0]
        for n in names
        if n.kind != "same" and not n.sheaf.startswith("absent: ")
    }
    return [key for key in surface_reasons.REASONS if key not in used]


def main():
    parser = argparse.ArgumentParser(description="Ray's public names, here.")
    parser.add_argument("modules", nargs="*", help="default: all")
    parser.add_argument("--all", action="store_true", help="those with a reason, too")
    arguments = parser.parse_args()
    names = compared()
    for n in names:
        wanted = not arguments.modules or n.module in arguments.modules
        if n.kind != "same" and wanted and (arguments.all or not n.reason):
            print(f"{n.module} {n.name}: {n.kind} {n.reason}\n    Ray  : {n.ray}")
            if n.sheaf:
                print(f"    Sheaf: {n.sheaf}")
    counts = collections.Counter(
        (n.kind, "" if n.kind == "same" else " with a reason" if n.reason else " without a reason")
        for n in names
    )
    print(", ".join(f"{count} {kind}{why}" for (kind, why), count in sorted(counts.items())))
    for key in stale(names):
        print(f"a reason that no name needs: {key}")


if __name__ == "__main__":
    main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`import sheaf.as_ray` makes `import ray`, and its submodules, mean sheaf; in the workers of this
program, and in the Python programs that it starts, too.

    sheaf run --as-ray script.py ARGS          runs a program written for Ray, unchanged
    python -m sheaf.as_ray script.py ARGS      the same
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import sheaf
from sheaf import _version
from sheaf._internal import alias


class _Ray(types.ModuleType):
    """The module `ray`: all that sheaf has, and the version that programs ask Ray for. What is set
    here is set in sheaf."""

    _OWN = frozenset(
        ["__class__", "__version__", "__spec__", "__loader__", "__path__", "__package__"]
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(sheaf, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__" and value is types.ModuleType:
            return  # The end of a lazy load (importlib.util.LazyLoader) makes it a plain module.
        if name in self._OWN:
            super().__setattr__(name, value)
        else:
            setattr(sheaf, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(sheaf, name)

    def __dir__(self) -> list[str]:
        return dir(sheaf)

    def __reduce__(self) -> Any:
        return alias.ray_here, ()  # cloudpickle knows modules by their very type, and this is none.


# The alias has the name of the package: what is pickled by name is found where no alias is.
ray = _Ray("sheaf", sheaf.__doc__)
ray.__version__ = _version.__ray_version__
ray.__package__ = "sheaf"
ray.__path__ = sheaf.__path__


class _AliasLoader(importlib.abc.Loader):
    def __init__(self, real: str):
        self._real = real
        self._spec: Any = None
        self._class: type = types.ModuleType

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        module = ray if module is sheaf else module
        self._class = type(module)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if self._class is not types.ModuleType:  # A lazy load takes it away.
            types.ModuleType.__setattr__(module, "__class__", self._class)
        module.__spec__ = self._spec  # The import system has put the alias's there.


class _AliasFinder(importlib.abc.MetaPathFinder):
    """Answers for `ray` and what is below it, and for the distribution of that name. Both names of
    a submodule give the same module object."""

    _LIBRARIES = frozenset(["dag", "llm", "rllib", "serve", "workflow"])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "ray" and not fullname.startswith("ray."):
            return None
        real = "sheaf" + fullname[3:]
        try:
            found = importlib.util.find_spec(real)
        except ModuleNotFoundError:
            found = None
        if found is None:
            if fullname.split(".")[1] in self._LIBRARIES:
                raise ModuleNotFoundError(
                    f"{fullname} is not in Sheaf: there is no module {real}", name=fullname
                )
            return None
        spec = importlib.machinery.ModuleSpec(fullname, _AliasLoader(real), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """Of importlib.metadata: libraries ask for the version of what they need."""
        if context.name is None or context.name.lower() != "ray":
            return

        from importlib import metadata

        class Distribution(metadata.Distribution):
            def read_text(self, filename: str) -> str | None:
                version = _version.__ray_version__
                text = f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n"
                return text if filename == "METADATA" else None

            def locate_file(self, path: Any) -> Any:
                return os.path.join(os.path.dirname(sheaf.__path__[0]), path)

        yield Distribution()


def install() -> None:
    """Makes the alias, once. RuntimeError: the real ray is imported already."""
    if any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        return
    loaded = sys.modules.get("ray")
    if loaded is not None and not isinstance(loaded, _Ray):
        raise RuntimeError("ray is imported already: import sheaf.as_ray before it")
    sys.meta_path.insert(0, _AliasFinder())
    folder = os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "_ray", "_alias"
    )  # Makes the alias in children.
    if folder not in sys.path:
        sys.path.insert(
            1, folder
        )  # What multiprocessing spawns gets this path, not the variable's.
    inherited = os.environ.get("PYTHONPATH", "")
    if folder not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = folder + (os.pathsep + inherited if inherited else "")


install()


def _run(arguments: list[str]) -> None:
    import runpy

    if not arguments:
        sys.exit("usage: python -m sheaf.as_ray script.py ARGS")
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    sys.modules["sheaf.as_ray"] = sys.modules[__name__]
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _run(sys.argv[1:])

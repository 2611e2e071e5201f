# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Public functions and classes say what they take and give, in the sections of Google's style: each
parameter stands under Args, what returns has Returns (or Yields), or is one sentence that begins
with "Returns". Names that begin with "_" are nobody's business."""

import enum
import importlib.util
import inspect
import re
import types

import pytest
import sheaf
import sheaf.train
import sheaf.util

# Where public names are looked for; of sheaf.util all modules that can be imported here.
MODULES = [
    "sheaf",
    "sheaf.actor",
    "sheaf.air",
    "sheaf.air.session",
    "sheaf.arrow",
    "sheaf.remote_function",
    "sheaf.cluster_utils",
    "sheaf.cross_language",
    "sheaf.job_config",
    "sheaf.logging_config",
    "sheaf.named_actors",
    "sheaf.runtime_context",
    "sheaf.runtime_env",
    "sheaf.train",
    "sheaf.train.collective",
    "sheaf.train.torch",
    "sheaf.tune",
    "sheaf.tune.integration.ray_train",
    "sheaf.tune.logger",
    "sheaf.tune.logger.mlflow",
    "sheaf.tune.schedulers",
    "sheaf.tune.search",
    "sheaf.tune.search.sample",
    "sheaf.tune.search.space_conversion",
    "sheaf.tune.search.variant_generator",
    "sheaf.tune.stopper",
    "sheaf.types",
    "sheaf.util",
    "sheaf.util.collective.gradients",
    *(f"sheaf.util.{name}" for name in sheaf.util._MODULES),
    *(f"sheaf.util.{name}" for name in ("hyperopt", "optuna") if importlib.util.find_spec(name)),
]


def names_of(module):
    """The public names of a module with what they are: those it lists, or those it defines."""
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
        ]
    if module is sheaf.util:
        listed = [*listed, *sheaf.util._WHERE]
    return {
        name: getattr(module, name)
        for name in listed
        if not name.startswith("_") and not isinstance(getattr(module, name), types.ModuleType)
    }


def of_sheaf(value):
    return getattr(value, "__module__", "").split(".")[0] == "sheaf"


def methods_of(cls):
    """The public methods that the class itself defines, as functions, and its properties."""
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(value, (classmethod, staticmethod)):
            value = value.__func__
        if isinstance(value, (types.FunctionType, types.MethodDescriptorType, property)):
            yield name, value


def parameters_of(target):
    """The names that a caller may give; none where Python cannot tell. Of a class: to make one."""
    if isinstance(target, type):
        target = vars(target).get("__init__", target)
    try:
        signature = inspect.signature(target)
    except ValueError:
        return []
    return [name for name in signature.parameters if name not in ("self", "cls") and name[0] != "_"]


def returns(function):
    try:
        return inspect.signature(function).return_annotation not in ("None", None, "NoReturn")
    except ValueError:
        return True


def section(doc, title):
    """What is indented below the title."""
    found = re.search(rf"^{title}:\n((?:(?: +.*)?\n?)+)", doc, re.M)
    return found.group(1) if found else ""


def missing_arguments(doc, target):
    described = set(re.findall(r"^    \*{0,2}(\w+): ", section(doc, "Args"), re.M))
    return [name for name in parameters_of(target) if name not in described]


def faults_of_function(function):
    doc = inspect.getdoc(function)
    if not doc:
        return ["no docstring"]
    if "NotImplementedError" in doc.splitlines()[0]:  # A name of Ray's that Sheaf has not.
        return []
    found = [f"no {name} under Args" for name in missing_arguments(doc, function)]
    if returns(function) and not (
        section(doc, "Returns") or section(doc, "Yields") or doc.startswith("Returns ")
    ):
        found.append("no Returns")
    return found


def faults_of_class(cls):
    doc = cls.__doc__ and inspect.cleandoc(cls.__doc__)
    if not doc:
        return ["no docstring"]
    if "NotImplementedError" in doc.splitlines()[0]:
        return []
    found = []
    if {"__init__", "__new__"} & set(vars(cls)) and not issubclass(cls, enum.Enum):
        found += [f"no {name} under Args" for name in missing_arguments(doc, cls)]
    for name, method in methods_of(cls):
        if isinstance(method, property):
            found += [] if method.__doc__ else [f"{name}: no docstring"]
        else:
            found += [f"{name}: {fault}" for fault in faults_of_function(method)]
    return found


def faults_of(value):
    if isinstance(value, type):
        return [
            f"{kind.__name__}: {fault}"
            for kind in value.__mro__
            if of_sheaf(kind)
            for fault in faults_of_class(kind)
        ]
    return faults_of_function(value) if callable(value) else []


@pytest.mark.parametrize("module", MODULES)
def test_public_names_say_what_they_take_and_give(module):
    try:
        names = names_of(importlib.import_module(module))
    except ImportError as error:
        if (error.name or "sheaf").startswith("sheaf"):
            raise
        pytest.skip(f"{error.name} is not installed")
    faults = [f"{name}: {fault}" for name, value in names.items() for fault in faults_of(value)]
    assert not faults, "\n" + "\n".join(faults)


def test_what_is_missing_is_found():
    def bare(a):
        pass

    def half(a, b, *, _inner=None):
        """Adds.

        Args:
            a: a number.
        """

    def whole(a: int, *rest: int) -> int:
        """Adds.

        Args:
            a: a number,
                or another.
            rest: more of them.

        Returns:
            The sum.
        """

    def short() -> int:
        """Returns the sum."""

    def silent() -> None:
        """Adds."""

    assert faults_of(bare) == ["no docstring"]
    assert faults_of(half) == ["no b under Args", "no Returns"]
    assert faults_of(whole) == faults_of(short) == faults_of(silent) == []
    assert len(names_of(sheaf)) > 30 and "PlacementGroup" in names_of(sheaf.util)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an experiment is told, in one object, for run_experiments."""

from __future__ import annotations

import os
from typing import Any

from sheaf.tune.registry import get_trainable_cls, register_trainable


class Experiment:
    """One experiment. Its arguments are those of `run`.

    Args:
        name: of its folder.
        run: a function, a class derived from Trainable, or the name of one that is registered.
        **spec: arguments of `run`.

    Raises:
        TypeError: `run` is none of these.
    """

    def __init__(self, name: str, run: Any, **spec: Any):
        self.name = name
        self.trainable = get_trainable_cls(run) if isinstance(run, str) else run
        self.spec = {"config": {}, "num_samples": 1, **spec}

    @classmethod
    def from_json(cls, name: str, spec: dict[str, Any]) -> Experiment:
        """Makes one of a dict.

        Args:
            name: of its folder.
            spec: `run`, and arguments of `run`.

        Returns:
            The experiment.

        Raises:
            KeyError: there is no `run` in it.
        """
        rest = dict(spec)
        return cls(name, rest.pop("run"), **rest)

    @classmethod
    def register_if_needed(cls, run_object: Any) -> str:
        """Gives a trainable its own name in the registry.

        Args:
            run_object: a trainable, or the name of one.

        Returns:
            The name.
        """
        if isinstance(run_object, str):
            return run_object
        name = name_of(run_object)
        register_trainable(name, run_object)
        return name

    @property
    def path(self) -> str:
        """The path of its folder."""
        root = self.spec.get("storage_path") or "~/sheaf_results"
        return os.path.join(os.path.expanduser(os.fspath(root)), self.name)

    local_path = path


def name_of(trainable: Any) -> str:
    """What trials of a trainable are called."""
    name = getattr(trainable, "__name__", None)
    if name is None:
        inner = getattr(trainable, "func", None)  # Of functools.partial.
        name = name_of(inner) if inner is not None else type(trainable).__name__
    return "lambda" if name == "<lambda>" else str(name)

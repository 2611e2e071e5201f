# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs about ray.tune have in common."""

import contextlib
import os
import tempfile

from program import say

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

from ray import tune  # noqa: E402


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="peer-tune-") as path:
        yield path


def fit(trainable, space=None, run=None, **config):
    """Runs an experiment quietly. Returns its results; their files are gone."""
    with folder() as path:
        settings = {"storage_path": path, "verbose": 0, **(run or {})}
        tuner = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(**config) if config else None,
            run_config=tune.RunConfig(**settings),
        )
        return tuner.fit()


def say_trials(results, *names):
    """Says what trials ended with, in the order of their configurations."""
    rows = [
        [result.config, {name: (result.metrics or {}).get(name) for name in names}]
        for result in results
    ]
    for row in sorted(rows, key=repr):
        say(*row)

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Whose error ends an experiment."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sheaf.tune.error import TuneError

_Arguments = ParamSpec("_Arguments")
_Output = TypeVar("_Output")


def blamed(function: Callable[_Arguments, _Output]) -> Callable[_Arguments, _Output]:
    """Of what searchers, schedulers, stoppers and callbacks are called by: what they raise is the
    __cause__ of a TuneError that says where."""

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Output:
        try:
            return function(*args, **kwargs)
        except TuneError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise TuneError(
                f"a searcher, scheduler, stopper or callback has ended the experiment: "
                f"{type(error).__name__}: {error} ({where.filename}:{where.lineno}, {where.name})"
            ) from error

    return call

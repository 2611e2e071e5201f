# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a driver takes over from the submitted command that started it."""

from __future__ import annotations

import json
import os
from typing import Any

_OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"  # "1": what init was given counts.


def merge(
    text: str, runtime_env: dict[str, Any] | None, metadata: dict[str, str]
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The environment and the metadata of the driver.

    Args:
        text: JSON with the `runtime_env` and the `metadata` of the submission.
        runtime_env: as init was given it.
        metadata: as init was given it.

    Raises:
        ValueError: both environments have a field, or a variable, with two values; or the text is
            no JSON.
    """
    config = json.loads(text)
    of_job = {
        name: value
        for name, value in (config.get("runtime_env") or {}).items()
        if value not in (None, {}, [], "") and not name.startswith("_")
    }
    merged = dict(runtime_env or {})
    overrides = os.environ.get(_OVERRIDE) == "1"
    for name, value in of_job.items():
        if name == "env_vars":
            variables = dict(merged.get(name) or {})
            for variable, content in value.items():
                _check(overrides, f"env_vars {variable}", variables.get(variable), content)
                variables.setdefault(variable, content)
            merged[name] = variables
        else:
            _check(overrides, name, merged.get(name), value)
            merged.setdefault(name, value)
    return merged or None, {**metadata, **(config.get("metadata") or {})}


def _check(overrides: bool, what: str, own: Any, of_job: Any) -> None:
    if overrides or own is None or own == of_job:
        return
    raise ValueError(
        f"Failed to merge the Job's runtime env with the one of init: {what} is {of_job!r} of the "
        f"job and {own!r} of the driver; give it once, or set {_OVERRIDE}=1 for the driver's"
    )

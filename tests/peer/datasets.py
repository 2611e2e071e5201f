# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs about ray.data have in common: blocks come in order, shuffles have few partitions,
nothing is printed; and how rows, batches and schemas are said."""

import contextlib
import os
import pathlib
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
from program import say

os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")

from ray import data  # noqa: E402

_context = data.DataContext.get_current()
_context.execution_options.preserve_order = True
_context.enable_progress_bars = False
_context.print_on_execution_start = False
_context.default_hash_shuffle_parallelism = 2


def plain(value):
    """What a value is, in words that do not depend on how libraries print."""
    if isinstance(value, np.ndarray):
        return f"array<{value.dtype}>{plain(value.tolist())}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(plain(one) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, (pa.Table, pd.DataFrame)):
        columns = value.to_pydict() if isinstance(value, pa.Table) else value.to_dict("list")
        return f"{type(value).__name__} {plain(columns)}"
    if isinstance(value, int) and abs(value) >= 10**9:
        return f"{value:_}"  # Else it reads like an id.
    if isinstance(value, float):
        return repr(float(f"{value:.12g}"))
    return repr(value)


def rows(dataset, ordered=True):
    """Says each row; in the order of their texts where the dataset promises none."""
    lines = [plain(row) for row in dataset.take_all()]
    for line in lines if ordered else sorted(lines):
        say(line)
    if not lines:
        say("no rows")


def kinds_of(dataset):
    """Says names and types of columns."""
    schema = dataset.schema()
    if schema is None:
        say("no schema")
        return
    say(", ".join(f"{n}: {t}" for n, t in zip(schema.names, schema.types, strict=True)))


def blocks(dataset):
    """Says how many rows each block has."""
    made = dataset.materialize()
    say([table.num_rows for table in tables(made)], made.num_blocks())


def tables(dataset):
    """The blocks of a dataset as tables."""
    import ray

    return ray.get(dataset.to_arrow_refs())


def fails(call, *words):
    """Says whether a call raises, and which of some words the message has."""
    try:
        value = call()
    except Exception as error:
        text = str(error)
        say("raises", *(f"{word!r}: {'yes' if word in text else 'no'}" for word in words))
        return error
    say("raises nothing, gives", plain(value))
    return None


@contextlib.contextmanager
def folder():
    """A folder for files."""
    with tempfile.TemporaryDirectory(prefix="peer-data-") as path:
        yield pathlib.Path(path)


def written(path, *, suffix=""):
    """Says the files below a folder by number and suffix, since their names are of chance."""
    found = sorted(one for one in path.rglob(f"*{suffix}") if one.is_file())
    say(len(found), "files", sorted({one.suffix for one in found}))
    return found

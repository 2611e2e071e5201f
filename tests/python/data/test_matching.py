# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Groups of rows and pairs of rows by their keys, against loops over Python values."""

import datetime
import decimal
import os
import random

import numpy as np
import pyarrow as pa
import pytest
from sheaf.data.aggregates.groups import numbered_rows
from sheaf.data.exchanges.matching import Matches

FIRST = int(os.environ.get("DATA_SEED", random.randrange(10**9)))
NAN, OTHER_NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
VALUES = [
    (pa.int64(), [0, 1, 2, 3, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.uint64(), [2**64 - 1, 2**63, 1]),
    (pa.float64(), [1.0, 2.5, NAN, OTHER_NAN, None]),
    (pa.string(), ["", "a", "b\0", None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [datetime.date(1900, 1, 1), datetime.date(2100, 1, 1), None]),
    (pa.timestamp("ns", "UTC"), [0, 1, 2**62, None]),
    (pa.decimal128(5, 2), [decimal.Decimal("1.50"), decimal.Decimal("2.50"), None]),
    (pa.null(), [None]),
]


def drawn(rng, kind, values, rows):
    """A column of some chunks, and its values as a loop compares them."""
    chosen = [rng.choice(values) for _ in range(rows)]
    cut = rng.randrange(rows + 1)
    made = pa.chunked_array([pa.array(chosen[:cut], kind), pa.array(chosen[cut:], kind)], kind)
    return made, ["nan" if value != value else value for value in chosen]


@pytest.mark.parametrize("number", range(60))
def test_rows_are_numbered_as_a_loop_numbers_them(number):
    print("DATA_SEED", FIRST)
    rng = random.Random(FIRST + number)
    rows = rng.choice([0, 1, 5, 200])
    columns, values = zip(
        *(drawn(rng, *rng.choice(VALUES), rows) for _ in range(rng.randrange(1, 4)))
    )
    seen = {}
    wanted = [seen.setdefault(row, len(seen)) for row in zip(*values)]
    ids, first = numbered_rows(columns)
    assert ids.tolist() == wanted
    assert first.tolist() == [wanted.index(group) for group in range(len(seen))]


@pytest.mark.parametrize("number", range(60))
def test_rows_match_as_in_two_loops(number):
    print("DATA_SEED", FIRST)
    rng = random.Random(FIRST + number)
    kinds = [rng.choice(VALUES) for _ in range(rng.randrange(1, 3))]
    sides, values = [], []
    for rows in (rng.choice([0, 1, 40]), rng.choice([0, 1, 40])):
        columns, rows_of = zip(*(drawn(rng, *kind, rows) for kind in kinds))
        sides.append(columns)
        values.append([row if None not in row else None for row in zip(*rows_of)])
    left, right = values
    found = Matches(*sides)
    pairs = [
        (a, b)
        for a in range(len(left))
        for b in range(len(right))
        if left[a] is not None and left[a] == right[b]
    ]
    with_left = {a for a, _ in pairs}
    alone = [(-1, b) for b in range(len(right)) if b not in {b for _, b in pairs}]
    kept = sorted(pairs + [(a, -1) for a in range(len(left)) if a not in with_left])
    assert as_pairs(found.pairs(False, False)) == pairs
    assert as_pairs(found.pairs(True, False)) == kept
    assert as_pairs(found.pairs(False, True)) == pairs + alone
    assert as_pairs(found.pairs(True, True)) == kept + alone
    assert found.matched_left().tolist() == [a in with_left for a in range(len(left))]
    assert found.matched_right().tolist() == [(-1, b) not in alone for b in range(len(right))]


def as_pairs(found):
    return list(zip(found[0].tolist(), found[1].tolist()))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.arrow beside pyarrow and NumPy, with random tables of all types. A test that fails prints
the seed of its table: ARROW_SEED=N runs that one."""

import datetime
import decimal
import functools
import os
import random
import threading

import numpy as np
import pytest
import sheaf.arrow as sa

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

SEEDS = [int(os.environ["ARROW_SEED"])] if "ARROW_SEED" in os.environ else range(12)

NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMES = [
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time64("ns"),
    pa.timestamp("ms"),
    pa.timestamp("us", tz="Europe/Berlin"),
    pa.duration("ns"),
]
DECIMALS = [pa.decimal128(20, 3), pa.decimal256(50, 3)]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(5)]
DICTIONARIES = [pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint32(), pa.int64())]
KEYS = [pa.bool_(), *NUMBERS, *FLOATS, *TIMES, *DECIMALS, *TEXTS, *DICTIONARIES]
NESTED = [
    pa.null(),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.list_(pa.int16()),
    pa.large_list(pa.string()),
    pa.list_(pa.float32(), 3),
    pa.list_(pa.struct([("a", pa.list_(pa.bool_()))])),
    pa.map_(pa.string(), pa.int64()),
    pa.struct([("d", DICTIONARIES[0])]),
    pa.month_day_nano_interval(),
]


def some_value(rng, kind, few):
    """A value of the type, of a handful of them with `few`."""
    span = 5 if few else 10**9
    if pa.types.is_null(kind):
        return None
    if pa.types.is_boolean(kind):
        return rng.random() < 0.5
    if pa.types.is_integer(kind):
        bits = min(kind.bit_width - 1, 3 if few else 64)
        return rng.randrange(0 if "u" in str(kind) else -(1 << bits), 1 << bits)
    if pa.types.is_floating(kind):
        value = rng.choice([0.0, -0.0, float("nan"), float("inf"), -1.5, rng.randrange(2000)])
        return np.float16(value) if pa.types.is_float16(kind) else float(value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(rng.randrange(-span, span)) / 1000
    if pa.types.is_date(kind):
        return datetime.date(2000, 1, 1) + datetime.timedelta(days=rng.randrange(min(span, 9999)))
    if pa.types.is_fixed_size_binary(kind):
        return bytes(rng.choice(b"\0\xffab") for _ in range(kind.byte_width))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(rng.choice(b"\0\xffab") for _ in range(rng.choice([0, 1, 2, 3, 9, 40])))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "".join(rng.choice("aé\0") for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 17, 40])))
    if pa.types.is_map(kind):
        return [(str(i), i) for i in range(rng.randrange(3))]
    if pa.types.is_fixed_size_list(kind):
        return [some_value(rng, kind.value_type, few) for _ in range(kind.list_size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [maybe_value(rng, kind.value_type, few) for _ in range(rng.randrange(4))]
    if pa.types.is_struct(kind):
        return {field.name: maybe_value(rng, field.type, few) for field in kind}
    if pa.types.is_interval(kind):
        return pa.MonthDayNano([rng.randrange(9), rng.randrange(9), rng.randrange(9)])
    return rng.randrange(min(span, 80_000))  # Times of a day, and instants.


def maybe_value(rng, kind, few):
    return None if rng.random() < 0.2 else some_value(rng, kind, few)


def some_chunk(rng, kind, rows, few, nulls):
    if pa.types.is_dictionary(kind):
        value = kind.value_type
        words = [some_value(rng, value, few) for _ in range(rng.randrange(1, 9))]
        at = [
            None if nulls and rng.random() < 0.2 else rng.randrange(len(words)) for _ in range(rows)
        ]
        return pa.DictionaryArray.from_arrays(pa.array(at, kind.index_type), pa.array(words, value))
    if pa.types.is_struct(kind) and pa.types.is_dictionary(kind[0].type):
        part = some_chunk(rng, kind[0].type, rows, few, nulls)
        return pa.StructArray.from_arrays([part], fields=[kind[0]])
    make = maybe_value if nulls else some_value
    # One row more in front, which is cut off: chunks begin anywhere in their memory.
    return pa.array([make(rng, kind, few) for _ in range(rows + 1)], kind)[1:]


def some_table(rng, kinds, few=False, most=60):
    lengths = [rng.randrange(most) for _ in range(rng.randrange(4))]
    columns = []
    for kind in kinds:
        nulls = rng.random() < 0.6
        columns.append(
            pa.chunked_array([some_chunk(rng, kind, n, few, nulls) for n in lengths], kind)
        )
    return pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])


def same(ours, theirs):
    """Whether two pyarrow tables have the same rows, whatever their dictionaries; NaN is NaN."""
    assert ours.column_names == theirs.column_names
    assert ours.num_rows == theirs.num_rows
    for name in theirs.column_names:
        assert text_of(ours[name]) == text_of(theirs[name]), name


def rows_of(table, rows):
    return pa.concat_tables([table.slice(row, 1) for row in rows] or [table.slice(0, 0)])


def text_of(column):
    return repr(column.to_pylist())


def value_type(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@pytest.mark.parametrize("seed", SEEDS)
def test_gather_takes_rows_as_pyarrow_does(seed):
    rng = random.Random(seed)
    table = some_table(rng, KEYS + NESTED)
    rows = [rng.randrange(table.num_rows) for _ in range(80)] if table.num_rows else []
    for indices in (pa.array(rows, pa.uint64()), np.array(rows, np.int32), rows):
        taken = pa.table(sa.gather(table, indices))
        taken.validate(full=True)
        same(taken, rows_of(table, rows))


@pytest.mark.parametrize("seed", SEEDS)
def test_concat_is_the_rows_one_after_the_other(seed):
    rng = random.Random(seed)
    tables = [some_table(rng, KEYS + NESTED) for _ in range(3)]
    made = pa.table(sa.concat(tables))
    made.validate(full=True)
    assert made.column(0).num_chunks == 1
    same(made, pa.concat_tables(tables))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hash_partition_keeps_each_row_once_and_equal_keys_together(seed):
    rng = random.Random(seed)
    table = some_table(rng, KEYS + NESTED, few=True)
    table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    keys = rng.sample([f"c{i}" for i in range(len(KEYS))], 2)
    parts = sa.partition(table, rng.choice([1, 3, 200]), keys=keys)
    whole = parts.table.to_pyarrow()
    whole.validate(full=True)
    order = whole["row"].to_numpy()
    assert sorted(order) == list(range(table.num_rows))
    same(whole, rows_of(table, order))
    assert parts.offsets[-1] == table.num_rows and parts.num_rows == [len(part) for part in parts]
    seen = {}
    for number, part in enumerate(parts):
        rows = part.to_pyarrow()
        rows.validate(full=True)
        assert rows["row"].to_pylist() == sorted(rows["row"].to_pylist())  # Stable.
        for key in zip(*(canonical(rows[name]) for name in keys)):
            assert seen.setdefault(key, number) == number
    hashes = pa.table(sa.hash(table, keys))["hash"].to_pylist()
    for number in range(len(parts)):
        for row in order[parts.offsets[number] : parts.offsets[number + 1]]:
            assert hashes[row] * len(parts) >> 64 == number


def canonical(column):
    """Values that are equal in Python where keys are."""
    values = column.to_pylist()
    return ["NaN" if isinstance(v, (float, np.floating)) and v != v else v for v in values]


def order_of(descending):
    """How rows of keys compare: NaN behind all numbers, NULL behind NaN, in both directions."""

    def place(value):
        return 2 if value is None else 1 if value != value else 0

    def compare(left, right):
        for a, b, falls in zip(left, right, descending):
            if place(a) != place(b):
                return place(a) - place(b)
            if place(a) == 0 and a != b:
                return 1 if (a > b) != falls else -1
        return 0

    return compare


def comparable(column):
    """Values as Python compares them: instants by their number, text by its bytes."""
    kind = value_type(column.type)
    column = column.cast(kind)
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [v.encode() if isinstance(v, str) else v for v in column.to_pylist()]


@pytest.mark.parametrize("seed", range(40) if len(SEEDS) > 1 else SEEDS)
def test_a_range_partition_puts_rows_between_their_bounds(seed):
    rng = random.Random(seed)
    kinds = [rng.choice(KEYS) for _ in range(rng.choice([1, 1, 2, 3]))]
    table = some_table(rng, kinds, few=True)
    falls = [rng.random() < 0.5 for _ in kinds]
    compare = order_of(falls)
    keys = list(zip(*map(comparable, table.columns)))
    chosen = rng.sample(range(len(keys)), min(4, len(keys)))
    chosen.sort(key=functools.cmp_to_key(lambda i, j: compare(keys[i], keys[j])))
    bounds = rows_of(table, chosen)
    parts = sa.partition(table, keys=table.column_names, bounds=bounds, descending=falls)
    expected = [sum(compare(key, keys[bound]) >= 0 for bound in chosen) for key in keys]
    assert parts.num_rows == [expected.count(part) for part in range(len(chosen) + 1)]
    order = sorted(range(len(keys)), key=expected.__getitem__)
    same(parts.table.to_pyarrow(), rows_of(table, order))


@pytest.mark.parametrize("descending", [False, True])
def test_sorted_parts_are_the_table_as_pyarrow_sorts_it(descending):
    rng = np.random.default_rng(1)
    numbers = np.where(rng.random(5000) < 0.1, np.nan, rng.integers(0, 300, 5000) / 4)
    words = [None if number % 7 == 0 else f"{number}" for number in rng.integers(0, 500, 5000)]
    table = pa.table({"x": pa.array(numbers), "s": pa.array(words), "row": range(5000)})
    by = [(name, "descending" if descending else "ascending") for name in ("x", "s")]
    whole = table.take(pc.sort_indices(table, by))
    bounds = whole.select(["x", "s"]).take([500, 501, 3000, 4900])
    parts = sa.partition(table, 5, keys=["x", "s"], bounds=bounds, descending=descending)
    pieces = [sa.gather(part, pc.sort_indices(pa.table(part), by)) for part in parts]
    same(pa.table(sa.concat(pieces)).select(["x", "s"]), whole.select(["x", "s"]))


def test_equal_keys_of_other_types_have_one_hash():
    def hashes(*columns):
        table = pa.table(list(columns), [str(i) for i in range(len(columns))])
        return pa.table(sa.hash(table, table.column_names))["hash"].to_pylist()

    numbers = [0, 1, 100, None]
    ways = {tuple(hashes(pa.array(numbers, kind))) for kind in NUMBERS}
    assert len(ways) == 1 and len(set(ways.pop())) == 4
    assert hashes(pa.array([-1], pa.int8())) == hashes(pa.array([-1], pa.int64()))
    floats = [0.0, 1.5, float("inf"), float("nan"), None]
    assert (
        len({tuple(hashes(pa.array(np.array(floats[:4]), pa.float64()).cast(k))) for k in FLOATS})
        == 1
    )
    assert len(set(hashes(pa.array([0.0, -0.0])))) == 1
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    assert len(set(hashes(pa.array(nans.view(np.float64))))) == 1
    words = ["", "a", "longer than sixteen bytes", None]
    texts = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
    assert len({tuple(hashes(pa.array(words).cast(kind))) for kind in texts}) == 1
    assert len(set(hashes(pa.array(words)))) == 4
    day = [datetime.date(1960, 2, 3), datetime.date(2024, 2, 29)]
    times = [
        pa.date32(),
        pa.date64(),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.timestamp("us", tz="UTC"),
    ]
    assert len({tuple(hashes(pa.array(day).cast(kind))) for kind in times}) == 1
    money = [decimal.Decimal("-1.25"), decimal.Decimal("7.50")]
    assert hashes(pa.array(money, pa.decimal128(9, 2))) == hashes(
        pa.array(money, pa.decimal256(40, 2))
    )
    # The order of the keys counts, and where one ends.
    assert hashes(pa.array(["a"]), pa.array(["b"])) != hashes(pa.array(["b"]), pa.array(["a"]))
    assert hashes(pa.array(["ab"]), pa.array([""])) != hashes(pa.array(["a"]), pa.array(["b"]))


def test_hashes_are_those_that_are_documented():
    """They go between versions, so they never change. These are those of the package xxhash:
    xxh3_64_intdigest(struct.pack("<q", 1)), xxh3_64_intdigest(b"sheaf", seed=that), and so on."""
    table = pa.table({"n": pa.array([0, 1, None], pa.int32()), "s": ["", "sheaf", None]})
    by_number = [14374147212387527897, 3439722301264460078, 5478965906984379733]
    by_both = [3821706932637198330, 12365465152680073013, 18189525109445461973]
    assert pa.table(sa.hash(table, "n"))["hash"].to_pylist() == by_number
    assert pa.table(sa.hash(table, ["n", "s"]))["hash"].to_pylist() == by_both


def test_a_random_partition_follows_from_its_seed_and_the_number_of_the_row():
    table = pa.table({"row": range(10_000)})
    rows = [part.to_pyarrow()["row"].to_pylist() for part in sa.partition(table, 8, seed=7)]
    cut = pa.concat_tables([table.slice(0, 1234), table.slice(1234)])  # Chunks are no matter.
    assert rows == [part.to_pyarrow()["row"].to_pylist() for part in sa.partition(cut, 8, seed=7)]
    assert rows != [part.to_pyarrow()["row"].to_pylist() for part in sa.partition(table, 8, seed=8)]
    assert all(1100 < len(part) < 1400 for part in rows)


def test_parts_say_how_large_they_are_and_which_keys_are_heavy():
    keys = ["heavy"] * 6000 + ["half"] * 3000 + [f"k{i}" for i in range(1000)]
    random.Random(0).shuffle(keys)
    parts = sa.partition(pa.table({"k": keys, "v": range(10_000)}), 4, keys="k")
    assert sum(parts.num_bytes) == parts.table.nbytes == 10_000 * 12 + sum(map(len, keys))
    assert pa.table(parts.top_keys)["k"].to_pylist() == ["heavy", "half"]
    assert 5500 < parts.top_rows[0] < 6500 and 2600 < parts.top_rows[1] < 3400
    few = sa.partition(pa.table({"k": ["a", "b", "a"]}), 2, keys="k")
    assert list(zip(pa.table(few.top_keys)["k"].to_pylist(), few.top_rows)) == [("a", 2), ("b", 1)]
    assert parts[-1].num_rows == parts[3].num_rows and len(parts) == 4
    with pytest.raises(IndexError, match="part 4 of 4"):
        parts[4]


def test_dictionaries_of_several_chunks_become_one_and_make_room():
    chunks = [pa.array([f"{i}-{j}" for j in range(100)]).dictionary_encode() for i in range(3)]
    narrow = [c.cast(pa.dictionary(pa.int8(), pa.string())) for c in chunks]
    made = pa.table(sa.concat([pa.table({"d": pa.chunked_array(narrow)})]))
    made.validate(full=True)
    assert made["d"].to_pylist() == pa.chunked_array(chunks).to_pylist()
    assert made["d"].type.index_type == pa.int32()
    shared = pa.table({"d": narrow[0]})
    taken = pa.table(sa.gather(shared, [3, 3]))["d"].chunk(0)
    assert taken.dictionary.buffers()[2].address == narrow[0].dictionary.buffers()[2].address


def test_extension_types_are_moved_by_their_storage_and_stay_what_they_are():
    table = pa.table({"u": pa.array([b"x" * 16, None, b"y" * 16], pa.uuid())})
    taken = pa.table(sa.gather(table, [2, 1]))
    assert taken.schema == table.schema and taken["u"].to_pylist() == table["u"].to_pylist()[2:0:-1]


def test_a_type_that_is_not_moved_is_named_with_its_column():
    table = pa.table({"fine": [1, 2], "odd": pa.array(["a", "b"], pa.string_view())})
    with pytest.raises(sa.UnsupportedType, match="'odd' has type 'vu'") as caught:
        sa.partition(table, 2, keys="fine")
    assert caught.value.column == "odd"
    assert sa.hash(table, "fine").num_rows == 2  # Only keys are read.
    with pytest.raises(sa.UnsupportedType, match="'odd'.*cannot be a key"):
        sa.hash(table, "odd")
    with pytest.raises(sa.UnsupportedType, match="'l'.*cannot be a key"):
        sa.partition(pa.table({"l": [[1]]}), 2, keys=["l"])


@pytest.mark.parametrize(
    "call, error, words",
    [
        (
            lambda t: sa.partition(t, 2, keys="missing"),
            ValueError,
            "no column 'missing': the table has a, b",
        ),
        (lambda t: sa.partition(t, 2, keys=[]), ValueError, "at least one column"),
        (lambda t: sa.partition(t, 0, keys="a"), ValueError, "n=0"),
        (lambda t: sa.partition(t, 2), ValueError, "keys=.* or seed="),
        (lambda t: sa.partition(t, keys="a"), ValueError, "n, the number of parts"),
        (lambda t: sa.partition(t, 2, seed=-1), ValueError, "seed=-1"),
        (
            lambda t: sa.partition(t, keys="a", bounds=pa.array(["x"])),
            ValueError,
            "'a' are of type 'u'",
        ),
        (
            lambda t: sa.partition(t, keys="a", bounds=pa.array([3, 1])),
            ValueError,
            "bound 1 lies before",
        ),
        (lambda t: sa.partition(t, 5, keys="a", bounds=pa.array([1, 2])), ValueError, "n=5"),
        (
            lambda t: sa.partition(t, keys=["a", "b"], bounds=pa.array([1])),
            ValueError,
            "1 columns for 2",
        ),
        (lambda t: sa.gather(t, [0, 3]), IndexError, "no row 3: the table has 3"),
        (lambda t: sa.gather(t, [-1]), IndexError, "no row -1"),
        (lambda t: sa.gather(t, pa.array([0, None])), ValueError, "NULL"),
        (lambda t: sa.gather(t, [0.5]), ValueError, "integers"),
        (lambda t: sa.concat([]), ValueError, "no table"),
        (lambda t: sa.concat([t, t.select(["a"])]), ValueError, "2 and 1 columns"),
        (lambda t: sa.concat([t, t.rename_columns(["a", "c"])]), ValueError, "'b'.*'c'"),
        (lambda t: sa.hash({"a": [1]}, "a"), TypeError, "__arrow_c_stream__.*not dict"),
        (lambda t: sa.hash(pa.array([1]), "a"), ValueError, "no table"),
    ],
)
def test_what_cannot_be_done_is_said(call, error, words):
    with pytest.raises(error, match=words):
        call(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))


def test_malformed_arrays_are_errors():
    def column(kind, length, *buffers):
        made = [None if b is None else pa.py_buffer(np.array(*b).tobytes()) for b in buffers]
        return pa.table({"bad": pa.Array.from_buffers(kind, length, made)})

    falling = column(pa.string(), 3, None, ([0, 4, 1, 5], "int32"), ([0] * 5, "uint8"))
    with pytest.raises(sa.MalformedArray, match="'bad'.*offsets"):
        sa.gather(falling, [0])
    indices = pa.array([0, 7], pa.int32())
    beyond = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    with pytest.raises(sa.MalformedArray, match="row 1 is value 7 of a dictionary of 1"):
        sa.hash(pa.table({"bad": beyond}), "bad")


def test_the_interpreter_is_free_meanwhile_and_tables_are_shared_by_threads():
    table = pa.table({"k": np.arange(200_000) % 977, "s": [str(i) for i in range(200_000)]})
    expected = pa.table(sa.partition(table, 16, keys="k").table)
    results = []

    def work():
        results.append(pa.table(sa.partition(table, 16, keys="k").table).equals(expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 4


def test_what_is_made_outlives_what_it_was_made_of():
    parts = sa.partition(
        pa.table({"d": pa.array(["a", "b"] * 50).dictionary_encode()}), 2, keys="d"
    )
    part = pa.table(max(parts, key=len))
    del parts
    assert set(part["d"].to_pylist()) <= {"a", "b"} and part.num_rows >= 50

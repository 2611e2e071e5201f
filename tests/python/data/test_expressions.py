# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions give columns, name what they cannot do, and become filters of Parquet readers."""

import datetime
import pickle

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from sheaf import cloudpickle, data  # noqa: E402
from sheaf.data import block, expressions, transforms  # noqa: E402
from sheaf.data.datasource.parquet import ParquetDatasource  # noqa: E402
from sheaf.data.errors import BatchError, ColumnNotFoundError, UserCodeError  # noqa: E402
from sheaf.data.expressions import (  # noqa: E402
    col,
    download,
    lit,
    monotonically_increasing_id,
    parse,
    pyarrow_udf,
    random,
    star,
    udf,
    unnest,
    uuid,
)
from sheaf.data.task_context import TaskContext  # noqa: E402

TABLE = pa.table(
    {
        "a": [7, -7, 3, None],
        "b": [2, 2, -2, 1],
        "x": [1.25, -2.5, 0.0, None],
        "s": ["Ab", " c ", "", None],
        "l": [[3, 1, None], [], [2], None],
        "n": [{"p": 1}, {"p": 2}, None, {"p": None}],
        "t": [datetime.datetime(2026, 11, 27, 13, 5)] * 4,
        "m": pa.array([[("k", 1)], [], None, [("j", 2)]], pa.map_(pa.string(), pa.int64())),
    }
)


def of(expression):
    return pickle.loads(cloudpickle.dumps(expression)).evaluate(TABLE).to_pylist()


CASES = {
    "add": (lambda: col("a") + 1, [8, -6, 4, None]),
    "text behind text": (lambda: "<" + col("s") + ">", ["<Ab>", "< c >", "<>", None]),
    "right hand": (lambda: 1 - col("a"), [-6, 8, -2, None]),
    "divide as Python": (lambda: col("a") / col("b"), [3.5, -3.5, -1.5, None]),
    "floor divide as Python": (lambda: col("a") // col("b"), [3, -4, -2, None]),
    "remainder as Python": (lambda: col("a") % col("b"), [1, 1, -1, None]),
    "compare": (lambda: (col("a") > 2) & (col("b") == 2), [True, False, False, False]),
    "or with NULL": (lambda: (col("a") > 2) | (col("b") == 1), [True, False, True, True]),
    "not": (lambda: ~(col("b") != 2), [True, True, False, False]),
    "null": (lambda: col("a").is_null(), [False, False, False, True]),
    "not null": (lambda: col("a").is_not_null(), [True, True, True, False]),
    "in": (lambda: col("a").is_in([3, 7]), [True, False, True, False]),
    "not in": (lambda: col("s").not_in(["Ab"]), [False, True, True, True]),
    "cast": (lambda: col("a").cast(pa.float32()), [7.0, -7.0, 3.0, None]),
    "cast by name": (lambda: col("a").cast("string"), ["7", "-7", "3", None]),
    "round": (lambda: col("x").round(1), [1.2, -2.5, 0.0, None]),
    "abs": (lambda: col("x").abs(), [1.25, 2.5, 0.0, None]),
    "negate": (lambda: -col("b"), [-2, -2, 2, -1]),
    "power": (lambda: col("b").power(3), [8, 8, -8, 1]),
    "constant": (lambda: lit("k"), ["k"] * 4),
    "upper": (lambda: col("s").str.upper(), ["AB", " C ", "", None]),
    "length": (lambda: col("s").str.len(), [2, 3, 0, None]),
    "strip": (lambda: col("s").str.strip(), ["Ab", "c", "", None]),
    "contains": (lambda: col("s").str.contains("b"), [True, False, False, None]),
    "contains any case": (
        lambda: col("s").str.contains("B", ignore_case=True),
        [True, False, False, None],
    ),
    "replace": (lambda: col("s").str.replace("A", "x"), ["xb", " c ", "", None]),
    "slice": (lambda: col("s").str.slice(0, 1), ["A", " ", "", None]),
    "pad": (lambda: col("s").str.pad(3, "."), ["Ab.", " c ", "...", None]),
    "repeat": (lambda: col("s").str.repeat(2), ["AbAb", " c  c ", "", None]),
    "split": (lambda: col("s").str.split("b"), [["A", ""], [" c "], [""], None]),
    "list length": (lambda: col("l").list.len(), [3, 0, 1, None]),
    "list element": (lambda: col("l").list.get(-1), [None, None, 2, None]),
    "list slice": (lambda: col("l").list[0:1], [[3], [], [2], None]),
    "list sort": (lambda: col("l").list.sort(), [[1, 3, None], [], [2], None]),
    "field": (lambda: col("n").struct["p"], [1, 2, None, None]),
    "year": (lambda: col("t").dt.year(), [2026] * 4),
    "strftime": (lambda: col("t").dt.strftime("%H"), ["13"] * 4),
    "floor of time": (lambda: col("t").dt.floor("day"), [datetime.datetime(2026, 11, 27)] * 4),
    "keys": (lambda: col("m").map.keys(), [["k"], [], None, ["j"]]),
    "values": (lambda: col("m").map.values(), [[1], [], None, [2]]),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    make, want = CASES[name]
    assert of(make()) == want


def test_names_and_columns():
    both = (col("a") + col("b")).alias("sum")
    assert (both.name, both.columns(), col("a").name, lit(1).name) == ("sum", {"a", "b"}, "a", None)
    assert repr(both) == "(col('a') + col('b')).alias('sum')" and repr(star()) == "star()"
    assert both.structurally_equals((col("a") + col("b")).alias("sum"))
    assert (col("a") + 1).get_type(TABLE.schema) == pa.int64()


def test_functions_of_users():
    @udf(return_dtype=pa.int32())
    def twice(a, by=2):
        return a * by

    @pyarrow_udf()
    def filled(a):
        return a.fill_null(0)

    @udf()
    class Add:
        def __init__(self, by):
            self.by = by

        def __call__(self, a):
            return a + self.by

    assert (
        of(twice(col("b"), by=3)) == [6, 6, -6, 3]
        and twice(col("b")).evaluate(TABLE).type == pa.int32()
    )
    assert of(filled(col("a"))) == [7, -7, 3, 0]
    assert of(Add(10)(col("b"))) == [12, 12, 8, 11]
    with pytest.raises(UserCodeError, match="Expression.twice.: "):
        of(twice(col("b"), by="x"))


def test_what_is_wrong_is_named():
    with pytest.raises(ColumnNotFoundError, match="expression: no column 'aa'; did you mean 'a'"):
        of(col("aa") + 1)
    with pytest.raises(BatchError, match=r"\(col\('s'\) \+ lit\(1\)\)"):
        of(col("s") + 1)
    with pytest.raises(BatchError, match="divide by zero"):
        of(col("a") // 0)
    with pytest.raises(TypeError, match="write & | ~"):
        bool(col("a") > 1 and col("b"))
    with pytest.raises(AttributeError, match=r"uper; did you mean 'upper'"):
        col("s").str.uper()
    with pytest.raises(BatchError, match="a filter wants a boolean"):
        list(transforms.filter_expression(col("a"))(iter([TABLE])))


TEXTS = {
    "a > 2 and b == 2": [True, False, False, False],
    "not a >= 0": [False, True, False, None],
    "-8 < a < 0": [False, True, False, None],
    "a in [3, 7] or is_null(a)": [True, False, True, True],
    "s not in ['Ab']": [False, True, True, True],
    "a % b + 1": [2, 2, 0, None],
}


@pytest.mark.parametrize("text", TEXTS)
def test_text(text):
    assert of(parse(text)) == TEXTS[text]


@pytest.mark.parametrize(
    "text",
    ["a >", "open('x')", "a.b", "__import__('os').system('x')", "a if b else c", "lambda: a"],
)
def test_text_that_is_none(text):
    with pytest.raises(ValueError, match="expression "):
        parse(text)


def test_as_operators():
    (table,) = transforms.filter_expression(col("a") > 2)(iter([TABLE]))
    assert table.column("a").to_pylist() == [7, 3]
    (table,) = transforms.with_columns({"c": col("a") + 1, "a": lit(0)})(
        iter([TABLE.select(["a", "b"])])
    )
    assert table.column_names == ["a", "b", "c"] and table.to_pydict()["c"] == [8, -6, 4, None]
    assert table.to_pydict()["a"] == [0] * 4


def test_rows_are_numbered_by_task():
    number = monotonically_increasing_id()
    for task, want in ((0, 0), (3, 3 << 33)):
        with TaskContext(task).entered():
            assert [number.evaluate(TABLE).to_pylist()[0] for _ in range(2)] == [want, want + 4]


def test_random_values():
    def drawn(expression, task=0):
        with TaskContext(task).entered():
            return [expression.evaluate(TABLE).to_pylist() for _ in range(2)]

    first, second = drawn(random(seed=1))
    assert first != second and [first, second] == drawn(random(seed=1)) != drawn(random(seed=1), 1)
    assert all(0 <= value < 1 for value in first) and drawn(random()) != drawn(random())
    assert len(set(of(uuid()))) == 4


def test_files_that_columns_name(tmp_path):
    (tmp_path / "a").write_bytes(b"data")
    table = pa.table({"path": [str(tmp_path / "a"), None, str(tmp_path / "absent")]})
    assert download("path").evaluate(table).to_pylist() == [b"data", None, None]


def test_tensors_as_lists():
    table = block.batch_to_table({"t": np.ones((2, 1, 2))})
    assert col("t").arr.to_list().evaluate(table).to_pylist() == [[[1.0, 1.0]]] * 2


def test_filters_of_parquet_readers(tmp_path):
    pq.write_table(
        pa.table({"id": np.arange(1000), "s": [str(n % 3) for n in range(1000)]}),
        tmp_path / "a.parquet",
        row_group_size=100,
    )
    source = ParquetDatasource(str(tmp_path))
    for expression in (
        (col("id") >= 350) & (col("s") == "1"),
        col("id").is_in([5, 500]),
        ~(col("s") != "2") | col("id").is_null(),
    ):
        assert source.supports_predicate(expression)
        found = [
            row
            for task in source.with_predicate(expression).get_read_tasks(3)
            for table in task()
            for row in table.to_pylist()
        ]
        whole = pq.read_table(tmp_path / "a.parquet")
        assert found == whole.filter(expression.evaluate(whole)).to_pylist()
        assert source.with_predicate(expression).num_rows() is None
    assert not source.supports_predicate(col("id") + 1 > 2) and not source.supports_predicate(
        col("absent") > 2
    )
    with pytest.raises(TypeError, match="no form that readers"):
        (col("s").str.upper() == "A").to_pyarrow()


# Ray's names of classes.


def made_of_kinds():
    a, b = col("a"), col("b")
    return {
        "ColumnExpr": [a],
        "LiteralExpr": [lit(3)],
        "AliasExpr": [a.alias("z"), col("n").struct["p"]],
        "BinaryExpr": [
            a + 1,
            1 - a,
            a * b,
            a / b,
            a % b,
            a // b,
            a > b,
            a == b,
            (a < b) & (a >= b),
        ],
        "UnaryExpr": [~(a > b), a.is_null(), a.is_not_null()],
        "UDFExpr": [udf()(abs)(a), pyarrow_udf()(abs)(a)],
        "DownloadExpr": [download("s")],
        "StarExpr": [star()],
        "UnnestExpr": [unnest(col("n"))],
        "RandomExpr": [random()],
        "UUIDExpr": [uuid()],
        "MonotonicallyIncreasingIdExpr": [monotonically_increasing_id()],
    }


@pytest.mark.parametrize("name", made_of_kinds())
def test_expressions_have_the_classes_of_ray(name):
    kinds = {kind: getattr(expressions, kind) for kind in made_of_kinds()}
    for one in made_of_kinds()[name]:
        assert [kind for kind, cls in kinds.items() if isinstance(one, cls)] == [name]
        assert isinstance(pickle.loads(cloudpickle.dumps(one)), kinds[name])


def test_operators_say_what_they_are_and_are_made_by_their_names():
    op = expressions.Operation
    found = (col("a") % 2) >= col("b")
    assert (found.op, found.left.op, found.left.right._value) == (op.GE, op.MOD, 2)
    assert repr(found) == "((col('a') % lit(2)) >= col('b'))"
    same = expressions.BinaryExpr(op.GE, expressions.BinaryExpr("mod", col("a"), 2), col("b"))
    assert same.structurally_equals(found)
    assert same.evaluate(TABLE).equals(found.evaluate(TABLE))
    inside = col("b").is_in([1, 2])
    assert (inside.op, inside.right._value) == (op.IN, [1, 2])
    assert expressions.BinaryExpr(op.IN, col("b"), lit([1, 2])).structurally_equals(inside)
    assert expressions.UnaryExpr(op.NOT, inside).structurally_equals(~inside)
    assert (~inside).operand is inside
    for wrong in (
        lambda: expressions.BinaryExpr(op.NOT, 1, 2),
        lambda: expressions.UnaryExpr(op.ADD, col("a")),
        lambda: expressions.BinaryExpr("plus", 1, 2),
    ):
        with pytest.raises(ValueError, match="want one of|not a valid Operation"):
            wrong()


def test_fields_of_structs_become_columns():
    calls = []

    @pyarrow_udf()
    def both(a, b):
        calls.append(len(a))
        return pa.StructArray.from_arrays([a, b], ["b", "c"])

    rows = data.from_arrow(TABLE.select(["a", "b", "n"]))
    made = rows.with_columns(
        unnest(col("n")), {"twice": col("b") * 2}, unnest(both(col("a"), col("b")))
    )
    found = made.take_all()
    assert list(found[0]) == ["a", "b", "n", "p", "twice", "c"]
    assert [row["p"] for row in found] == [1, 2, None, None]
    assert [row["b"] for row in found] == [7, -7, 3, None]  # The field, not the column.
    assert [row["c"] for row in found] == [2, 2, -2, 1] and [row["twice"] for row in found][0] == 4
    assert calls.count(4) == 1
    assert made.select_columns(["c", "a"]).take(1) == [{"c": 2, "a": 7}]


def test_what_cannot_become_columns():
    rows = data.from_arrow(TABLE.select(["a", "n"]))
    with pytest.raises(
        BatchError, match=r"unnest\(col\('a'\)\): col\('a'\) is int64: want a struct"
    ):
        rows.with_columns(unnest(col("a"))).take_all()
    for wrong in (
        lambda: unnest(unnest(col("n"))),
        lambda: unnest("n"),
        lambda: unnest(col("n")).alias("x"),
        lambda: rows.with_column("x", unnest(col("n")) + 1).take_all(),
    ):
        with pytest.raises(TypeError, match="several columns|one column"):
            wrong()

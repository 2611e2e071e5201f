# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets on real processes: what maps, exchanges, splits and reductions give, in which order, with
how many blocks; what wrong use says."""

import pickle

import numpy as np
import pandas
import pyarrow as pa
import pytest
import sheaf
from sheaf import cloudpickle, data
from sheaf.data import aggregate, errors

ROWS = 2000


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture(scope="module")
def base():
    """Numbers with a key and a value, made by tasks."""
    return data.range(ROWS).map_batches(
        lambda b: {"id": b["id"], "k": b["id"] % 7, "v": b["id"] * 0.5}
    )


def ids(dataset):
    return [row["id"] for row in dataset.take_all()]


def test_rows_come_in_order(base):
    assert ids(base) == list(range(ROWS))
    assert base.take(2) == [{"id": 0, "k": 0, "v": 0.0}, {"id": 1, "k": 1, "v": 0.5}]
    assert base.count() == ROWS and base.columns() == ["id", "k", "v"]


def test_items():
    rows = [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert data.from_items(rows).take_all() == rows
    assert data.from_items([3, 4]).take_all() == [{"item": 3}, {"item": 4}]
    assert data.from_items([]).count() == 0 and data.from_items([]).take_all() == []
    assert data.from_items([]).sum("x") is None


def test_row_functions(base):
    assert data.range(5).map(lambda r: {"x": r["id"] + 1}).sum("x") == 15
    assert ids(data.range(6).filter(lambda r: r["id"] % 2)) == [1, 3, 5]
    twice = data.range(3).flat_map(lambda r: [r, r])
    assert ids(twice) == [0, 0, 1, 1, 2, 2]
    assert ids(base.filter(lambda r: r["k"] == 3).limit(2)) == [3, 10]


def test_batches_have_the_size_that_was_asked_for(base):
    sizes = base.map_batches(lambda b: {"n": [len(b["id"])]}, batch_size=300)
    assert max(row["n"] for row in sizes.take_all()) == 300
    blocks = data.range(100, override_num_blocks=100)
    joined = blocks.map_batches(lambda b: {"n": [len(b["id"])]}, batch_size=25)
    assert [row["n"] for row in joined.take_all()] == [25] * 4


def test_blocks_keep_their_borders():
    assert data.range(100, override_num_blocks=10).map(lambda r: r).materialize().num_blocks() == 10


def test_columns():
    frame = data.from_items([{"a": 1, "b": 2}] * 3)
    assert frame.select_columns(["b"]).columns() == ["b"]
    assert frame.drop_columns(["b"]).take(1) == [{"a": 1}]
    assert frame.rename_columns({"a": "c"}).columns() == ["c", "b"]
    assert frame.add_column("c", lambda df: df["a"] + df["b"]).take(1) == [{"a": 1, "b": 2, "c": 3}]
    lists = data.from_items([{"x": [1, 2]}, {"x": []}, {"x": [3]}])
    assert [row["x"] for row in lists.explode("x").take_all()] == [1, 2, 3]


@pytest.mark.parametrize("change", ["select_columns", "drop_columns", "sort", "groupby", "unique"])
def test_a_column_that_is_not_there(change):
    with pytest.raises(KeyError, match="no column 'idd'; did you mean 'id'"):
        dataset = getattr(data.range(3), change)(
            "idd" if change in ("sort", "groupby", "unique") else ["idd"]
        )
        dataset.take_all()


def test_limit_runs_no_more_than_it_needs(tmp_path):
    def leave_a_mark(batch):
        (tmp_path / str(batch["id"][0])).touch()
        return batch

    found = data.range(10_000, override_num_blocks=1000).map_batches(leave_a_mark)
    assert ids(found.limit(3)) == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) < 1000
    assert data.range(10).limit(0).take_all() == []


def test_a_chain_of_400_operators_runs_and_pickles(base):
    """Nothing on the way is as deep as the chain is long, but what has room for that."""
    mapped = base
    for _ in range(395):
        mapped = mapped.map_batches(lambda b: {**b, "k": b["k"] + 1})
    same = pickle.loads(cloudpickle.dumps(mapped))
    assert [row["k"] for row in same.take(5)] == [row["k"] + 395 for row in base.take(5)]
    with pytest.raises(ValueError, match="MapBatches.* over 400 operators .* use materialize"):
        for _ in range(100):
            mapped = mapped.map_batches(lambda b: b)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda found, one: found.limit(30), 30),
        (lambda found, one: found.union(one), 60 + 394),
        (lambda found, one: found.limit(200).union(one), 60 + 140 + 1),
        (lambda found, one: one.union(found).limit(50), 50),
    ],
    ids=["limits", "unions", "both", "behind others"],
)
def test_as_many_limits_and_unions_run_as_maps(change, rows):
    """In the optimizer, the planner and the executor nothing calls itself for who is behind."""
    found, one = data.range(60).map(lambda row: row), data.range(1)
    while found._plan._depth < 396:
        found = change(found, one)
    assert "Dataset" in repr(found)
    assert found.count() == rows == len(found.take_all())
    assert found.schema().names == ["id"]
    found.explain()


def test_plans_that_share_operators_share_them_when_they_are_pickled(base):
    shared = base.filter(lambda row: True)
    both = pickle.loads(cloudpickle.dumps(shared.limit(5).union(shared.limit(3))))._plan
    assert both.inputs[0].inputs[0] is both.inputs[1].inputs[0]


def test_union_and_zip(base):
    assert ids(data.range(3).union(data.range(2), data.range(1))) == [0, 1, 2, 0, 1, 0]
    other = data.range(ROWS, override_num_blocks=7)
    assert base.zip(other).take(1) == [{"id": 0, "k": 0, "v": 0.0, "id_1": 0}]
    assert all(row["id"] == row["id_1"] for row in base.zip(other).take_all())
    with pytest.raises(ValueError, match="want equal numbers"):
        base.zip(data.range(3)).take_all()


def test_repartition(base):
    five = base.repartition(5).materialize()
    assert five.num_blocks() == 5 and ids(five) == list(range(ROWS))
    assert base.repartition(target_num_rows_per_block=300).materialize().num_blocks() == 7
    by_key = base.repartition(3, keys=["k"]).materialize()
    homes = [{row["k"] for row in part.take_all()} for part in _blocks(by_key)]
    assert sum(map(len, homes)) == 7 and len(homes) == 3


def _blocks(dataset):
    return [data.from_arrow(sheaf.get(ref)) for ref in dataset.to_arrow_refs()]


def test_sort(base):
    assert ids(base.sort("v", descending=True).limit(2)) == [ROWS - 1, ROWS - 2]
    rows = base.sort(["k", "id"], descending=[True, False]).take(2)
    assert [(row["k"], row["id"]) for row in rows] == [(6, 6), (6, 13)]
    assert ids(base.sort("k").limit(3)) == [0, 7, 14]  # Stable.
    with_null = data.from_items([{"id": 2}, {"id": None}, {"id": 1}])
    assert ids(with_null.sort("id")) == [1, 2, None] and ids(with_null.sort("id", True)) == [
        2,
        1,
        None,
    ]


def test_sort_of_more_than_fits_one_reducer(base):
    """Samples, bounds and partitions, as a small input goes without."""
    context = data.DataContext.get_current().copy()
    context.small_input_bytes = 0
    with data.DataContext.current(context):
        mixed = data.range(ROWS).random_shuffle(seed=5)
        assert ids(mixed.sort("id")) == list(range(ROWS))
        assert ids(mixed.sort("id", descending=True)) == list(range(ROWS))[::-1]
        words = mixed.map(lambda r: {"w": f"{r['id']:05}" if r["id"] else None})
        assert [r["w"] for r in words.sort("w").take_all()] == [
            *(f"{i:05}" for i in range(1, ROWS)),
            None,
        ]
        blocks = mixed.sort("id", boundaries=[500, 1000]).materialize()
        assert blocks.num_blocks() == 3
        totals = mixed.map(lambda r: {"k": r["id"] % 7, "v": r["id"]}).groupby("k").sum("v")
        assert sum(row["sum(v)"] for row in totals.take_all()) == ROWS * (ROWS - 1) // 2


def test_shuffle(base):
    one = ids(base.random_shuffle(seed=1))
    assert one != list(range(ROWS)) and sorted(one) == list(range(ROWS))
    assert ids(base.random_shuffle(seed=1)) == one != ids(base.random_shuffle(seed=2))
    assert sorted(ids(base.randomize_block_order(seed=3))) == list(range(ROWS))
    sample = ids(base.random_sample(0.1, seed=1))
    assert ids(base.random_sample(0.1, seed=1)) == sample and 100 < len(sample) < 300


def test_groups(base):
    frame = base.to_pandas()
    want = frame.groupby("k")["v"].agg(["sum", "mean", "min", "max", "std"])
    got = (
        base.groupby("k")
        .aggregate(
            aggregate.Count(),
            aggregate.Sum("v"),
            aggregate.Mean("v"),
            aggregate.Min("v"),
            aggregate.Max("v"),
            aggregate.Std("v"),
        )
        .to_pandas()
        .sort_values("k")
    )
    assert got["count()"].tolist() == frame.groupby("k").size().tolist()
    for name in ("sum", "mean", "min", "max", "std"):
        np.testing.assert_allclose(got[f"{name}(v)"], want[name])


def test_keys_of_all_kinds():
    rows = [{"a": a, "b": b} for a in (None, 0.0, -0.0, float("nan"), 1.5) for b in ("x", None)]
    count = data.from_items(rows * 3).groupby(["a", "b"]).count().take_all()
    assert sum(row["count()"] for row in count) == 30
    assert sorted(row["count()"] for row in count) == [3] * 6 + [6] * 2  # 0.0 and -0.0 are one.


def test_reductions(base):
    assert base.sum("id") == ROWS * (ROWS - 1) // 2 and base.max("v") == (ROWS - 1) / 2
    assert base.min(["id", "v"]) == {"min(id)": 0, "min(v)": 0.0}
    assert base.mean("id") == (ROWS - 1) / 2
    assert abs(base.std("id") - np.std(np.arange(ROWS), ddof=1)) < 1e-9
    assert base.unique("k") == list(range(7))
    total = aggregate.AggregateFn(
        init=lambda k: 0,
        accumulate_row=lambda a, r: a + r["id"],
        merge=lambda a, b: a + b,
        name="total",
    )
    assert base.aggregate(total) == {"total": ROWS * (ROWS - 1) // 2}
    assert base.groupby("k").aggregate(total).sum("total") == ROWS * (ROWS - 1) // 2


def test_map_groups(base):
    sizes = base.groupby("k").map_groups(lambda g: {"k": g["k"][:1], "n": [len(g["k"])]})
    assert {row["k"]: row["n"] for row in sizes.take_all()} == {
        k: len(range(k, ROWS, 7)) for k in range(7)
    }
    whole = base.groupby(None).map_groups(
        lambda df: pandas.DataFrame({"n": [len(df)]}), batch_format="pandas"
    )
    assert whole.take_all() == [{"n": ROWS}]
    kinds = {
        wanted: base.groupby(None).map_groups(lambda g: {"is": [type(g).__name__]}, **options)
        for wanted, options in (("DataFrame", {}), ("dict", {"batch_format": "numpy"}))
    }
    for wanted, made in kinds.items():
        assert made.take_all() == [{"is": wanted}]


@pytest.mark.parametrize(
    "kind, rows",
    [
        ("inner", 5),
        ("left_outer", 10),
        ("right_outer", 8),
        ("full_outer", 13),
        ("left_semi", 5),
        ("right_semi", 5),
        ("left_anti", 5),
        ("right_anti", 3),
    ],
)
def test_joins(kind, rows):
    left = data.range(10)
    right = data.from_items([{"id": i, "z": i * 2} for i in range(5, 13)])
    found = left.join(right, kind, 3, on=("id",)).take_all()
    assert len(found) == rows
    if kind == "inner":
        assert all(row["z"] == row["id"] * 2 for row in found)


def test_wrong_joins():
    one, other = data.range(3), data.from_items([{"id": "0"}])
    with pytest.raises(ValueError, match="join_type='outer': want one of"):
        one.join(other, "outer", 2)
    with pytest.raises(TypeError, match="'id' is int64 in the left side and string"):
        one.join(other, "inner", 1, on=("id",)).take_all()
    with pytest.raises(ValueError, match="want left_suffix or right_suffix"):
        rows = data.from_items([{"id": 1, "x": 2}])
        rows.join(rows, "inner", 1, on=("id",)).take_all()


def test_splits(base):
    assert [part.count() for part in base.split(3)] == [666, 667, 667]
    assert [part.count() for part in base.split(3, equal=True)] == [666] * 3
    assert [ids(part) for part in data.range(5).split_at_indices([1, 3])] == [[0], [1, 2], [3, 4]]
    assert [part.count() for part in base.split_proportionately([0.1, 0.2])] == [200, 400, 1400]
    train, test = base.train_test_split(0.25)
    assert ids(train) == list(range(1500)) and ids(test) == list(range(1500, ROWS))
    train, test = base.train_test_split(0.25, stratify="k")
    assert train.count() + test.count() == ROWS and len(test.unique("k")) == 7


@pytest.mark.parametrize(
    "wrong, error, said",
    [
        (lambda d: d.map(3), TypeError, "want a function"),
        (
            lambda d: d.map(lambda r: r, num_cpu=1),
            TypeError,
            "unexpected keyword argument 'num_cpu'; did you mean 'num_cpus'",
        ),
        (
            lambda d: d.map_batches(lambda b: b, batch_size=0),
            ValueError,
            "batch_size=0: want 1 or more",
        ),
        (
            lambda d: d.map_batches(lambda b: b, batch_format="csv"),
            ValueError,
            "batch_format='csv'",
        ),
        (lambda d: d.map(lambda r: r, concurrency=0), ValueError, "concurrency=0"),
        (lambda d: d.map(lambda r: r, fn_constructor_args=(1,)), ValueError, "want a class"),
        (lambda d: d.limit(-1), ValueError, "want 0 or more rows"),
        (lambda d: d.repartition(0), ValueError, "want 1 or more"),
        (lambda d: d.repartition(), ValueError, "want either num_blocks"),
        (lambda d: d.random_sample(2), ValueError, "want 0 to 1"),
        (lambda d: d.groupby("id", num_partitions=-1), ValueError, "num_partitions=-1"),
        (lambda d: d.split(0), ValueError, "want 1 part or more"),
        (lambda d: d.train_test_split(1.5), ValueError, "between 0 and 1"),
        (lambda d: d.take_all(2), ValueError, "more than 2 rows"),
        (lambda d: d.num_blocks(), NotImplementedError, "materialize"),
        (lambda d: list(d), TypeError, "iter_rows"),
        (
            lambda d: d.map(lambda r: r, num_gpus=1).take(1),
            Exception,
            "GPU: 1 wanted, 0 in the cluster",
        ),
        (lambda d: data.range(-1), ValueError, "range: n=-1"),
    ],
)
def test_wrong_use(wrong, error, said):
    with pytest.raises(error, match=said):
        wrong(data.range(10))


def test_a_dataset_pickles_into_a_task(base):
    @sheaf.remote(num_cpus=0)
    def total(dataset):
        return dataset.sum("id")

    assert sheaf.get(total.remote(base)) == ROWS * (ROWS - 1) // 2
    held = base.materialize()
    assert sheaf.get(total.remote(held)) == ROWS * (ROWS - 1) // 2


def test_references(base):
    frame = pandas.DataFrame({"a": [1, 2]})
    assert data.from_pandas_refs(sheaf.put(frame)).sum("a") == 3
    assert data.from_numpy_refs([sheaf.put(np.arange(3))]).take(1) == [{"data": 0}]
    assert data.from_arrow_refs(base.to_arrow_refs()).count() == ROWS
    assert sum(len(sheaf.get(ref)) for ref in base.to_pandas_refs()) == ROWS
    assert data.from_pandas([frame, frame]).num_blocks() == 2


def test_nothing_starts_for_small_tables():
    """Aggregates of a table in this process run here: no task, no actor."""
    frame = data.from_pandas(pandas.DataFrame({"k": np.arange(10_000) % 84, "v": 1.0}))
    means = frame.groupby("k").mean("v")
    assert means.count() == 84
    execution = means._execute()
    assert len(list(execution)) == 1 and execution.stats.operators[-1].tasks == 1
    assert not execution._running and not execution._calls


def test_stats_say_what_ran(base):
    held = base.materialize()
    assert "Operator 1 ReadRange->MapBatches(<lambda>): 4 tasks executed, 4 blocks" in held.stats()
    assert f"{ROWS} total" in held.stats()
    assert "num_rows=2000" in repr(held) and "id: int64" in repr(held)


@pytest.mark.parametrize("kind", ["left_outer", "full_outer", "left_semi", "right_anti", "inner"])
def test_joins_carry_columns_of_all_types(kind):
    both = {"v": [[1], None], "s": [{"a": 1}, {"a": 2}], "n": pa.nulls(2)}
    left = data.from_arrow(pa.table({"id": [1, 2], **both}))
    right = data.from_numpy(np.arange(4).reshape(2, 2)).zip(
        data.from_arrow(pa.table({"id": [2, 3], "v": [[5], [6]]}))
    )
    found = left.join(right, kind, 1, on=("id",), right_suffix="_r").sort("id").take_all()
    found = [
        {k: v.tolist() if k == "data" and v is not None else v for k, v in row.items()}
        for row in found
    ]
    a, b = ({"id": i + 1, **{k: v[i] for k, v in both.items()}, "n": None} for i in (0, 1))
    nothing = {"data": None, "v_r": None}
    matched, other = {**b, "data": [0, 1], "v_r": [5]}, {"id": 3, "data": [2, 3], "v_r": [6]}
    assert (
        found
        == {
            "inner": [matched],
            "left_outer": [{**a, **nothing}, matched],
            "full_outer": [{**a, **nothing}, matched, {"v": None, "s": None, "n": None, **other}],
            "left_semi": [b],
            "right_anti": [{"data": [2, 3], "id": 3, "v": [6]}],
        }[kind]
    )


def test_one_value_as_a_further_column():
    ds = data.range(2).add_column("x", lambda frame: 7).add_column("y", lambda frame: "ab")
    assert ds.take_all() == [{"id": 0, "x": 7, "y": "ab"}, {"id": 1, "x": 7, "y": "ab"}]


def test_the_share_to_test_with_is_rounded_up():
    train, test = data.range(10).train_test_split(0.25)
    assert (train.count(), test.count()) == (7, 3)
    assert data.range(10).train_test_split(0.3)[1].count() == 3


def test_folders_become_columns_of_text(tmp_path):
    (tmp_path / "y=2026").mkdir()
    (tmp_path / "y=2026" / "a.csv").write_text("x\n1\n")
    (tmp_path / "y=2026" / "a.json").write_text('{"x": 1}\n')
    for read, kind in ((data.read_csv, "csv"), (data.read_json, "json")):
        rows = read(str(tmp_path), file_extensions=[kind]).take_all()
        assert rows == [{"x": 1, "y": "2026"}]


def test_joins_by_nothing_but_null():
    left, right = data.from_arrow(pa.table({"id": pa.nulls(2)})), data.from_items([{"id": 1}])
    assert left.join(right, "inner", 1, on=("id",)).take_all() == []
    assert right.join(left, "left_outer", 1, on=("id",)).take_all() == [{"id": 1}]
    assert left.join(left, "left_anti", 1, on=("id",)).count() == 2


def test_a_join_knows_both_sides_in_every_partition():
    left = data.from_items([{"k": i, "a": i} for i in range(20)])
    other = data.from_items([{"k": i + 1000, "b": i} for i in range(20)])
    rows = left.join(other, "left_outer", 8, on=("k",)).take_all()
    assert sorted(row["k"] for row in rows) == list(range(20))
    assert all(row["b"] is None for row in rows)
    texts = data.from_items([{"k": "x", "b": 1}])
    with pytest.raises(errors.SchemaMismatchError, match="int64.*string"):
        left.join(texts, "inner", 8, on=("k",)).take_all()
    halves = data.from_items([{"k": i / 2, "b": i} for i in range(40)])
    assert left.join(halves, "inner", 8, on=("k",)).count() == 20


def test_aggregates_whose_names_clash_are_refused_before_anything_runs():
    rows = data.range(3).map(lambda row: 1 / 0)
    for aggregates, said in {
        (
            aggregate.Sum("id"),
            aggregate.Sum("id"),
        ): "Sum is named 'sum\\(id\\)', as another aggregate has",
        (
            aggregate.Sum("id", alias_name="k"),
        ): "Sum is named 'k', as a key has: want another alias_name",
    }.items():
        with pytest.raises(ValueError, match=said):
            rows.groupby("k").aggregate(*aggregates)


def test_what_is_made_has_the_schema_of_all_blocks_though_the_first_was_looked_at():
    def change(batch):
        first = batch["id"][0] == 0
        return {"x": pa.nulls(2) if first else [1.5, 2.5], **({} if first else {"y": batch["id"]})}

    rows = data.range(8, override_num_blocks=4).map_batches(change)
    assert rows.schema().names == ["x"]
    halves = rows.split(2)
    made = rows.materialize()
    for one in (made, *halves, rows, *rows.split_at_indices([2]), *made.train_test_split(0.5)):
        assert dict(zip(one.schema().names, one.schema().types)) == {
            "x": pa.float64(),
            "y": pa.int64(),
        }
    assert [row["y"] for row in made.sort("y").take_all()] == [2, 3, 4, 5, 6, 7, None, None]
    assert made.select_columns(["y"]).count() == 8 and list(made.to_pandas().columns) == ["x", "y"]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Methods of datasets beyond the first ones: queries, caching, mixing, summaries, frames of other
libraries, iterators that go on where they stood; and that each name of Ray Data is there."""

import itertools
import json
import pathlib
import sys
import types

import numpy as np
import pandas
import pyarrow
import pytest
import sheaf
from pyarrow import parquet
from sheaf import data
from sheaf.data import aggregate, errors, frames, not_built
from sheaf.data.datatype import DataType
from sheaf.data.frames import QueryError


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture(scope="module")
def rows():
    return data.range(100).map_batches(lambda b: {"id": b["id"], "k": b["id"] % 3}).materialize()


def ids(dataset):
    return [row["id"] for row in dataset.take_all()]


# SQL.


def test_queries(rows):
    pytest.importorskip("duckdb")
    found = data.sql("select k, count(*) as n, max(id) as m from t group by k order by k", t=rows)
    assert found.take_all() == [
        {"k": 0, "n": 34, "m": 99},
        {"k": 1, "n": 33, "m": 97},
        {"k": 2, "n": 33, "m": 98},
    ]
    names = data.from_items([{"k": 0, "name": "zero"}, {"k": 2, "name": "two"}])
    joined = data.sql(
        "select id, name from a join b using (k) where id < 4 order by id", a=rows, b=names
    )
    assert [(row["id"], row["name"]) for row in joined.take_all()] == [
        (0, "zero"),
        (2, "two"),
        (3, "zero"),
    ]
    assert data.sql("select a.id from t a, t b where a.id = b.id", t=rows).count() == 100
    assert data.sql("select 1 as x").take_all() == [{"x": 1}]
    assert data.sql("select id from t where id < 0", t=rows).schema().names == ["id"]


def test_a_query_reads_the_columns_that_it_names(tmp_path):
    pytest.importorskip("duckdb")
    wide = pyarrow.table({f"c{k}": [k, k + 1] for k in range(20)})
    parquet.write_table(wide, tmp_path / "wide.parquet")
    rows = data.read_parquet(str(tmp_path))
    for query, wanted in [
        ("select sum(c3) from t where c5 > 5", ["c3", "c5"]),
        ("select count(*) from t", ["c0"]),
        ("select a.c1 from t a join t b on a.c2 = b.c2", ["c1", "c2"]),
        ("select * from t", wide.column_names),
    ]:
        assert frames._columns_of_query(query, {"t": rows}) == [wanted]
    assert data.sql("select sum(c3) as s from t where c5 > 5", t=rows).take_all() == [{"s": 4}]


@pytest.mark.parametrize(
    "query, match",
    [
        ("select idd from t", "idd"),
        ("select id from nothing_there", "nothing_there"),
        ("selct id from t", "syntax error"),
        ("create table x (a int)", "gives no rows"),
        ("select 1; create table x (a int)", "gives no rows"),
    ],
)
def test_queries_that_are_wrong(rows, query, match):
    pytest.importorskip("duckdb")
    with pytest.raises(QueryError, match=match):
        data.sql(query, t=rows)


def test_a_query_over_something_else():
    with pytest.raises(TypeError, match="sql: t=3: want a Dataset"):
        data.sql("select 1", t=3)


# Caching, and plans.


def test_cached_blocks_are_made_once(tmp_path):
    def made(batch):
        (tmp_path / str(len(list(tmp_path.iterdir())))).touch()
        return batch

    source = data.range(10, override_num_blocks=1).map_batches(made)
    cached = source.cache()
    assert cached.sum("id") == 45 and ids(cached) == list(range(10))
    assert len(list(tmp_path.iterdir())) == 1
    again = cached.unpersist()
    assert again is source and again.count() == 10
    assert ids(cached) == list(range(10)) and len(list(tmp_path.iterdir())) == 3
    assert source.unpersist() is source


def test_caching_that_is_not_there():
    with pytest.raises(ValueError, match="level='ram': want one of"):
        data.range(3).cache("ram")
    with pytest.raises(NotImplementedError, match="only level='disk' keeps copies"):
        data.range(3).cache(replicas=2)


def test_plans_as_bytes():
    source = data.range(10).map(lambda row: {"id": row["id"] + 1})
    assert source.has_serializable_lineage()
    assert ids(data.Dataset.deserialize_lineage(source.serialize_lineage())) == list(range(1, 11))
    with pytest.raises(ValueError, match="the plan holds blocks of this cluster"):
        data.from_items([1]).serialize_lineage()
    assert ids(data.Dataset.copy(source)) == ids(source)


# By chance.


def test_mixing_keeps_to_weights():
    ones = data.from_items([{"x": 1}] * 8, override_num_blocks=8)
    twos = data.from_items([{"x": 2}] * 4, override_num_blocks=4)
    mixed = [row["x"] for row in ones.mix(twos, weights=[2, 1]).take_all()]
    assert len(mixed) == 12 and all(mixed[at : at + 3].count(2) == 1 for at in range(0, 12, 3))
    condition = data.MixStoppingCondition.STOP_ON_SHORTEST
    short = ones.mix(twos.limit(2), weights=[2, 1], stopping_condition=condition)
    assert sorted(row["x"] for row in short.take_all()) == [1, 1, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="3 weights for 2 datasets"):
        ones.mix(twos, weights=[1, 1, 1])
    with pytest.raises(ValueError, match="want numbers above 0"):
        ones.mix(twos, weights=[1, 0])


def test_streaming_train_test_split(rows):
    train, test = rows.streaming_train_test_split(0.25, seed=3)
    assert sorted(ids(train) + ids(test)) == list(range(100)) and 10 < test.count() < 40
    train, test = rows.streaming_train_test_split(0.5, split_type="hash", hash_column="k")
    assert {row["k"] for row in train.take_all()}.isdisjoint(row["k"] for row in test.take_all())
    with pytest.raises(ValueError, match="hash_column goes with"):
        rows.streaming_train_test_split(0.5, split_type="hash")


def test_seeds():
    fixed = data.range(50).random_shuffle(seed=data.RandomSeedConfig(1, False))
    assert ids(fixed) == ids(fixed)
    anew = data.range(50).random_shuffle(seed=data.RandomSeedConfig(1))
    first, second = ids(anew), ids(anew)
    assert first != second and sorted(first) == sorted(second)
    twin = data.range(50).random_shuffle(seed=data.RandomSeedConfig(1))
    assert [ids(twin), ids(twin)] == [first, second]
    with pytest.raises(TypeError, match="seed='x': want a whole number"):
        data.range(3).random_shuffle(seed="x")


# What it holds.


def test_summary():
    source = data.from_items(
        [
            {"age": 25, "name": "a", "l": [1]},
            {"age": 30, "name": None, "l": [2]},
            {"age": 0, "name": "a", "l": None},
        ]
    )
    summary = source.summary()
    age = dict(summary.get_column_stats("age").itertuples(index=False))
    assert age["mean"] == pytest.approx(55 / 3) and age["std"] == pytest.approx(16.0727512683)
    assert (age["min"], age["max"], age["count"], age["approx_quantile[0]"]) == (0, 30, 3, 25)
    assert age["zero_pct"] == pytest.approx(100 / 3)
    name = dict(summary.get_column_stats("name").itertuples(index=False))
    assert name == {
        "count": 2,
        "missing_pct": pytest.approx(100 / 3),
        "approx_topk[0]": {"name": "a", "count": 2},
    }
    assert "missing_pct" in summary.to_pandas()["statistic"].tolist()
    mine = {DataType.int64(): lambda column: [aggregate.Sum(column)]}
    only = source.summary(["age"], override_dtype_agg_mapping=mine)
    assert only.statistics == {"age": {"sum": 55}}
    with pytest.raises(errors.ColumnNotFoundError, match="did you mean 'age'"):
        source.summary(["agee"])


def test_the_most_frequent_values():
    source = data.from_items([{"x": x} for x in "abacab"], override_num_blocks=3)
    assert source.aggregate(aggregate.ApproximateTopK("x", 2)) == {
        "approx_topk(x)": [{"x": "a", "count": 3}, {"x": "b", "count": 2}]
    }


def test_types():
    assert DataType.int64().to_arrow_dtype() == pyarrow.int64()
    assert DataType.from_numpy("float32").to_arrow_dtype() == pyarrow.float32()
    assert DataType.string().is_string_type() and DataType.list(DataType.int8()).is_list_type()
    assert (
        DataType.int64() == DataType(pyarrow.int64())
        and repr(DataType(int)) == "DataType(python:int)"
    )
    from sheaf.data.expressions import col

    cast = data.range(2).with_column("f", col("id").cast(DataType.float32()))
    assert cast.schema().types[1] == pyarrow.float32()
    with pytest.raises(TypeError, match="want a type of Arrow"):
        DataType(3)


# Tensors.


def test_torch_pairs(rows):
    torch = pytest.importorskip("torch")
    features, label = next(iter(rows.to_torch(label_column="k", batch_size=4)))
    assert features.tolist() == [[0], [1], [2], [3]] and label.tolist() == [[0], [1], [2], [0]]
    both = rows.to_torch(
        feature_columns={"a": ["id", "k"]}, feature_column_dtypes=torch.float32, batch_size=2
    )
    features, label = next(iter(both))
    assert features["a"].tolist() == [[0.0, 0.0], [1.0, 1.0]] and label is None


@pytest.mark.skipif("tensorflow" in sys.modules, reason="tensorflow is here")
def test_libraries_that_are_not_here(rows, monkeypatch):
    for name in ("tensorflow", "jax", "jax.numpy", "dask", "dask.dataframe", "modin", "daft"):
        monkeypatch.setitem(sys.modules, name, None)
    for use, name in (
        (lambda: rows.iter_tf_batches(), "tensorflow"),
        (lambda: rows.to_tf("id", "k"), "tensorflow"),
        (lambda: rows.iter_jax_batches(), "jax"),
        (lambda: rows.to_dask(), "dask"),
        (lambda: rows.to_modin(), "modin"),
        (lambda: rows.to_daft(), "daft"),
    ):
        with pytest.raises(ImportError, match=f"pip install {name}"):
            use()


def test_frames_of_other_libraries():
    frame = pandas.DataFrame({"id": [1, 2]})
    assert ids(data.from_modin(types.SimpleNamespace(_to_pandas=lambda: frame))) == [1, 2]
    table = pyarrow.table({"id": [3]})
    assert ids(data.from_daft(types.SimpleNamespace(to_arrow=lambda: table))) == [3]
    elements = types.SimpleNamespace(as_numpy_iterator=lambda: iter([{"id": np.int64(4)}]))
    assert ids(data.from_tf(elements)) == [4]


# Iterators.


@pytest.mark.parametrize(
    "shuffle", [{}, {"local_shuffle_buffer_size": 20, "local_shuffle_seed": 1}]
)
def test_an_iterator_goes_on_where_another_stood(rows, shuffle):
    def batches(iterator):
        return iterator.iter_batches(batch_size=8, **shuffle)

    whole = [batch["id"].tolist() for batch in batches(rows.iterator())]
    first = rows.iterator()
    seen = []
    for batch in batches(first):
        seen.append(batch["id"].tolist())
        if len(seen) == 5:
            break
    state = json.loads(json.dumps(first.state_dict()))
    second = data.Dataset.copy(rows).iterator()
    second.load_state_dict(state)
    rest = [batch["id"].tolist() for batch in batches(second)]
    assert seen + rest == whole
    assert second.state_dict()["rows"] == 0
    assert [batch["id"].tolist() for batch in batches(second)] == whole


def test_rows_go_on_where_another_iterator_stood(rows):
    first = rows.iterator()
    seen = [row["id"] for row in itertools.islice(first.iter_rows(), 33)]
    second = rows.iterator()
    second.load_state_dict(first.state_dict())
    assert seen + [row["id"] for row in second.iter_rows()] == list(range(100))


def test_iterators_of_one_dataset_keep_their_own_places(rows):
    first, second = rows.iterator(), rows.iterator()
    first.load_state_dict({"version": 1, "rows": 90})
    assert len(list(second.iter_rows())) == 100 and len(list(first.iter_rows())) == 10
    list(itertools.islice(first.iter_rows(), 7))
    list(rows.iter_rows())
    assert first.state_dict()["rows"] == 7


def test_iterators_that_cannot_go_on(rows):
    with pytest.raises(ValueError, match="want what state_dict gave"):
        rows.iterator().load_state_dict({"rows": -1})
    (one,) = rows.streaming_split(1)
    with pytest.raises(NotImplementedError, match="streaming_split get other rows"):
        one.load_state_dict({"version": 1, "rows": 3})


# Names.


@pytest.mark.parametrize("name", sorted(not_built.FUNCTIONS))
def test_functions_that_are_not_there_say_what_to_use(name):
    with pytest.raises(NotImplementedError, match="is not in Sheaf: (use|write)"):
        getattr(data, name)()


@pytest.mark.parametrize("name", sorted(not_built.METHODS))
def test_methods_that_are_not_there_say_what_to_use(name, rows):
    with pytest.raises(NotImplementedError, match="is not in Sheaf: (use|write|sort)"):
        getattr(rows, name)()


def test_each_name_of_ray_is_there():
    names = json.loads((pathlib.Path(__file__).parent / "ray_names.json").read_text())
    owners = {
        "data": data,
        "Dataset": data.Dataset,
        "DataIterator": data.DataIterator,
        "GroupedData": data.GroupedData,
        "Schema": data.Schema,
        "preprocessors": data.preprocessors,
        "aggregate": aggregate,
        "expressions": data.expressions,
    }
    missing = {
        owner: [name for name in names[owner] if not hasattr(found, name)]
        for owner, found in owners.items()
    }
    assert not any(missing.values()), missing


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda d: d.iter_batches(batchsize=3), "'batchsize'; did you mean 'batch_size'?"),
        (lambda d: d.take(limt=3), "'limt'; did you mean 'limit'?"),
        (lambda d: d.sort("id", descend=True), "'descend'; did you mean 'descending'?"),
        (
            lambda d: d.groupby("k").sum(ignore_null=True),
            "'ignore_null'; did you mean 'ignore_nulls'?",
        ),
        (
            lambda d: d.map_batches(lambda b: b, batchsize=3),
            "'batchsize'; did you mean 'batch_size'?",
        ),
        (lambda d: d.map(lambda r: r, num_cpu=1), "'num_cpu'; did you mean 'num_cpus'?"),
        (lambda d: d.random_shuffle(sed=1), "'sed'"),
    ],
)
def test_keywords_that_nothing_takes(rows, use, said):
    with pytest.raises(TypeError) as caught:
        use(rows)
    assert f"unexpected keyword argument {said}" in str(caught.value)

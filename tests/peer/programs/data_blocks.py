# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks of ray.data: how they are cut, split, shuffled and handed on."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
from datasets import blocks, data, fails, plain, rows, tables
from program import main, program, say


def ids(ds):
    return [row["id"] for row in ds.take_all()]


def table(**columns):
    return data.from_arrow(pa.table(columns))


@program
def other_numbers_of_blocks():
    ds = data.range(10, override_num_blocks=2)
    blocks(ds.repartition(5))
    blocks(ds.repartition(1))
    say(ids(ds.repartition(3)))
    fails(lambda: ds.repartition(0).take_all())
    fails(lambda: ds.repartition(-1).take_all())
    fails(lambda: ds.repartition().take_all())


@program
def blocks_of_equal_rows():
    ds = data.range(12, override_num_blocks=2)
    made = ds.repartition(target_num_rows_per_block=3).materialize()
    say(made.count(), max(one.num_rows for one in tables(made)))
    fails(lambda: ds.repartition(target_num_rows_per_block=0).take_all())
    fails(lambda: ds.repartition(2, target_num_rows_per_block=3).take_all())


@program
def shuffled_blocks():
    ds = data.range(20, override_num_blocks=2).repartition(4, shuffle=True).materialize()
    say(ds.num_blocks(), sorted(ids(ds)) == list(range(20)))


@program
def blocks_by_keys():
    ds = table(k=[1, 2, 3, 1, 2, 3, 1], v=list(range(7))).repartition(2, keys=["k"])
    homes = {}
    made = ds.materialize()
    for number, one in enumerate(tables(made)):
        for key in one.column("k").to_pylist():
            homes.setdefault(key, set()).add(number)
    say(made.num_blocks(), made.count(), all(len(home) == 1 for home in homes.values()))


@program
def more_blocks_than_rows():
    made = data.range(2, override_num_blocks=1).repartition(4).materialize()
    say(sorted(one.num_rows for one in tables(made)), made.num_blocks())


@program
def random_orders():
    ds = data.range(30, override_num_blocks=2)
    first, again = ids(ds.random_shuffle(seed=1)), ids(ds.random_shuffle(seed=1))
    say(first == again, sorted(first) == list(range(30)), first != list(range(30)))
    say(ids(ds.random_shuffle(seed=2)) != first)
    say(sorted(ids(ds.random_shuffle())) == list(range(30)))


@program
def random_orders_of_blocks():
    ds = data.range(12, override_num_blocks=4).randomize_block_order(seed=3)
    found = ids(ds)
    say(sorted(found) == list(range(12)))
    say(all(found[k + 1] == found[k] + 1 for k in range(0, 12, 3)))


@program
def samples():
    ds = data.range(1000, override_num_blocks=2)
    count = ds.random_sample(0.5, seed=1).count()
    say(300 < count < 700, ds.random_sample(0.0).count(), ds.random_sample(1.0).count())
    fails(lambda: ds.random_sample(1.5))
    fails(lambda: ds.random_sample(-0.1))


@program
def parts():
    ds = data.range(10, override_num_blocks=5)
    say([part.count() for part in ds.split(2)])
    say([part.count() for part in ds.split(5)])
    say([ids(part) for part in ds.split(3, equal=True)])
    fails(lambda: ds.split(0))
    fails(lambda: ds.split(-1))


@program
def more_parts_than_rows():
    say(sorted(part.count() for part in data.range(2, override_num_blocks=2).split(4)))
    say([part.count() for part in data.range(2).split(3, equal=True)])


@program
def parts_at_indices():
    ds = data.range(10, override_num_blocks=3)
    say([ids(part) for part in ds.split_at_indices([2, 7])])
    say([part.count() for part in ds.split_at_indices([0, 10, 20])])
    fails(lambda: ds.split_at_indices([]))
    fails(lambda: ds.split_at_indices([5, 2]))
    fails(lambda: ds.split_at_indices([-1]))


@program
def parts_by_shares():
    ds = data.range(10, override_num_blocks=2)
    say([part.count() for part in ds.split_proportionately([0.2, 0.5])])
    fails(lambda: ds.split_proportionately([]))
    fails(lambda: ds.split_proportionately([0.5, 0.5]))
    fails(lambda: ds.split_proportionately([-0.5]))
    fails(lambda: ds.split_proportionately([0.8, 0.4]))


@program
def parts_to_train_and_test():
    ds = data.range(10, override_num_blocks=2)
    train, test = ds.train_test_split(0.3)
    say(ids(train), ids(test))
    train, test = ds.train_test_split(4)
    say(ids(train), ids(test))
    train, test = ds.train_test_split(0.25, shuffle=True, seed=1)
    say(train.count(), test.count(), sorted(ids(train) + ids(test)) == list(range(10)))


@program
def wrong_parts_to_train():
    ds = data.range(10)
    for wrong in (0.0, 1.0, 1.5, -0.5, 0, -3, 11, "x"):
        fails(lambda wrong=wrong: ds.train_test_split(wrong))


@program
def parts_with_equal_shares_of_labels():
    ds = table(y=["a"] * 8 + ["b"] * 4, v=list(range(12)))
    train, test = ds.train_test_split(0.25, stratify="y")
    say(sorted(row["y"] for row in test.take_all()))
    say(sorted(row["y"] for row in train.take_all()))


@program
def streams_of_parts():
    ds = data.range(12, override_num_blocks=4)
    parts = ds.streaming_split(2, equal=True)

    @ray.remote
    def consume(part):
        return [int(i) for batch in part.iter_batches(batch_size=None) for i in batch["id"]]

    found = ray.get([consume.remote(part) for part in parts])
    say([len(one) for one in found], sorted(sum(found, [])) == list(range(12)))


@program
def streams_of_parts_begin_anew():
    (part,) = data.range(6, override_num_blocks=2).streaming_split(1)
    for _ in range(2):
        say(sorted(int(i) for batch in part.iter_batches() for i in batch["id"]))


@program
def materialized():
    calls = data.range(4, override_num_blocks=2).map(lambda row: {"v": np.random.rand()})
    made = calls.materialize()
    say(made.take_all() == made.take_all(), type(made).__name__, made.num_blocks(), made.count())
    say(isinstance(made, data.Dataset), made.map(lambda row: {"x": 1}).count())


@program
def what_is_known_before():
    ds = data.range(10)
    say(ds.count(), ds.schema().names, ds.size_bytes() > 0)
    fails(lambda: ds.num_blocks())
    say(ds.map(lambda row: row).count())


@program
def schemas():
    schema = data.range(2).schema()
    say(schema.names, [str(t) for t in schema.types], type(schema).__name__)
    say(schema == data.range(3).schema())
    say(data.range(2).map(lambda row: {"x": "a"}).schema().names)
    say(data.range(2).map(lambda row: {"x": "a"}).schema(fetch_if_missing=False))
    say(str(schema.base_schema))


@program
def words_about_datasets():
    ds = data.range(3)
    say(type(ds).__name__, "id" in repr(ds), "3" in repr(ds))
    ds.set_name("mine")
    say(ds.name, isinstance(ds.stats(), str))
    made = ds.map(lambda row: row).materialize()
    say("Map" in made.stats(), "rows" in made.stats())


@program
def references_to_blocks():
    ds = data.range(4, override_num_blocks=2)
    say([plain(ray.get(ref)) for ref in ds.to_arrow_refs()])
    say([plain(ray.get(ref)) for ref in ds.to_pandas_refs()])
    say([plain(ray.get(ref)) for ref in ds.to_numpy_refs()])
    say([plain(ray.get(ref)) for ref in ds.to_numpy_refs(column="id")])


@program
def as_a_data_frame():
    ds = data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": None}], override_num_blocks=1)
    frame = ds.to_pandas()
    say(plain(frame), frame.dtypes["a"].name, frame.index.tolist())
    fails(lambda: ds.to_pandas(limit=1))
    say(data.range(0).to_pandas().shape)


@program
def datasets_in_tasks():
    @ray.remote
    def count(ds):
        return ds.map(lambda row: {"v": row["id"] + 1}).sum("v")

    say(ray.get(count.remote(data.range(4))))

    @ray.remote
    class Holder:
        def __init__(self, ds):
            self.ds = ds

        def rows(self):
            return self.ds.take_all()

    say(ray.get(Holder.remote(data.range(2)).rows.remote()))


@program
def datasets_are_pickled():
    import cloudpickle

    ds = data.range(3).map(lambda row: {"v": row["id"] * 2})
    rows(pickle.loads(cloudpickle.dumps(ds)))


@program
def two_branches_of_one_dataset():
    ds = data.range(4, override_num_blocks=1)
    a, b = ds.map(lambda row: {"v": row["id"]}), ds.map(lambda row: {"v": -row["id"]})
    say(a.sum("v"), b.sum("v"), ds.count())
    rows(a.union(b).sort("v"))


@program
def frames_of_blocks():
    frame = pd.DataFrame({"id": [1, 2, 3]})
    say(plain(data.from_pandas(frame).map_batches(lambda f: f, batch_format="pandas").to_pandas()))


main()

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Batches of ray.data: map_batches in tasks and actors, and iterators over rows and batches."""

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
from datasets import data, fails, kinds_of, plain, rows
from program import main, program, say


def sizes(ds, **options):
    """Says how many rows the batches have."""
    say([len(batch["id"]) for batch in ds.iter_batches(**options)])


@program
def arrays_are_the_default():
    def look(batch):
        return {"kind": [type(batch).__name__], "value": [type(batch["id"]).__name__]}

    rows(data.range(3, override_num_blocks=1).map_batches(look))
    rows(data.range(3, override_num_blocks=1).map_batches(look, batch_format="numpy"))
    rows(data.range(3, override_num_blocks=1).map_batches(look, batch_format="pandas"))
    rows(data.range(3, override_num_blocks=1).map_batches(look, batch_format="pyarrow"))


@program
def what_batches_are_made_of():
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "f": [0.5, None],
            "s": ["a", None],
            "b": [True, None],
            "l": [[1, 2], [3]],
            "e": [[1, 2], [3, 4]],
            "d": [{"x": 1}, {"x": 2}],
        }
    )
    batch = data.from_arrow(table).take_batch(2)
    for name, column in batch.items():
        say(name, plain(column))
    batch = data.from_arrow(table).take_batch(2, batch_format="pandas")
    say(type(batch).__name__, batch.columns.tolist(), len(batch))


@program
def batch_sizes():
    def count(batch):
        return {"rows": [len(batch["id"])]}

    ds = data.range(10, override_num_blocks=1)
    rows(ds.map_batches(count, batch_size=4))
    rows(ds.map_batches(count, batch_size=None))
    rows(ds.map_batches(count, batch_size=100))
    rows(data.range(10, override_num_blocks=2).map_batches(count, batch_size=None))


@program
def batches_of_wrong_sizes():
    fails(lambda: data.range(3).map_batches(lambda b: b, batch_size=0).take_all())
    fails(lambda: data.range(3).map_batches(lambda b: b, batch_size=-1).take_all())
    fails(lambda: list(data.range(3).iter_batches(batch_size=0)))
    fails(lambda: data.range(3).map_batches(lambda b: b, batch_format="xml").take_all(), "xml")
    fails(lambda: list(data.range(3).iter_batches(batch_format="xml")), "xml")


@program
def batches_of_several_kinds_come_back():
    ds = data.range(2, override_num_blocks=1)
    rows(ds.map_batches(lambda b: {"x": b["id"] * 2}))
    rows(ds.map_batches(lambda b: {"x": [1, 2, 3]}))
    rows(ds.map_batches(lambda b: pd.DataFrame({"x": [1.5]})))
    rows(ds.map_batches(lambda b: pa.table({"x": ["a"]})))
    rows(ds.map_batches(lambda b: {"x": np.zeros((2, 3), np.int8)}))
    rows(ds.map_batches(lambda b: {"x": [np.zeros(1), np.zeros(2)]}))
    rows(ds.map_batches(lambda b: {"x": b["id"], "y": ["a", None]}))


@program
def batches_that_cannot_be():
    ds = data.range(2, override_num_blocks=1)
    for wrong in (None, 5, [1, 2], "text"):
        fails(lambda wrong=wrong: ds.map_batches(lambda b: wrong).take_all())
    fails(lambda: ds.map_batches(lambda b: {"x": 5}).take_all())
    fails(lambda: ds.map_batches(lambda b: {"x": [1], "y": [1, 2]}).take_all())


@program
def empty_batches():
    ds = data.range(4, override_num_blocks=2)
    rows(ds.map_batches(lambda b: {"id": b["id"][:0]}))
    rows(ds.map_batches(lambda b: {"id": b["id"][b["id"] > 2]}))
    say(ds.map_batches(lambda b: {}).count())
    rows(data.range(0).map_batches(lambda b: {"x": b["id"]}))


@program
def generators_of_batches():
    def parts(batch):
        for number in batch["id"]:
            yield {"n": np.array([number, number])}

    rows(data.range(3, override_num_blocks=1).map_batches(parts))


@program
def fewer_rows_more_rows():
    rows(data.range(4, override_num_blocks=1).map_batches(lambda b: {"n": np.repeat(b["id"], 2)}))


@program
def arguments_of_functions():
    def change(batch, a, b=0, *, c):
        return {"v": batch["id"] * a + b + c}

    ds = data.range(2, override_num_blocks=1)
    rows(ds.map_batches(change, fn_args=(10, 1), fn_kwargs={"c": 5}))
    rows(ds.map_batches(change, fn_args=(10,), fn_kwargs={"c": 5, "b": 2}))


@program
def references_are_arguments():
    ref = ray.put(np.array([100]))
    ds = data.range(2, override_num_blocks=1)
    rows(ds.map_batches(lambda b, added: {"v": b["id"] + ray.get(added)}, fn_args=(ref,)))


class Counter:
    def __init__(self, start=0):
        self.calls = start

    def __call__(self, batch):
        self.calls += 1
        return {"call": np.full(len(batch["id"]), self.calls)}


@program
def actors_keep_their_state():
    ds = data.range(6, override_num_blocks=3)
    rows(ds.map_batches(Counter, concurrency=1, batch_size=None))
    rows(ds.map_batches(Counter, concurrency=1, fn_constructor_kwargs={"start": 10}))


@program
def a_strategy_of_actors():
    ds = data.range(4, override_num_blocks=2)
    rows(ds.map_batches(Counter, compute=data.ActorPoolStrategy(size=1)))
    many = ds.map_batches(Counter, compute=data.ActorPoolStrategy(min_size=1, max_size=2))
    say(many.count())


@program
def a_pair_is_a_pool_that_grows():
    say(data.range(4).map_batches(Counter, concurrency=(1, 2)).count())


@program
def a_strategy_of_tasks():
    ds = data.range(4, override_num_blocks=4)
    strategy = data.TaskPoolStrategy(size=2)
    rows(ds.map_batches(lambda b: b, compute=strategy))
    rows(ds.map_batches(lambda b: b, concurrency=1))


@program
def mistakes_about_classes():
    ds = data.range(2)
    fails(lambda: ds.map_batches(Counter(), concurrency=1, fn_constructor_args=[1]))
    fails(lambda: ds.map_batches(lambda b: b, fn_constructor_args=[1]))
    fails(lambda: ds.map_batches(5))
    fails(lambda: ds.map_batches(Counter, concurrency=0))
    fails(lambda: ds.map_batches(Counter, concurrency=(2, 1)))
    fails(lambda: ds.map_batches(Counter, concurrency="many"))
    fails(lambda: data.ActorPoolStrategy(size=0))
    fails(lambda: data.ActorPoolStrategy(min_size=3, max_size=1))
    fails(lambda: data.ActorPoolStrategy(size=1, min_size=1))
    fails(lambda: data.TaskPoolStrategy(size=0))


@program
def an_object_that_can_be_called():
    class Adds:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, batch):
            return {"v": batch["id"] + self.amount}

    fails(lambda: data.range(2, override_num_blocks=1).map_batches(Adds(1)).take_all())


@program
def a_constructor_that_fails():
    class Bad:
        def __init__(self):
            raise ValueError("no such model")

        def __call__(self, batch):
            return batch

    fails(lambda: data.range(2).map_batches(Bad, concurrency=1).take_all(), "no such model")


@program
def functions_that_wait():
    import asyncio

    class Waits:
        async def __call__(self, batch):
            await asyncio.sleep(0.01)
            return {"v": batch["id"] + 1}

    ds = data.range(4, override_num_blocks=1).map_batches(Waits, concurrency=1, batch_size=2)
    rows(ds, ordered=False)


@program
def generators_that_wait():
    class Waits:
        async def __call__(self, batch):
            for number in batch["id"]:
                yield {"v": np.array([number])}

    rows(
        data.range(3, override_num_blocks=1).map_batches(Waits, concurrency=1, batch_size=3),
        ordered=False,
    )


@program
def rows_of_actors():
    class Tag:
        def __init__(self):
            self.seen = 0

        def __call__(self, row):
            self.seen += 1
            return {"seen": self.seen}

    class Twice:
        def __call__(self, row):
            return [row, row]

    class Even:
        def __call__(self, row):
            return row["id"] % 2 == 0

    ds = data.range(4, override_num_blocks=1)
    rows(ds.map(Tag, concurrency=1))
    rows(ds.flat_map(Twice, concurrency=1).limit(3))
    rows(ds.filter(Even, concurrency=1))


@program
def views_cannot_be_written():
    def change(batch):
        batch["id"][0] = 7
        return batch

    ds = data.range(2, override_num_blocks=1)
    fails(lambda: ds.map_batches(change, zero_copy_batch=True).take_all())
    rows(ds.map_batches(change, zero_copy_batch=False))


@program
def errors_of_functions():
    def fail(batch):
        raise KeyError("what the user wrote")

    fails(lambda: data.range(2).map_batches(fail).take_all(), "what the user wrote", "KeyError")
    try:
        data.range(2).map_batches(fail).take_all()
    except KeyError:
        say("a KeyError")
    except Exception as error:
        say(isinstance(error, ray.exceptions.RayTaskError), isinstance(error.cause, Exception))


@program
def some_blocks_may_fail():
    context = data.DataContext.get_current()
    context.max_errored_blocks = 1

    def fail(row):
        if row["id"] == 0:
            raise ValueError
        return row

    try:
        rows(data.range(3, override_num_blocks=3).map(fail), ordered=False)
    finally:
        context.max_errored_blocks = 0


@program
def iterators_over_rows():
    ds = data.range(3)
    say([row["id"] for row in ds.iter_rows()])
    say([row["id"] for row in ds.iter_rows()])
    it = iter(ds.iter_rows())
    say(next(it), next(it))
    say(list(data.range(0).iter_rows()))


@program
def iterators_over_batches():
    ds = data.range(10, override_num_blocks=3)
    sizes(ds, batch_size=4)
    sizes(ds, batch_size=4, drop_last=True)
    sizes(ds, batch_size=None)
    sizes(ds)
    sizes(ds, batch_size=10, prefetch_batches=0)
    say([plain(b) for b in ds.iter_batches(batch_size=5)])


@program
def formats_of_iterators():
    ds = data.range(2, override_num_blocks=1)
    for name in ("default", "numpy", "pandas", "pyarrow"):
        say(name, plain(next(iter(ds.iter_batches(batch_format=name)))))
    say([type(b).__name__ for b in ds.iter_batches(batch_format=None)])


@program
def batches_across_blocks():
    ds = data.range(9, override_num_blocks=3)
    say([b["id"].tolist() for b in ds.iter_batches(batch_size=2)])


@program
def local_shuffles():
    ds = data.range(20, override_num_blocks=1)
    batches = list(
        ds.iter_batches(batch_size=5, local_shuffle_buffer_size=20, local_shuffle_seed=1)
    )
    say(sorted(int(i) for b in batches for i in b["id"]), [len(b["id"]) for b in batches])
    fails(lambda: len(list(ds.iter_batches(batch_size=5, local_shuffle_buffer_size=2))))


@program
def an_iterator_of_its_own():
    it = data.range(4, override_num_blocks=1).iterator()
    say([b["id"].tolist() for b in it.iter_batches(batch_size=3)])
    say([row["id"] for row in it.iter_rows()])
    say(it.schema().names, it.materialize().count())
    say(isinstance(it, data.DataIterator))


@program
def leaving_a_loop():
    ds = data.range(1000, override_num_blocks=10)
    for batch in ds.iter_batches(batch_size=10):
        say(batch["id"].tolist())
        break
    say(ds.count())


@program
def a_dataset_is_no_iterator():
    fails(lambda: list(data.range(2)))
    fails(lambda: len(data.range(2)))
    fails(lambda: data.range(2)[0])


@program
def a_batch_in_the_middle_of_a_pipeline():
    ds = (
        data.range(8, override_num_blocks=2)
        .map_batches(lambda b: {"v": b["id"] * 2}, batch_size=3)
        .filter(lambda row: row["v"] > 4)
        .map_batches(lambda t: t.append_column("w", t["v"]), batch_format="pyarrow")
    )
    rows(ds)
    kinds_of(ds)


@program
def strings_and_objects_of_batches():
    ds = data.from_items([{"s": "a"}, {"s": "bcd"}], override_num_blocks=1)
    rows(ds.map_batches(lambda b: {"n": [len(s) for s in b["s"]], "kind": [b["s"].dtype.name] * 2}))
    rows(ds.map_batches(lambda b: {"u": np.array([s.upper() for s in b["s"]])}))
    rows(ds.map_batches(lambda b: {"o": np.array([{"x": 1}, None], dtype=object)}))


@program
def two_consumers():
    ds = data.range(4, override_num_blocks=1)
    a, b = iter(ds.iter_rows()), iter(ds.iter_rows())
    say(next(a), next(b), next(a), next(b))


main()

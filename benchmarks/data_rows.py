# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The rows of bench_data.py, for any package that has the names of Ray Data, and their floors.

    python data_rows.py SIDE SCALE FOLDER ROW...    SIDE is sheaf, ray or floor

FOLDER is data_made's. It measures rows in this process, and says a line of JSON for each: its name
and the figure, in its unit. Big rows run once, on workers that are there; small ones are warm: the
median of some rounds behind a first."""

import functools
import importlib.util
import json
import multiprocessing
import os
import sys
import time

import data_queries
import numpy as np
import pyarrow as pa
from data_bench import CPUS, Bench, Row, halves, spent, warm

MIB = 1 << 20
PAYLOAD = 100  # Bytes beside the key of a row that is sorted.
NUMBERS = ["l_orderkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
FEW, MANY = ["l_returnflag", "l_shipinstruct", "l_shipmode"], ["l_suppkey", "l_shipmode"]


# Small rows.


def dicts(bench):
    items = [{"a": k, "b": str(k)} for k in range(1000)]

    def run():
        ds = bench.data.from_items(items).map(lambda row: {**row, "c": row["a"] * 2})
        assert len(ds.filter(lambda row: row["c"] % 3 == 0).take_all()) == 334

    return warm(run)


def floor_dicts(bench):
    items = [{"a": k, "b": str(k)} for k in range(1000)]

    def run():
        made = [{**row, "c": row["a"] * 2} for row in items]
        assert len([row for row in made if row["c"] % 3 == 0]) == 334

    return warm(run)


def _ten_thousand():
    return pa.table({"k": np.arange(10_000) % 100, "v": np.arange(10_000.0)})


def small_groups(bench):
    table = _ten_thousand()
    return warm(lambda: bench.data.from_arrow(table).groupby("k").mean("v").take_all())


def floor_small_groups(bench):
    frame = _ten_thousand().to_pandas()
    return warm(lambda: frame.groupby("k").mean().reset_index().to_dict("records"))


def small_blocks(bench):
    count = max(100, int(1000 * bench.scale))

    def run():
        ds = bench.data.range(count, override_num_blocks=count)
        for _ in range(3):
            ds = ds.map_batches(lambda batch: batch)
        assert sum(len(b["id"]) for b in ds.iter_batches(batch_size=None)) == count

    return count / warm(run, 3) * 1000


# Parquet.


def counted(bench):
    return warm(lambda: bench.read("lineitem").count())


def with_schema(bench):
    return warm(lambda: bench.read("lineitem").schema())


def limited(bench):
    def run():
        assert len(bench.read("lineitem").limit(10).take_all()) == 10

    return warm(run)


def floor_footers(bench):
    return warm(lambda: bench.rows)


def iterated(bench):
    def run():
        ds = bench.read("lineitem", NUMBERS)
        batches = ds.iter_batches(batch_size=1024, batch_format="numpy")
        assert sum(len(batch["l_tax"]) for batch in batches) == bench.rows

    return bench.rows / spent(run) / 1e6


def floor_iterated(bench):
    def run():
        import pyarrow.dataset as pads

        scanned = pads.dataset(f"{bench.folder}/lineitem").to_batches(
            columns=NUMBERS, batch_size=1024
        )
        for batch in scanned:
            {name: batch[name].to_numpy(zero_copy_only=False) for name in NUMBERS}

    return bench.rows / spent(run) / 1e6


def add_price(batch):
    price = batch["l_extendedprice"] * (1 - batch["l_discount"]) * (1 + batch["l_tax"])
    return {**batch, "price": price}


class AddPrice:
    def __call__(self, batch):
        return add_price(batch)


def mapped(bench, udf=add_price, **options):
    def run():
        ds = bench.read("lineitem", NUMBERS).map_batches(udf, batch_format="numpy", **options)
        assert ds.materialize().count() == bench.rows

    return bench.rows / spent(run) / 1e6


def mapped_by_actors(bench):
    """Two actors, which leave a CPU to what reads for them."""
    return mapped(bench, AddPrice, concurrency=2, num_cpus=0.5)


def _floor_of_file(file):
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(file).iter_batches(65536, columns=NUMBERS):
        columns = {name: batch[name].to_numpy(zero_copy_only=False) for name in NUMBERS}
        pa.table(add_price(columns))


def floor_mapped(bench):
    return bench.rows / halves(_floor_of_file, bench.files("lineitem")) / 1e6


def change_row(row):
    return {"id": row["id"], "text": f"row {row['id']}", "half": row["id"] * 0.5}


def mapped_rows(bench):
    count = int(200_000 * bench.scale)

    def run():
        assert bench.data.range(count).map(change_row).materialize().count() == count

    return count / spent(run) / 1000


def _floor_of_rows(given):
    pa.Table.from_pylist([change_row({"id": k}) for k in range(*given)])


def floor_mapped_rows(bench):
    count = int(200_000 * bench.scale)
    step = max(1, count // 16)
    parts = [(k, min(count, k + step)) for k in range(0, count, step)]
    return count / halves(_floor_of_rows, parts) / 1000


# Exchanges.


def grouped(bench, keys=FEW):
    agg = bench.named("aggregate")

    def run():
        ds = bench.read("lineitem", [*keys, "l_quantity", "l_extendedprice"])
        made = ds.groupby(keys).aggregate(
            agg.Count(), agg.Sum("l_quantity"), agg.Mean("l_extendedprice")
        )
        made.materialize()

    return spent(run)


def floor_grouped(bench, keys=FEW):
    names = ", ".join(keys)
    query = f"""select {names}, count(*), sum(l_quantity), avg(l_extendedprice)
        from lineitem group by {names}"""
    return spent(lambda: bench.duckdb.execute(query).to_arrow_table())


def normalise(batch):
    price = batch["l_extendedprice"]
    return {"price": (price - price.mean()) / (price.std() + 1e-9)}


def grouped_map(bench):
    def run():
        ds = bench.read("lineitem", [*FEW, "l_extendedprice"])
        made = ds.groupby(FEW).map_groups(normalise, batch_format="numpy")
        assert made.materialize().count() == bench.rows

    return spent(run)


def joined(bench, kind="inner"):
    def run():
        left = bench.read("lineitem", ["l_orderkey", "l_quantity"])
        right = bench.read("orders", ["o_orderkey", "o_totalprice"])
        made = left.join(
            right, kind, num_partitions=16, on=("l_orderkey",), right_on=("o_orderkey",)
        )
        assert made.materialize().count() == bench.rows

    return spent(run)


def floor_joined(bench, kind="inner"):
    query = f"""create or replace table joined as select l_orderkey, l_quantity, o_totalprice
        from lineitem
        {kind} join orders on l_orderkey = o_orderkey"""
    return spent(lambda: bench.duckdb.execute(query))


def payload_table(batch):
    count = len(batch["id"])
    random = np.random.default_rng(int(batch["id"][0]))
    values = pa.py_buffer(random.bytes(PAYLOAD * count))
    payload = pa.FixedSizeBinaryArray.from_buffers(pa.binary(PAYLOAD), count, [None, values])
    return pa.table({"key": random.integers(0, 2**62, count), "payload": payload})


def _sortable(bench):
    """10 GB at scale 10, in blocks of 20 MB at least."""
    count = int(1e9 * bench.scale / (PAYLOAD + 8))
    blocks = max(4, min(50, count * (PAYLOAD + 8) // 20_000_000))
    return count, bench.data.range(count, override_num_blocks=blocks).map_batches(payload_table)


def _made(bench, change):
    count, ds = _sortable(bench)
    return spent(lambda: _checked(change(ds).materialize(), count))


def _checked(made, count):
    assert made.count() == count


def _floor_of_order(bench, order):
    count = int(1e9 * bench.scale / (PAYLOAD + 8))
    bench.duckdb.execute(
        f"""create or replace table t as select (random() * 2^62)::bigint as key,
        repeat(chr(65 + (i % 26)::int), {PAYLOAD}) as payload from range({count}) r(i)"""
    )
    return spent(
        lambda: bench.duckdb.execute(
            f"create or replace table sorted as select * from t order by {order}"
        )
    )


# Streams.


def streamed(bench):
    """GB/s of 20 GB at scale 10, through a store of 1 GiB; what is spilled fails it."""
    count = int(2000 * bench.scale)

    def run():
        ds = bench.data.range(count, override_num_blocks=max(8, count // 16))
        made = ds.map_batches(_megabytes, batch_size=4).map_batches(_negated)
        rows = sum(len(batch["x"]) for batch in made.iter_batches(batch_size=None))
        assert rows == count

    seconds = spent(run)
    if bench.side == "sheaf":
        print(f"spilled bytes: {_spilled()}", file=sys.stderr, flush=True)
    return count * MIB / seconds / 1e9


def _megabytes(batch):
    return {"x": np.repeat(batch["id"], MIB // 8).reshape(len(batch["id"]), -1)}


def _negated(batch):
    return {"x": -batch["x"]}


def _spilled():
    import urllib.request

    from sheaf import _core

    with urllib.request.urlopen(_core.metrics_url(), timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("sheaf_spilled_bytes_total"):
                return float(line.split()[1])
    return 0.0


def floor_streamed(bench):
    count = int(2000 * bench.scale)
    parts = [np.arange(k, min(k + 4, count)) for k in range(0, count, 4)]
    return count * MIB / halves(_floor_of_megabytes, parts) / 1e9


def _floor_of_megabytes(ids):
    _negated(_megabytes({"id": ids}))


def split(bench):
    """GB/s of 5 GB at scale 10, to two actors."""
    runtime = importlib.import_module(bench.side)
    count = int(500 * bench.scale)

    @runtime.remote(num_cpus=0)
    class Trainer:
        def run(self, shard):
            return sum(len(b["x"]) for b in shard.iter_batches(batch_size=8))

    ds = bench.data.range(count, override_num_blocks=max(8, count // 16))
    shards = ds.map_batches(_megabytes, batch_size=4).streaming_split(2, equal=True)
    trainers = [Trainer.remote() for _ in shards]

    def run():
        rows = runtime.get([t.run.remote(s) for t, s in zip(trainers, shards, strict=True)])
        assert sum(rows) in (count, count - 1), rows

    return count * MIB / spent(run) / 1e9


def floor_split(bench):
    count = int(500 * bench.scale)

    def run():
        for k in range(0, count, 4):
            _megabytes({"id": np.arange(k, min(k + 4, count))})

    return count * MIB / spent(run) / 1e9


# Pictures.


def _decoded(content):
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB").resize((224, 224)))


def _of_bytes(batch):
    return {"image": np.stack([_decoded(content) for content in batch["bytes"]])}


def _of_photos(bench, ds):
    """Photographs a second, as tensors where all sides have torch, which takes a second to load."""
    if os.environ.get("BENCH_TORCH"):
        importlib.import_module("torch")
    return len(bench.files("photos")) / spent(lambda: _consumed(bench, ds))


def _consumed(bench, ds):
    count = 0
    if os.environ.get("BENCH_TORCH"):
        batches = ds.iter_torch_batches(batch_size=32)
    else:
        batches = ds.iter_batches(batch_size=32)
    for batch in batches:
        count += len(batch["image"])
    assert count == len(bench.files("photos")), count


def photos(bench):
    ds = bench.data.read_images(f"{bench.folder}/photos", size=(224, 224), mode="RGB")
    return _of_photos(bench, ds)


def records(bench):
    ds = bench.data.read_tfrecords(f"{bench.folder}/records").map_batches(_of_bytes, batch_size=32)
    return _of_photos(bench, ds)


def _floor_of_photo(file):
    with open(file, "rb") as opened:
        _decoded(opened.read())


def floor_photos(bench):
    files = bench.files("photos")
    with multiprocessing.get_context("fork").Pool(CPUS) as pool:
        pool.map(len, ["", ""])
        return len(files) / spent(lambda: pool.map(_floor_of_photo, files, chunksize=16))


def _query(name):
    return (
        functools.partial(data_queries.by_methods, name),
        functools.partial(data_queries.by_duckdb, name),
    )


ROWS = {
    "1,000 dicts: map, filter, take_all": Row(
        "ms", "lower", dicts, floor_dicts, "25 ms; 30x", session="small"
    ),
    "group by of 10,000 rows": Row(
        "ms", "lower", small_groups, floor_small_groups, "40 ms; 30x", session="small"
    ),
    "one-row blocks through three maps": Row(
        "/s", "higher", small_blocks, None, "5,000/s; 20x", session="small"
    ),
    "lineitem: count": Row("ms", "lower", counted, floor_footers, "50 ms; 10x", session="small"),
    "lineitem: schema": Row(
        "ms", "lower", with_schema, floor_footers, "50 ms; 10x", session="small"
    ),
    "lineitem: limit(10)": Row(
        "ms", "lower", limited, floor_footers, "50 ms; 10x", session="small"
    ),
    "lineitem: iter_batches(1024)": Row(
        "M rows/s", "higher", iterated, floor_iterated, "0.8 of floor; 3x", session="maps"
    ),
    "map_batches in tasks": Row(
        "M rows/s", "higher", mapped, floor_mapped, "0.85 of floor; 3x", session="maps"
    ),
    "map_batches in actors": Row(
        "M rows/s", "higher", mapped_by_actors, floor_mapped, "0.85 of floor; 3x", session="maps"
    ),
    "map of rows": Row(
        "k rows/s", "higher", mapped_rows, floor_mapped_rows, "0.7 of floor; 3x", session="maps"
    ),
    "group by, 84 groups": Row(
        "s", "lower", grouped, floor_grouped, "2x DuckDB; 5x", session="tables"
    ),
    "group by, 70,000 groups per scale": Row(
        "s",
        "lower",
        functools.partial(grouped, keys=MANY),
        functools.partial(floor_grouped, keys=MANY),
        "2x DuckDB; 5x",
        session="tables",
    ),
    "map_groups, 84 groups": Row("s", "lower", grouped_map, None, "5x", session="tables"),
    "join, inner": Row("s", "lower", joined, floor_joined, "2.5x DuckDB; 5x", session="tables"),
    **{
        f"join, {kind} outer": Row(
            "s",
            "lower",
            functools.partial(joined, kind=f"{kind}_outer"),
            functools.partial(floor_joined, kind=kind),
            "2.5x DuckDB; 5x",
            session="tables",
        )
        for kind in ("left", "right", "full")
    },
    **{
        f"TPC-H {name}": Row("s", "lower", *_query(name), "3x DuckDB; 5x", session="tables")
        for name in data_queries.QUERIES
    },
    **{
        f"TPC-H {name} by sql": Row(
            "s",
            "lower",
            functools.partial(data_queries.by_sql, name),
            functools.partial(data_queries.by_duckdb, name),
            "3x DuckDB",
            own=True,
            session="sql",
        )
        for name in data_queries.QUERIES
    },
    "sort of 1 GB per scale": Row(
        "s",
        "lower",
        functools.partial(_made, change=lambda ds: ds.sort("key")),
        functools.partial(_floor_of_order, order="key"),
        "1.5x DuckDB; 4x",
        session="orders",
    ),
    "random_shuffle of 1 GB per scale": Row(
        "s",
        "lower",
        functools.partial(_made, change=lambda ds: ds.random_shuffle(seed=1)),
        functools.partial(_floor_of_order, order="random()"),
        "1.5x DuckDB; 4x",
        session="orders",
    ),
    "2 GB per scale, mapped twice": Row(
        "GB/s", "higher", streamed, floor_streamed, "nothing spilled", store=1024
    ),
    "photographs to batches": Row(
        "/s", "higher", photos, floor_photos, "0.85 of floor; 2x", needs=("PIL",), session="streams"
    ),
    "photographs from TFRecords": Row(
        "/s",
        "higher",
        records,
        floor_photos,
        "0.85 of floor; 2x",
        needs=("PIL",),
        session="streams",
    ),
    "streaming_split to 2": Row(
        "GB/s", "higher", split, floor_split, "one reader; 3x", session="streams"
    ),
}


def measured(name, bench):
    row = ROWS[name]
    return (row.floor if bench.side == "floor" else row.measure)(bench)


def started(bench, store):
    """Starts a library, whose workers have run something afterwards."""
    runtime = importlib.import_module(bench.side)
    mib = max(256, int(store * min(1, bench.scale / 10)))
    more = {} if bench.side == "sheaf" else {"include_dashboard": False}
    runtime.init(num_cpus=CPUS, object_store_memory=mib * MIB, log_to_driver=False, **more)
    context = bench.data.DataContext.get_current()
    context.enable_progress_bars = False
    blocks = bench.data.range(4 * CPUS, override_num_blocks=4 * CPUS)
    blocks.map_batches(_not_at_once, batch_format="pyarrow").materialize()
    return runtime


def _not_at_once(batch):
    """As long as it takes that each CPU has its worker."""
    time.sleep(0.2)
    return batch


def main():
    side, scale, folder, *names = sys.argv[1:]
    bench, failed = Bench(side, float(scale), folder), False
    runtime = None if side == "floor" else started(bench, ROWS[names[0]].store)
    for name in names:
        try:
            print(json.dumps({"name": name, "figure": measured(name, bench)}), flush=True)
        except Exception as error:
            failed = True
            said = str(error).strip().splitlines() or [""]
            told = f"{type(error).__name__}: {said[-1][:200]}"
            print(json.dumps({"name": name, "failed": told}), flush=True)
    if runtime is not None:
        runtime.shutdown()
    os._exit(failed)  # Threads of libraries are not waited for.


if __name__ == "__main__":
    main()

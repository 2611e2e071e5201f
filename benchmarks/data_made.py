# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What bench_data.py reads, made once for each scale: tables of TPC-H in Parquet, by tpchgen-cli
or, where that is not installed, of the same columns and sizes by DuckDB; photographs; records.

    python data_made.py FOLDER SCALE       what is there stays
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import data_bench
import data_queries

FILES = 8  # Of lineitem and of orders.
PHOTOS = 360  # At scale 1.
PHOTO = (640, 480)

# The columns of TPC-H that the rows use, with its numbers of rows and of distinct values.
_ORDERS = """
select i + 1 as o_orderkey, 1 + hash(i, 1) % (150_000 * {scale})::bigint as o_custkey,
  date '1992-01-01' + (hash(i, 2) % 2406)::int as o_orderdate,
  (850 + hash(i, 3) % 50_000_000 / 100.0)::double as o_totalprice,
  (hash(i, 4) % 5 + 1) || '-PRIORITY' as o_orderpriority, 0 as o_shippriority,
  case when hash(i, 5) % 100 = 0 then 'the special packages and requests' else 'quickly' end
    as o_comment
from range((1_500_000 * {scale})::bigint) t(i)"""
_LINEITEM = """
select o_orderkey as l_orderkey, n as l_linenumber,
  1 + hash(o_orderkey, n, 1) % (200_000 * {scale})::bigint as l_partkey,
  1 + hash(o_orderkey, n, 2) % greatest((10_000 * {scale})::bigint, 1) as l_suppkey,
  (1 + hash(o_orderkey, n, 3) % 50)::double as l_quantity,
  (900 + hash(o_orderkey, n, 4) % 10_000_000 / 100.0)::double as l_extendedprice,
  (hash(o_orderkey, n, 5) % 11 / 100.0)::double as l_discount,
  (hash(o_orderkey, n, 6) % 9 / 100.0)::double as l_tax,
  ['A', 'N', 'R'][(1 + hash(o_orderkey, n, 7) % 3)::int] as l_returnflag,
  ['F', 'O'][(1 + hash(o_orderkey, n, 8) % 2)::int] as l_linestatus,
  o_orderdate + 1 + (hash(o_orderkey, n, 9) % 121)::int as l_shipdate,
  ['COLLECT COD', 'DELIVER IN PERSON', 'NONE', 'TAKE BACK RETURN'][
    (1 + hash(o_orderkey, n, 10) % 4)::int] as l_shipinstruct,
  ['AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'][
    (1 + hash(o_orderkey, n, 11) % 7)::int] as l_shipmode
from orders, range(1, 8) t(n) where n <= 1 + hash(o_orderkey, 12) % 7"""
_CUSTOMER = """
select i + 1 as c_custkey,
  ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'][(1 + hash(i, 1) % 5)::int]
    as c_mktsegment
from range((150_000 * {scale})::bigint) t(i)"""


def _tables(connection, scale, generated):
    """Views lineitem, orders and customer. Decimals become doubles, which all sides reckon with."""
    tool = shutil.which(
        "tpchgen-cli", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if tool is None:
        for name, query in (("orders", _ORDERS), ("lineitem", _LINEITEM), ("customer", _CUSTOMER)):
            connection.execute(f"create table {name} as {query.format(scale=scale)}")
        return
    wanted = ["--tables", "lineitem,orders,customer", "--output-dir", generated]
    subprocess.run([tool, "parquet", "-s", str(scale), *wanted], check=True)
    for name in ("lineitem", "orders", "customer"):
        found = f"read_parquet('{generated}/{name}.parquet')"
        columns = connection.execute(f"describe select * from {found}").fetchall()
        chosen = ", ".join(
            f"{column}::double as {column}" if kind.startswith("DECIMAL") else column
            for column, kind, *_ in columns
        )
        connection.execute(f"create view {name} as select {chosen} from {found}")


def make_tables(folder, scale):
    """Files of the tables."""
    import duckdb

    with tempfile.TemporaryDirectory(dir=folder) as generated:
        connection = duckdb.connect(f"{generated}/tables.db")
        connection.execute("set threads = 2; set memory_limit = '2GB'")
        _tables(connection, scale, generated)
        for name, key in (("lineitem", "l_orderkey"), ("orders", "o_orderkey"), ("customer", "")):
            place = folder / f"{name}.part"
            place.mkdir()
            for number in range(FILES if key else 1):
                where = f"where hash({key}) % {FILES} = {number}" if key else ""
                out = f"'{place}/{number}.parquet' (format parquet)"
                connection.execute(f"copy (select * from {name} {where}) to {out}")
            place.rename(folder / name)
        connection.close()


def make_answers(folder, scale):
    """What TPC-H's queries give."""
    connection = data_bench.Bench("floor", scale, str(folder)).duckdb
    text = json.dumps(data_queries.answers(connection))
    part = folder / "answers.json.new"
    part.write_text(text)
    part.rename(folder / "answers.json")


def make_photos(folder, scale):
    """JPEG files of smooth noise, 16 different ones."""
    import io

    import numpy as np
    from PIL import Image

    place = folder / "photos.part"
    place.mkdir()
    random = np.random.default_rng(1)
    encoded = []
    for _ in range(16):
        small = Image.fromarray(random.integers(0, 255, (60, 80, 3), dtype=np.uint8))
        out = io.BytesIO()
        small.resize(PHOTO, Image.Resampling.BICUBIC).save(out, "jpeg", quality=90)
        encoded.append(out.getvalue())
    for number in range(max(16, math.ceil(PHOTOS * scale))):
        (place / f"{number:05}.jpg").write_bytes(encoded[number % 16])
    place.rename(folder / "photos")


def make_records(folder, _scale):
    """The photographs as TFRecords, by sheaf.data."""
    import sheaf
    from sheaf import data

    sheaf.init(num_cpus=2, log_to_driver=False)
    place = folder / "records.part"
    data.read_binary_files(str(folder / "photos"), override_num_blocks=4).write_tfrecords(
        str(place)
    )
    sheaf.shutdown()
    place.rename(folder / "records")


MADE = {
    "lineitem": make_tables,
    "answers.json": make_answers,
    "photos": make_photos,
    "records": make_records,
}


def make(folder, scale):
    """Makes what is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.part"):
        shutil.rmtree(left)
    for name, function in MADE.items():
        if not (folder / name).exists():
            print(f"making {name} of scale {scale:g}", file=sys.stderr, flush=True)
            function(folder, scale)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]), float(sys.argv[2]))

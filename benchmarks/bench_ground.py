# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries stand on: Arrow values, parts of objects, places, streams bounded by bytes.

    ./do bench ground [--peer ray] [--json FILE] [--only WORD,WORD...]

The floor of Arrow rows is pyarrow's own IPC into memory and a view of it, that of parts one copy of
the same bytes. Rows that need pyarrow are left out where it is not (pip install pyarrow). Ray is
that of $SHEAF_PEERS/tune or $SHEAF_PEERS/ray, with pyarrow; it has no parts: there a part is an
object of its own.
"""

import argparse
import importlib
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ray = importlib.import_module(os.environ.get("BENCH_GROUND_OF", "sheaf"))
OF_PEER = "BENCH_GROUND_OF" in os.environ
PARTS, PART_BYTES, MAPS = 64, 64 << 10, 32


def best_rate(work, amount, repeats=7):
    """`amount` per second, of the median of some runs after a first one."""
    work()
    took = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return amount / statistics.median(took)


def arrow_table(rows):
    import pyarrow as pa

    rng = np.random.default_rng(1)
    return pa.table(
        {
            "a": np.arange(rows),
            "b": rng.random(rows),
            "c": rng.integers(0, 100, rows, np.int32),
            "s": pa.array([f"name {i % 1000}" for i in range(rows)]),
        }
    )


def through_ipc(table):
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def there_and_back(table):
    """Figure and floor: tables put and got, per second."""
    ours = best_rate(lambda: ray.get(ray.put(table)), 1)
    return ours, best_rate(lambda: through_ipc(table), 1)


def slice_of_five():
    return there_and_back(arrow_table(1_000_000).slice(500_000, 5))


def table_of_1000():
    return there_and_back(arrow_table(1000))


def table_of_a_million():
    table = arrow_table(1_000_000)
    ours, floor = there_and_back(table)
    return ours * table.nbytes / 1e9, floor * table.nbytes / 1e9


@ray.remote(num_cpus=0, num_returns=2)
def one_map(index):
    """The output of one map task: (value, places) here, (list of references, None) at the peer."""
    pieces = [np.full(PART_BYTES, index, np.uint8) for _ in range(PARTS)]
    if OF_PEER:
        return [ray.put(piece) for piece in pieces], None
    from sheaf.util.parts import Parts

    parts = Parts(pieces)
    return parts, parts.places


@ray.remote(num_cpus=0)
def one_reduce(part, maps):
    """Bytes of its part of all maps."""
    if OF_PEER:
        return sum(len(piece) for piece in ray.get([refs[part] for refs, _ in maps]))
    from sheaf.util.parts import get_parts

    return sum(len(piece) for piece in get_parts([(ref, of[part]) for ref, of in maps]))


def shuffle():
    """MB/s of MAPS x PARTS pieces from maps to reducers on this node."""

    def run():
        maps = [one_map.remote(i) for i in range(MAPS)]
        places = ray.get([place for _, place in maps])
        if OF_PEER:
            maps = [(refs, None) for refs in ray.get([ref for ref, _ in maps])]
        else:
            maps = list(zip([ref for ref, _ in maps], places, strict=True))
        sizes = ray.get([one_reduce.remote(part, maps) for part in range(PARTS)])
        assert sum(sizes) == MAPS * PARTS * PART_BYTES

    def copies():
        pieces = [np.full(PARTS * PART_BYTES, i, np.uint8) for i in range(MAPS)]
        assert sum(piece.copy().nbytes for piece in pieces) == MAPS * PARTS * PART_BYTES

    megabytes = MAPS * PARTS * PART_BYTES / 1e6
    return best_rate(run, megabytes, 5), best_rate(copies, megabytes, 5)


def places_of_1000():
    """References per second whose places are asked for."""
    locate = importlib.import_module(f"{ray.__name__}.experimental").get_object_locations
    refs = [ray.put(np.zeros(20_000)) for _ in range(1000)]
    return best_rate(lambda: locate(refs), len(refs)), None


@ray.remote(num_cpus=0, num_returns="streaming")
def stream(count, size):
    for _ in range(count):
        yield np.zeros(size, np.uint8)


def bounded_stream():
    """MB/s of a stream that may run 8 MB ahead of its consumer (the peer: 8 items)."""
    bound = (
        {"_generator_backpressure_num_objects": 8}
        if OF_PEER
        else {"_generator_backpressure_bytes": 8 << 20}
    )

    def run():
        for ref in stream.options(**bound).remote(100, 1 << 20):
            ray.get(ref)

    def copies():
        for _ in range(100):
            np.zeros(1 << 20, np.uint8).copy()

    return best_rate(run, 100 * (1 << 20) / 1e6, 5), best_rate(copies, 100 * (1 << 20) / 1e6, 5)


ROWS = {  # Name: (what measures figure and floor, unit, needs pyarrow).
    "5 rows of a table of 1 M, put and got": (slice_of_five, "1/s", True),
    "table of 1,000 rows, put and got": (table_of_1000, "1/s", True),
    "table of 1 M rows, put and got": (table_of_a_million, "GB/s", True),
    f"{MAPS} maps to {PARTS} reducers, 64 KiB each": (shuffle, "MB/s", False),
    "places of 1,000 objects": (places_of_1000, "refs/s", False),
    "stream of 1 MiB items, 8 MiB ahead": (bounded_stream, "MB/s", False),
}


def chosen(words):
    return {
        name: row
        for name, row in ROWS.items()
        if not words or any(word.lower() in name.lower() for word in words)
    }


def measure(words):
    ray.init(num_cpus=2, log_to_driver=False, object_store_memory=1 << 30)
    figures = {}
    for name, (work, unit, arrow) in chosen(words).items():
        if arrow and importlib.util.find_spec("pyarrow") is None:
            print(f"{name:40} left out: there is no pyarrow", flush=True)
            continue
        figure, floor = work()
        figures[name] = {"figure": figure, "floor": None if OF_PEER else floor}
        shown = "" if floor is None or OF_PEER else f"   floor {floor:,.4g}"
        print(f"{name:40} {ray.__name__:6} {figure:12,.4g} {unit}{shown}", flush=True)
    ray.shutdown()
    return figures


def run_peer(name, given):
    root = pathlib.Path(os.environ.get("SHEAF_PEERS", ""))
    for python in (root / "tune" / "bin" / "python", root / "ray" / "bin" / "python"):
        ask = [python, "-c", f"import {name}, pyarrow"]
        if python.exists() and subprocess.run(ask, capture_output=True).returncode == 0:
            break
    else:
        raise SystemExit(
            f"bench_ground: no Python has {name} and pyarrow: set SHEAF_PEERS (CONTRIBUTING.md)"
        )
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        environment = {**os.environ, "BENCH_GROUND_OF": name}
        environment.pop("PYTHONPATH", None)
        command = [python, __file__, "--json", file.name, "--only", given.only]
        subprocess.run(command, env=environment, check=True, timeout=1200)
        return json.loads(pathlib.Path(file.name).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default="", help="words of names of rows")
    parser.add_argument("--peer", choices=["ray"])
    given = parser.parse_args()
    words = [word for word in given.only.split(",") if word]
    if not chosen(words):
        parser.error(f"--only: no row has one of {given.only} in its name")
    ours = measure(words)
    if OF_PEER:
        pathlib.Path(given.json).write_text(json.dumps(ours))
        return
    theirs = run_peer(given.peer, given) if given.peer else {}
    rows = [
        {
            "name": name,
            "unit": ROWS[name][1],
            "better": "higher",
            "sheaf": figure["figure"],
            "floor": figure["floor"],
            "ray": theirs.get(name, {}).get("figure"),
        }
        for name, figure in ours.items()
    ]
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    sys.exit(main())

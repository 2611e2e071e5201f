# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets whose workers, actors and nodes are killed at random places and times:

    data_kills.py [--seeds 50] [--seed N] [KIND...]

A kind says what is killed. Each run is compared with one that nothing disturbed: the number of rows
and the sum of the hashes of all rows must be the same. Prints how many of each there were, and how
much longer they took at most. test_failures.py has one or two seeds of each.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import signal
import tempfile
import threading
import time

import numpy as np
import pyarrow.parquet
import sheaf
from conftest import joined_cluster
from sheaf import arrow, data
from sheaf.data import aggregate, datasource
from sheaf.util import state

ROWS, BLOCKS, KEYS = 12_000, 12, 40
SLACK_S = 6  # Beyond the work that was lost, a kill may cost so much, on a machine for itself.
HEAD = {"num_cpus": 2, "object_store_memory": 96 << 20}
SIDE = {"num_cpus": 1, "object_store_memory": 96 << 20}


class Death:
    """Kills its process when a call is the one drawn: once for each mark, whoever comes first.

    Args:
        folder: of the marks; None: nobody dies.
        times: how often.
    """

    def __init__(self, folder, times=1):
        self.folder, self.times = folder, times

    def come(self):
        for number in range(self.times if self.folder else 0):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{self.folder}/{number}", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)

    def happened(self):
        return len(list(pathlib.Path(self.folder).iterdir()))


@dataclasses.dataclass
class Draw:
    """Where a run is hit."""

    row: int  # That is in hand then.
    place: int  # Before, amid or behind it.
    death: Death

    @property
    def key(self):
        return self.row % KEYS


def columns(batch):
    """More than goes along in a message, so that blocks lie in the store."""
    ids = batch["id"]
    wide = {f"c{n}": ids * (2 * n + 3) % 1009 for n in range(8)}
    return {"id": ids, "key": ids % KEYS, **wide}


def rows():
    return data.range(ROWS, override_num_blocks=BLOCKS).map_batches(columns)


def halves(drawn):
    """A function that gives each batch in two halves, and dies around them."""

    def give(batch):
        hit, middle = drawn.row in batch["id"], len(batch["id"]) // 2
        for place, part in enumerate((slice(0, middle), slice(middle, None))):
            if hit and drawn.place == place:
                drawn.death.come()
            yield {name: values[part] for name, values in batch.items()}
        if hit and drawn.place == 2:
            drawn.death.come()

    return give


def mapped(drawn, _):
    return rows().map_batches(halves(drawn))


def small(drawn, _):
    """Blocks so small that many go together, and take another time in each try."""

    def hurry(batch):
        first = int(batch["id"][0])
        time.sleep(random.Random(first ^ os.getpid()).choice((0, 0.003, 0.02)))
        if drawn.row in batch["id"]:
            drawn.death.come()
        return batch

    return data.range(ROWS, override_num_blocks=400).map_batches(hurry)


def partitioned(drawn, _):
    """It dies where partial results are made, merged, or finished, by drawn.place."""

    def come(place, key):
        if drawn.place == place and key == drawn.key:
            drawn.death.come()

    def accumulate(total, block):
        key = block.column("key")[0].as_py()
        come(0, key)
        return [key, total[1] + sum(block.column("id").to_pylist())]

    def merge(one, other):
        key = max(one[0], other[0])
        come(1, key)
        return [key, one[1] + other[1]]

    def finish(total):
        come(2, total[0])
        return total[1]

    total = aggregate.AggregateFn(
        init=lambda key: [-1, 0],
        merge=merge,
        name="total",
        accumulate_block=accumulate,
        finalize=finish,
    )
    return rows().groupby("key").aggregate(total)


def reduced(drawn, _):
    def group(batch):
        if drawn.key == batch["key"][0]:
            drawn.death.come()
        return {**batch, "rank": np.argsort(batch["id"])}

    return rows().groupby("key").map_groups(group)


def sorted_then_mapped(drawn, _):
    return rows().sort("c3").map_batches(halves(drawn))


class Torn(datasource.BlockBasedFileDatasink):
    """Parquet, of which one file is written in part by who dies then."""

    def __init__(self, path, drawn):
        super().__init__(path, file_format="parquet", mode="overwrite")
        self.drawn = drawn

    def write_block_to_file(self, block, file):
        table, sink = block.to_arrow(), pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink)
        made = sink.getvalue()
        part = made.size * self.drawn.place // 2
        file.write(made[:part])
        if self.drawn.row in table.column("id").to_numpy():
            file.flush()
            self.drawn.death.come()
        file.write(made[part:])


def written(drawn, folder):
    out = folder / "out"
    rows().write_datasink(Torn(str(out), drawn))
    names = sorted(path.name for path in out.iterdir())
    assert len(names) == BLOCKS and all(name.endswith(".parquet") for name in names), names
    return data.read_parquet(str(out))


class Pooled:
    """An actor that dies in a call, or (place 2) the first of which dies when it is made."""

    def __init__(self, drawn):
        self.drawn = drawn
        if drawn.place == 2:
            drawn.death.come()

    def __call__(self, batch):
        if self.drawn.place != 2 and self.drawn.row in batch["id"]:
            self.drawn.death.come()
        return {**batch, "more": batch["id"] * 2}


def pooled(drawn, _):
    return rows().map_batches(Pooled, fn_constructor_args=(drawn,), concurrency=(1, 2))


STAGES = {
    "map": mapped,
    "small": small,
    "partition": partitioned,
    "reduce": reduced,
    "sort": sorted_then_mapped,
    "write": written,
    "actor": pooled,
}


def digest(dataset):
    """Rows, and the sum of their hashes, in whatever order they come."""
    count = total = 0
    for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
        count += table.num_rows
        if table.num_rows:
            hashes = arrow.hash(table, table.column_names).to_pyarrow().column("hash")
            total += int(np.sum(hashes.to_numpy(), dtype=np.uint64))
    return count, total % (1 << 64)


def timed(make):
    began = time.monotonic()
    return digest(make()), time.monotonic() - began


def busy():
    """How much longer what wants a core takes, for all others that want one."""
    return max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


_expected = {}


def compare(kind, make, undisturbed, said):
    """How much longer it took than when nothing was killed. AssertionError: it gave something
    else, or took longer than the lost work and SLACK_S."""
    if kind not in _expected:
        _expected[kind] = timed(undisturbed)
    wanted, wanted_s = _expected[kind]
    found, took = timed(make)
    assert found == wanted, f"{said}: {found} instead of {wanted} (rows, sum of hashes)"
    assert took <= 2 * wanted_s + SLACK_S * busy(), (
        f"{said}: {took:.1f} s instead of {wanted_s:.1f} s"
    )
    return max(0.0, took - wanted_s)


def in_stage(kind, seed, folder):
    """A worker dies in the middle of what it does: at a drawn row, up to two times."""
    draw = random.Random(seed)
    deaths = folder / "deaths"
    deaths.mkdir()
    drawn = Draw(draw.randrange(ROWS), draw.randrange(3), Death(str(deaths), draw.choice((1, 2))))
    nobody = dataclasses.replace(drawn, death=Death(None))
    make = STAGES[kind]
    undisturbed = folder / "undisturbed"
    extra = compare(
        kind,
        lambda: make(drawn, folder),
        lambda: make(nobody, undisturbed),
        f"seed {seed}: {drawn}",
    )
    assert drawn.death.happened() >= 1, f"seed {seed}: nobody died: {drawn}"
    return extra


# Workers at any time: whatever it is that they do.


def slow(batch):
    time.sleep(0.02)
    return batch


def exchanged(seed):
    """A join of what was shuffled with what was grouped, sorted."""
    left = rows().map_batches(slow).random_shuffle(seed=seed)
    right = rows().groupby("key").mean("c5")
    return left.join(right, "inner", 4, on=("key",)).map_batches(slow).sort("id")


class Killer(threading.Thread):
    """Kills random workers of the nodes, each after a random time."""

    def __init__(self, draw, count):
        super().__init__(daemon=True)
        self.draw, self.count, self.killed = draw, count, []
        self.over = threading.Event()

    def run(self):
        for _ in range(self.count):
            if self.over.wait(self.draw.uniform(0.01, 0.6)):
                return
            busy = [row for row in state.list_workers() if row["running"]]
            if busy:
                victim = self.draw.choice(busy)
                self.killed.append(victim["running"])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim["pid"], signal.SIGKILL)


def at_any_time(kind, seed, folder):
    draw = random.Random(seed)
    killer = Killer(draw, 3)

    def make():
        killer.start()
        return exchanged(3)

    try:
        return compare(kind, make, lambda: exchanged(3), f"seed {seed}: {killer.killed}")
    finally:
        killer.over.set()
        killer.join()


# Nodes.


def shuffled_on_nodes(folder, how):
    """48 maps and 40 groups ("spilling": more than the stores of the nodes hold), or 40 partitions
    in random order, for which there is no seed."""
    wide = 12 if how == "spilling" else 1
    source = data.range(ROWS, override_num_blocks=4 * BLOCKS).map_batches(columns)

    def widen(batch):
        with open(f"{folder}/calls", "a") as file:
            file.write(".")
        time.sleep(0.05)
        return {**batch, **{f"w{n}": batch["id"] * n for n in range(8 * wide)}}

    def counted(batch):
        with open(f"{folder}/calls", "a") as file:
            file.write(".")
        time.sleep(0.02)
        return batch

    def group(batch):
        batch = counted(batch)
        return {"id": batch["id"], "rank": np.argsort(batch["id"]), "w": batch["w7"]}

    wider = source.map_batches(widen)
    if how == "random":
        return wider.random_shuffle(num_blocks=KEYS).map_batches(counted)
    return wider.groupby("key").map_groups(group)


def node_lost(cluster, seed, folder, part, how="groups"):
    """One of three nodes goes when `part` of the calls of a shuffle have begun."""
    kind = f"node {how}"
    calls = folder / "calls"
    over = threading.Event()

    def kill():
        while not calls.exists() or calls.stat().st_size < part * (4 * BLOCKS + KEYS):
            if over.wait(0.005):
                return
        cluster.remove_node(random.Random(seed).choice(cluster.worker_nodes), allow_graceful=False)

    killer = threading.Thread(target=kill)

    def make():
        killer.start()
        return shuffled_on_nodes(folder, how)

    other = folder / "undisturbed"
    other.mkdir()
    try:
        return compare(
            kind, make, lambda: shuffled_on_nodes(other, how), f"seed {seed}: at {part:.0%}"
        )
    finally:
        over.set()
        killer.join()
        while len(cluster.worker_nodes) < 2:
            cluster.add_node(**SIDE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=[])
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    seeds = range(given.seed, given.seed + given.seeds)
    figures = []

    def run(kind, one):
        if given.kinds and kind not in given.kinds:
            return
        extra = []
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                extra.append(one(seed, pathlib.Path(folder)))
        figures.append(f"{kind} {len(extra)} (+{max(extra):.1f} s)")
        print(figures[-1], flush=True)

    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    for kind in STAGES:
        run(kind, lambda seed, folder, kind=kind: in_stage(kind, seed, folder))
    run("any", lambda seed, folder: at_any_time("any", seed, folder))
    sheaf.shutdown()
    with joined_cluster(HEAD, SIDE, SIDE) as cluster:
        for part in (0.1, 0.5, 0.9):
            for how in ("groups", "spilling", "random"):
                run(
                    f"node{part:.0%}-{how}",
                    lambda seed, folder, part=part, how=how: node_lost(
                        cluster, seed, folder, part, how
                    ),
                )
    print(f"{sum(int(f.split()[1]) for f in figures)} runs exact: {', '.join(figures)}")


if __name__ == "__main__":
    main()

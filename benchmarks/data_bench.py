# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the rows of bench_data.py have in common: what a row is, what it finds, and clocks."""

import dataclasses
import functools
import glob
import importlib
import multiprocessing
import statistics
import time
from collections.abc import Callable

CPUS = 2
ENOUGH_S = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """Measurements take (bench) and return a figure.

    Attributes:
        unit: of the figure.
        better: "higher" or "lower".
        measure, floor: of a library, and of what does the same without one; None: there is none.
        aim: in words, as in the table of the documents.
        store: MiB of the object store at scale 10; smaller scales have less.
        needs: modules.
        own: Ray has no such thing.
        session: rows of one name are measured one behind the other in one process of each side;
            None: in one of its own.
    """

    unit: str
    better: str
    measure: Callable
    floor: Callable | None
    aim: str
    store: int = 4096
    needs: tuple = ()
    own: bool = False
    session: str | None = None


@dataclasses.dataclass(frozen=True)
class Bench:
    """What a measurement finds: the library (None: a floor's process), a scale and files."""

    side: str
    scale: float
    folder: str

    @functools.cached_property
    def data(self):
        return importlib.import_module(f"{self.side}.data")

    def named(self, module):
        return importlib.import_module(f"{self.side}.data.{module}")

    def files(self, table):
        return sorted(glob.glob(f"{self.folder}/{table}/*"))

    def read(self, table, columns=None):
        return self.data.read_parquet(f"{self.folder}/{table}", columns=columns)

    @functools.cached_property
    def duckdb(self):
        import duckdb

        connection = duckdb.connect()
        connection.execute(f"set threads = {CPUS}; set temp_directory = '{self.folder}/spilled'")
        connection.execute(f"set memory_limit = '{max(256, int(800 * self.scale))}MB'")
        for name in ("lineitem", "orders", "customer"):
            connection.execute(
                f"create view {name} as select * from read_parquet('{self.folder}/{name}/*')"
            )
        return connection

    @property
    def rows(self):
        """Of lineitem."""
        import pyarrow.parquet as pq

        return sum(pq.ParquetFile(file).metadata.num_rows for file in self.files("lineitem"))


def spent(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def warm(call, rounds=5):
    """Milliseconds: the median of so many rounds, or of as many as begin within ENOUGH_S."""
    call()
    times = [spent(call)]
    while len(times) < rounds and sum(times) < ENOUGH_S:
        times.append(spent(call))
    return statistics.median(times) * 1000


def halves(work, parts):
    """Seconds that two bare processes take for the parts."""
    with multiprocessing.get_context("fork").Pool(CPUS) as pool:
        pool.map(len, ["", ""])
        return spent(lambda: pool.map(work, parts, chunksize=1))

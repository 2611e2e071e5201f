# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which blocks a cache may give up, and in which session: those of other datasets stay, a cache that
starts the cluster has its share of it, and one of a session that has ended is in nobody's way."""

import gc
import pathlib
import subprocess
import sys

import numpy as np
import pyarrow.compute as pc
import pytest
import sheaf
from conftest import wait_until
from sheaf import data
from sheaf.data.caches.keeper import KEEPER
from sheaf.experimental import locations

STORE = 128 << 20
LEVELS = ["memory", "disk"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=STORE, log_to_driver=False)
    yield
    sheaf.shutdown()


class Drawn:
    """A function that gives other values each time, so that it shows when it is called again; and
    leaves a mark."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __call__(self, batch):
        mark = np.random.default_rng().integers(1 << 60)
        (self.folder / str(mark)).touch()
        return {"mark": np.full(len(batch["id"]), mark), "pad": np.zeros((len(batch["id"]), 9_999))}

    def rows(self):
        return data.range(40, override_num_blocks=4).map_batches(self, batch_size=None)

    def count(self):
        return len(list(self.folder.iterdir()))


def marks(dataset):
    return [row["mark"] for row in dataset.select_columns(["mark"]).take_all()]


def settled():
    """Caches have given up what they give up."""
    wait_until(lambda: KEEPER.look() is None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("keep", ["materialize", "cache"])
def test_blocks_that_another_dataset_keeps_stay(level, keep, tmp_path):
    drawn = Drawn(tmp_path)
    kept = getattr(drawn.rows(), keep)()
    before = marks(kept)
    cached = kept.limit(25).cache(level)
    settled()
    assert marks(cached) == before[:25]
    assert marks(kept) == before
    cached.unpersist()
    settled()
    assert marks(kept) == before and drawn.count() == 4


@pytest.mark.parametrize("level", LEVELS)
def test_the_blocks_of_a_cache_itself_go_with_it(level, tmp_path):
    drawn = Drawn(tmp_path)
    cached = drawn.rows().cache(level)
    derived = cached.limit(25)
    before = marks(derived)
    assert cached.unpersist().count() == 40
    with pytest.raises(NotImplementedError, match=r"materialize\(\)"):
        cached.num_blocks()
    settled()
    assert marks(derived) != before and drawn.count() > 4


def test_references_of_blocks_keep_what_these_are_made_from():
    table = np.arange(40_000.0)  # More than goes inside a call.

    def looked_up(batch):
        return {"y": table[batch["id"]]}

    refs = data.range(40_000, override_num_blocks=4).map_batches(looked_up).to_arrow_refs()
    gc.collect()
    wait_until(lambda: locations.give_up(refs) == [None] * len(refs))
    assert sum(pc.sum(made["y"]).as_py() for made in sheaf.get(refs, timeout=60)) == table.sum()


def printed(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    return done.stdout.splitlines() or done.stderr


FIRST = """
import sys
sys.path[:0] = [sys.argv[1]]
from test_cache_owners import Drawn, settled
cached = Drawn(sys.argv[2]).rows().cache("memory")  # Nobody has called init().
settled()
print(cached._plan.described)
"""


def test_a_cache_that_starts_the_cluster_has_its_share(tmp_path):
    here = str(pathlib.Path(__file__).parent)
    wanted = "cached (memory, 4 of 4 blocks in memory, 0 recomputed)"
    assert printed(FIRST, here, str(tmp_path)) == [wanted]


SESSIONS = """
import sys
sys.path[:0] = [sys.argv[1]]
import sheaf
from test_cache_owners import Drawn, STORE
kept = []
for level in ("memory", "disk", "memory"):
    sheaf.init(num_cpus=2, object_store_memory=STORE, log_to_driver=False)
    kept.append(Drawn(sys.argv[2]).rows().cache(level))
    print(kept[-1].count(), kept[-1]._plan.described)
    sheaf.shutdown()
"""


def test_a_cache_of_a_session_that_has_ended_is_in_nobodys_way(tmp_path):
    here = str(pathlib.Path(__file__).parent)
    said = ["memory, 4 of 4 blocks in memory", "disk, 4 of 4 blocks on disk"]
    wanted = [f"40 cached ({words}, 0 recomputed)" for words in (*said, said[0])]
    assert printed(SESSIONS, here, str(tmp_path)) == wanted

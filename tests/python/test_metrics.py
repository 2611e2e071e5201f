# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Metrics of user code, from workers to the node's endpoint."""

import os
import pickle
import time
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S
from sheaf import _core
from sheaf.util.metrics import Counter, Gauge, Histogram, Metric

pytestmark = pytest.mark.usefixtures("node")


def scrape(wanted):
    """The lines of the endpoint, once all of `wanted` are among them."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with urllib.request.urlopen(_core.metrics_url(), timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        if all(line in lines for line in wanted):
            return lines
        assert time.monotonic() < deadline, [line for line in lines if line.startswith("ray_")]
        time.sleep(0.05)


def test_what_workers_and_the_driver_count_is_served():
    @sheaf.remote
    def work(calls, load, sizes):
        calls.inc(2, {"route": "/a"})
        calls.inc(tags={"route": "/a"})
        load.set(0.5)
        for size in (1, 5, 50):
            sizes.observe(size)
        return os.getpid()

    calls = Counter("test_calls", "How many", tag_keys=("route",))
    load, sizes = Gauge("test_load"), Histogram("test_sizes", "In bytes", boundaries=[1, 10])
    pid = sheaf.get(work.remote(calls, load, sizes), timeout=WAIT_S)
    calls.inc(7, {"route": 'a "quoted" one'})
    lines = scrape(
        [
            f'ray_test_calls{{route="/a",pid="{pid}"}} 3',
            f'ray_test_calls{{route="a \\"quoted\\" one",pid="{os.getpid()}"}} 7',
            f'ray_test_load{{pid="{pid}"}} 0.5',
            f'ray_test_sizes_bucket{{pid="{pid}",le="1"}} 1',
            f'ray_test_sizes_bucket{{pid="{pid}",le="10"}} 2',
            f'ray_test_sizes_bucket{{pid="{pid}",le="+Inf"}} 3',
            f'ray_test_sizes_sum{{pid="{pid}"}} 56',
        ]
    )
    assert lines.count("# TYPE ray_test_calls counter") == 1


def test_a_tag_whose_values_never_end_is_one_series_and_said_once():
    counter = Counter("test_floods", "By user", tag_keys=("user",))
    with pytest.warns(match="more than 1000 series") as said:
        for user in range(1100):
            counter.inc(tags={"user": f"u{user}"})
    counter.inc(5, {"user": "u0"})
    assert len(said) == 1
    lines = scrape([f'ray_test_floods{{user="u0",pid="{os.getpid()}"}} 6'])
    series = [line for line in lines if line.startswith("ray_test_floods{")]
    assert len(series) == 1001
    assert sum(float(line.rsplit(" ", 1)[1]) for line in series) == 1105
    (overflow,) = (line for line in series if 'overflow="true"' in line)
    assert overflow.endswith(" 100")


def test_tags_and_values_are_checked():
    with pytest.warns(match="want letters"):
        Counter("a-b").inc()  # It is not served.
    with pytest.raises(TypeError, match="a tuple"):
        Counter("test_tags", tag_keys=["k"])
    with pytest.raises(ValueError, match="'pid'"):
        Counter("test_tags", tag_keys=("pid",))
    counter = Counter("test_tags", tag_keys=("k", "l")).set_default_tags({"k": "1"})
    with pytest.raises(ValueError, match=r"tag key\(s\): l"):
        counter.inc()
    counter.inc(tags={"l": "2", "m": "3"})  # The metric has no tag m, and counts without it.
    with pytest.raises(ValueError, match="Unrecognized tag key m"):
        counter.set_default_tags({"m": "3"})
    with pytest.raises(ValueError, match=">0"):
        counter.inc(0, {"l": "2"})
    with pytest.raises(ValueError, match="boundaries"):
        Histogram("test_bounds", boundaries=[2, 1])
    with pytest.raises(ValueError, match="is a counter"):
        Gauge("test_tags")
    with pytest.raises(TypeError, match="Counter, a Gauge"):
        Metric("test_metric")
    assert (
        counter.info["default_tags"] == {"k": "1"}
        and pickle.loads(pickle.dumps(counter)).info == counter.info
    )

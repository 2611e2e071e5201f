# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Libraries of tables and data flows."""

from program import main, program, say


@program
def modin_frames():
    """groups, joins, sorts and row functions of 20000 rows"""
    import modin.config
    import modin.pandas as pd
    import numpy as np

    modin.config.Engine.put("ray")
    modin.config.NPartitions.put(4)
    generator = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "key": generator.integers(0, 5, 20_000),
            "value": generator.normal(size=20_000),
            "word": generator.choice(["a", "b", "c"], 20_000),
        }
    )
    say(frame.groupby("key")["value"].sum().round(6).to_dict())
    say(frame[frame["value"] > 2].shape)
    joined = frame.merge(pd.DataFrame({"key": [0, 1, 2], "name": ["x", "y", "z"]}), on="key")
    say(joined["name"].value_counts().sort_index().to_dict())
    say(frame.sort_values("value").head(3)["key"].tolist())
    say(frame.apply(lambda row: row["key"] * 2, axis=1).sum())
    say(frame.describe().round(4)["value"].to_dict())


@program
def daft_queries():
    """groups and filters of 10000 rows in 4 partitions"""
    import daft

    daft.set_runner_ray(noop_if_initialized=True)
    frame = daft.from_pydict({"key": [k % 7 for k in range(10_000)], "value": list(range(10_000))})
    frame = frame.into_partitions(4).with_column("double", daft.col("value") * 2)
    total = frame.groupby("key").agg(daft.col("double").sum()).sort("key")
    say(total.to_pydict())
    say(frame.where(daft.col("value") % 1000 == 0).count_rows())


@program
def hamilton_graph():
    """a graph of 3 functions"""
    import hamilton.ad_hoc_utils
    import ray
    from hamilton import base, driver
    from hamilton.plugins import h_ray

    def doubled(number: int) -> int:
        return number * 2

    def squared(number: int) -> int:
        return number**2

    def total(doubled: int, squared: int) -> int:
        return doubled + squared

    flow = hamilton.ad_hoc_utils.create_temporary_module(doubled, squared, total)
    ray.cloudpickle.register_pickle_by_value(flow)
    adapter = h_ray.RayGraphAdapter(base.DictResult())
    graph = driver.Driver({"number": 12}, flow, adapter=adapter)
    say(sorted(graph.execute(["doubled", "squared", "total"]).items()))


@program
def swifter_apply():
    """a function over 1000 rows"""
    import modin.config
    import modin.pandas as pd
    import swifter  # noqa: F401

    modin.config.Engine.put("ray")
    frame = pd.DataFrame({"x": range(1000)})
    say(int(frame["x"].swifter.progress_bar(False).apply(lambda x: x * x).sum()))


if __name__ == "__main__":
    main()

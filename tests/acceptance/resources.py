# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Resources: fractions, custom ones, placement groups, limits that hold, and a request that can
never fit."""

import time

from runtime import ray

pg_module = __import__(f"{ray.__name__}.util.placement_group", fromlist=["x"])
strategies = __import__(f"{ray.__name__}.util.scheduling_strategies", fromlist=["x"])
ray.init(num_cpus=4, num_gpus=2, resources={"slot": 2})
assert ray.cluster_resources()["CPU"] == 4 and ray.cluster_resources()["slot"] == 2


@ray.remote
def nap(seconds):
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time()


def most_at_once(spans):
    marks = sorted([(a, 1) for a, _ in spans] + [(b, -1) for _, b in spans])
    level = best = 0
    for _, step in marks:
        level += step
        best = max(best, level)
    return best


ray.get([nap.remote(0) for _ in range(8)])
assert (
    most_at_once(
        ray.get([nap.options(num_cpus=0, resources={"slot": 1}).remote(0.3) for _ in range(6)])
    )
    == 2
)
assert most_at_once(ray.get([nap.options(num_cpus=2).remote(0.3) for _ in range(4)])) <= 2


@ray.remote(num_gpus=0.5, num_cpus=0)
class Half:
    def ids(self):
        return ray.get_gpu_ids()


halves = [Half.remote() for _ in range(4)]
ids = [tuple(x) for x in ray.get([h.ids.remote() for h in halves])]
assert sorted(int(i[0]) for i in ids) == [0, 0, 1, 1], ids
for h in halves:
    ray.kill(h)

group = pg_module.placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK")
ray.get(group.ready(), timeout=30)
where = strategies.PlacementGroupSchedulingStrategy(
    placement_group=group, placement_group_bundle_index=1
)
assert len(ray.get(nap.options(scheduling_strategy=where).remote(0))) == 2
pg_module.remove_placement_group(group)
for _ in range(100):
    if ray.available_resources().get("CPU") == 4:
        break
    time.sleep(0.1)
assert ray.available_resources()["CPU"] == 4, ray.available_resources()
ready, rest = ray.wait([nap.options(num_cpus=64).remote(0)], timeout=1)
assert not ready and len(rest) == 1  # waits, and does not break anything else
assert len(ray.get(nap.remote(0))) == 2
print("limits held, everything given back")

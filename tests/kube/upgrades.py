# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What becomes of a release, and of what runs there, when its values, its chart or its image change."""

from __future__ import annotations

import json
import shutil

from control_plane import Object, until
from kubelet import Pod
from release import BEGUN, CHART, CORE, HEAD, IMAGES, RELEASE, SPREAD, VALUES, Release

# Calls on the workers for as long as the head is the one of the beginning, and some more; and an
# actor of the head that outlives it.
LONG = """
import sheaf
sheaf.init(namespace="upgraded")
def head():
    return [node["NodeID"] for node in sheaf.nodes()
            if node["Alive"] and node["Labels"].get("ray.io/node-group") == "head"]
@sheaf.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class Keeper:
    def generation(self):
        return sheaf.get_runtime_context().get_node_id()
@sheaf.remote
def double(number):
    return 2 * number
keeper = Keeper.options(name="keeper", lifetime="detached",
                        label_selector={"ray.io/node-group": "head"}).remote()
first, number, more = head(), 0, 50
assert first == [sheaf.get(keeper.generation.remote())]
print("begun", flush=True)
while more:
    assert sheaf.get([double.remote(number + i) for i in range(10)]) == [
        2 * (number + i) for i in range(10)]
    number, more = number + 10, more - (head() not in ([], first))
assert head() == [sheaf.get(keeper.generation.remote())]
print("all calls were right")
"""
FOUND = """
import sheaf
sheaf.init(namespace="upgraded")
print("keeper is on", sheaf.get(sheaf.get_actor("keeper").generation.remote()))
"""


def with_storage(**storage) -> Object:
    said = {**VALUES["head"]["storage"], **storage}
    return {**VALUES, "head": {**VALUES["head"], "storage": said}}


GROWN = with_storage(size="30Gi")  # A claim does not get smaller again.


class Upgrades(Release):
    """Cases of kube_test.py's, which see one cluster after the other."""

    def exchanged(self, before: dict[str, Pod]) -> None:
        """Waits for others in place of all pods of `before`, and for them to be ready."""
        until("no pod of before is there", lambda: not before.keys() & self.workers())
        until(
            "nor the head of before",
            lambda: self.kubelet.pods.get(HEAD, before[HEAD]) is not before[HEAD],
        )
        self.all_are_ready()

    def all_are_ready(self) -> None:
        until("the head is ready", lambda: self.ready("head"))
        until("the workers are ready", lambda: len(self.ready("worker")) == 2)
        until("they are one cluster", lambda: len(self.alive()) == 3)

    def alive(self) -> list[Object]:
        """The nodes that the head has; none while it does not answer."""
        done = self.head().container.run(["sheaf", "list", "nodes", "--json"], 60)
        nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
        return [node for node in nodes if node["state"] == "ALIVE"]

    def submissions(self) -> set[str]:
        """The ids of all submitted jobs that the head knows."""
        until("the job server answers", self.answers)
        return {job["submission_id"] for job in self.jobs()}

    def test_11_an_upgrade_lets_work_go_on_and_keeps_the_state(self):
        chart = self.folder / "chart"
        shutil.copytree(CHART, chart)
        about = chart / "Chart.yaml"
        about.write_text(about.read_text().replace("\nversion: 0.", "\nversion: 1000."))
        (group,) = VALUES["workerGroups"]
        values = {**VALUES, "workerGroups": [{**group, "labels": {"generation": "second"}}]}
        values["head"] = {**VALUES["head"], "labels": {"generation": "second"}}
        jobs = self.submissions()
        secret = self.api.get(f"{CORE}/secrets/prod-sheaf-token")["data"]
        before = self.kubelet.pods

        job = self.submit(LONG, entrypoint_num_cpus=1)
        until("it has begun", lambda: self.says(job, "begun"))
        self.install("upgrade", values, chart)
        self.exchanged(before)

        self.assertEqual("SUCCEEDED", self.outcome(job))
        self.assertIn("all calls were right", self.left_behind(job))
        self.assertIn("keeper is on", self.job(FOUND))
        self.assertLess(jobs, self.submissions())
        self.assertEqual(secret, self.api.get(f"{CORE}/secrets/prod-sheaf-token")["data"])
        labels = [node["labels"].get("generation") for node in self.alive()]
        self.assertEqual(["second"] * 3, labels)
        self.assertEqual({0}, {pod.restarts for pod in self.kubelet.pods.values()})
        self.left_in_order(before)

    def test_12_a_rollback_cures_a_head_whose_image_is_not_there(self):
        jobs = self.submissions()
        head = self.head()
        self.install("upgrade", {**VALUES, "image": {"repository": "sheaf", "tag": "0.0.0"}})
        until("another head is there", lambda: self.kubelet.pods.get(HEAD, head) is not head)
        (pod,) = self.pods("head")
        self.assertEqual("sheaf:0.0.0", pod["spec"]["containers"][0]["image"])
        self.assertEqual([], self.ready("head"))
        self.helm("rollback", RELEASE)
        self.all_are_ready()
        self.assertEqual(jobs, self.submissions())

    def test_13_the_volume_of_the_head_grows_and_outlives_what_is_said_of_it(self):
        def change(**storage) -> None:
            before = self.head()
            self.install("upgrade", with_storage(**storage))
            until("another head", lambda: self.kubelet.pods.get(HEAD, before) is not before)
            self.all_are_ready()

        claim = f"{CORE}/persistentvolumeclaims/prod-sheaf-head"
        self.install("upgrade")
        self.all_are_ready()
        jobs = self.submissions()
        self.install("upgrade", GROWN)
        asked = self.api.get(claim)["spec"]["resources"]["requests"]["storage"]
        self.assertEqual("30Gi", asked)
        # Of a class that it cannot get; the right one goes on to be accepted.
        refused = self.helm_says(
            *("upgrade", RELEASE, str(CHART), "-f"),
            self.written(with_storage(size="30Gi", className="other")),
        )
        self.assertNotEqual(0, refused.returncode)
        self.assertRegex(refused.stderr, "prod-sheaf-head.*immutable")
        change(size="30Gi", enabled=False)
        self.assertEqual(set(), self.submissions())
        change(size="30Gi")
        self.assertEqual(jobs, self.submissions())
        # By its name, as one's own; the same pod, as nothing of it changes.
        head = self.head()
        self.install("upgrade", with_storage(existingClaim="prod-sheaf-head"))
        self.assertEqual("30Gi", self.api.get(claim)["spec"]["resources"]["requests"]["storage"])
        self.install("upgrade", GROWN)
        self.assertIs(head, self.head())
        self.assertEqual(jobs, self.submissions())

    def test_14_another_generation_of_the_token_is_another_token_of_all_pods(self):
        path = f"{CORE}/secrets/prod-sheaf-token"
        jobs, before, secret = self.submissions(), self.kubelet.pods, self.api.get(path)["data"]
        self.install("upgrade", {**GROWN, "token": {"generation": 2}})
        self.exchanged(before)
        made = self.api.get(path)["data"]
        self.assertEqual([], [key for key in made if made[key] == secret.get(key)])
        self.assertEqual(jobs, self.submissions())
        self.assertIn("tasks ran on", self.job(SPREAD))
        pods = self.kubelet.pods
        self.install("upgrade", {**GROWN, "token": {"generation": 2}})
        self.assertEqual(made, self.api.get(path)["data"])
        self.assertEqual(pods, self.kubelet.pods)

    def test_15_another_version_has_the_state_and_what_has_begun_ends(self):
        jobs, before = self.submissions(), self.kubelet.pods
        job = self.submit(BEGUN, entrypoint_num_cpus=1)
        until("its task runs", lambda: self.says(job, "the task has begun"))
        repository, _, tag = IMAGES["another"].partition(":")
        image = {"repository": repository, "tag": tag}
        self.install("upgrade", {**GROWN, "image": image, "token": {"generation": 2}})
        self.exchanged(before)
        self.assertEqual([tag] * 3, [node["version"] for node in self.alive()])
        self.assertIn("what had begun has ended", self.left_behind(job))
        self.left_in_order(before)
        self.assertLess(jobs, self.submissions())
        self.assertIn("keeper is on", self.job(FOUND))
        self.assertIn("tasks ran on", self.job(SPREAD))

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The values of the Helm chart, by their schema alone: each is described, and wrong ones are refused.

chart_test.py runs these cases with its own."""

import json
import re
import unittest

import jsonschema
import yaml
from pods import ROOT

CHART = ROOT / "deploy/helm/sheaf"
SETS = sorted((CHART / "ci").glob("*-values.yaml"))
GROUP = {
    "name": "a",
    "replicas": 1,
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
}
# What is wrong -> words of the refusal, of the schema's check here and of Helm's.
WRONG = [
    ({"imag": {}}, "imag", "imag"),
    ({"image": {"repository": "sheaf", "tag": "latest"}}, "latest", "tag"),
    ({"image": {"repository": "sheaf:1.0"}}, "sheaf:1.0", "repository"),
    ({"image": {"repository": "sheaf", "digest": "sha256:12"}}, "sha256:12", "digest"),
    ({"listenAddress": "127.0.0.1"}, "127.0.0.1", "listenAddress"),
    ({"token": {"generation": 0}}, "0 is less than", "generation"),
    ({"token": {"generation": "second"}}, "second", "generation"),
    ({"head": {"storage": {"existingClaim": "My Claim"}}}, "My Claim", "existingClaim"),
    ({"head": {"resources": {"limits": {"memory": "lots"}}}}, "lots", "memory"),
    ({"workerGroups": [{**GROUP, "replicas": -1}]}, "-1", "replicas"),
    ({"workerGroups": [{**GROUP, "replicas": "two"}]}, "two", "replicas"),
    ({"workerGroups": [{**GROUP, "name": "Big_Ones"}]}, "Big_Ones", "name"),
    ({"workerGroups": [{**GROUP, "name": "head"}]}, "head", "name"),
    ({"workerGroups": [{**GROUP, "gpu": 1}]}, "gpu", "gpu"),
    ({"workerGroups": [{**GROUP, "labels": {"zone": "a,b"}}]}, "a,b", "labels"),
    ({"workerGroups": [{**GROUP, "drainSeconds": 5}]}, "5 is less than", "drainSeconds"),
    ({"workerGroups": [{**GROUP, "flags": ["-v"]}]}, "-v", "flags"),
    (
        {"workerGroups": [{**GROUP, "env": [{"name": "SHEAF_TOKEN", "value": "x"}]}]},
        "SHEAF_TOKEN",
        "env",
    ),
    ({"workerGroups": [{"name": "a", "replicas": 1}]}, "resources", "resources"),
    (
        {"workerGroups": [{**GROUP, "resources": {**GROUP["resources"], "limits": {"cpu": "1"}}}]},
        "memory",
        "memory",
    ),
]


def merged(values: dict, over: dict) -> dict:
    """As Helm lays values over those of the chart."""
    result = dict(values)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def properties(schema: dict, path: str = ""):
    """Each value that the schema knows: its path, and its part of the schema."""
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from properties(part, f"{path}.{name}")
    if "items" in schema:
        yield from properties(schema["items"], f"{path}[]")


class Values(unittest.TestCase):
    def setUp(self):
        self.schema = json.loads((CHART / "values.schema.json").read_text())
        self.values = yaml.safe_load((CHART / "values.yaml").read_text())

    def refusal(self, values: dict) -> str:
        found = jsonschema.Draft7Validator(self.schema).iter_errors(merged(self.values, values))
        return "\n".join(error.message for error in found)

    def test_each_value_is_described(self):
        known = list(properties(self.schema))
        self.assertGreater(len(known), 60)
        for path, part in known:
            self.assertRegex(part.get("description", ""), r"\w.*[.:)]$", path)

    def test_nothing_that_is_not_known_is_taken(self):
        for path, part in [("", self.schema), *properties(self.schema)]:
            if part.get("properties") and not path.endswith((".requests", ".limits")):
                self.assertIs(False, part.get("additionalProperties"), path)

    def test_the_values_of_the_chart_and_the_thirteen_sets_are_right(self):
        self.assertEqual("", self.refusal({}))
        self.assertEqual(13, len(SETS))
        for file in SETS:
            with self.subTest(file.name):
                self.assertEqual("", self.refusal(yaml.safe_load(file.read_text())))

    def test_wrong_values_are_named(self):
        for values, words, _ in WRONG:
            with self.subTest(values):
                self.assertIn(words, self.refusal(values))

    def test_the_version_is_that_of_the_sources(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        project = re.search(
            r"project\(Sheaf VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()
        )
        self.assertEqual(project[1], chart["appVersion"])

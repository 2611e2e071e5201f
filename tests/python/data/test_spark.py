# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""docs/data_for_spark.md: it leaves out no name, and Spark's program in its comments prints what
Sheaf's does. (test_snippets.py runs Sheaf's.)"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from sheaf.data.not_built import FUNCTIONS, METHODS

HERE = pathlib.Path(__file__).parent
PAGE = (HERE.parents[2] / "docs" / "data_for_spark.md").read_text()
SPARK_S = 400  # A JVM on a busy machine.
SETTINGS = "--conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
NOT_FOR_PROGRAMS = {  # Of Ray's names those that are its inside, old spellings, or types.
    "BlockBasedFileDatasink",
    "DataIterator",
    "Dataset",
    "DatasetContext",
    "DatasetIterator",
    "DatasetSummary",
    "ExecutionOptions",
    "ExecutionResources",
    "MixStoppingCondition",
    "NodeIdStr",
    "Preprocessor",
    "RandomSeedConfig",
    "ReadTask",
    "RowBasedFileDatasink",
    "SaveMode",
    "SinkMode",
    "TaskPoolStrategy",
    "copy",
    "deserialize_lineage",
    "get_dataset_id",
    "get_internal_block_refs",
    "has_serializable_lineage",
    "serialize_lineage",
    "set_name",
    "name",
    "context",
}


def test_each_name_of_the_library_is_on_the_page():
    known = json.loads((HERE / "ray_names.json").read_text())
    kinds = ("data", "Dataset", "GroupedData", "preprocessors", "aggregate")
    names = {name for kind in kinds for name in known[kind]}
    wanted = names - set(FUNCTIONS) - set(METHODS) - NOT_FOR_PROGRAMS
    assert len(wanted) > 140
    said = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`|```python.*?```", PAGE, re.S))))
    assert sorted(wanted - said) == []


def in_spark(program: str) -> str:
    """A comment takes the place of the lines below it, up to an empty one, or to a print that both
    programs share."""
    lines, comment = [], ""
    for line in program.splitlines():
        if line.startswith("# "):
            comment = line[2:]
            lines.append(comment)
            continue
        if not line or (line.startswith("print(") and not comment.startswith("print(")):
            comment = ""
        if not comment:
            lines.append(line)
    return "\n".join(lines) + "\n"


def test_the_program_of_spark_prints_the_same(tmp_path):
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M))
    (tmp_path / "job.py").write_text(in_spark(program))
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{SETTINGS} pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=SPARK_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^print\(.*\)  # (.*)", program, re.M)

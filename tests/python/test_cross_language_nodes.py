# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Calls between the languages that also go from node to node."""

import os
import pathlib
import subprocess
import sys

import cross_language_functions
import numpy
import pytest
import sheaf
from conftest import WAIT_S
from sheaf import cross_language
from sheaf.cluster_utils import Cluster
from sheaf.exceptions import CrossLanguageError
from test_cross_language import LIBRARY, PROGRAM


@pytest.fixture(scope="module")
def cluster():
    """Two nodes; the driver's own has no CPU, so what does not say otherwise runs on the other."""
    sheaf.shutdown()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "resources": {"here": 4}})
    try:
        made.add_node(num_cpus=4, resources={"there": 4})
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def driver(cluster):
    cross_language.load(LIBRARY)  # Before init, so that workers know it, too.
    cluster.connect()
    cluster.wait_for_nodes()
    yield
    cross_language._library = ""
    sheaf.shutdown()


def cpp(name, *args, **options):
    return cross_language.cpp_function("app::" + name).options(**options).remote(*args)


class TestFromPython:
    def test_a_function_of_cpp_runs_on_the_other_node(self, driver):
        assert sheaf.get(cpp("Square", 7), timeout=WAIT_S) == 49
        assert sheaf.get(cpp("Sum", numpy.full(100_000, 0.5)), timeout=WAIT_S) == 50_000
        assert (sheaf.get(cpp("Ramp", 300_000), timeout=WAIT_S) == numpy.arange(300_000)).all()

    def test_results_go_from_one_node_to_the_other(self, driver):
        four = cpp("Square", 2, num_cpus=0, resources={"here": 1})
        assert (
            sheaf.get(cpp("Square", four, num_cpus=0, resources={"there": 1}), timeout=WAIT_S) == 16
        )

    def test_an_actor_of_cpp_answers_from_there(self, driver):
        counter = (
            cross_language.cpp_actor_class("app::Counter")
            .options(resources={"there": 1})
            .remote(10)
        )
        assert sheaf.get([counter.Add.remote(1), counter.Add.remote(2)], timeout=WAIT_S) == [11, 13]
        with pytest.raises(CrossLanguageError, match="as it was told"):
            sheaf.get(counter.Fail.remote(), timeout=WAIT_S)

    def test_a_worker_of_either_language_calls_the_other_on_the_other_node(self, driver):
        @sheaf.remote(num_cpus=0, resources={"there": 1})
        def squared_here(x):
            return sheaf.get(
                cross_language.cpp_function("app::Square")
                .options(num_cpus=0, resources={"here": 1})
                .remote(x),
                timeout=WAIT_S,
            )

        assert sheaf.get(squared_here.remote(9), timeout=WAIT_S) == 81
        # Python of a worker of C++ finds its modules where the driver does.
        assert sheaf.get(
            cpp("UpperInPython", "abc", num_cpus=0, resources={"here": 1}), timeout=WAIT_S
        ) == cross_language_functions.upper("abc")


def test_a_program_in_cpp_calls_python_on_the_other_node(cluster):
    here = str(pathlib.Path(__file__).parent)
    environment = {
        **os.environ, "TEST_PYTHON": sys.executable, "SHEAF_ADDRESS": cluster.address, "PYTHONPATH": os.pathsep.join([here, *sys.path]),
    }  # fmt: skip
    done = subprocess.run(
        [PROGRAM], env=environment, capture_output=True, text=True, timeout=4 * WAIT_S
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" = ", 1) for line in done.stdout.splitlines())
    assert [said[what] for what in ("int", "array back", "reference", "actor", "stream")] == [
        "5",
        "1000 998001",
        "15",
        "16",
        "012",
    ]
    assert said["exception"].startswith("TaskError refuse KeyError")

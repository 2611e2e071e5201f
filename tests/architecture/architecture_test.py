# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The tree keeps the rules of rules.py, and the check finds violations planted on purpose."""

import pathlib
import tempfile
import unittest

import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCE = f"// {rules.LICENCE}\n"


def check(files: dict[str, str]) -> list[str]:
    """What the check says about a tree of these files."""
    with tempfile.TemporaryDirectory() as name:
        for path, text in files.items():
            file = pathlib.Path(name) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return rules.check(pathlib.Path(name))


CMAKE = {
    "base/CMakeLists.txt": "sheaf_library(base SOURCES a.cc LINK absl::status)",
    "proto/CMakeLists.txt": "sheaf_proto(SOURCES a.proto)",
    "shm/CMakeLists.txt": "sheaf_library(shm SOURCES a.cc DEPENDS base)",
    "gcs/CMakeLists.txt": "sheaf_library(gcs SOURCES a.cc DEPENDS base proto)",
}


class TheTree(unittest.TestCase):
    def test_keeps_the_rules(self):
        found = rules.check(ROOT)
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_is_found(self):
        """A check that looks at nothing passes always."""
        self.assertGreater(len(rules._sources(ROOT)), 20)


class PlantedViolations(unittest.TestCase):
    def assert_one(self, files: dict[str, str], words: str):
        found = check(CMAKE | files)
        self.assertEqual(1, len(found), found)
        self.assertIn(words, found[0])

    def test_a_tree_without_any_passes(self):
        self.assertEqual([], check(CMAKE | {
            "shm/a.cc": LICENCE + '#include "shm/a.h"\n#include "base/ids.h"\n#include <vector>\n',
            "tests/a.cc": LICENCE + '#include "gcs/a.h"\nint fd = socket(1, 2, 3);\n',
        }))

    def test_include_upwards(self):
        self.assert_one({"base/a.h": LICENCE + '#include "shm/segment.h"\n'}, "base/a.h:2: base may not include shm")

    def test_include_sideways(self):
        self.assert_one({"gcs/a.cc": LICENCE + '\n#include "raylet/launcher.h"\n'}, "gcs/a.cc:3: gcs may not include raylet")

    def test_include_in_a_unit_test(self):
        self.assert_one({"base/a_test.cc": LICENCE + '#include "gcs/a.h"\n'}, "base may not include gcs")

    def test_include_of_tests(self):
        self.assert_one({"shm/a.cc": LICENCE + '#include "tests/sim/cluster.h"\n'}, "shm may not include tests")

    def test_include_that_depends_does_not_name(self):
        self.assert_one({"gcs/a.cc": LICENCE + '#include "metrics/page.h"\n',
                         "metrics/CMakeLists.txt": "sheaf_library(metrics SOURCES a.cc DEPENDS base)"},
                        "which DEPENDS in gcs/CMakeLists.txt does not name")

    def test_depends_upwards(self):
        self.assert_one({"base/CMakeLists.txt": "sheaf_library(base SOURCES a.cc DEPENDS shm)"}, "base may not depend on shm")

    def test_link_upwards_by_target_name(self):
        self.assert_one({"base/CMakeLists.txt": "sheaf_library(base SOURCES a.cc)\ntarget_link_libraries(x sheaf_gcs)"},
                        "base may not depend on gcs")

    def test_depends_on_nothing_known(self):
        self.assert_one({"shm/CMakeLists.txt": "sheaf_library(shm SOURCES a.cc DEPENDS bsae)"}, "DEPENDS bsae")

    def test_each_part_of_the_world(self):
        uses = {
            "the clock": "auto t = std::chrono::steady_clock::now();",
            "sleeping": "std::this_thread::sleep_for(d);",
            "threads": "std::thread t(f);",
            "sockets": "int fd = ::socket(AF_INET, SOCK_STREAM, 0);",
            "memory mappings": "void* p = mmap(nullptr, 1, 2, 3, 4, 5);",
            "futexes": "syscall(SYS_futex, &word);",
            "processes": "if (fork() == 0) return;",
            "the environment": 'const char* home = std::getenv("HOME");',
            "randomness": "std::random_device seed;",
            "SQLite": "sqlite3* db;",
            "gRPC": "#include <grpcpp/grpcpp.h>",
            "OpenSSL": "#include <openssl/sha.h>",
            "Gloo": "#include <gloo/context.h>",
            "NCCL": "ncclComm_t comm;",
            "CLI11, which takes 12 s to compile": "#include <CLI/CLI.hpp>",
            "spdlog, which takes 6 s to compile": "#include <spdlog/spdlog.h>",
            "civetweb and prometheus-cpp": "prometheus::MetricFamily family;",
        }
        self.assertEqual({rule.what for rule in rules.WORLD}, set(uses))
        for what, line in uses.items():
            with self.subTest(what):
                self.assert_one({"gcs/actor_table.cc": LICENCE + line + "\n"}, "touches " + what)

    def test_the_world_in_comments_strings_and_methods_is_fine(self):
        self.assertEqual([], check(CMAKE | {"gcs/a.cc": LICENCE + "\n".join([
            "// fork() is elsewhere", "/* mmap(\n getenv( */", 'Log("call socket() first");', "channel.connect(peer);",
            "loop->listen(1);", "Clock::time(3);", "runtime(4);", "Random random(seed);", ": socket(std::move(s)) {}",
            "std::vector<int> rand(3);", 'auto t = R"(getenv("A"))";', "int c = '\"';"]) + "\n"}))

    def test_the_world_where_it_hides(self):
        for line in ["return fork();", "else fork();", "if (a && fork() == 0) {}", "int a = b ? 1 : 0; fork();", "(void)fork();"]:
            with self.subTest(line):
                self.assert_one({"gcs/a.cc": LICENCE + line + "\n"}, "touches processes")

    def test_no_licence(self):
        self.assert_one({"gcs/a.cc": "int a;\n"}, "licence")

    def test_a_name_that_says_nothing(self):
        self.assert_one({"gcs/util.h": LICENCE}, "says nothing")

    def test_a_file_that_is_too_long(self):
        self.assert_one({"gcs/a.cc": LICENCE + "\n" * rules.LONGEST_FILE}, "more than")


if __name__ == "__main__":
    unittest.main()

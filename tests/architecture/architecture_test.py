# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The tree keeps the rules of rules.py, and the check finds violations planted on purpose."""

import json
import pathlib
import tempfile
import unittest

import documents
import measures
import python_imports
import ratchets
import rules
import web

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENCE = f"// {rules.LICENCE}\n"


def write(root: pathlib.Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def check(files: dict[str, str]) -> list[str]:
    """What the check says about a tree of these files."""
    with tempfile.TemporaryDirectory() as name:
        write(pathlib.Path(name), files)
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

    def test_keeps_the_rules_of_the_page(self):
        found = web.check(ROOT)
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_is_found(self):
        """A check that looks at nothing passes always."""
        self.assertGreater(len(rules.sources(ROOT)), 20)


class PlantedViolationsOfThePage(unittest.TestCase):
    def check(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), {"dashboard/web/src/a.tsx": LICENCE + text})
            return web.check(pathlib.Path(name))

    def test_text_that_becomes_html(self):
        self.assertEqual([], self.check("element.textContent = name;\n"))
        self.assertIn("innerHTML", self.check("element.innerHTML = name;\n")[0])
        self.assertIn("dangerouslySetInnerHTML", self.check("<p dangerouslySetInnerHTML={x} />")[0])

    def test_what_comes_from_elsewhere(self):
        self.assertIn("from elsewhere", self.check('fetch("https://cdn.example/a.js");\n')[0])
        self.assertIn("from elsewhere", self.check('fetch("//cdn.example/a.js");\n')[0])

    def test_packages_of_another_registry(self):
        lock = {"packages": {"node_modules/a": {"resolved": "https://mirror.example/a.tgz"}}}
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), {"dashboard/web/package-lock.json": json.dumps(lock)})
            self.assertIn("mirror.example", web.check(pathlib.Path(name))[0])


class PlantedViolations(unittest.TestCase):
    def assert_one(self, files: dict[str, str], words: str):
        found = check(CMAKE | files)
        self.assertEqual(1, len(found), found)
        self.assertIn(words, found[0])

    def test_a_tree_without_any_passes(self):
        self.assertEqual(
            [],
            check(
                CMAKE
                | {
                    "shm/a.cc": LICENCE
                    + '#include "shm/a.h"\n#include "base/ids.h"\n#include <vector>\n',
                    "tests/a.cc": LICENCE + '#include "gcs/a.h"\nint fd = socket(1, 2, 3);\n',
                }
            ),
        )

    def test_include_upwards(self):
        self.assert_one(
            {"base/a.h": LICENCE + '#include "shm/segment.h"\n'},
            "base/a.h:2: base may not include shm",
        )

    def test_include_sideways(self):
        self.assert_one(
            {"gcs/a.cc": LICENCE + '\n#include "raylet/workers/launcher.h"\n'},
            "gcs/a.cc:3: gcs may not include raylet",
        )

    def test_include_of_a_folder_beside(self):
        self.assert_one(
            {"raylet/objects/a.h": LICENCE + '#include "raylet/host/spawn.h"\n'},
            "raylet/objects/a.h:2: raylet/objects may not include raylet/host/spawn.h",
        )

    def test_include_of_the_folder_above(self):
        self.assert_one(
            {"worker/owner/a.cc": LICENCE + '#include "worker/runtime_impl.h"\n'},
            "worker/owner/a.cc:2: worker/owner may not include worker/runtime_impl.h",
        )

    def test_include_in_a_unit_test(self):
        self.assert_one(
            {"base/a_test.cc": LICENCE + '#include "gcs/a.h"\n'}, "base may not include gcs"
        )

    def test_include_of_tests(self):
        self.assert_one(
            {"shm/a.cc": LICENCE + '#include "tests/sim/cluster.h"\n'}, "shm may not include tests"
        )

    def test_include_that_depends_does_not_name(self):
        self.assert_one(
            {
                "gcs/a.cc": LICENCE + '#include "metrics/page.h"\n',
                "metrics/CMakeLists.txt": "sheaf_library(metrics SOURCES a.cc DEPENDS base)",
            },
            "which DEPENDS in gcs/CMakeLists.txt does not name",
        )

    def test_depends_upwards(self):
        self.assert_one(
            {"base/CMakeLists.txt": "sheaf_library(base SOURCES a.cc DEPENDS shm)"},
            "base may not depend on shm",
        )

    def test_link_upwards_by_target_name(self):
        self.assert_one(
            {
                "base/CMakeLists.txt": "sheaf_library(base SOURCES a.cc)\ntarget_link_libraries(x "
                "sheaf_gcs)"
            },
            "base may not depend on gcs",
        )

    def test_depends_on_nothing_known(self):
        self.assert_one(
            {"shm/CMakeLists.txt": "sheaf_library(shm SOURCES a.cc DEPENDS bsae)"}, "DEPENDS bsae"
        )

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
            "mutexes that clang cannot check": "std::mutex mutex_;",
            "xxHash": "#include <xxhash.h>",
            "SQLite": "sqlite3* db;",
            "gRPC": "#include <grpcpp/grpcpp.h>",
            "OpenSSL": "#include <openssl/sha.h>",
            "NCCL": "ncclComm_t comm;",
            "CLI11, which takes 12 s to compile": "#include <CLI/CLI.hpp>",
            "spdlog, which takes 6 s to compile": "#include <spdlog/spdlog.h>",
            "prometheus-cpp": "prometheus::MetricFamily family;",
            "the plain comparison of secrets": ("if (Shown(peer) != peer.proof) return;"),
            "Boost.Beast and Asio": "#include <boost/asio/post.hpp>",
        }
        self.assertEqual({rule.what for rule in rules.WORLD}, set(uses))
        for what, line in uses.items():
            with self.subTest(what):
                self.assert_one(
                    {"gcs/actors/actor_table.cc": LICENCE + line + "\n"}, "touches " + what
                )

    def test_the_world_in_comments_strings_and_methods_is_fine(self):
        self.assertEqual(
            [],
            check(
                CMAKE
                | {
                    "gcs/a.cc": LICENCE
                    + "\n".join(
                        [
                            "// fork() is elsewhere",
                            "/* mmap(\n getenv( */",
                            'Log("call socket() first");',
                            "channel.connect(peer);",
                            "loop->listen(1);",
                            "Clock::time(3);",
                            "runtime(4);",
                            "Random random(seed);",
                            ": socket(std::move(s)) {}",
                            "std::vector<int> rand(3);",
                            'auto t = R"(getenv("A"))";',
                            "int c = '\"';",
                        ]
                    )
                    + "\n"
                }
            ),
        )

    def test_the_world_where_it_hides(self):
        for line in [
            "return fork();",
            "else fork();",
            "if (a && fork() == 0) {}",
            "int a = b ? 1 : 0; fork();",
            "(void)fork();",
        ]:
            with self.subTest(line):
                self.assert_one({"gcs/a.cc": LICENCE + line + "\n"}, "touches processes")

    def test_no_licence(self):
        self.assert_one({"gcs/a.cc": "int a;\n"}, "licence")

    def test_a_name_that_says_nothing(self):
        self.assert_one({"gcs/util.h": LICENCE}, "says nothing")

    def test_a_name_with_a_part_that_says_nothing(self):
        self.assert_one({"gcs/actor_manager_test.cc": LICENCE}, "says nothing")


class Measures(unittest.TestCase):
    def functions(self, text: str) -> list[tuple[str, int, int]]:
        return [(f.name, f.lines, f.parameters) for f in measures.functions_of(rules.strip(text))]

    def test_functions_of_a_file(self):
        self.assertEqual(
            [("F", 3, 0), ("C::C", 4, 2), ("C::~C", 1, 0), ("G", 1, 1)],
            self.functions("""
namespace a {
void F() {
  if (x) {}
}
template <class T>
C::C(std::map<int, T> a, int b)
    : a_{a}, b_(b) {
}
C::~C() {}
std::vector<int> table = {1, 2};
static int G(int x) { return [&](int y) { return y; }(x); }
}  // namespace a
"""),
        )

    def test_methods_inside_a_class(self):
        self.assertEqual(
            [("C::D::one", 1, 0), ("C::two", 2, 2), ("C::operator_call", 1, 1)],
            self.functions("""
class C : public B<int> {
 public:
  struct D {
    int one() const { return 1; }
    int members[2] = {1, 2};
  };
  std::pair<int, int> two(int a = f(1, 2),
                          int b = 2) noexcept override { return {a, b}; }
  void operator()(int x) { Use(x); }
};
"""),
        )


class Documents(unittest.TestCase):
    def test_name_what_exists(self):
        found = documents.check(ROOT)
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_are_found(self):
        self.assertGreater(len(documents.documents(ROOT)), 10)

    def test_configuration_says_what_the_header_says(self):
        self.assertEqual(
            documents.configuration(ROOT),
            (ROOT / "docs/configuration.md").read_text(),
            "run python3 tests/architecture/documents.py",
        )

    def test_errors_have_each_exception_once_and_each_kind(self):
        self.assertEqual([], documents.exceptions_not_in_errors(ROOT))

    def test_a_name_or_link_that_is_gone_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            write(
                pathlib.Path(name),
                {
                    "gcs/a.cc": LICENCE + "// docs/y.md and docs/gone.md.\n",
                    "docs/design/x.md": "## A `part`, of it\n`gcs/a.cc`, `a.cc`, `gcs/a`, `gcs/*.cc`, `get`, `n / 2`, "
                    "`/proc/PID/fd`, `gcs/gone.h`, `gone.py` [a](../y.md) "
                    "[b](z.md#b) [c](#a-part-of-it) [d](#b)",
                    "docs/y.md": "`gcs/gone.h` [x](design/x.md#a-part-of-it) "
                    "[w](https://example.org/w)\n```\n[c](c.md)\n```\n",
                },
            )
            self.assertEqual(
                [
                    "gcs/a.cc: there is no docs/gone.md",
                    "docs/design/x.md: `gcs/gone.h` is no file of the tree",
                    "docs/design/x.md: `gone.py` is no file of the tree",
                    "docs/design/x.md: the link to z.md#b leads nowhere",
                    "docs/design/x.md: the link to #b leads nowhere",
                ],
                documents.check(pathlib.Path(name)),
            )

    def test_a_figure_of_the_readme_that_nobody_measured_is_found(self):
        row = "| a | 1,234 | 0.5 |\n"
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            measured = "docs/evidence/benchmarks_python.md"
            write(root, {"README.md": row, measured: "| b | 2026 | 1,234 | 0.5 | 2 |\n"})
            self.assertEqual([], documents.readme(root))
            write(root, {"README.md": row + "\n" * 100, measured: "| b | 1,234 | 0.6 |\n"})
            self.assertEqual(
                [
                    "README.md: 101 lines, at most 100",
                    "README.md: docs/evidence has no row with 0.5, 1,234",
                ],
                documents.readme(root),
            )


class PythonImports(unittest.TestCase):
    def planted(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            write(
                pathlib.Path(name),
                {f"python_bindings/sheaf/{path}": text for path, text in files.items()},
            )
            return python_imports.check(pathlib.Path(name))

    def test_have_no_circle_and_go_where_they_may(self):
        found = python_imports.check(ROOT)
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_are_found(self):
        graph = python_imports.graph_of(ROOT)
        self.assertGreater(len(graph), 90)
        self.assertGreater(sum(map(len, graph.values())), 200)

    def test_a_circle_is_found_however_it_is_closed(self):
        for closing in [
            "from sheaf import a\n",
            "import sheaf.a\n",
            "from sheaf.a import f\n",
            "def f():\n    from sheaf.a import f\n",
            "if TYPE_CHECKING:\n    from sheaf.a import f\n",
            'importlib.import_module("sheaf.a")\n',
        ]:
            with self.subTest(closing):
                self.assertEqual(
                    [
                        "python_bindings/sheaf/a.py:2: a circle of imports: "
                        "sheaf.a -> sheaf.b -> sheaf.util.c -> sheaf.a"
                    ],
                    self.planted(
                        {
                            "__init__.py": "from sheaf.a import f\n",
                            "a.py": "import os\nfrom sheaf import _core, b\n",
                            "b.py": "from sheaf.util.c import g\n",
                            "util/__init__.py": "",
                            "util/c.py": closing,
                        }
                    ),
                )

    def test_an_import_that_no_row_has_is_found(self):
        for path, line, said in [
            ("_internal/a.py", "from sheaf import b", "sheaf/_internal may not import sheaf.b"),
            ("b.py", "from sheaf._worker import c", "sheaf/. may not import sheaf._worker.c"),
            ("train/a.py", "from sheaf import _core", "sheaf/train may not import sheaf._core"),
            ("util/x/a.py", "import sheaf.train.b", "sheaf/util may not import sheaf.train.b"),
        ]:
            with self.subTest(path):
                rest = dict.fromkeys(["b.py", "_worker/c.py", "train/b.py"], "")
                self.assertEqual(
                    [f"python_bindings/sheaf/{path}:2: {said}"],
                    self.planted({**rest, path: f"\n{line}\n"}),
                )

    def test_a_folder_without_a_row_is_found(self):
        self.assertEqual(
            ["python_bindings/sheaf/tools: no row of rules.PYTHON_FOLDERS"],
            self.planted({"tools/a.py": ""}),
        )

    def test_what_is_none_passes(self):
        self.assertEqual(
            [],
            self.planted(
                {
                    "__init__.py": "from sheaf.a import f\n",
                    "a.py": "from sheaf import b, _core\nimport sheaf.a\n",
                    "b.py": "from sheaf._core import get  # sheaf.a\n",
                    "train/__init__.py": "",
                    "train/run.py": "import sheaf\nfrom sheaf.train import b\n",
                }
            ),
        )


class Ratchets(unittest.TestCase):
    def test_only_fall(self):
        found = ratchets.check(ROOT)
        self.assertEqual([], found, "\n" + "\n".join(found))

    def planted(self, files: dict[str, str]) -> dict[str, dict[str, int]]:
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), CMAKE | files)
            return {
                measure: places
                for measure, places in ratchets.count(pathlib.Path(name)).items()
                if places
            }

    def test_each_finds_what_is_over_its_bound(self):
        body = "  Use();\n"
        planted = {
            "lines of a file": ({"gcs/a.cc": LICENCE + "\n" * 500}, {"gcs/a.cc": 501}),
            "lines of a function": (
                {"gcs/a.cc": "void Use() {}\nvoid F() {\n" + body * 69 + "}\n"},
                {"gcs/a.cc F": 71},
            ),
            "parameters of a constructor": (
                {
                    "gcs/a.h": "class C {\n  C(int a, int b, int c, int d, int e, int f, int "
                    "g) {}\n};\n"
                },
                {"C": 7},
            ),
            "methods of a class": (
                {"gcs/a.cc": "".join(f"void C::F{i}() {{}}\n" for i in range(61))},
                {"C": 61},
            ),
            "files of a folder": ({f"gcs/a{i}.cc": LICENCE for i in range(46)}, {"gcs": 46}),
            "mutexes that say nothing of what they guard": (
                {
                    "gcs/a.h": "class C {\n  Mutex a_;\n  int x_ ABSL_GUARDED_BY(a_);\n  "
                    "mutable Mutex b_;\n};\n"
                },
                {"gcs/a.h b_": 1},
            ),
            "identifiers in comments that do not exist": (
                {
                    "gcs/a.h": "// kThere, kGone, NoClass and OneClass; Words.\nclass "
                    "OneClass { int kThere; };\n"
                },
                {"gcs/a.h NoClass": 1, "gcs/a.h kGone": 1},
            ),
        }
        self.assertEqual(set(ratchets.LIMITS), set(planted))
        for measure, (files, places) in planted.items():
            with self.subTest(measure):
                self.assertEqual({measure: places}, self.planted(files))

    def test_a_place_that_became_better_must_be_entered(self):
        with tempfile.TemporaryDirectory() as name:
            write(pathlib.Path(name), CMAKE)
            self.assertTrue(
                any("lower its entry" in line for line in ratchets.check(pathlib.Path(name)))
            )


if __name__ == "__main__":
    unittest.main()

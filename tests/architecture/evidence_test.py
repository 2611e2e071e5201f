# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""tools/evidence.py writes rows that the check of documents takes, and the check finds others."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

import documents

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import evidence  # noqa: E402

PAGE = """# Page
`./do soak` writes it.

<!-- rows: soak -->
| row | run on | figures |
|---|---|---|
| 2 | 2026-01-01 | old |
| sim | 2026-01-01 | kept |
<!-- end of rows -->
Below.
"""


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.page = self.root / "docs/evidence/soak.md"
        self.page.parent.mkdir(parents=True)
        self.page.write_text(PAGE)

    def rows(self) -> list[list[str]]:
        lines = self.page.read_text().splitlines()
        return [evidence._cells(line) for line in lines if line.startswith("| ")][1:]

    def test_a_row_takes_the_place_of_its_name_and_the_others_stay_in_order(self):
        evidence.record(self.page, "soak", [["2", "new"], ["10", "more"]])
        today = evidence.today()
        self.assertEqual(
            [["2", today, "new"], ["10", today, "more"], ["sim", "2026-01-01", "kept"]], self.rows()
        )
        self.assertTrue(self.page.read_text().endswith("-->\nBelow.\n"))
        self.assertEqual([], documents.evidence(self.root))

    def test_a_long_figure_is_cut_at_a_clause(self):
        story = "3 nodes (of 'a; b'), 0.123456 s; " + "and so on; " * 20
        evidence.record(self.page, "soak", [["2", story]])
        self.assertTrue(self.rows()[0][2].startswith("3 nodes, 0.123 s; and so on"))
        self.assertTrue(self.rows()[0][2].endswith("and so on ..."))
        self.assertEqual([], documents.evidence(self.root))

    def test_another_number_of_cells_or_another_table_is_refused(self):
        for table, row in (("soak", ["2", "a", "b"]), ("other", ["2", "a"])):
            with self.assertRaises(SystemExit):
                evidence.record(self.page, table, [row])
        self.assertEqual(PAGE, self.page.read_text())

    def test_figures_of_benchmarks_become_rows(self):
        rows = {
            "cpp": (
                {"rows": [{"name": "a", "unit": "s", "better": "lower", "sheaf": 2, "floor": 1}]},
                ["a", "2", "1", "0.5", "s"],
            ),
            "python": ({"a": {"rate": 12345.6, "unit": "/s"}}, ["a", "12,346", "/s"]),
            "collective": (
                [{"name": "all_reduce 1 MiB, 2 ranks, arena", "value": 26.81, "algbw_gbps": 39}],
                ["2 ranks, 1 MiB", "26.8 (39)", *"-------"],
            ),
            "train": ([{"name": "a", "unit": "ms", "value": 1.5}], ["a", "1.5", "ms"]),
            "arrow": (
                {"rows": [{"name": "a", "unit": "ms", "sheaf": 2, "polars": 3.5}]},
                ["a", "2", "-", "3.5", "-", "ms"],
            ),
        }
        for area, (figures, row) in rows.items():
            with self.subTest(area):
                self.assertEqual([row], evidence.bench_rows(area, figures)[2])

    def test_each_benchmark_has_its_table(self):
        for area in ("arrow", "cpp", "cluster", "collective", "python", "train", "nccl"):
            figures = {"rows": []} if area in ("arrow", "cpp", "cluster", "nccl") else []
            page, table, _ = evidence.bench_rows(area, figures if area != "python" else {})
            self.assertIn(f"<!-- rows: {table} -->\n", (evidence.FOLDER / page).read_text())

    def test_rows_by_hand_and_stories_are_found(self):
        self.page.write_text(
            PAGE.replace("`./do soak` writes it.", "| a | b |").replace("kept", "x" * 121)
        )
        found = documents.evidence(self.root)
        self.assertEqual(3, len(found), found)
        for word in ("does not name the command", "outside of the marks", "a cell of 123"):
            self.assertTrue(any(word in line for line in found), word)

    def test_the_results_of_a_run_are_counted(self):
        report = self.root / "report.xml"
        report.write_text(
            '<t><testcase name="a" status="run"/><testcase name="b" status="fail"/>'
            '<testcase name="c" status="disabled"/></t>'
        )
        import test_results

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = test_results.main([str(report), "0"])
        self.assertIn("1 passed, 1 failed, 1 skipped", said.getvalue())
        self.assertEqual(1, status)


if __name__ == "__main__":
    unittest.main()

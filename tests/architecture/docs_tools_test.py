# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The tools of `./do docs` that need nothing installed: comments as Doxygen reads them, and links."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))
import check_links  # noqa: E402
import doxygen_comments  # noqa: E402

HEADER = """\
// Licence.
// What the header is for.
//
//   Code();
// More.
#pragma once

namespace sheaf::inline v1 {
namespace internal {
// Ours.
void Inner();
}  // namespace internal

// Both.
void F(int a);
template <class T>
void F(T a) {
  // Within.
  struct Local {};
}

void Alone();
// What it is.
template <class T>
class C<void (*)(T)> {
 public:
  int size = 0;      // How many.
  bool ok() const { return true; }  // And this.

 private:
  int hidden_;
};
}  // namespace sheaf::inline v1
"""


class Comments(unittest.TestCase):
    def test_those_of_declarations_are_read_by_doxygen(self):
        lines = doxygen_comments.converted(HEADER, "h.h")
        text = "\n".join(lines)
        self.assertEqual("/// @file h.h", lines[0])
        self.assertIn("/// @code{.cpp}\n///   Code();\n/// @endcode\n/// More.", text)
        self.assertIn("// Ours.\nvoid Inner", text)
        self.assertNotIn("/// Ours.", text)
        self.assertIn("/// Both.\nvoid F(int a);\n/// Both.\ntemplate <class T>\nvoid F(T", text)
        self.assertIn("  // Within.\n", text)
        self.assertIn("\n\nvoid Alone();\n/// What it is.\ntemplate", text)
        self.assertIn("  int size = 0;  ///< How many.\n", text)
        self.assertIn("namespace sheaf {", text)

    def test_all_public_headers_can_be_read(self):
        for header in sorted((ROOT / "api/include/sheaf").glob("*.h")):
            lines = doxygen_comments.converted(header.read_text(), header.name)
            self.assertTrue(any(line.startswith("/// ") for line in lines[1:9]), header.name)

    def test_the_main_page_of_the_reference_lists_all_public_headers(self):
        page = (ROOT / "tools/docs/cpp_mainpage.dox").read_text()
        for header in (ROOT / "api/include/sheaf").glob("*.h"):
            self.assertIn(f"| sheaf/{header.name} |", page)


class Links(unittest.TestCase):
    def test_of_a_whole_site_are_no_error(self):
        program = ROOT / "tools/docs/check_links.py"
        with tempfile.TemporaryDirectory() as name:
            page = pathlib.Path(name) / "index.html"
            for text, status in (('<a href="index.html">1</a>', 0), ('<a href="gone">1</a>', 1)):
                page.write_text(text)
                command = [sys.executable, str(program), name]
                self.assertEqual(status, subprocess.run(command, capture_output=True).returncode)

    def test_that_lead_nowhere_are_found(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name).resolve()
            (folder / "a").mkdir()
            (folder / "a/b.html").write_text('<h1 id="top-of-it">B</h1>')
            (folder / "index.html").write_text(
                '<a href="a/b.html#top-of-it">1</a><a href="#x">2</a><h2 id="x">X</h2>'
                '<a href="https://example.org/">3</a><a href="a/c.html">4</a>'
                '<a href="a/b.html#gone">5</a><a href="../other.html">6</a><a href="a">7</a>'
                '<img src="i.png">'
            )
            nowhere = ["../other.html", "a", "a/b.html#gone", "a/c.html", "i.png"]
            self.assertEqual(
                [f"index.html: the link to {link} leads nowhere" for link in nowhere],
                check_links.broken(folder),
            )


if __name__ == "__main__":
    unittest.main()

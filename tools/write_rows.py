# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Puts ROWS in place of the rows of the table between the marks of PAGE.

Usage: write_rows.py PAGE ROWS
"""

import pathlib
import sys

BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def main(name: str, rows: str) -> None:
    page = pathlib.Path(name)
    before, rest = page.read_text().split(BEGIN)
    table, after = rest.split(END)
    header = "".join(table.splitlines(keepends=True)[:2])
    page.write_text(before + BEGIN + header + rows + END + after)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

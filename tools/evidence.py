# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/evidence: what commands have measured. Each row stands on one line, and
its second cell says on which day and at which commit it was measured.

    evidence.py PAGE TABLE < LINES     rows as a command printed them: "| name | cell | cell |"
    evidence.py bench AREA FILE        the figures of `./do bench AREA --json FILE`

A table stands between `<!-- rows: TABLE -->` and `<!-- end of rows -->`. A row takes the place of
the one that has its name; the others stay. What stands around the tables is written by hand.
"""

import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "evidence"
LONGEST_CELL = 120
ARROW_COLUMNS = ["sheaf", "pyarrow", "polars", "duckdb"]
COLUMNS = ["arena", "private", "apart", "2 nodes", "loop", "memcpy", "gloo", "mpi"]


def shortened(text: str) -> str:
    """What fits into a cell: numbers with at most three digits behind the point; of longer text no
    brackets, and the clauses from the first on. The terminal had it all."""
    text = re.sub(r"\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", text)
    text = text.replace("|", "/").strip()
    if len(text) > LONGEST_CELL:
        text = re.sub(r" ?\([^()]*\)", "", text)
    if len(text) <= LONGEST_CELL:
        return text
    room = text[: LONGEST_CELL - 4]
    ends = [match.start() for match in re.finditer(r"[;,] ", room)] or [room.rfind(" ")]
    return room[: ends[-1]] + " ..."


def today() -> str:
    """The day, and the commit of the sources where that can be told."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d} {done.stdout.strip()}".strip()


def _order(row: list[str]) -> tuple[bool, int, str]:
    """Numbers by their size, then names."""
    number = re.match(r"[\d,]+", row[0])
    return (number is None, int(number[0].replace(",", "")) if number else 0, row[0])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def record(page: pathlib.Path, table: str, rows: list[list[str]], sort: bool = True) -> None:
    """Puts rows of [name, cell, ...] into a table of `page`, which somebody may have edited since
    the last. SystemExit: the page has no such table, or a row has more or fewer cells than it."""
    text = page.read_text()
    mark, end = f"<!-- rows: {table} -->\n", "<!-- end of rows -->\n"
    if mark not in text:
        sys.exit(f"evidence: {page} has no '{mark.strip()}'")
    head, rest = text.split(mark, 1)
    body, tail = rest.split(end, 1)
    title, rule, *old = body.splitlines(keepends=True)
    kept = {cells[0]: cells for cells in map(_cells, old)}
    for name, *cells in rows:
        kept[name] = [name, today(), *map(shortened, cells)]
        if len(kept[name]) != len(_cells(title)):
            sys.exit(f"evidence: {table}: {kept[name]}: want a cell for each of {title.strip()}")
    lines = sorted(kept.values(), key=_order) if sort else list(kept.values())
    page.write_text(head + mark + title + rule + "".join(map(_line, lines)) + end + tail)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _beside(row: dict, other: str) -> list[str]:
    """Sheaf's figure, another one, and how many times better Sheaf's is."""
    ours, theirs = row["sheaf"], row[other]
    times = None
    if ours and theirs:
        times = ours / theirs if row["better"] == "higher" else theirs / ours
    return [_figure(ours), _figure(theirs), _figure(times)]


def bench_rows(area: str, figures) -> tuple[str, str, list[list[str]]]:
    """The page, the table and the rows of what `./do bench AREA --json` wrote."""
    if area == "cpp":
        rows = [[row["name"], *_beside(row, "floor"), row["unit"]] for row in figures["rows"]]
        return "benchmarks_cpp.md", area, rows
    if area == "cluster":
        rows = [
            [row["name"], *_beside(row, "floor"), *_beside(row, "grpc")[1:], row["unit"]]
            for row in figures["rows"]
        ]
        return "benchmarks_cpp.md", area, rows
    if area == "data":
        rows = [
            [row["name"], *_beside(row, "ray"), *_beside(row, "floor")[1:], row["unit"], row["aim"]]
            for row in figures["rows"]
        ]
        return "benchmarks_data.md", f"scale_{figures['scale']:g}".replace(".", "_"), rows
    if area in ("python", "tune") and "rows" in figures:
        rows = [
            [row["name"], *_beside(row, "ray"), _figure(row["floor"]), row["unit"]]
            for row in figures["rows"]
        ]
        return f"benchmarks_{area}.md", "ray", rows
    if area == "python":
        rows = [
            [name, _figure(row.get("rate", row.get("value"))), row["unit"]]
            for name, row in figures.items()
        ]
        return "benchmarks_python.md", "python", rows
    if area == "collective":
        found: dict[str, dict[str, str]] = {}
        for row in figures:
            size, ranks, column = row["name"].removeprefix("all_reduce ").split(", ")
            cell = f"{_figure(row['value'])} ({row['algbw_gbps']:.2g})"
            found.setdefault(f"{ranks}, {size}", {})[column] = cell
        rows = [[name, *(row.get(c, "-") for c in COLUMNS)] for name, row in found.items()]
        return "benchmarks_cpp.md", area, rows
    if area == "nccl":
        rows = [
            [row["name"], *_beside(row, "floor"), _figure(row["torch"]), row["unit"]]
            for row in figures["rows"]
        ]
        return "benchmarks_nccl.md", area, rows
    if area == "arrow":
        rows = [
            [row["name"], *(_figure(row.get(one)) for one in ARROW_COLUMNS), row["unit"]]
            for row in figures["rows"]
        ]
        return "benchmarks_arrow.md", area, rows
    if area == "dashboard":
        rows = [
            [row["name"], _figure(row["sheaf"]), _figure(row["floor"]), row["unit"]]
            for row in figures["rows"]
        ]
        return "benchmarks_dashboard.md", area, rows
    if area == "looking":
        rows = [
            [row["name"], *(_figure(row[key]) for key in ("floor", "sheaf"))]
            + [
                "-" if row[key] is None else f"{row[key]:.3f}"
                for key in ("ratio_events", "ratio_on", "ratio_page")
            ]
            for row in figures["rows"]
        ]
        return "benchmarks_python.md", area, rows
    if area == "growth":
        rows = [
            [
                row["name"],
                row["by"],
                ", ".join(f"{x:,}: {_figure(cost)}" for x, cost in row["points"]),
                f"x^{row['exponent']:.2f}: {row['verdict']}",
                row["unit"],
            ]
            for row in figures["rows"]
        ]
        return "growth.md", area, rows
    if area == "train":
        rows = [[row["name"], _figure(row["value"]), row["unit"]] for row in figures]
        return "benchmarks_train.md", area, rows
    sys.exit(f"evidence: of 'bench {area}' there is no table")


def main() -> None:
    match sys.argv[1:]:
        case ["bench", area, file]:
            page, table, rows = bench_rows(area, json.loads(pathlib.Path(file).read_text()))
            record(FOLDER / page, table, rows, sort=False)
            print(f"evidence: {len(rows)} rows are in docs/evidence/{page}")
        case [page, table]:
            rows = [_cells(line) for line in sys.stdin if line.startswith("| ")]
            record(FOLDER / page, table, rows)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

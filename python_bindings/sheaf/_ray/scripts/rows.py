# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows for people: as Ray's command line prints them, without PyYAML and tabulate."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

FORMATS = ("default", "json", "yaml", "table")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")  # Texts that YAML takes for nothing else.
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")  # Lines end there, for one.
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # What it does.


def bytes_text(size: float) -> str:
    """A size in bytes, as "1.500 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.3f} {unit}"
    return f"{size:.3f} B"


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with dates instead of milliseconds since 1970, and sizes with units."""
    return {name: _readable(name, value) for name, value in row.items()}


def _readable(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        if name == "resources_total" and isinstance(value, dict):
            return {
                key: bytes_text(amount) if "memory" in key else amount
                for key, amount in value.items()
            }
        return value
    if name.endswith(("_time_ms", "_at_ms")) or name in ("start_time", "end_time"):
        return str(datetime.datetime.fromtimestamp(value / 1000)) if value > 0 else ""
    return bytes_text(value) if name == "object_size" else value


def yaml(value: Any, indent: int = 0) -> str:
    """A value of JSON as YAML, a block of lines."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return "".join(pad + _key(key) + _below(entry, indent + 2) for key, entry in value.items())
    if isinstance(value, list) and value:
        out = ""
        for entry in value:
            block = yaml(entry, indent + 2)
            out += f"{pad}- {block[indent + 2 :]}"
        return out
    return f"{pad}{_scalar(value)}\n"


def _key(key: Any) -> str:
    return _scalar(str(key)) + ":"


def _below(value: Any, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + yaml(value, indent)
    return f" {_scalar(value)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):  # "1e+300" is a text to YAML 1.1.
        return text if "." in text else text.replace("e", ".0e")
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def table(headers: list[str], lines: list[list[Any]]) -> str:
    """A table with numbered rows, whose cells may have several lines."""
    cells = [[""] + headers] + [[str(i), *map(_cell, line)] for i, line in enumerate(lines)]
    split = [[cell.split("\n") for cell in line] for line in cells]
    widths = [
        max(len(part) for line in split for part in line[column])
        for column in range(len(headers) + 1)
    ]
    out = []
    for line in split:
        for index in range(max(map(len, line))):
            parts = [cell[index] if index < len(cell) else "" for cell in line]
            out.append(
                "  ".join(
                    part.ljust(width) for part, width in zip(parts, widths, strict=True)
                ).rstrip()
            )
    return "\n".join(out)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return yaml(value).rstrip("\n") if value else ""
    return str(value)


def listing(rows: list[dict[str, Any]], form: str) -> str:
    """Rows in one of FORMATS."""
    shown = [readable(row) for row in rows]
    if form == "json":
        return json.dumps(shown)
    if form == "yaml":
        return f"---\n{yaml(shown)}..."
    headers = list(shown[0]) if shown else []
    return (
        f"\n======== List: {datetime.datetime.now()} ========\nStats:\n{'-' * 30}\n"
        f"Total: {len(shown)}\n\nTable:\n{'-' * 30}\n"
        + table([header.upper() for header in headers], [list(row.values()) for row in shown])
        + "\n"
    )

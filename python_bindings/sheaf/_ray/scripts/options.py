# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options that several commands have."""

from __future__ import annotations

import argparse
import sys
from typing import Any

_STYLES = ("--log-style", "--log-color")  # Of Ray's output; Sheaf's has no colours.
_TRUTHS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


def parser_of(command: str, description: str) -> argparse.ArgumentParser:
    """A parser of the options that all commands of Ray have."""
    parser = argparse.ArgumentParser(f"ray {command}", description=description, allow_abbrev=False)
    for name in _STYLES:
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    return parser


def add_address(parser: argparse.ArgumentParser) -> None:
    """Adds --address of a command that asks over HTTP."""
    parser.add_argument(
        "--address",
        help="http://HOST:PORT of a dashboard, or a session directory (default: "
        "RAY_API_SERVER_ADDRESS, RAY_ADDRESS, SHEAF_ADDRESS, else the newest node here)",
    )


def truth(text: str) -> bool:
    """For argparse: "true" and the like."""
    value = _TRUTHS.get(text.lower())
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r}: want true or false")
    return value


class Meaningless:
    """Options that have no effect in Sheaf; those that were given are named."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._parser = parser
        self._names: dict[str, str] = {}  # Where the value goes -> the option.

    def add(self, *names: str, values: bool = True) -> None:
        """Accepts options, with a value behind each or without one."""
        for name in names:
            more: dict[str, Any] = {} if values else {"action": "store_true", "default": None}
            where = self._parser.add_argument(name, help=argparse.SUPPRESS, **more).dest
            self._names[where] = name

    def name_given(self, given: argparse.Namespace) -> None:
        """Prints which of them were given."""
        names = [name for where, name in self._names.items() if getattr(given, where) is not None]
        if names:
            print(
                f"{self._parser.prog}: without effect in Sheaf: {', '.join(names)}", file=sys.stderr
            )

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Prints a public header as Doxygen reads it: the comments of declarations, which are plain `//` in
the headers, become `///`. A comment stands for all functions below it, up to the next blank line or
comment. Comments in the bodies of functions and in namespace `internal` stay as they are.

Usage: doxygen_comments.py HEADER, as Doxyfile has it.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"^(\s*)// ?(.*)$")
TRAILING = re.compile(r"^(.*?[;,\w}])\s{2,}// (.*)$")
# A brace opens a place for declarations in a statement that begins so, else a body.
SCOPE = re.compile(r"\s*(inline\s+)?(namespace|class|struct|enum|union|extern)\b")
LABELS = ("public:", "protected:", "private:")
# What no comment reaches beyond.
ENDS = re.compile(r"\s*(};|}  //|#|public:|protected:|private:)")


def markdown(lines: list[str], indent: str) -> list[str]:
    """A comment as Markdown: what is indented further than its text is code."""
    out, in_code = [], False
    for line in lines:
        is_code = line.startswith("  ") and line.strip() != ""
        if is_code != in_code and line.strip():
            out.append(f"{indent}/// " + ("@code{.cpp}" if is_code else "@endcode"))
            in_code = is_code
        out.append(f"{indent}/// {line}".rstrip())
    return [*out, f"{indent}/// @endcode"] if in_code else out


def without_template(statement: str) -> str:
    """What follows `template <...>`, where a statement begins with it."""
    statement = statement.lstrip()
    while statement.startswith("template"):
        depth = 0
        for at, character in enumerate(statement):
            depth += (character == "<") - (character == ">")
            if character == ">" and depth == 0:
                statement = statement[at + 1 :].lstrip()
                break
        else:
            return ""
    return statement


class Filter:
    """One header. `_open` has for each brace that is open whether declarations stand in it."""

    def __init__(self) -> None:
        self._open: list[bool] = []
        self._pending = ""  # Code since the last statement or brace: what a brace belongs to.
        self._in_macro = False  # The line goes on with a macro of the one before.

    def declares(self) -> bool:
        return all(self._open)

    def between_statements(self) -> bool:
        return not self._pending.strip() and not self._in_macro

    def follow(self, code: str) -> None:
        """Takes braces of a line without comments into account."""
        code = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', code)
        in_macro, self._in_macro = self._in_macro or code.startswith("#"), code.endswith("\\")
        if in_macro:
            return
        for character in code:
            if character == "{":
                is_scope = SCOPE.match(without_template(self._pending)) is not None
                internal = re.search(r"namespace internal\s*$", self._pending) is not None
                self._open.append(is_scope and not internal)
                self._pending = ""
            elif character == "}" and self._open:
                self._open.pop()
                self._pending = ""
            elif character == ";" or self._pending.strip() + ":" in LABELS:
                self._pending = ""
            else:
                self._pending += character
        self._pending += " "


# What is said about types of others; Doxygen loses its way in it.
SPECIALIZATION = re.compile(r"(?:^//.*\n)*^template <class T>\nstruct std::(?:.*\n)*?};\n", re.M)


def converted(text: str, name: str) -> list[str]:
    lines = SPECIALIZATION.sub("", text).splitlines()
    at = lines.index("#pragma once")
    head = [COMMENT.match(line)[2] for line in lines[1:at] if COMMENT.match(line)]
    out = [f"/// @file {name}", *markdown(head, "")]
    state = Filter()
    block: list[str] = []  # The comment that is being read.
    shared: list[str] = []  # The one above, which what follows shares.
    for line in [*lines[at:], ""]:
        comment = COMMENT.match(line)
        if comment and state.declares():
            block.append(comment[2])
            shared = []
            indent = comment[1]
            continue
        trailing = TRAILING.match(line)
        if block:
            shared = markdown(block, indent)
            block = []
            out += shared
        elif state.declares() and (not line.strip() or ENDS.match(line)):
            shared = []
        elif state.declares() and state.between_statements() and not trailing:
            out += shared
        declared = state.declares()
        state.follow(line.partition("  // ")[0])
        if trailing and declared and state.declares() and not trailing[1].strip().startswith("}"):
            line = f"{trailing[1]}  ///< {trailing[2]}"
        out.append(line.replace("namespace sheaf::inline v1", "namespace sheaf"))
    return out


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    print("\n".join(converted(path.read_text(), path.name)))


if __name__ == "__main__":
    main()

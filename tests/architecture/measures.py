# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is counted of C++ sources: functions with their lines and parameters, classes with their
methods. The text is that of clang-format and has no comments and no string contents (rules.strip),
so braces tell all."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Function:
    # "Raylet::OnFrame", as the definition writes it; inside a class, with the names of the classes
    # around it.
    name: str
    line: int
    lines: int
    parameters: int


_TYPE = re.compile(
    r"(?:^|[\s>])(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*|\[\[\w+\]\]\s*)*([\w:]+)[^()=;]*$"
)
_NAME = re.compile(r"((?:[\w~]+(?:<[^<>]*>)?::)*(?:~?\w+|operator\s*\S+))\s*$")
_LATE = (
    r"(?:const|noexcept(?:\([^()]*\))?|override|final|mutable|&&?|->\s*[\w:<>,\s*&]+|requires\s.*)"
)


def _matching(text: str, at: int, opening: str, closing: str) -> int:
    """Where the bracket that opens at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i
    return len(text) - 1


def _parameter_count(text: str) -> int:
    depth, count = 0, 1
    for character in text:
        depth += (character in "(<[{") - (character in ")>]}")
        count += character == "," and depth == 0
    return count if text.strip() else 0


def _declarator(head: str) -> tuple[str, int] | None:
    """Name and number of parameters of the function whose body follows `head`, or None when none
    does."""
    head = re.sub(r"^\s*(?:template\s*<.*?>\s*(?=[\w\[~:]))+", "", head, flags=re.S)
    head = head.replace("operator()", "operator_call")
    open_at = -1
    for match in re.finditer(r"\(", head):
        name = _NAME.search(head[: match.start()])
        if name is None or name.group(1) in (
            "alignas",
            "noexcept",
            "decltype",
            "requires",
            "if",
            "for",
            "while",
            "switch",
            "__attribute__",
        ):
            continue
        open_at = match.start()
        break
    if open_at < 0:
        return None
    close = _matching(head, open_at, "(", ")")
    rest = head[close + 1 :].strip()
    if (
        rest
        and not rest.startswith(":")
        and not re.fullmatch(rf"(?:{_LATE}\s*)+", rest, flags=re.S)
    ):
        return None
    return name.group(1), _parameter_count(head[open_at + 1 : close])


def functions_of(code: str) -> list[Function]:
    """Functions that `code` defines; lambdas and what stands inside functions are part of them."""
    code = re.sub(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", "", code, flags=re.M)
    found: list[Function] = []

    def walk(at: int, end: int, scope: str) -> None:
        start = at
        while at < end:
            character = code[at]
            if character in ";}":
                start = at + 1
            elif character == "(":
                at = _matching(code, at, "(", ")")
            elif character == "{":
                close = _matching(code, at, "{", "}")
                head = code[start:at]
                head = re.sub(r"^(?:\s*(?:public|private|protected)\s*:)+", "", head)
                declared = _declarator(head)
                kind = _TYPE.search(head)
                if re.search(r'(?:^|\s)namespace\b[^()]*$|extern\s+""\s*$', head):
                    walk(at + 1, close, scope)
                    start = close + 1
                elif kind is not None and declared is None:
                    walk(at + 1, close, f"{scope}{kind.group(1)}::")
                    start = close + 1
                elif (
                    declared is not None
                    and re.search(r"\)\s*:(?!:)", head)
                    and re.search(r"[\w>]\s*$", head)
                ):
                    pass  # Braces that initialise a member, in front of the body.
                elif declared is not None:
                    line = (
                        code.count(
                            "\n", 0, start + len(code[start:at]) - len(code[start:at].lstrip())
                        )
                        + 1
                    )
                    last = code.count("\n", 0, close) + 1
                    found.append(Function(scope + declared[0], line, last - line + 1, declared[1]))
                    start = close + 1
                at = close
            at += 1

    walk(0, len(code), "")
    return found

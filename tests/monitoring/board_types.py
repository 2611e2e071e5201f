# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Compiles the boards of deploy/grafana against Grafana's types (types/panels.ts), and planted
mistakes, which must be found.

Usage: board_types.py FOLDER_FOR_NPM    (`./do monitoring` runs it)
"""

import copy
import json
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BOARDS = sorted((HERE.parents[1] / "deploy" / "grafana").glob("*.json"))


def install(folder: pathlib.Path) -> None:
    """The packages that types/package-lock.json names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", "panels.ts"):
        shutil.copy(HERE / "types" / name, folder)
    subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
        cwd=folder,
        check=True,
        timeout=600,
    )


def compile_boards(folder: pathlib.Path, boards: dict[str, dict]) -> dict[str, str]:
    """What tsc says of each board that it refuses."""
    for name, board in boards.items():
        text = json.dumps(board, indent=1)
        (folder / f"{name}.ts").write_text(
            f"import type {{ Board }} from './panels';\nexport const board: Board = {text};\n"
        )
    done = subprocess.run(
        [
            *(
                "node_modules/.bin/tsc",
                "--noEmit",
                "--strict",
                "--skipLibCheck",
                "--pretty",
                "false",
            ),
            *("--module", "esnext", "--moduleResolution", "bundler"),
            *(f"{name}.ts" for name in boards),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name = line.split(".ts(")[0]
        said[name] = said.get(name, "") + line + "\n"
    assert set(said) <= set(boards) and (done.returncode == 0) == (not said), done.stdout
    return said


def planted(board: dict) -> dict[str, dict]:
    """The board with one mistake each."""
    mistakes = {
        "an_unknown_field": lambda b: b["panels"][0].update(colour="red"),
        "an_unknown_panel": lambda b: b["panels"][0].update(type="graph"),
        "a_wrong_mode": lambda b: b["panels"][-1]["options"]["tooltip"].update(mode="both"),
        "a_number_as_text": lambda b: b["panels"][0]["gridPos"].update(w="8"),
        "no_expression": lambda b: b["panels"][0]["targets"][0].pop("expr"),
        "a_wrong_variable": lambda b: b["templating"]["list"][1].update(type="query_result"),
    }
    out = {}
    for name, make in mistakes.items():
        out[name] = copy.deepcopy(board)
        make(out[name])
    return out


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    install(folder)
    boards = {file.stem: json.loads(file.read_text()) for file in BOARDS}
    wrong = list(compile_boards(folder, boards).values())
    mistakes = planted(boards["overview"])
    found = compile_boards(folder, mistakes)
    wrong += [f"not found: {name}" for name in mistakes if name not in found]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"| boards that compile against Grafana's types | {len(boards)} of {len(boards)} |")
    print(f"| planted mistakes that are refused | {len(found)} of {len(mistakes)} |")


if __name__ == "__main__":
    main()

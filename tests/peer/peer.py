# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the same small programs (programs/AREA.py) on Sheaf and compares what they say with what they
say on Ray.

    ./do peer [AREA[.NAME]...]            on Sheaf, against the recorded answers (answers/AREA.json)
    ./do peer --live [...]                against Ray itself, which is installed when it is not there
    ./do peer --record [--rounds N] [...]  writes the answers of Ray that are the same in N rounds
    ./do peer --say AREA[.NAME]           what they say on Sheaf
    ./do peer --list                      areas and their programs
    ./do peer libraries [NAME...]         libraries of PyPI on top of both (libraries.py)
    ./do peer jobs [NAME...]              what submits jobs to Ray, to Sheaf (jobs.py)
    ./do peer hosts                       the tests of PyInstaller, gunicorn and Jupyter (hosts.py)
    ./do peer torch [VERSION]             the tests of torch with one of PyPI (newest_torch.py)

Where Sheaf differs and is meant to, differences.py gives the reason and what Sheaf says instead."""

import argparse
import ast
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

import differences  # noqa: E402

SKIPPED = 77  # The status when all that was asked for is left out.
LONGEST_SILENCE = 120  # Seconds without an answer: the process is killed.


def areas():
    return sorted(path.stem for path in (HERE / "programs").glob("*.py"))


def written_names(source):
    """Names of the programs of a script that only writes them down; None: it makes some."""
    tree, names, marks = ast.parse(source), [], []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            mine = [one for one in node.decorator_list if _is_program(getattr(one, "func", one))]
            names += [node.name] * len(mine)
            marks += mine
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    makes = any(_is_program(call.func) and call not in marks for call in calls)
    return None if makes else names


def _is_program(node):
    return isinstance(node, ast.Name) and node.id == "program"


def lacking(area):
    """Modules that an area needs and that are not there."""
    needs = ("pyarrow", "pandas", "PIL") if area.startswith("data_") else ()
    if "torch" in area:
        needs = ("pyarrow", "pandas", "PIL", "torch")
    return [name for name in needs if importlib.util.find_spec(name) is None]


class Side:
    """Where programs run: `sheaf` or `ray`. Programs of another folder, by another interpreter:
    see libraries.py."""

    def __init__(self, name, folder="programs", python=None):
        self.name = name
        self.folder = HERE / folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        }
        if name == "sheaf":
            self.command = [python or sys.executable, "-m", "sheaf.as_ray"]
        else:
            import bench_python

            self.command = [str(python or bench_python.peer_python("ray"))]
            self.environment["PYTHONPATH"] = str(HERE)

    def names(self, area):
        script = self.folder / f"{area}.py"
        written = written_names(script.read_text())
        if written is not None:
            return written
        listed = subprocess.run(
            [*self.command, str(script), "--list"],
            capture_output=True,
            text=True,
            env=self.environment,
        )
        if listed.returncode != 0:
            raise SystemExit(f"{script} cannot be read:\n{listed.stderr}")
        return listed.stdout.split()

    def run(self, area, names, log=subprocess.DEVNULL):
        """{name: lines}. A program that ends its process, or never ends, says so."""
        answers = {}
        left = list(names)
        while left:
            with tempfile.TemporaryDirectory(prefix="sheaf-peer-") as directory:
                out = pathlib.Path(directory) / "answers"
                out.touch()
                command = [*self.command, str(self.folder / f"{area}.py")]
                process = subprocess.Popen(
                    [*command, "--out", str(out), *left],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                end = self.follow(process, out)
                begun = None
                for line in out.read_text().splitlines():
                    answer = json.loads(line)
                    if "begins" in answer:
                        begun = answer["begins"]
                    else:
                        answers[answer["name"]] = answer["lines"]
                        begun = None
                if begun is None and end != 0 and not any(n in answers for n in left):
                    raise SystemExit(f"{self.name}: {area} did not begin (status {end})")
                if begun is not None:
                    answers[begun] = [f"its process ends: {end}"]
                left = [name for name in left if name not in answers]
        return answers

    def follow(self, process, out):
        """Waits for the end, or for a silence that is too long."""
        size = -1
        while True:
            try:
                return process.wait(timeout=LONGEST_SILENCE)
            except subprocess.TimeoutExpired:
                if out.stat().st_size == size:
                    os.killpg(process.pid, 9)
                    process.wait()
                    return "never"
                size = out.stat().st_size


def recorded(area):
    path = HERE / "answers" / f"{area}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def record(area, names, rounds, log):
    """Writes Ray's answers that were the same in all rounds; returns the names of the others."""
    side = Side("ray")
    runs = [side.run(area, names, log) for _ in range(rounds)]
    unsteady = [name for name in names if any(run[name] != runs[0][name] for run in runs)]
    known = recorded(area)
    order = side.names(area)
    known.update({name: runs[0][name] for name in names if name not in unsteady})
    kept = {name: known[name] for name in order if name in known and name not in unsteady}
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    (HERE / "answers" / f"{area}.json").write_text(text)
    for name in unsteady:
        print(
            f"{area}.{name}: not the same in each round:", *(run[name] for run in runs), sep="\n  "
        )
    return unsteady


def compare(area, names, expected, actual):
    """Prints what differs; returns (equal, known differences, known bugs, others)."""
    equal, known, bugs, others = [], [], [], []
    for name in names:
        full = f"{area}.{name}"
        difference = differences.KNOWN.get(full)
        if name not in expected:
            others.append(name)
            print(f"{full}: no recorded answer: ./do peer --record {full}")
        elif difference is not None:
            if actual[name] == difference.lines and actual[name] != expected[name]:
                known.append(name)
                continue
            others.append(name)
            same = actual[name] == expected[name]
            print(f"{full}: " + ("does not differ any more" if same else "differs in a new way"))
            show(difference.lines, actual[name], "known")
        elif full in differences.OPEN:
            if actual[name] != expected[name]:
                bugs.append(name)
                continue
            equal.append(name)  # No failure: some differ now and then.
            print(f"{full}: does not differ any more: take it out of differences.OPEN")
        elif actual[name] == expected[name]:
            equal.append(name)
        else:
            others.append(name)
            print(f"{full}: differs")
            show(expected[name], actual[name], "Ray")
    return equal, known, bugs, others


def words(counts):
    kinds = ("equal", "differ with a reason", "are known bugs", "differ")
    return ", ".join(f"{count} {kind}" for count, kind in zip(counts, kinds, strict=True))


def show(expected, actual, title):
    for k in range(max(len(expected), len(actual))):
        was = expected[k] if k < len(expected) else "-"
        now = actual[k] if k < len(actual) else "-"
        if was != now:
            print(
                f"    line {k + 1}, {title:6}: {was}\n    {'':{len(str(k + 1))}}      Sheaf : {now}"
            )


def selected(wanted):
    """[(area, names or None)] of AREA and AREA.NAME words; all areas without one."""
    chosen = {}
    for word in wanted or areas():
        area, _, name = word.partition(".")
        if area not in areas():
            raise SystemExit(f"there is no area {area!r}: {', '.join(areas())}")
        chosen.setdefault(area, [])
        if name:
            chosen[area].append(name)
    return list(chosen.items())


def main():
    if sys.argv[1:2] == ["libraries"]:
        import libraries

        return libraries.main(sys.argv[2:])
    if sys.argv[1:2] == ["torch"]:
        import newest_torch

        return newest_torch.main(sys.argv[2:])
    if sys.argv[1:2] == ["jobs"]:
        import jobs

        return jobs.main(sys.argv[2:])
    if sys.argv[1:2] == ["hosts"]:
        import hosts

        return hosts.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        description="The same programs on Sheaf and on Ray: what differs.", prog="./do peer"
    )
    parser.add_argument("programs", nargs="*", metavar="AREA[.NAME]", help="default: all")
    parser.add_argument("--live", action="store_true", help="run Ray, too, instead of its record")
    parser.add_argument("--record", action="store_true", help="write the answers of Ray")
    parser.add_argument("--rounds", type=int, default=2, help="of --record (default: 2)")
    parser.add_argument("--say", action="store_true", help="only print what they say on Sheaf")
    parser.add_argument("--list", action="store_true", help="areas and their programs")
    parser.add_argument("--log", action="store_true", help="let programs print")
    arguments = parser.parse_args()
    log = None if arguments.log else subprocess.DEVNULL
    sheaf = Side("sheaf")
    totals = [0, 0, 0, 0]
    chosen = selected(arguments.programs)
    left_out = [area for area, _ in chosen if lacking(area)]
    for area in left_out:
        print(f"{area:24} left out: there is no {', '.join(lacking(area))}", flush=True)
    for area, names in chosen:
        if area in left_out:
            continue
        all_names = sheaf.names(area)
        for name in names:
            if name not in all_names:
                raise SystemExit(f"there is no program {area}.{name}: {', '.join(all_names)}")
        names = names or all_names
        if arguments.list:
            print(f"{area} ({len(names)}):", ", ".join(names))
            continue
        if arguments.record:
            record(area, names, arguments.rounds, log)
            continue
        if arguments.say:
            for name, lines in sheaf.run(area, names, log).items():
                print(f"{area}.{name}", *lines, sep="\n    ")
            continue
        expected = Side("ray").run(area, names, log) if arguments.live else recorded(area)
        found = compare(area, names, expected, sheaf.run(area, names, log))
        print(
            f"{area:24} {len(names):4} programs: {words(len(part) for part in found)}", flush=True
        )
        totals = [total + len(part) for total, part in zip(totals, found, strict=True)]
    if not (arguments.list or arguments.record or arguments.say):
        print(f"{'all':24} {sum(totals):4} programs: {words(totals)}")
        return 1 if totals[3] else SKIPPED if len(left_out) == len(chosen) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The page that is committed, dashboard/dist, is what its sources give, and units.mjs holds of these.
Only where Node.js and the packages of `./do page` are: the build itself needs neither."""

import filecmp
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEB = ROOT / "build/web"
LOCK = "package-lock.json"


def main() -> int:
    if shutil.which("node") is None or not (WEB / "node_modules").is_dir():
        print("skipped: no Node.js, or ./do page has never run here")
        return 77
    if not filecmp.cmp(ROOT / "dashboard/web" / LOCK, WEB / ".installed", shallow=False):
        print("skipped: the packages are others than those of package-lock.json; ./do page")
        return 77
    with tempfile.TemporaryDirectory(dir=WEB) as scratch:
        # Beside node_modules, where the compiler looks for packages.
        sources = pathlib.Path(scratch) / "web"
        shutil.copytree(ROOT / "dashboard/web", sources)
        built = pathlib.Path(scratch) / "dist"
        done = subprocess.run(
            ["node", "build.mjs", str(built)],
            cwd=sources,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            print(done.stderr)
            return 1
        units = ["node", str(ROOT / "tests/dashboard/units.mjs"), str(sources)]
        if subprocess.run(units, timeout=60).returncode != 0:
            return 1
        committed = ROOT / "dashboard/dist"
        names = sorted(file.name for file in built.iterdir())
        if names != sorted(file.name for file in committed.iterdir()):
            print(f"dashboard/dist has other files than {names}: ./do page, and commit")
            return 1
        _, other, wrong = filecmp.cmpfiles(built, committed, names, shallow=False)
        if other or wrong:
            print(
                f"dashboard/dist is older than dashboard/web: {other + wrong}: ./do page, and commit"
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

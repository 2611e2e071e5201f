# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The wheel works in a clean virtual environment: no compiler and no other program in PATH, no
library of the system but those of every Linux. `--wheel FILE` tries that one, else one is made of a
build folder. The environment is of the Python that runs this; `--programs` runs the acceptance
programs and a training there, too."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv

import platform_tag

SKIPPED = 77
WAIT_S = 200
PROGRAMS_WAIT_S = 900
SOURCE = pathlib.Path(__file__).resolve().parents[2]
NO_INDEX = (
    "No matching distribution found",
    "Could not find a version",
    "Connection",
    "Temporary failure in name resolution",
    "Max retries",
)
# What a Linux with Python has: the C and C++ libraries, and what the interpreter itself loads.
SYSTEM = re.compile(
    r"^(ld-linux.*|ld|lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|z|ffi|expat|crypto|ssl|lzma|zstd|bz2|uuid|python3.*))(-[\d.]+)?\.so[.\d]*$"
)


def run(command, timeout=WAIT_S, **how):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout, **how
    )


class Wheel(unittest.TestCase):
    wheel: pathlib.Path
    scratch: pathlib.Path
    numpy = "numpy"
    programs = False

    @classmethod
    def setUpClass(cls):
        cls.place = cls.scratch / "venv"
        # pip's settings of the user count (an index nearer by), and nothing else of the
        # environment.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name == "HOME"
        }
        builder = venv.EnvBuilder(with_pip=True, symlinks=True)
        builder.create(cls.place)
        cls.environment = {
            **kept,
            "PATH": str(cls.place / "bin"),
            "SHEAF_DIR": str(cls.scratch / "sessions"),
            "SHEAF_STATE_IN_MEMORY": "1",
            "LANG": "C.UTF-8",
        }
        done = run(
            [
                cls.place / "bin/pip",
                "install",
                "--disable-pip-version-check",
                "--retries",
                "1",
                "--no-input",
                "--only-binary",
                ":all:",
                cls.wheel,
                cls.numpy,
            ],
            env=cls.environment,
        )
        if done.returncode != 0 and any(sign in done.stderr for sign in NO_INDEX):
            print(
                f"SKIPPED: pip finds not all of what the wheel requires, and {cls.numpy}:",
                done.stderr.strip().splitlines()[-1],
            )
            raise SystemExit(SKIPPED)
        assert done.returncode == 0, done.stdout + done.stderr
        versions = "import sys, numpy; print('Python', sys.version.split()[0] + ', NumPy', numpy.__version__)"
        print(cls.command("python", "-c", versions).stdout, end="", flush=True)

    @classmethod
    def command(cls, *words, **how):
        place = cls.place / "bin" / words[0]
        return run([place, *words[1:]], env=cls.environment, cwd=cls.scratch, **how)

    def program(self, *words):
        """Runs one that takes minutes, and shows what it said."""
        if not self.programs:
            self.skipTest("only with --programs")
        done = self.command("python", *words, timeout=PROGRAMS_WAIT_S)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_programs_of_users_pass(self):
        self.program(SOURCE / "tests/acceptance/run.py")

    def test_a_training_survives_the_loss_of_a_worker(self):
        self.program(SOURCE / "examples/python/train_digits.py")

    def test_it_requires_three_packages_and_no_more(self):
        done = self.command(
            "python",
            "-c",
            "from importlib.metadata import requires; print(*requires('sheaf'), sep='\\n')",
        )
        self.assertEqual(
            {
                re.match(r"[\w-]+", line).group()
                for line in done.stdout.splitlines()
                if "extra ==" not in line
            },
            {"cloudpickle", "nanobind-backend", "numpy"},
        )

    def test_a_program_runs_with_the_libraries_of_the_wheel(self):
        program = pathlib.Path(__file__).with_name("program.py")
        done = self.command("python", program)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        loaded = [line for line in done.stdout.splitlines() if line.startswith("/")]
        self.assertTrue(any("/sheaf/_core" in line for line in loaded), done.stdout)
        self.check_libraries(line for line in loaded if "/lib-dynload/" not in line)

    def test_the_program_sheaf_needs_no_library_of_the_system(self):
        program = next(self.place.glob("lib/python*/site-packages/sheaf/bin/sheaf"))
        done = run([program], env={**self.environment, "LD_TRACE_LOADED_OBJECTS": "1"})
        self.assertNotIn("not found", done.stdout)
        self.check_libraries(re.findall(r"=> (\S+)", done.stdout))

    def check_libraries(self, paths):
        inside = str(self.place.resolve())
        foreign = [
            path
            for path in paths
            if not os.path.realpath(path).startswith(inside)
            and not SYSTEM.match(os.path.basename(path))
        ]
        self.assertEqual(foreign, [], "the wheel needs libraries that it does not hold")

    def test_the_command_sheaf_speaks_to_a_node(self):
        self.assertRegex(self.command("sheaf", "--version").stdout, r"^sheaf \d")
        self.assertEqual(self.command("sheaf", "status").returncode, 3)  # No node runs.
        try:
            started = self.command("sheaf", "start", "--head", "--num-cpus", "1")
            self.assertEqual(started.returncode, 0, started.stderr)
            status = self.command("sheaf", "status")
            self.assertEqual(status.returncode, 0, status.stderr)
            self.assertIn("CPU", status.stdout)
        finally:
            self.assertEqual(self.command("sheaf", "stop").returncode, 0)

    def test_its_name_says_which_linux_it_needs(self):
        """Of glibc's version; it can be found out where binutils are, on the machine that
        builds."""
        package = next(self.place.glob("lib/python*/site-packages/sheaf"))
        major, minor = platform_tag.glibc_of(package)
        self.assertGreaterEqual((major, minor), (2, 17))
        self.assertRegex(self.wheel.name, rf"-(linux|manylinux_{major}_{minor})_\w+\.whl$")

    def test_pytest_finds_its_fixtures(self):
        code = (
            "from importlib.metadata import entry_points; print(*(e.name + '=' + "
            "e.value for e in entry_points(group='pytest11')))"
        )
        self.assertEqual(
            self.command("python", "-c", code).stdout.split(), ["sheaf.testing=sheaf.testing"]
        )

    def test_its_types_and_terms_are_in_it(self):
        package = next(self.place.glob("lib/python*/site-packages/sheaf"))
        for name in ("py.typed", "_core.pyi", "lib/licenses"):
            self.assertTrue((package / name).exists(), name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--numpy", default="numpy", help="which one, as in 'numpy<2'")
    parser.add_argument("--programs", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sheaf-wheel-") as scratch:
        Wheel.scratch = pathlib.Path(scratch)
        Wheel.numpy, Wheel.programs = arguments.numpy, arguments.programs
        if arguments.wheel:
            Wheel.wheel = arguments.wheel.resolve()
        else:
            from assemble import assemble

            Wheel.wheel = platform_tag.retag(
                assemble(arguments.cmake, arguments.build, Wheel.scratch)
            )
        unittest.main(argv=sys.argv[:1], verbosity=2)

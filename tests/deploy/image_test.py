# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The images of deploy/image: two builds are equal, byte for byte, and what is in them runs as Kubernetes
runs it. As root, for mmdebstrap, buildah and namespaces.

Usage: image_test.py WHEEL SHEAF_PROGRAM FOLDER
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import unittest
import urllib.request

from processes import children_of

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
WHEEL = PROGRAM = ""
FOLDER = pathlib.Path()
USER = 10001
WAIT_S = 60
MB = 1_000_000

JOB = """
set -e
sheaf start --head --port=0 --dashboard-port=0 --num-cpus=2 --object-store-memory=100MiB
trap 'sheaf stop' EXIT
ray health-check
cat > /tmp/job.py <<'END'
import os, ray
ray.init()
f = ray.remote(lambda: (os.getuid(), 6 * 7))
print("uid and value:", ray.get(f.remote()))
END
sheaf job submit -- python /tmp/job.py
wget -q -O- "$(sheaf status --json | sed 's/.*"metrics_url": *"\\([^"]*\\)metrics".*/\\1/')api/healthz"
"""


# LIBRARY: the file of authorities that it reads where none is named.
DEFAULT = """
import ctypes, sys
crypto = ctypes.CDLL(sys.argv[1])
crypto.X509_get_default_cert_file.restype = ctypes.c_char_p
print(crypto.X509_get_default_cert_file().decode())
"""


def run(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=1500, **more
    )


def built(kind: str, folder: str) -> pathlib.Path:
    """Makes an image; its archive."""
    what = ["--cpp", PROGRAM] if kind == "cpp" else [WHEEL]
    done = run(DEPLOY / "image/build.sh", *what, FOLDER / folder)
    assert done.returncode == 0, done.stderr
    print(done.stdout, end="", flush=True)
    (archive,) = (FOLDER / folder).glob("*-cpp.oci.tar" if kind == "cpp" else "*[0-9].oci.tar")
    return archive


class Storage:
    """buildah's, for one image."""

    def __init__(self, archive: pathlib.Path):
        self.folder = FOLDER / f"storage-{archive.name.removesuffix('.oci.tar')}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.container = self.buildah("from", f"oci-archive:{archive}").stdout.strip()
        self.root = pathlib.Path(self.buildah("mount", self.container).stdout.strip())

    def buildah(self, *words) -> subprocess.CompletedProcess:
        done = run(
            *("buildah", "--storage-driver", "vfs", "--root", self.folder / "root"),
            *("--runroot", self.folder / "run", *words),
        )
        assert done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
        return done

    def inside(self, script: str) -> str:
        """What it prints, by a file: buildah may lose what comes just before the end."""
        self.buildah(
            *("run", "--isolation", "chroot", "--user", USER, self.container, "--"),
            *("sh", "-c", f"exec >/tmp/said 2>&1\n{script}"),
        )
        return (self.root / "tmp/said").read_text()

    def remove(self):
        self.buildah("umount", self.container)
        shutil.rmtree(self.folder, ignore_errors=True)


class Image:
    """What all images have in common."""

    kind: str
    most: int

    @classmethod
    def setUpClass(cls):
        cls.archive = built(cls.kind, "first")
        cls.storage = Storage(cls.archive)

    @classmethod
    def tearDownClass(cls):
        cls.storage.remove()

    def test_two_builds_are_the_same(self):
        again = built(self.kind, "second")
        self.assertEqual(self.digest(self.archive), self.digest(again))
        shutil.rmtree(again.parent)

    def digest(self, archive: pathlib.Path) -> str:
        name = archive.name.removesuffix(".oci.tar")
        return archive.with_name(f"{name}.digest").read_text().strip()

    def test_it_is_small(self):
        self.assertLess(self.archive.stat().st_size, self.most)

    def test_nothing_in_it_gives_rights(self):
        for folder, _, names in os.walk(self.storage.root):
            for name in names:
                mode = os.lstat(os.path.join(folder, name)).st_mode
                if stat.S_ISREG(mode):
                    self.assertFalse(mode & (stat.S_ISUID | stat.S_ISGID), f"{folder}/{name}")

    def test_its_user_is_nobody_in_particular(self):
        config = json.loads(self.storage.buildah("inspect", self.storage.container).stdout)
        self.assertEqual(f"{USER}:{USER}", config["OCIv1"]["config"]["User"])
        said = self.storage.inside('while read -r a b c; do echo "$a $b"; done </proc/self/status')
        self.assertIn(f"Uid: {USER}\n", said)

    def test_what_is_in_it_is_listed(self):
        self.assertLessEqual(self.contains, self.listed())

    def listed(self) -> set[str]:
        """The packages of the list beside it."""
        name = self.archive.name.removesuffix(".oci.tar")
        listed = json.loads(self.archive.with_name(f"{name}.cdx.json").read_text())
        return {one["purl"].split("@")[0] for one in listed["components"]}

    def locked(self, *command) -> tuple[subprocess.Popen, int]:
        """Runs a command as Kubernetes does: as process 1 of its namespace, on a root that is
        read-only, without any right; and a port for its health."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        state = FOLDER / f"state-{self.kind}"
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        os.chown(state, USER, USER)
        root = self.storage.root
        script = (
            f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && "
            f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && "
            f"mount -t tmpfs tmpfs {root}/tmp && mount --bind {state} {root}/var/lib/sheaf && "
            f"exec setpriv --no-new-privs chroot --userspec={USER}:{USER} {root} "
            f'"$@" --health-port={port}'
        )
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", *command],
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": "/tmp",
                "SHEAF_DIR": "/var/lib/sheaf/sessions",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, port

    def test_it_runs_as_kubernetes_runs_it(self):
        process, port = self.locked(
            *("sheaf", "start", "--head", "--block", "--resume=latest", "--port=0"),
            *("--dashboard-port=0", "--num-cpus=1", "--object-store-memory=100MiB"),
        )
        end = time.monotonic() + WAIT_S
        while not (said := self.health(port)):
            if process.poll() is not None:
                self.fail(f"it has ended: {process.stdout.read()}")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual("success", said)
        url = process.stdout.readline().split("\t")[-1].strip()
        # Of what all shells have; a process is left behind.
        submitted = self.ask(
            url,
            "/api/jobs/",
            {
                "entrypoint": "(sheaf version &); while read -r a b c; do echo $a $b; done </proc/self/status"
            },
        )
        where = f"/api/jobs/{submitted['submission_id']}"
        while (row := self.ask(url, where))["status"] in ("PENDING", "RUNNING"):
            self.assertLess(time.monotonic(), end, row)
            time.sleep(0.1)
        self.assertEqual("SUCCEEDED", row["status"], row)
        status = self.ask(url, f"{where}/logs")["logs"]
        for line in (f"Uid: {USER}", "CapEff: 0000000000000000", "NoNewPrivs: 1"):
            self.assertIn(line + "\n", status)
        (first,) = children_of(process.pid)
        self.assertNotIn("Z", [state for state, _ in children_of(first).values()])
        os.kill(first, signal.SIGTERM)
        self.assertEqual(0, process.wait(WAIT_S))

    def health(self, port: int) -> str:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/api/healthz", timeout=5
            ) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def ask(self, url: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            url + path, data=None if body is None else json.dumps(body).encode()
        )
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)


class WithPython(Image, unittest.TestCase):
    kind, most = "python", 75 * MB
    contains = {
        "pkg:pypi/sheaf",
        "pkg:pypi/numpy",
        "pkg:deb/debian/python3.11",
        "pkg:deb/debian/wget",
    }

    def test_a_head_runs_a_job_and_ends(self):
        said = self.storage.inside(JOB)
        self.assertIn(f"uid and value: ({USER}, 42)", said)
        self.assertIn("success", said)


class Cpp(Image, unittest.TestCase):
    kind, most = "cpp", 15 * MB
    contains = {"pkg:deb/debian/libc6", "pkg:deb/debian/ca-certificates"}

    def libraries(self) -> list[pathlib.Path]:
        """All in the image that are no links."""
        found = [
            path
            for folder in ("lib", "usr/lib")
            for path in (self.storage.root / folder).rglob("*.so*")
            if not path.is_symlink()
        ]
        self.assertGreater(len(found), 8)
        return found

    def test_each_library_is_of_a_package_that_is_listed(self):
        for library in self.libraries():
            # This machine has them, too, as the program was linked with them.
            owners = run("dpkg-query", "-S", f"*/{library.name}").stdout
            packages = {
                line.partition(":")[0]
                for line in owners.splitlines()
                if line.endswith(f"x86_64-linux-gnu/{library.name}")
            }
            listed = {f"pkg:deb/debian/{package}" for package in packages} & self.listed()
            self.assertTrue(listed, f"{library.name} is of {packages}")

    def test_a_program_that_needs_more_than_is_listed_is_refused(self):
        folder = FOLDER / "refused"
        shutil.rmtree(folder, ignore_errors=True)
        program = shutil.which("apt-get")  # Which mmdebstrap has brought, and its library.
        done = run(DEPLOY / "image/build.sh", "--cpp", program, folder)
        self.assertNotEqual(0, done.returncode)
        self.assertRegex(done.stderr, r"apt-get needs libapt-pkg\.so\.\d\S*, which none of the")
        self.assertEqual([], list(folder.iterdir()))

    def test_authorities_are_where_its_openssl_looks(self):
        (library,) = (path for path in self.libraries() if path.name.startswith("libcrypto"))
        said = run(sys.executable, "-c", DEFAULT, library).stdout.strip()
        self.assertTrue(os.path.isabs(said), said)
        # A link of the image is one from its own root.
        place = self.storage.root / said[1:]
        if place.is_symlink():
            place = self.storage.root / os.readlink(place)[1:]
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.load_verify_locations(place)
        self.assertGreater(trust.cert_store_stats()["x509_ca"], 100)


if __name__ == "__main__":
    missing = [tool for tool in ("mmdebstrap", "buildah", "unshare") if not shutil.which(tool)]
    if missing or os.geteuid() != 0:
        print(f"skipped: want root, and {' '.join(missing) or 'nothing else'}")
        sys.exit(77)
    WHEEL, PROGRAM = map(os.path.abspath, sys.argv[1:3])
    FOLDER = pathlib.Path(sys.argv[3]).absolute()
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Of both builds, though somebody commits meanwhile.
    commit = run("git", "-C", DEPLOY, "log", "-1", "--format=%ct").stdout.strip()
    os.environ["SOURCE_DATE_EPOCH"] = commit
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stands in for the scheduler and for the kubelet of the one node: containers are processes.

A pod has a network namespace, with an address; its container in it namespaces of mounts and of
processes, with the root of this machine under a layer of its own, read-only, and the
program of the image and the package of this build where the image has them. Users, capabilities, volumes, variables, probes,
preStop and the grace of an end are those of the pod. Limits of memory and of CPUs are not enforced.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import math
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import NamedTuple

from control_plane import NODE, Api, Object, Refused, until
from network import DOMAIN, GATEWAY, Network

ROOT = pathlib.Path(__file__).parents[2]
LOOK_S = 0.5
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 2, 300
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
IMAGE = {  # As deploy/image/build.sh configures it.
    "PATH": f"{ROOT}/build/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "SHEAF_DIR": "/var/lib/sheaf",
    "LANG": "C.UTF-8",
    "PYTHONPATH": f"{ROOT}/build/python:{ROOT}/build/python/sheaf/_ray/_alias",
}


class Image(NamedTuple):
    """What an image has of Sheaf: the program, and the folder of the Python package."""

    program: pathlib.Path
    packages: pathlib.Path


Images = dict[str, Image]  # Those that there are, by their names.
# LAYER SOURCES PROGRAM PACKAGES ETC [VOLUME TARGET ro|rw]... -- COMMAND...
CONTAINER = """
set -e
layer=$1 sources=$2 program=$3 packages=$4 etc=$5; shift 5
root=$layer/root
mount --make-rprivate /
mount -t tmpfs layer $layer
mkdir -p $layer/upper/usr/local/bin $layer/work $root
ln -s $program $layer/upper/usr/local/bin/sheaf
ln -s sheaf $layer/upper/usr/local/bin/ray
mount -t overlay overlay -o lowerdir=/,upperdir=$layer/upper,workdir=$layer/work $root
mount --rbind /dev $root/dev
mount -t tmpfs -o size=64m,mode=1777 shm $root/dev/shm
mount -t proc proc $root/proc
mount -t sysfs -o ro sysfs $root/sys
mkdir -p $root$sources
mount --bind -o ro $sources $root$sources
mount --bind -o ro $packages $root$sources/build/python
folder=$sources
while [ $folder != / ]; do  # Not all may have been everybody's to go through.
  folder=$(dirname $folder)
  chmod a+x $root$folder
done
rm -f $root/etc/resolv.conf
cp $etc/* $root/etc/
while [ "$1" != -- ]; do
  mkdir -p $root$2
  mount --bind $1 $root$2
  [ $3 = rw ] || mount -o remount,bind,ro $root$2
  shift 3
done
shift
mount -o remount,bind,ro $root
exec chroot $root "$@"
"""


def now() -> str:
    """As the API has times."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@contextlib.contextmanager
def unless_gone():
    """What is asked of an object that others may have changed or taken away."""
    try:
        yield
    except Refused as refused:
        if refused.status not in (404, 409):
            raise


def path_of(pod: Object) -> str:
    """Where the API has it."""
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


class Container:
    """The container of a pod, run once."""

    def __init__(
        self, spec: Object, pod: Object, sandbox: int, folder: pathlib.Path, given: Object
    ):
        """`given`: `image`; `environment`; `mounts`: (source, target, ro or rw);
        `etc`: a folder of files for /etc."""
        security = {**pod["spec"].get("securityContext", {}), **spec.get("securityContext", {})}
        user, group = security["runAsUser"], security["runAsGroup"]
        self._user = [
            *("setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={security['fsGroup']}"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
            *("env", "-i", *(f"{name}={value}" for name, value in given["environment"].items())),
        ]
        layer = folder / "layer"
        layer.mkdir()
        self.log = folder / "log"
        words = [
            *("nsenter", "--target", str(sandbox), "--net", "--uts"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", CONTAINER, "sh", layer, ROOT, *given["image"], given["etc"]),
            *(str(part) for mount in given["mounts"] for part in mount),
            *("--", *self._user, *spec.get("command", []), *spec.get("args", [])),
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)

    def _first(self) -> int:
        """Its process 1, by the number that it has here; 0: there is none."""
        pid = self._process.pid
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return 0
        return int(children[0]) if children else 0

    def run(self, words: list[str], seconds: float) -> subprocess.CompletedProcess:
        """A command in it, as kubectl exec does."""
        enter = ["nsenter", f"--target={self._first()}", "--mount", "--pid", "--net", "--uts"]
        return subprocess.run(
            [*enter, "--root", "--wd", *self._user, *words],
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def code(self) -> int:
        return self._process.wait()

    def end(self, seconds: float) -> None:
        """SIGTERM to its process 1, SIGKILL to all of it after so long."""
        if first := self._first():
            os.kill(first, signal.SIGTERM)
        try:
            self._process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if first := self._first():
            os.kill(first, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


class Probe:
    """One of a container's, which asks by HTTP."""

    def __init__(self, spec: Object, address: str, ports: dict[str, int]):
        get = spec["httpGet"]
        port = ports[get["port"]] if isinstance(get["port"], str) else get["port"]
        self._url = f"http://{address}:{port}{get['path']}"
        self._timeout = spec.get("timeoutSeconds", 1)
        self._period = spec.get("periodSeconds", 10)
        self._threshold = spec.get("failureThreshold", 3)
        self._next, self._failures = time.monotonic(), 0
        self.holds = False  # What its last answer said.

    def look(self) -> bool:
        """False: it has failed as often as it may."""
        if time.monotonic() < self._next:
            return True
        self._next = time.monotonic() + self._period
        try:
            with urllib.request.urlopen(self._url, timeout=self._timeout) as answer:
                self.holds = answer.status < 400
        except OSError:
            self.holds = False
        self._failures = 0 if self.holds else self._failures + 1
        return self._failures < self._threshold


class Pod:
    """A pod of the node: its sandbox, and the thread that does with it what the API says."""

    def __init__(
        self, api: Api, pod: Object, network: Network, folder: pathlib.Path, images: Images
    ):
        self.spec, self._folder, self._api = pod, folder, api
        self.restarts, self.last_words = 0, ""  # What preStop said.
        self.container: Container | None = None
        self.deleted = threading.Event()
        name, self._etc = pod["metadata"]["name"], folder / "etc"
        self._etc.mkdir(parents=True)
        self._sandbox = subprocess.Popen(
            [
                *("unshare", "--net", "--uts", "sh", "-c"),
                *('hostname "$1" && echo && exec sleep infinity', "sh", name),
            ],
            stdout=subprocess.PIPE,
        )
        assert self._sandbox.stdout.readline() == b"\n"
        self.address = network.plug(self._sandbox.pid)
        (self._etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {name}\n")
        space = f"{pod['metadata']['namespace']}.{DOMAIN}"
        search = f"search {space} {DOMAIN} {DOMAIN.partition('.')[2]}\n"
        (self._etc / "resolv.conf").write_text(f"nameserver {GATEWAY}\n{search}options ndots:5\n")
        (self._container,) = pod["spec"]["containers"]
        self._image = images.get(self._container["image"])
        self._ports = {port["name"]: port["containerPort"] for port in self._container["ports"]}
        self._since = now()
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()

    # What the container is given.
    def _environment(self) -> dict[str, str]:
        found = {**IMAGE, "HOSTNAME": self.spec["metadata"]["name"]}
        for one in self._container.get("env", []):
            source = one.get("valueFrom", {})
            if "secretKeyRef" in source:
                name, key = source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
                value = self._secret(name)[key].decode()
            elif "resourceFieldRef" in source:
                assert source["resourceFieldRef"]["resource"] == "requests.cpu"
                value = str(math.ceil(cpus(self._container["resources"]["requests"]["cpu"])))
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "status.podIP"
                value = self.address
            else:
                value = one.get("value", "")
            found[one["name"]] = value
        return found

    def _secret(self, name: str) -> dict[str, bytes]:
        space = self.spec["metadata"]["namespace"]
        data = self._api.get(f"/api/v1/namespaces/{space}/secrets/{name}")["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def _mounts(self) -> list[tuple]:
        places = {one["name"]: self._volume(one) for one in self.spec["spec"]["volumes"]}
        return [
            (places[one["name"]], one["mountPath"], "ro" if one.get("readOnly") else "rw")
            for one in self._container["volumeMounts"]
        ]

    def _volume(self, volume: Object) -> pathlib.Path:
        group = self.spec["spec"]["securityContext"]["fsGroup"]
        place = self._folder / "volumes" / volume["name"]
        if "persistentVolumeClaim" in volume:
            space = self.spec["metadata"]["namespace"]
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = self._api.get(f"/api/v1/namespaces/{space}/persistentvolumeclaims/{name}")
            bound = self._api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
            place = pathlib.Path(bound["spec"]["hostPath"]["path"])
        place.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            secret = self._secret(volume["secret"]["secretName"])
            for item in volume["secret"]["items"]:
                (place / item["path"]).write_bytes(secret[item["key"]])
                os.chown(place / item["path"], 0, group)
                (place / item["path"]).chmod(volume["secret"]["defaultMode"])
        os.chown(place, 0, group)
        place.chmod(0o2775 if "secret" not in volume else 0o755)
        return place

    def _expanded(self, word: str, environment: dict[str, str]) -> str:
        """$(NAME) is the container's variable."""
        for name, value in environment.items():
            word = word.replace(f"$({name})", value)
        return word

    def _given(self) -> tuple[dict[str, str], list[tuple]] | None:
        """Variables and mounts; None: not yet, as the node is just about to be allowed to read them."""
        try:
            return self._environment(), self._mounts()
        except Refused:
            return None

    def _run(self) -> Container:
        environment, mounts = until("the node may read what the pod names", self._given)
        spec = dict(self._container)
        for key in ("command", "args"):
            spec[key] = [self._expanded(word, environment) for word in spec.get(key, [])]
        given = {"environment": environment, "mounts": mounts, "etc": self._etc}
        given["image"] = self._image
        folder = self._folder / str(self.restarts)
        folder.mkdir()
        return Container(spec, self.spec, self._sandbox.pid, folder, given)

    # Its life.
    def _live(self) -> None:
        back_off = FIRST_BACK_OFF_S
        if not self._image:
            self._say(False, {"waiting": {"reason": "ImagePullBackOff"}}, "Pending")
            self.deleted.wait()
        while not self.deleted.is_set():
            self.container = self._run()
            self._watch(self.container)
            if self.deleted.is_set():
                break
            self._say(False, {"waiting": {"reason": "CrashLoopBackOff"}})
            self.deleted.wait(back_off)
            back_off = min(2 * back_off, LONGEST_BACK_OFF_S)
            self.restarts += 1
        self._end()

    def _watch(self, container: Container) -> None:
        """Until the container has ended, or has to."""
        startup, ready, alive = (
            Probe(self._container[f"{name}Probe"], self.address, self._ports)
            for name in ("startup", "readiness", "liveness")
        )
        said: bool | None = None
        running = {"running": {"startedAt": now()}}
        while not self.deleted.wait(LOOK_S) and not container.ended():
            if not startup.holds:
                well = startup.look()
            else:
                ready.look()
                well = alive.look()
            if not well:
                container.end(self.spec["spec"]["terminationGracePeriodSeconds"])
                return
            if said != ready.holds:
                said = ready.holds
                self._say(ready.holds, running)

    def _say(self, ready: bool, state: Object, phase: str = "Running") -> None:
        """The status of the pod, to the API server."""
        kinds = {"PodScheduled": True, "Initialized": True}
        kinds |= {"ContainersReady": ready, "Ready": ready}
        status = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._since,
            "conditions": [
                {"type": kind, "status": str(holds), "lastTransitionTime": now()}
                for kind, holds in kinds.items()
            ],
            "containerStatuses": [
                {
                    "name": self._container["name"],
                    "image": self._container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": ready,
                    "restartCount": self.restarts,
                    "state": state,
                }
            ],
        }
        with unless_gone():
            self._api.patch(f"{path_of(self.spec)}/status", {"status": status})

    def _end(self) -> None:
        """In order: what it wants to do before, the signal, and the rest of its time."""
        grace = self.spec["metadata"].get("deletionGracePeriodSeconds", 0)
        end = time.monotonic() + grace
        before = self._container.get("lifecycle", {}).get("preStop", {}).get("exec")
        if self.container and before and grace and not self.container.ended():
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = self.container.run(before["command"], grace)
                self.last_words = done.stdout + done.stderr
        if self.container:
            self.container.end(end - time.monotonic())
        self._sandbox.kill()
        self._sandbox.wait()
        remove(self._api, self.spec)


def remove(api: Api, pod: Object) -> None:
    """Says that nothing of it runs any more: its object goes."""
    with unless_gone():
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        api.ask("DELETE", path_of(pod), {"kind": "DeleteOptions", "apiVersion": "v1", **options})


def cpus(quantity: str) -> float:
    """Of 2 or 500m."""
    return float(quantity.removesuffix("m")) / (1000 if quantity.endswith("m") else 1)


class Kubelet:
    """Of the node NODE, and the scheduler that has no other one; runs until close."""

    def __init__(
        self, node: Api, admin: Api, network: Network, folder: pathlib.Path, images: Images
    ):
        """`node`: what speaks for the node, and may do what nodes may; `admin` schedules."""
        self._node, self._admin, self._network, self._folder = node, admin, network, folder
        self._images = images
        self._pods: dict[str, Pod] = {}  # By the name.
        self._ended: list[Pod] = []
        self._over = threading.Event()
        self._join()
        self._thread = threading.Thread(target=self._follow, name="kubelet", daemon=True)
        self._thread.start()

    def _join(self) -> None:
        self._node.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        room = {"cpu": "64", "memory": "256Gi", "pods": "64", "ephemeral-storage": "1Ti"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self._node.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})
        self._lease = self._node.post(LEASES, {"metadata": {"name": NODE}, "spec": self._held()})

    def _held(self) -> Object:
        return {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": now()}

    def _follow(self) -> None:
        renewed = time.monotonic()
        while not self._over.wait(LOOK_S):
            # Of a busy machine: it asks again, as a real one does.
            with contextlib.suppress(TimeoutError):
                if time.monotonic() - renewed > 10:
                    renewed = time.monotonic()
                    self._node.patch(f"{LEASES}/{NODE}", {"spec": self._held()})
                self._schedule()
                self._network.follow(self._admin)
                self._take()

    def _schedule(self) -> None:
        for pod in self._admin.items("/api/v1/pods", fieldSelector="spec.nodeName="):
            if pod["metadata"].get("deletionTimestamp") or not self._volumes_are_bound(pod):
                continue
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": target}
            with unless_gone():
                self._admin.post(f"{path_of(pod)}/binding", binding)

    def _volumes_are_bound(self, pod: Object) -> bool:
        claims = f"/api/v1/namespaces/{pod['metadata']['namespace']}/persistentvolumeclaims"
        names = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in volume
        ]
        phases = [self._admin.get(f"{claims}/{name}")["status"]["phase"] for name in names]
        return phases == ["Bound"] * len(names)

    def _take(self) -> None:
        """Starts what is new, and ends what shall go."""
        for name in [name for name, pod in self._pods.items() if not pod.thread.is_alive()]:
            self._ended.append(self._pods[name])
            del self._pods[name]
        for pod in self._node.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}"):
            name, shall_go = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
            known = self._pods.get(name)
            if known and shall_go:
                known.spec = pod  # With the grace that it has been given.
                known.deleted.set()
            elif shall_go:
                remove(self._node, pod)
            elif not known:
                folder = self._folder / f"{name}-{pod['metadata']['uid'][:8]}"
                self._pods[name] = Pod(self._node, pod, self._network, folder, self._images)

    @property
    def pods(self) -> dict[str, Pod]:
        """Those that are there, by their names."""
        return dict(self._pods)

    def ended(self, name: str) -> Pod:
        """The last of this name that has ended. LookupError: none has."""
        return [pod for pod in self._ended if pod.spec["metadata"]["name"] == name][-1]

    def close(self) -> None:
        """All ends at once; their objects stay."""
        self._over.set()
        self._thread.join()
        for pod in self._pods.values():
            if pod.container:
                pod.container.kill()

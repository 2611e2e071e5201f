# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Cells of a notebook: a kernel of Jupyter runs them, and interrupts them.

A cell that awaits is not among those that are interrupted: ipykernel 7.4 does not wake its own
event loop for it, not even from asyncio.sleep."""

import json
import subprocess

import pytest
from conftest import WAIT_S, python_with

# Runs in the Python that has jupyter_client. Each cell is (its text, what it prints before it is
# interrupted, or None).
CLIENT = """
import json, queue, sys
from jupyter_client import KernelManager

cells, seconds = json.load(sys.stdin)
manager = KernelManager()
manager.start_kernel(extra_arguments=["--IPKernelApp.log_level=ERROR"])
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=seconds)
said = []
for text, mark in cells:
    asked = client.execute(text)
    out = {"printed": "", "value": None, "error": None}
    while True:
        message = client.get_iopub_msg(timeout=seconds)
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            out["printed"] += content["text"]
            if mark and mark in out["printed"]:
                mark = None
                manager.interrupt_kernel()
        elif kind in ("execute_result", "display_data"):
            out["value"] = content["data"]
        elif kind == "error":
            out["error"] = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            break
    said.append(out)
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(said))
"""

START = """
import time
import sheaf as ray
ray.init(num_cpus=2)

@ray.remote
def double(x):
    return 2 * x

@ray.remote
def never():
    print("never runs", flush=True)
    time.sleep(1000)

@ray.remote
class Counter:
    def __init__(self):
        self.value = 0
    def add(self):
        self.value += 1
        return self.value
    async def never(self):
        import asyncio
        await asyncio.sleep(1000)

counter = Counter.remote()
"""


def run(cells):
    python = python_with("jupyter_client", "ipykernel", "nanobind_backend", "cloudpickle", "numpy")
    done = subprocess.run(
        [python, "-c", CLIENT],
        input=json.dumps([cells, WAIT_S]),
        capture_output=True,
        text=True,
        timeout=4 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def value(said):
    assert said["error"] is None, said
    return said["value"]["text/plain"]


def test_cells_share_a_session():
    said = run(
        [
            (START, None),
            ("ray.get([double.remote(n) for n in range(3)])", None),
            ("[await double.remote(n) for n in range(3)]", None),
            ("@ray.remote\ndef double(x):\n    return 3 * x\nray.get(double.remote(1))", None),
            ("counter", None),
            ("ray.get(counter.add.remote()), ray.get(counter.add.remote())", None),
            ("ray.shutdown()\nray.init(num_cpus=1)\nray.get(double.remote(2))", None),
        ]
    )
    assert [value(said[n]) for n in (1, 2, 3, 5, 6)] == [
        "[0, 2, 4]",
        "[0, 2, 4]",
        "3",
        "(1, 2)",
        "6",
    ]
    assert "Actor Counter" in said[4]["value"]["text/html"]


def once_it_waits(word, waits):
    """A cell that waits, and prints the word while it does: an interrupt that meets print() itself
    may be lost there."""
    say = f"threading.Timer(0.2, print, [{word!r}], {{'flush': True}}).start()"
    return f"import threading\n{say}\n{waits}"


@pytest.mark.parametrize(
    "waits",
    [
        "ray.get(never.remote())",
        "ray.wait([never.remote()])",
        "ray.get(counter.never.remote())",
        "from sheaf.util.queue import Queue; Queue().get()",
    ],
)
def test_an_interrupted_cell_raises_and_leaves_the_session_usable(waits):
    said = run(
        [
            (START, None),
            ("ray.get(double.remote(1))", None),
            (once_it_waits("waiting", waits), "waiting"),
            ("ray.get(double.remote(2))", None),
            (once_it_waits("again", waits), "again"),
            ("len(ray.nodes())", None),
        ]
    )
    assert [said[n]["error"] for n in (2, 4)] == ["KeyboardInterrupt"] * 2, said
    assert [value(said[n]) for n in (1, 3, 5)] == ["2", "4", "1"]

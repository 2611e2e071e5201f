# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Threads that make a dataset's blocks and batches ahead: what ends them when their consumer is
interrupted."""

import ctypes
import gc
import threading
import time

import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

from conftest import wait_until  # noqa: E402
from sheaf.data.background import InBackground  # noqa: E402
from sheaf.data.iterator import _ahead  # noqa: E402


class Endless:
    """Stands for an execution."""

    def __init__(self):
        self.closed = 0

    def is_finished(self):
        return False

    def has_output(self):
        return True

    def __next__(self):
        return "block"

    def advance(self):
        time.sleep(0.001)

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("runs", [True, False])
def test_an_interrupt_while_the_thread_starts_ends_the_execution(runs, monkeypatch):
    execution = Endless()
    start = threading.Thread.start

    def interrupted(thread):
        if runs:
            start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        InBackground(execution)
    wait_until(lambda: execution.closed, "the execution goes on")
    time.sleep(0.01)
    assert execution.closed == 1


def test_an_execution_that_nobody_refers_to_ends():
    execution = Endless()
    background = InBackground(execution)
    assert next(background) == "block"
    del background
    gc.collect()
    wait_until(lambda: execution.closed, "the execution goes on")


def test_closing_ends_the_execution_once():
    execution = Endless()
    background = InBackground(execution)
    background.close()
    background.close()
    assert execution.closed == 1 and list(background) == []


def test_batches_that_are_made_ahead_end_when_their_consumer_is_interrupted(monkeypatch):
    start = threading.Thread.start
    made = []

    def interrupted(thread):
        made.append(thread)
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        next(_ahead(iter(range(100)), 1))
    wait_until(lambda: not made[0].is_alive(), "the thread goes on")


def test_an_exception_that_is_set_for_a_thread_reaches_it_while_it_waits_for_a_batch():
    """As a training loop is ended whose group has lost a member."""
    come = threading.Event()
    ended = []

    def slow():
        come.wait()
        yield 1

    def wait():
        try:
            next(_ahead(slow(), 1))
        except KeyError:
            ended.append(True)

    consumer = threading.Thread(target=wait, daemon=True)
    consumer.start()
    time.sleep(0.1)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(consumer.ident), ctypes.py_object(KeyError)
    )
    consumer.join(1.0)
    came = bool(ended)
    come.set()
    assert came

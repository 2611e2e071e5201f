# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References and handles that are pickled outside of calls: through files, queues of
multiprocessing, databases."""

import copy
import gc
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sheaf
import sheaf.cloudpickle


@sheaf.remote
def get_of(pickled):
    return sheaf.get(pickle.loads(pickled))


@sheaf.remote
class Count:
    def __init__(self):
        self.sum = 0

    def add(self, number):
        self.sum += number
        return self.sum


@pytest.mark.parametrize("dumps", [pickle.dumps, sheaf.cloudpickle.dumps])
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_pickled_reference_is_read_in_another_process(node, dumps, size):
    reference = sheaf.put(np.arange(size))
    pickled = dumps(reference)
    assert pickle.loads(pickled) == reference
    del reference
    gc.collect()
    assert sheaf.get(get_of.remote(pickled)).sum() == size * (size - 1) // 2


def test_a_result_may_be_pending_when_its_reference_is_pickled(node):
    @sheaf.remote
    def late():
        import time

        time.sleep(0.3)
        return "late"

    assert sheaf.get(get_of.remote(pickle.dumps(late.remote())), timeout=30) == "late"


def test_a_task_may_pickle_the_reference_of_its_own_object(node):
    @sheaf.remote
    class Maker:
        def make(self):
            return pickle.dumps(sheaf.put("made there"))

    maker = Maker.remote()
    assert sheaf.get(pickle.loads(sheaf.get(maker.make.remote()))) == "made there"


def test_a_pickled_handle_reaches_the_actor(node):
    actor = Count.remote()
    pickled = pickle.dumps({"actor": actor})

    @sheaf.remote
    def call(pickled):
        return sheaf.get(pickle.loads(pickled)["actor"].add.remote(5))

    assert sheaf.get(call.remote(pickled)) == 5
    assert sheaf.get(actor.add.remote(1)) == 6


def test_copies_are_the_reference_itself(node):
    reference = sheaf.put(1)
    assert copy.copy(reference) is reference
    assert copy.deepcopy([reference])[0] is reference


def test_the_switch_forbids_it(node, monkeypatch):
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")
    with pytest.raises(sheaf.exceptions.OufOfBandObjectRefSerializationException, match="is 0"):
        pickle.dumps(sheaf.put(1))


def test_what_is_no_id_is_refused(node):
    with pytest.raises(TypeError, match="want 16 bytes"):
        sheaf._core.borrow(b"short")


def test_a_reference_of_another_session_is_refused(node):
    pickled = pickle.dumps(sheaf.put("of another session"))
    program = textwrap.dedent(f"""
        import pickle
        import sheaf
        sheaf.init(num_cpus=1)
        kept = [sheaf.put(i) for i in range(100)]
        try:
            print(sheaf.get(pickle.loads({pickled!r})))
        except sheaf.exceptions.ObjectLostError as error:
            print("lost")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "lost\n", done.stdout + done.stderr

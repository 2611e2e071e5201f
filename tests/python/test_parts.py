# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values that consist of parts, read one by one."""

import numpy as np
import pytest
import sheaf
from sheaf.util.parts import Parts, get_parts

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_returns=2)
def split(count, size):
    parts = Parts([np.full(size, i, np.uint8) for i in range(count)])
    return parts, parts.places


def test_parts_are_read_where_they_lie():
    ref, places = split.remote(5, 100_000)
    places = sheaf.get(places)
    assert len(places) == 5
    last, first = get_parts([(ref, places[4]), (ref, places[0])])
    assert last.shape == (100_000,)
    assert (last == 4).all()
    assert (first == 0).all()
    assert not last.flags.writeable
    whole = sheaf.get(ref)  # All of them, as a list.
    assert [int(part[0]) for part in whole] == [0, 1, 2, 3, 4]


def test_small_parts_and_values_of_all_kinds():
    values = [None, 1, "two", b"three", {"four": [4.0]}, (5, 6), np.arange(3)]
    parts = Parts(values)
    assert len(parts) == len(values)
    ref = sheaf.put(parts)
    read = get_parts([(ref, place) for place in parts.places])
    assert read[:-1] == values[:-1]
    assert (read[-1] == values[-1]).all()
    assert get_parts([]) == []


def test_what_can_be_no_part():
    with pytest.raises(ValueError, match="want one value at least"):
        Parts([])
    with pytest.raises(TypeError, match="part 1 has an ObjectRef inside"):
        Parts([1, [sheaf.put(2)]])
    with pytest.raises(TypeError, match="part 0 is itself of type Parts"):
        Parts([Parts([1])])
    with pytest.raises(TypeError, match="a value of their own"):
        sheaf.put([Parts([1])])
    parts = Parts([1, 2])
    ref = sheaf.put(parts)
    offset, size, digest = parts.places[1]
    with pytest.raises(TypeError, match="want \\(ObjectRef, place of a part\\)"):
        get_parts([ref])
    with pytest.raises(ValueError, match="no place of a part"):
        get_parts([(ref, (-1, size, digest))])
    for place in [(1 << 60, 8, digest), (0, 1 << 62, digest), (offset, size + 1000, digest)]:
        with pytest.raises((ValueError, TypeError)):
            get_parts([(ref, place)])
    with pytest.raises(sheaf.exceptions.ObjectReconstructionFailedError, match="other parts now"):
        get_parts([(ref, (offset, size, digest ^ 1))])
    assert get_parts([(ref, parts.places[1])]) == [2]  # This process is as it was.


def test_the_error_of_an_object_is_that_of_its_parts():
    @sheaf.remote
    def fails():
        raise ValueError("no parts today")

    with pytest.raises(ValueError, match="no parts today"):
        get_parts([(fails.remote(), (64, 100, 1))])

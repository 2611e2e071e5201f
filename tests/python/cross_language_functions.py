# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What C++ calls in test_cross_language.py."""

import collections
import os

import numpy
import sheaf


def add(a, b):
    return a + b


def upper(text):
    return text.upper()


def reverse_bytes(array):
    assert array.dtype == numpy.uint8
    return array.tobytes()[::-1]


def total(numbers):
    assert isinstance(numbers, numpy.ndarray) and numbers.dtype == numpy.float64
    return numbers.sum()


def squares(count):
    return numpy.arange(count, dtype=numpy.int64) ** 2


def count(words):
    return dict(collections.Counter(words))


def nothing():
    return None


def count_up(limit):
    yield from range(limit)


def square_in_cpp(x):
    return sheaf.get(sheaf.cross_language.cpp_function("app::Square").remote(x))


@sheaf.remote
def add_remotely(a, b):
    return a + b


def add_elsewhere(a, b):
    return sheaf.get(add_remotely.remote(a, b))


def refuse(key):
    raise KeyError(key)


def a_set():
    return [1, {2}]


def die():
    os._exit(3)


@sheaf.remote
class Counter:
    def __init__(self, start):
        self.value = start + 0

    def add(self, n):
        self.value += n
        return self.value

    def fail(self):
        raise ValueError("as it was told")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Parallel iterators: not in Sheaf; the names exist, and say so when they are used."""

from sheaf._internal import absent

from_items = absent.function("util.iter.from_items")
from_range = absent.function("util.iter.from_range")
from_iterators = absent.function("util.iter.from_iterators")
from_actors = absent.function("util.iter.from_actors")
ParallelIterator = absent.a_class("util.iter.ParallelIterator")
LocalIterator = absent.a_class("util.iter.LocalIterator")

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""streaming_split: one actor runs the dataset, and gives each block to one of n consumers.

An epoch begins when all consumers have asked for it. A consumer that does not ask within a time, or
leaves an epoch that others go on with, is named in the error that those get; nobody waits for ever.

A block is acknowledged when its consumer's loop asks for what lies behind it. What a consumer that
dies has not acknowledged goes to its replacement, another iterator of the same number, which joins
the epoch if some other consumer of it lives; else all begin a new one. Where parts need not be
equal, others that come to their end first take it.
"""

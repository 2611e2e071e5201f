# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is printed of what workers print: prefixes, colours, repeated lines."""

import io

import pytest
from sheaf._internal import log_lines
from sheaf._internal.log_lines import Deduplicator


def test_a_line_of_many_workers_is_printed_once_and_counted():
    seen = Deduplicator(window_s=5)
    assert seen.take("f", 1, False, ["ready"], now=0) == [("f", 1, False, "ready")]
    for pid in range(2, 7):
        assert seen.take("f", pid, False, ["ready"], now=1) == []
    assert seen.counts
    assert seen.flush(now=4.9) == []
    assert seen.flush(now=5) == [("f", 1, False, "ready [repeated 5x across workers]")]
    assert seen.take("f", 2, False, ["ready"], now=6) == [("f", 2, False, "ready")]


def test_numbers_are_never_eaten():
    seen = Deduplicator()
    lines = [f"loss {i}" for i in range(10)]
    for pid in range(10):
        assert [row[3] for row in seen.take("f", pid, False, [lines[pid]], now=0)] == [lines[pid]]


def test_a_worker_may_repeat_itself_and_streams_and_empty_lines_are_apart():
    seen = Deduplicator()
    assert len(seen.take("f", 1, False, ["again", "again"], now=0)) == 2
    assert len(seen.take("f", 2, True, ["again"], now=0)) == 1
    assert (
        len(seen.take("f", 1, False, [""], now=0))
        == len(seen.take("f", 2, False, [""], now=0))
        == 1
    )


def test_what_is_remembered_is_bounded():
    seen = Deduplicator()
    for i in range(5000):
        seen.take("f", 1, False, [str(i)], now=0)
    assert len(seen._said) <= log_lines._MOST_LINES


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stream, wanted",
    [(io.StringIO, "(f pid=7) hello\n"), (Terminal, "\033[34m(f pid=7)\033[0m hello\n")],
)
def test_the_prefix_is_coloured_on_terminals_alone(monkeypatch, stream, wanted):
    monkeypatch.setattr(log_lines, "_deduplicator", Deduplicator())
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = stream()
    monkeypatch.setattr("sys.stdout", out)
    log_lines.print_lines("f", 7, False, ["hello"])
    assert out.getvalue() == wanted


def test_everything_is_printed_if_that_is_wanted(monkeypatch):
    monkeypatch.setenv("SHEAF_DEDUP_LOGS", "0")
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    for pid in (1, 2):
        log_lines.print_lines("f", pid, True, ["same"])
    assert out.getvalue() == "(f pid=1) same\n(f pid=2) same\n"


def test_counts_that_wait_are_printed_at_the_end(monkeypatch):
    monkeypatch.setattr(log_lines, "_deduplicator", Deduplicator())
    monkeypatch.setattr(log_lines, "_timer", object())  # None is started.
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    for pid in (1, 2, 3):
        log_lines.print_lines("f", pid, False, ["same"])
    log_lines.flush()
    assert out.getvalue() == "(f pid=1) same\n(f pid=1) same [repeated 2x across workers]\n"

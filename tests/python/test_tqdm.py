# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Progress bars of tasks and actors: what workers count is shown by the driver."""

import io
import json
import os
import pathlib
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S
from sheaf._internal import bars, log_lines
from sheaf._internal.bars import MARK, Board
from sheaf.experimental import tqdm_ray
from sheaf.experimental.tqdm_ray import tqdm


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self):
        """The lines that a terminal shows after all that was written."""
        lines, row = [""], 0
        for part in self.getvalue().replace("\033[J", "\0").split("\033["):
            if part[:1].isdigit() and "A" in part[:4]:
                count, _, part = part.partition("A")
                row -= int(count)
            for character in part:
                if character == "\0":
                    lines[row:] = [""]
                elif character == "\n":
                    row += 1
                    lines += [""] * (row + 1 - len(lines))
                elif character != "\r":
                    lines[row] += character
        return [line for line in lines if line]


def state(id="1", done=1, closed=False, **others):
    return {
        "id": id,
        "desc": "load",
        "done": done,
        "total": 4,
        "unit": "it",
        "spent": 2.0,
        "closed": closed,
        **others,
    }


@pytest.fixture()
def board(monkeypatch):
    terminal = Terminal()
    made = Board(terminal)
    monkeypatch.setattr(bars, "board", made)
    return terminal


def test_bars_are_drawn_anew_in_their_place():
    terminal = Terminal()
    board = Board(terminal)
    board.take(state(done=1))
    board.take(state("2", done=3, desc="store"))
    board.take(state(done=2))
    first, second = terminal.screen()
    assert first.startswith("load:  50% |###############...............| 2/4 it, 2.0 s, 2 s left")
    assert second.startswith("store:  75% |")


def test_a_bar_that_ends_stays_above_the_others():
    terminal = Terminal()
    board = Board(terminal)
    board.take(state())
    board.take(state("2", desc="store"))
    board.take(state("2", done=4, desc="store", closed=True))
    assert [line.partition(" |")[0] for line in terminal.screen()] == ["store: 100%", "load:  25%"]


def test_elsewhere_a_bar_is_one_line_when_it_ends():
    stream = io.StringIO()
    board = Board(stream)
    for done in range(5):
        board.take(state(done=done))
    board.take(state(done=4, closed=True, total=None))
    assert stream.getvalue() == "load: 4 it, 2.0 s\n"


def test_an_iterable_is_counted_and_its_length_is_the_total(board):
    assert list(tqdm(["a", "b"], desc="letters")) == ["a", "b"]
    assert board.screen()[-1].startswith("letters: 100% |" + "#" * 30 + "| 2/2 it")


def test_updates_are_told_no_more_often_than_asked(board):
    bar = tqdm(desc="many", total=1000, flush_interval_s=1000)
    for _ in range(1000):
        bar.update()
    assert board.getvalue().count("\n") == 1 and bar.n == 1000
    bar.close()
    bar.close()
    assert "1000/1000" in board.screen()[-1]


def test_a_bar_without_an_iterable_is_not_iterated_over():
    with pytest.raises(ValueError, match="pass an iterable, or call update"):
        next(iter(tqdm()))


def test_other_lines_stay_above_the_bars(board, monkeypatch):
    monkeypatch.setattr(sys, "stdout", board)
    bars.board.take(state())
    log_lines.print_lines(
        "f", 1, False, ["one line", MARK + json.dumps(state("2", desc="worker's"))]
    )
    tqdm_ray.safe_print("another")
    lines = board.screen()
    assert lines[0].endswith("one line") and lines[1] == "another"
    assert [line.partition(":")[0] for line in lines[2:]] == ["load", "(f pid=1) worker's"]


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"id": 1', '{"closed": true}'])
def test_a_damaged_line_is_dropped(board, line):
    bars.take_line("f", 1, MARK + line)
    assert board.screen() == []


PROGRAM = """
import time
import sheaf
from sheaf._internal import log_lines
from sheaf.util import tqdm

arrived = []
def print_lines(name, pid, error, lines, original=log_lines.print_lines):
    original(name, pid, error, lines)
    arrived.extend(lines)
log_lines.print_lines = print_lines

@sheaf.remote
def work(count):
    for _ in tqdm(range(count), desc="in a task"):
        pass
    print("worked")

with sheaf.init(num_cpus=1):
    sheaf.get(work.remote(7))
    for _ in range(3000):  # Lines come behind the reply.
        if "worked" in arrived:
            break
        time.sleep(0.01)
"""


def test_a_tasks_bar_reaches_the_driver():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=4 * WAIT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(pathlib.Path(sheaf.__file__).parents[1])])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "in a task: 100%" in done.stderr and "7/7 it" in done.stderr
    assert "worked" in done.stdout and MARK not in done.stdout + done.stderr

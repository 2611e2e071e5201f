# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf run --nproc N script.py ARGS`: one program in N processes, which find in their environment
what torchrun sets.

Each process is the process of an actor of the group, so it can use Sheaf and its collectives; the
program runs on its main thread. Its lines come out behind `[RANK]`. The first process that fails
ends all, with its exit status (128 + N when signal N ended it); so does Ctrl-C (130) and SIGTERM
(143).
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import runpy
import signal
import socket
import sys
import threading
import traceback
import uuid
from typing import Any

import sheaf
from sheaf._internal import log_lines
from sheaf.exceptions import RayError
from sheaf.util.placement_group import placement_group
from sheaf.util.scheduling_strategies import PlacementGroupSchedulingStrategy

_PLACING_S = 60.0
_LAST_LINES_S = 0.5  # Of a process that was killed.
_LINES_S = 5.0  # Until the last lines of one that ended by itself have come.


class Rank:
    """An actor that becomes one process of the program."""

    def describe(self) -> tuple[str, int, int]:
        """(its node, its pid, a port that is free there)."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return sheaf.get_runtime_context().get_node_id(), os.getpid(), probe.getsockname()[1]

    def run(
        self, program: list[str], module: bool, folder: str, environment: dict[str, str], mark: str
    ) -> int:
        """Runs the program as __main__; gives its exit status. Nothing runs behind it. The line
        `mark` ends its output."""
        try:
            return self._run(program, module, folder, environment)
        finally:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
                stream.write(f"{mark}\n")
                stream.flush()

    def _run(
        self, program: list[str], module: bool, folder: str, environment: dict[str, str]
    ) -> int:
        os.environ.update(environment)
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.argv = list(program)
        sys.path.insert(0, folder if module else os.path.dirname(os.path.abspath(program[0])))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if module:
                runpy.run_module(program[0], run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program[0], run_name="__main__")
            return 0
        except SystemExit as leaving:
            return _status(leaving.code)
        except BaseException as error:
            # From the program on: what is around it is of no interest.
            frames = [
                frame
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename not in (__file__, runpy.__file__, "<frozen runpy>")
            ]
            sys.stderr.write(
                "Traceback (most recent call last):\n" + "".join(traceback.format_list(frames))
            )
            sys.stderr.write("".join(traceback.format_exception_only(type(error), error)))
            return 1


def _status(code: Any) -> int:
    """As the interpreter exits with what sys.exit was given."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


class _Output:
    """Lines of the processes, each behind its rank; knows when all have said their last."""

    def __init__(self, mark: str):
        self._mark = mark
        self._ranks: dict[
            str | int, int
        ] = {}  # By the name that lines come with, and by pid for those without.
        self._open: set[tuple[int, bool]] = set()
        self._changed = threading.Condition()

    def expect(self, names: list[str], pids: list[int]) -> None:
        """By rank."""
        with self._changed:
            self._ranks = {
                **{pid: rank for rank, pid in enumerate(pids)},
                **{name: rank for rank, name in enumerate(names)},
            }
            self._open = {(rank, error) for rank in range(len(names)) for error in (False, True)}

    def print_lines(self, name: str, pid: int, error: bool, lines: list[str]) -> None:
        """Instead of log_lines.print_lines."""
        with self._changed:
            rank = self._ranks.get(name, self._ranks.get(pid))
            stream = sys.stderr if error else sys.stdout
            for line in lines:
                if rank is not None and line.endswith(self._mark):
                    self._open.discard((rank, error))
                    line = line[: -len(self._mark)]
                    if not line:
                        continue
                stream.write(f"[{rank}] {line}\n" if rank is not None else f"{line}\n")
            stream.flush()
            self._changed.notify_all()

    def await_last(self, rank: int, seconds: float) -> None:
        """Until it has said its last, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: not {(rank, False), (rank, True)} & self._open, seconds)


def launch(count: int, program: list[str], module: bool = False) -> int:
    """Runs the program in `count` processes; gives the exit status. RuntimeError: the cluster has
    no room for them."""
    mark = f"sheaf-end-{uuid.uuid4().hex}"
    output = _Output(mark)
    log_lines.print_lines = output.print_lines
    if not sheaf.is_initialized():
        joins = os.environ.get("SHEAF_ADDRESS") or os.environ.get("RAY_ADDRESS")
        sheaf.init(num_cpus=None if joins else max(count, os.cpu_count() or 1))
    group = placement_group([{"CPU": 1}] * count, "PACK")
    if not group.wait(_PLACING_S):
        raise RuntimeError(
            f"--nproc {count}: no room for {count} processes of one CPU each within "
            f"{_PLACING_S:g} s; free are {sheaf.available_resources()}"
        )
    ranks = []
    for index in range(count):
        # The class's name is what the lines of its process come with.
        kind: Any = sheaf.remote(
            type(
                f"rank_{index}", (Rank,), {"__module__": __name__, "__reduce__": object.__reduce__}
            )
        )
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        ranks.append(kind.options(num_cpus=1, scheduling_strategy=where).remote())
    try:
        return _run(ranks, program, module, mark, output)
    finally:
        for rank in ranks:
            sheaf.kill(rank)


def _run(ranks: list[Any], program: list[str], module: bool, mark: str, output: _Output) -> int:
    described = sheaf.get([rank.describe.remote() for rank in ranks], timeout=_PLACING_S)
    order = list(dict.fromkeys(node for node, _, _ in described))
    by_rank = sorted(
        range(len(ranks)), key=lambda index: order.index(described[index][0])
    )  # Those of a node side by side.
    ranks = [ranks[index] for index in by_rank]
    nodes, pids, ports = ([described[index][column] for index in by_rank] for column in range(3))
    output.expect([f"rank_{index}" for index in by_rank], pids)
    address = next(
        (row["NodeManagerAddress"] for row in sheaf.nodes() if row["NodeID"] == nodes[0]),
        "127.0.0.1",
    )
    run_id = uuid.uuid4().hex
    running = {}
    for rank, actor in enumerate(ranks):
        running[
            actor.run.remote(
                program,
                module,
                os.getcwd(),
                _environment(rank, nodes, address, ports[0], run_id),
                mark,
            )
        ] = rank
    while running:
        ready, _ = sheaf.wait(list(running), num_returns=1, timeout=1.0)
        _raise_signal()
        for ref in ready:
            rank = running.pop(ref)
            try:
                status = sheaf.get(ref)
                cause = f"exit status {status}"
                output.await_last(rank, _LINES_S)
            except RayError as error:
                cause = str(error).strip().splitlines()[-1]
                status = _status_of_death(cause)
                output.await_last(rank, _LAST_LINES_S)
            if status != 0:
                print(
                    f"sheaf run: rank {rank} failed ({cause}); the others are ended",
                    file=sys.stderr,
                )
                return int(status)
    return 0


def _environment(
    rank: int, nodes: list[str], address: str, port: int, run_id: str
) -> dict[str, str]:
    """What torchrun sets."""
    order = list(dict.fromkeys(nodes))
    local = nodes.count(nodes[rank])
    values = {
        "RANK": rank,
        "WORLD_SIZE": len(nodes),
        "LOCAL_RANK": nodes[:rank].count(nodes[rank]),
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": order.index(nodes[rank]),
        "GROUP_WORLD_SIZE": len(order),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": len(nodes),
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": False,
    }
    out = {name: str(value) for name, value in values.items()}
    if local > 1:
        out["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    return out


def _status_of_death(words: str) -> int:
    status = re.search(r"exited with status (\d+)", words)
    if status:
        return int(status.group(1)) or 1
    ended = re.search(r"signal (\d+)", words)
    return 128 + int(ended.group(1)) if ended else 1


_signals: list[int] = []


def _on_signal(signum: int, frame: Any) -> None:
    _signals.append(signum)
    _raise_signal()


def _raise_signal() -> None:
    """Again, as an exception that a handler raises inside a finalizer or callback is lost."""
    if signal.SIGINT in _signals:
        raise KeyboardInterrupt
    if _signals:
        raise SystemExit(128 + _signals[0])


def main(arguments: list[str]) -> int:
    """The command; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="sheaf run", usage="sheaf run --nproc N [-m] PROGRAM ARGS"
    )
    parser.add_argument("--nproc", type=int, required=True, help="how many processes")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM is a module")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    if given.nproc < 1:
        parser.error(f"--nproc {given.nproc}: want a number from 1")
    if not given.program:
        parser.error("which program? As: sheaf run --nproc 4 train.py ARGS")
    if not given.module and not os.path.isfile(given.program[0]):
        parser.error(f"{given.program[0]}: there is no such file")
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, _on_signal)
    program = (
        given.program if given.module else [os.path.abspath(given.program[0]), *given.program[1:]]
    )
    try:
        status = launch(given.nproc, program, given.module)
    except KeyboardInterrupt:
        print("sheaf run: interrupted; all processes are ended", file=sys.stderr)
        status = 130
    except (RuntimeError, RayError) as error:
        print(f"sheaf run: {error}", file=sys.stderr)
        status = 1
    sheaf.shutdown()
    return status


if __name__ == "__main__":
    from sheaf import launch as itself  # Actors find the class by this name, not by __main__.

    sys.exit(itself.main(sys.argv[1:]))

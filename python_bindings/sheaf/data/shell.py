# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs a plan: does what the executor says with tasks and actors of the cluster, and tells it what
has happened."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import sheaf
from sheaf import cloudpickle, exceptions
from sheaf.data import context as settings
from sheaf.data import executor as machine
from sheaf.data import plan, tasks
from sheaf.data.caches.files import node_of
from sheaf.data.caches.keeper import KEEPER
from sheaf.data.datasource.drawing import Drawing
from sheaf.data.errors import NotRepeatableError
from sheaf.data.exchanges.partition import Pieces
from sheaf.data.operators import Bundle
from sheaf.data.planner import Planner
from sheaf.data.progress import Progress
from sheaf.data.remote import amounts, budget_bytes, limits, remote_task
from sheaf.data.resting import Resting
from sheaf.data.stats import ExecutionStats
from sheaf.data.task_context import TaskContext
from sheaf.experimental.locations import get_local_object_locations

_INLINE_BYTES = 32 << 10  # A function or a block that is larger goes through the store.
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.0005, 0.005
_TOGETHER_S, _TOGETHER_UNKNOWN, _MOST_TOGETHER = 0.05, 8, 256  # Small blocks in a message.
_MOST_SOURCES = 16  # Of a task, which are not shared with others.
_GRACE_S = 0.5  # Between asking tasks to end and ending their workers.
_GONE = (exceptions.ActorDiedError, exceptions.ActorUnavailableError, exceptions.NodeDiedError)


@dataclasses.dataclass(slots=True)
class _Running:
    """A task of the cluster."""

    operator: int
    actor: int | None
    stream: Any
    ended: Any  # A reference that is ready when the task has ended.
    began: float
    taken: int  # Outputs that were used, of this try and of those before it.
    sources: Any  # As of Bundle.
    headers: list[tasks.Header] = dataclasses.field(
        default_factory=list
    )  # Of blocks that come next.
    has_ended: bool = False


class Execution:
    """One run of a plan. One thread at a time drives it; its blocks are taken by next().

    Args:
        node: the logical plan.
        context: DataContext.
        name: of the dataset, for progress.
    """

    def __init__(self, node: plan.Node, context: settings.DataContext, name: str = "") -> None:
        options = context.execution_options
        needs_cluster = sheaf.is_initialized()
        total = limits(options) if needs_cluster else {"CPU": float(os.cpu_count() or 1)}
        operators = Planner(context, total.get("CPU", 1.0), budget_bytes(options, total)).plan(node)
        if not needs_cluster and any(o.kind == "map" and not o.here for o in operators):
            sheaf.init()
            total = limits(options)
            operators = Planner(context, total.get("CPU", 1.0), budget_bytes(options, total)).plan(
                node
            )
        self._operators = operators
        self._running: dict[int, _Running] = {}
        self._actors: dict[int, tuple[Any, Any]] = {}  # Handle, and a reference ready with it.
        self._resting = Resting()
        self._calls: dict[tuple[int, str], Any] = {}  # By operator and node.
        self._stored: dict[int, tuple[Any, Any]] = {}  # By id(table): it, and a reference to it.
        self._sources: dict[int, Any] = {}  # By id: what tasks with many have together.
        self._functions: dict[int, tuple[str, Any]] = {}
        self._numbers: dict[int, int] = {}
        self._word = uuid.uuid4().hex[:12]
        self._retried = tuple(context.retried_io_errors or ())
        self._pause = _SHORTEST_WAIT_S
        self._closed = False
        self.stats = ExecutionStats([operator.name for operator in operators])
        self._machine = machine.Executor(
            operators,
            total,
            budget_bytes(options, total),
            options.preserve_order,
            int(context.max_errored_blocks),
        )
        self._drawings: dict[int, Drawing] = {}
        self._drawn: set[int] = set()  # Of which the machine wants more.
        self._progress = Progress(name, context.enable_progress_bars)
        self._caches = KEEPER.used(node)
        self.stats.caches += [(cache, cache.recomputed) for cache in self._caches]

    def __iter__(self) -> Iterator[Bundle]:
        return self

    def __next__(self) -> Bundle:
        """The next block of the result; StopIteration behind the last."""
        try:
            while not self._machine.has_output():
                if self._machine.is_finished():
                    self.close()
                    raise StopIteration
                self.step()
            return self._machine.take()
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def is_light(self) -> bool:
        """Whether nothing of it runs elsewhere, so that a thread for it is not worth it."""
        return all(operator.kind != "map" or operator.here for operator in self._operators)

    def reads_caches(self) -> bool:
        """Whether some blocks may have to be made again when they are read."""
        return bool(self._caches)

    def pools(self) -> list[str]:
        """The names of operators that run in actors."""
        return [operator.name for operator in self._operators if operator.pool is not None]

    def has_output(self) -> bool:
        """Whether next() gives a block at once."""
        return self._machine.has_output()

    def is_finished(self) -> bool:
        """Whether all blocks have been taken."""
        return self._machine.is_finished()

    def step(self) -> None:
        """Does what is to be done, and waits a moment for what happens next."""
        self._carry_out()
        if not (self._machine.has_output() or self._machine.is_finished()):
            self.advance()

    def advance(self) -> None:
        """Goes on, also while nobody takes blocks."""
        self._carry_out()
        if not self._poll():
            self._wait()
        self._carry_out()
        self._progress.show(self._machine)

    def close(self) -> None:
        """Ends all that still runs, and waits for it up to half a second. May be called again."""
        if self._closed:
            return
        self._closed = True
        for drawing in self._drawings.values():
            drawing.close()
        self._machine.stop()
        for command in self._machine.commands():
            if isinstance(command, machine.RemoveActor):
                self._remove_actor(command.actor)
        running, self._running = list(self._running.values()), {}
        self.stats.finish(self._machine)
        self._progress.close()
        if self._caches:
            KEEPER.look()
        if not running or not sheaf.is_initialized():
            return
        ends = [task.ended for task in running if not task.has_ended]
        for ended in ends:
            sheaf.cancel(ended)
        ends = [end for end in ends if end is not None]
        if ends:
            _, late = sheaf.wait(ends, num_returns=len(ends), timeout=_GRACE_S, fetch_local=False)
            for ended in late:
                sheaf.cancel(ended, force=True)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            try:
                self.close()
            except Exception:  # At the end of the interpreter.
                pass

    # Commands.

    def _carry_out(self) -> None:
        for command in self._machine.commands():
            if isinstance(command, machine.Submit):
                if not self._machine.runs(command.task):
                    continue  # It was cancelled before it began.
                if command.here:
                    self._run_here(command)
                else:
                    self._submit(command)
            elif isinstance(command, machine.Cancel):
                task = self._running.pop(command.task, None)
                if task is not None and not task.has_ended:
                    sheaf.cancel(task.ended)
            elif isinstance(command, machine.AddActor):
                self._add_actor(command)
            elif isinstance(command, machine.Lend):
                self._resting.lend(command.actor, self._actors[command.actor][0])
            elif isinstance(command, machine.Draw):
                self._drawn.add(command.operator)
                if command.operator not in self._drawings:
                    stream = self._operators[command.operator].stream
                    self._drawings[command.operator] = Drawing(stream)
            else:
                self._remove_actor(command.actor)

    def _task_context(self, command: machine.Submit) -> TaskContext:
        name = self._operators[command.operator].name
        settled = {"write_uuid": self._word, "retried_io_errors": self._retried}
        return TaskContext(command.sequence, name, settled, int(self._word, 16))

    def _run_here(self, command: machine.Submit) -> None:
        operator = self._operators[command.operator]
        given = [_value(bundle.block) for bundle in command.work.bundles]
        began = time.perf_counter()
        headers = tasks.run(
            operator.run.function,
            self._task_context(command),
            _cuts(command),
            command.work.payload,
            given,
        )
        try:
            for header in headers:
                table, header.table = header.table, None
                self._output(command.operator, command.task, header, table)
                if not self._machine.runs(command.task):
                    return  # A limit has had enough.
        except Exception as error:
            self._machine.task_failed(command.task, error)
            return
        self.stats.task_ended(command.operator, time.perf_counter() - began)
        self._machine.task_ended(command.task)

    def _submit(self, command: machine.Submit) -> None:
        operator = self._operators[command.operator]
        given = [self._for_task(bundle.block) for bundle in command.work.bundles]
        arguments = (
            self._task_context(command),
            command.skip,
            self._together(command.operator),
            _cuts(command),
            command.work.payload,
            tuple(None if _lies_elsewhere(one) else one for one in given),
            *(one for one in given if _lies_elsewhere(one)),
        )
        if command.actor is None:
            node_id = node_of(command.work)
            call = self._calls.get((command.operator, node_id))
            if call is None:
                call = remote_task(operator, node_id)
                self._calls[command.operator, node_id] = call
            stream = call.remote(*self._function(command.operator), *arguments)
        else:
            handle, _ = self._actors[command.actor]
            self._resting.wake(command.actor)
            call = handle.run.options(
                num_returns="streaming", _generator_backpressure_num_objects=2, name=operator.name
            )
            stream = call.remote(*arguments)
        self._running[command.task] = _Running(
            command.operator,
            command.actor,
            stream,
            stream.completed(),
            time.perf_counter(),
            command.skip,
            self._sources_of(command, given),
        )

    def _sources_of(self, command: machine.Submit, given: list[Any]) -> Any:
        """What the blocks of a task need to be made again, when the datasets are gone that it was
        made of: its function and tables that lie in the store, and what its input needs."""
        _, function = self._function(command.operator)
        found = {id(function): function} if isinstance(function, sheaf.ObjectRef) else {}
        for bundle, argument in zip(command.work.bundles, given):
            one = bundle.sources if argument is bundle.block else argument
            if one is not None:
                found[id(one)] = one
        if len(found) > _MOST_SOURCES:  # Behind a barrier each block has all.
            self._sources.update(found)
            return self._sources
        return next(iter(found.values()), None) if len(found) < 2 else tuple(found.values())

    def _together(self, operator: int) -> int:
        """How many small blocks of an operator go in one message: as many as it makes in 50 ms."""
        pace = self.stats.wall_s_of_output(operator)
        if pace is None:
            return _TOGETHER_UNKNOWN
        return max(1, min(_MOST_TOGETHER, int(_TOGETHER_S / max(pace, 1e-6))))

    def _for_task(self, block: Any) -> Any:
        """A block as an argument. A table that was made here is stored, and lives as long as what
        is made of it does: as an argument by value it would be gone when it is wanted again."""
        if not isinstance(block, pa.Table) or block.nbytes <= _INLINE_BYTES:
            return block
        found = self._stored.get(id(block))
        if found is None:
            found = self._stored[id(block)] = (block, sheaf.put(block))
        return found[1]

    def _function(self, index: int) -> tuple[str, Any]:
        """The name of an operator's function in workers, and itself, pickled."""
        found = self._functions.get(index)
        if found is None:
            pickled: Any = cloudpickle.dumps(self._operators[index].run.function)
            if len(pickled) > _INLINE_BYTES:
                pickled = sheaf.put(pickled)
            found = self._functions[index] = (f"{self._word}.{index}", pickled)
        return found

    def _add_actor(self, command: machine.AddActor) -> None:
        operator = self._operators[command.operator]
        options = {**operator.run.options.remote, **amounts(operator.needs)}
        options.setdefault("max_concurrency", 1)
        cls = sheaf.remote(tasks.MapWorker).options(**options)
        handle = cls.remote(*self._function(command.operator))
        self._actors[command.actor] = (handle, handle.ready.remote())

    def _remove_actor(self, number: int) -> None:
        handle, _ = self._actors.pop(number, (None, None))
        self._resting.forget(number)
        if handle is not None and sheaf.is_initialized():
            sheaf.kill(handle)

    # Events.

    def _poll(self) -> bool:
        """Looks at everything once; whether anything has happened."""
        happened = False
        for operator in list(self._drawn):
            if self._drawings[operator].wait(0):
                happened = True
                self._drawn.discard(operator)
                self._machine.drawn(operator, *self._drawings[operator].take())
        for number, (_, ready) in list(self._actors.items()):
            if ready is not None and sheaf.wait([ready], timeout=0)[0]:
                happened = True
                self._actor_answered(number, ready)
        for number in list(self._running):
            # One that a limit has cancelled since is gone, whatever its stream says.
            there = number in self._running and self._machine.runs(number)
            if there and self._look_at(number):
                happened = True
        if self._actors:
            busy = {task.actor for task in self._running.values() if not task.has_ended}
            self._resting.look(
                {n: h for n, (h, ready) in self._actors.items() if ready is None and n not in busy}
            )
        return happened

    def _actor_answered(self, number: int, ready: Any) -> None:
        handle, _ = self._actors[number]
        try:
            sheaf.get(ready)
        except exceptions.RayError as error:
            del self._actors[number]
            self._machine.actor_died(number, error)
            return
        self._actors[number] = (handle, None)
        self._machine.actor_ready(number)

    def _look_at(self, number: int) -> bool:
        """Takes what a task has made, as far as it may be taken."""
        task = self._running[number]
        happened = False
        while True:
            if not task.headers:
                try:
                    if not task.stream.next_ready():
                        return happened
                    task.headers = sheaf.get(next(task.stream))
                    if not isinstance(task.headers, list) or task.headers[0].number > task.taken:
                        self._failed(number, self._not_repeated(task))
                        return True
                    task.headers.reverse()
                except StopIteration:
                    self._ended(number)
                    return True
                except exceptions.RayError as error:
                    self._failed(number, error)
                    return True
            if not self._machine.may_take(number):
                return happened
            if task.headers[-1].table is None and not task.stream.next_ready():
                return happened  # It may wait for room that only what goes on meanwhile makes.
            header = task.headers.pop()
            block, header.table = header.table, None
            try:
                if block is None:
                    block = next(task.stream)
                    _raise_if_failed(block)
            except StopIteration:  # Its worker died between the two, and was not tried again.
                self._failed(number, exceptions.WorkerCrashedError())
                return True
            except exceptions.RayError as error:  # Of a task that failed while it stored the block.
                self._failed(number, error)
                return True
            happened = True
            if header.number < task.taken:
                continue  # Its task was tried again, and has made it once more.
            task.taken += 1
            self._output(task.operator, number, header, block)
            self._carry_out()
            if number not in self._running:
                return True

    def _not_repeated(self, task: _Running) -> NotRepeatableError:
        return NotRepeatableError(self._operators[task.operator].name, task.taken)

    def _output(self, operator: int, task: int, header: tasks.Header, block: Any) -> None:
        self.stats.output(operator, header)
        running = self._running.get(task) if isinstance(block, sheaf.ObjectRef) else None
        sources = None if running is None else running.sources
        bundle = Bundle(block, 0, header.num_rows, header.size_bytes, header, sources)
        self._machine.output_came(task, bundle)

    def _ended(self, number: int) -> None:
        task = self._running.pop(number)
        task.has_ended = True
        self.stats.task_ended(task.operator, time.perf_counter() - task.began)
        self._machine.task_ended(number)
        if self._caches:
            KEEPER.look_soon()

    def _failed(self, number: int, error: exceptions.RayError) -> None:
        task = self._running[number]
        if task.actor is not None and isinstance(error, _GONE):
            for other in [n for n, t in self._running.items() if t.actor == task.actor]:
                del self._running[other]
            handle, _ = self._actors.pop(task.actor)
            self._resting.forget(task.actor)
            sheaf.kill(handle)  # One that cannot be reached now is not waited for.
            self._machine.actor_died(task.actor, error)
            return
        del self._running[number]
        self._machine.task_failed(number, error)

    def _wait(self) -> None:
        """Until a task ends or an actor starts; not long, as tasks make blocks meanwhile."""
        refs = [task.ended for task in self._running.values() if not task.has_ended]
        refs += [ready for _, ready in self._actors.values() if ready is not None]
        if not refs and self._drawn:
            self._drawings[next(iter(self._drawn))].wait(_LONGEST_WAIT_S)
            return
        if not refs:
            if self._machine.has_output() or self._machine.is_finished():
                return
            raise RuntimeError("an execution of sheaf.data waits for nothing: this is a bug")
        ready, _ = sheaf.wait(refs, num_returns=1, timeout=self._pause, fetch_local=False)
        found = {id(ref) for ref in ready}
        for task in self._running.values():
            if id(task.ended) in found:
                task.has_ended = True
        self._pause = _SHORTEST_WAIT_S if ready else min(2 * self._pause, _LONGEST_WAIT_S)


def _lies_elsewhere(block: Any) -> bool:
    """Whether a block as an argument is a reference. All others of a task are pickled together: its
    read tasks have a source in common."""
    return isinstance(block, (sheaf.ObjectRef, Pieces))


def _cuts(command: machine.Submit) -> list[Any]:
    return [(bundle.start, bundle.stop) for bundle in command.work.bundles]


def _raise_if_failed(block: sheaf.ObjectRef[Any]) -> None:
    """Raises the error that came in the place of a block, which lies nowhere; fetches no block."""
    place = get_local_object_locations([block])[block]
    if not place["node_ids"] and place["object_size"] is None:
        try:
            sheaf.get(block, timeout=0)
        except exceptions.GetTimeoutError:
            pass  # A block that is made again.


def _value(block: Any) -> Any:
    return sheaf.get(block) if isinstance(block, sheaf.ObjectRef) else block

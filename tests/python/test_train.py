# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.train: groups of workers that train, report, lose a member and go on."""

import ast
import io
import json
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf import train
from sheaf.air import session as air_session
from sheaf.train.progress_line import ProgressLine
from sheaf.util.collective import CollectiveError


def save(state, folder):
    os.makedirs(folder)
    (pathlib.Path(folder) / "state.json").write_text(json.dumps(state))
    return train.Checkpoint.from_directory(folder)


def load(checkpoint, otherwise):
    if checkpoint is None:
        return otherwise
    with checkpoint.as_directory() as folder:
        return json.loads((pathlib.Path(folder) / "state.json").read_text())


def count_steps(config):
    """Counts; rank 0, or all of them `together` and so in step, save each `every` steps. One rank
    dies, raises or hangs where `fail` says: (rank, step, how)."""
    context = train.get_context()
    rank = context.get_world_rank()
    step = load(train.get_checkpoint(), {"step": 0})["step"]
    while step < config["steps"]:
        for at_epoch, who, when, how in config.get("fail", ()):
            if (at_epoch, who, when) == (context.epoch, rank, step):
                hangs = pathlib.Path(config["scratch"]) / f"hangs-{at_epoch}"
                if how == "die":
                    if any(one[0] == at_epoch and one[3] == "hang" for one in config["fail"]):
                        wait_until(hangs.exists)
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "hang":
                    hangs.parent.mkdir(parents=True, exist_ok=True)
                    hangs.touch()
                    time.sleep(3600)
                raise ArithmeticError(f"rank {rank} cannot do step {step}")
        time.sleep(config.get("pace", 0.002))
        step += 1
        checkpoint = None
        if (rank == 0 or config.get("together")) and step % config.get("every", 1) == 0:
            checkpoint = save({"step": step}, f"{config['scratch']}/{context.epoch}-{step}-{rank}")
        train.report(
            {"step": step, "pid": os.getpid(), "world": context.get_world_size()}, checkpoint
        )


def trainer(folder, workers=3, loop=count_steps, max_failures=0, keep=None, **config):
    return train.DataParallelTrainer(
        loop,
        train_loop_config={"scratch": str(folder / "scratch"), **config},
        scaling_config=workers
        if isinstance(workers, train.ScalingConfig)
        else train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            name="run",
            storage_path=folder / "out",
            failure_config=train.FailureConfig(max_failures=max_failures),
            checkpoint_config=keep or train.CheckpointConfig(),
            progress=False,
        ),
    )


def steps(result):
    return [row["step"] for row in result.metrics_history]


def test_each_worker_knows_its_place_and_gets_its_part(node, tmp_path):
    def loop():
        context = train.get_context()
        place = (
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_local_world_size(),
        )
        columns = train.get_dataset_shard("columns")
        (tmp_path / f"{context.get_world_rank()}.json").write_text(
            json.dumps(
                {
                    "place": place,
                    "node": context.get_node_rank(),
                    "name": context.get_experiment_name(),
                    "array": train.get_dataset_shard().tolist(),
                    "columns": [columns["x"].tolist(), columns["y"]],
                    "made": list(train.get_dataset_shard("made")),
                    "checkpoint": train.get_checkpoint(),
                    "metadata": context.get_metadata(),
                }
            )
        )
        train.report({"loss": np.float32(0.5), "rank": context.get_world_rank()})

    result = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=3),
        run_config=train.RunConfig(name="places", storage_path=tmp_path / "out", progress=False),
        datasets={
            "train": np.arange(7),
            "columns": {"x": np.arange(3), "y": ["a", "b", "c"]},
            "made": lambda: iter(range(5)),
        },
        metadata={"kind": "test"},
    ).fit()
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [one["place"] for one in told] == [[rank, 3, rank, 3] for rank in range(3)]
    assert [one["array"] for one in told] == [[0, 1], [2, 3], [4, 5, 6]]
    assert [one["columns"] for one in told] == [[[0], ["a"]], [[1], ["b"]], [[2], ["c"]]]
    assert [one["made"] for one in told] == [[0, 3], [1, 4], [2]]
    assert {
        (one["node"], one["name"], one["checkpoint"], one["metadata"]["kind"]) for one in told
    } == {(0, "places", None, "test")}
    assert (
        result.metrics["loss"],
        result.metrics["rank"],
        result.metrics["training_iteration"],
    ) == (0.5, 0, 1)
    assert result.error is None and result.checkpoint is None


def test_what_only_a_trial_has_is_none_in_a_loop(node, tmp_path):
    """As in Ray: a loop that prints its trial's name does not fail."""

    def loop(config):
        names = ("name", "id", "resources", "dir")
        with pytest.warns(UserWarning, match="a training loop has no trial") as warned:
            asked = [getattr(air_session, f"get_trial_{name}")() for name in names]
        assert len(warned) == 4
        train.report({"asked": asked, "run": air_session.get_experiment_name()})

    metrics = trainer(tmp_path, 1, loop).fit().metrics
    assert metrics["asked"] == [None] * 4 and metrics["run"] == "run"


def test_workers_that_die_are_replaced_and_no_step_is_lost_or_doubled(node, tmp_path):
    fail = [(0, 1, 7, "die"), (1, 0, 11, "die"), (2, 2, 16, "die")]
    result = trainer(tmp_path, max_failures=3, steps=20, every=3, fail=fail).fit()
    assert steps(result) == list(range(1, 21))
    assert [row["training_iteration"] for row in result.metrics_history] == list(range(1, 21))
    lines = (tmp_path / "out" / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 21))
    assert load(result.checkpoint, None) == {"step": 18}
    kept = [event.text for event in result.events if " kept, " in event.text]
    assert len(kept) == 4 and all("(2 kept, 1 new)" in text for text in kept[1:]), kept
    assert "is lost" in "".join(event.text for event in result.events)
    assert len({row["pid"] for row in result.metrics_history}) == 2  # Rank 0 died once.


def test_a_loop_that_raises_runs_again_in_the_same_process(node, tmp_path):
    result = trainer(tmp_path, max_failures=1, steps=6, fail=[(0, 1, 3, "raise")]).fit()
    assert (
        steps(result) == [1, 2, 3, 4, 5, 6]
        and len({row["pid"] for row in result.metrics_history}) == 1
    )


def test_the_end_names_the_rank_and_the_cause(node, tmp_path):
    with pytest.raises(
        train.TrainingFailedError,
        match="rank 1 of 3 raised at step 4: .*cannot do step 3.*max_failures=1",
    ) as caught:
        trainer(
            tmp_path,
            max_failures=1,
            steps=6,
            together=True,
            fail=[(0, 1, 3, "raise"), (1, 1, 3, "raise")],
        ).fit()
    error = caught.value
    assert (
        error.rank == 1
        and isinstance(error.cause, ArithmeticError)
        and list(error.worker_failures) == [1]
    )
    assert (
        steps(error.result) == [1, 2, 3]
        and load(error.result.checkpoint, None) == {"step": 3}
        and error.result.error is error
    )


def test_a_worker_that_cannot_be_interrupted_is_replaced(node, tmp_path):
    result = trainer(
        tmp_path, max_failures=1, steps=6, together=True, fail=[(0, 0, 3, "hang"), (0, 1, 3, "die")]
    ).fit()
    assert steps(result) == [1, 2, 3, 4, 5, 6]
    assert "(1 kept, 2 new)" in "".join(event.text for event in result.events)


def test_pure_python_loops_are_interrupted(node, tmp_path):
    def loop(config):
        if train.get_context().epoch == 0:
            if train.get_context().get_world_rank() == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                time.sleep(0.001)
        train.report({"step": 1})

    result = trainer(tmp_path, loop=loop, max_failures=1).fit()
    assert "(2 kept, 1 new)" in result.events[-2].text


def test_a_rank_that_is_stopped_is_named_to_the_others_and_replaced(node, tmp_path):
    def loop(config):
        context = train.get_context()
        context.group.barrier()
        if (context.epoch, context.get_world_rank()) == (0, 1):
            signal.raise_signal(
                signal.SIGSTOP
            )  # Sent to the process, it may find this thread in the operation already.
        try:
            total = np.ones(1)
            context.group.all_reduce(total, timeout=1)
        except CollectiveError as error:
            (tmp_path / str(context.get_world_rank())).write_text(
                f"{type(error).__name__} {error.rank}"
            )
            raise
        train.report({"total": total[0]})

    result = trainer(tmp_path, loop=loop, max_failures=1).fit()
    assert result.metrics["total"] == 3 and "(2 kept, 1 new)" in "".join(
        event.text for event in result.events
    )
    # Who comes second may be stopped by the driver before it has a word: the first one's error ends
    # the epoch.
    said = {(tmp_path / rank).read_text() for rank in ("0", "2") if (tmp_path / rank).exists()} - {
        ""
    }
    assert "CollectiveTimeoutError 1" in said and said <= {
        "CollectiveTimeoutError 1",
        "RankLostError 0",
        "RankLostError 2",
        "RankLostError 1",
    }


def test_values_go_from_rank_zero_to_all(node, tmp_path):
    def loop(config):
        rank = train.get_context().get_world_rank()
        given = train.collective.broadcast_from_rank_zero({"rank": rank, "more": "x" * 1000})
        train.collective.barrier()
        assert given["rank"] == 0 and len(given["more"]) == 1000
        train.report({"done": True})

    assert trainer(tmp_path, loop=loop).fit().metrics["done"]


def test_a_run_of_the_same_name_goes_on_and_never_sees_a_torn_checkpoint(node, tmp_path):
    with pytest.raises(train.TrainingFailedError):
        trainer(tmp_path, steps=9, every=2, fail=[(0, 0, 5, "raise")]).fit()
    folder = tmp_path / "out" / "run"
    (folder / ".incomplete-000005-0").mkdir()  # What a crash in the middle of an upload leaves.
    (folder / ".incomplete-000005-0" / "state.json").write_text("torn")
    (folder / "checkpoint_000099").mkdir()  # No marker: not complete.
    result = trainer(tmp_path, steps=9, every=2).fit()
    assert (
        steps(result) == list(range(1, 10))
        and "from checkpoint_000004, step 4" in result.events[1].text
    )
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize(("order", "kept"), [("max", {3, 4, 6}), ("min", {1, 5, 6})])
def test_the_best_checkpoints_and_the_newest_stay(node, tmp_path, order, kept):
    scores = [0.1, 0.3, 0.8, 0.9, 0.2, 0.5]

    def loop(config):
        for step, score in enumerate(scores, 1):
            checkpoint = save({"step": step}, f"{config['scratch']}/{step}")
            train.report(
                {"step": step, "score": score},
                checkpoint,
                delete_local_checkpoint_after_upload=True,
            )
        assert len(train.get_all_reported_checkpoints()) == 6

    keep = train.CheckpointConfig(
        num_to_keep=3, checkpoint_score_attribute="score", checkpoint_score_order=order
    )
    result = trainer(tmp_path, workers=1, loop=loop, keep=keep).fit()
    assert {row["step"] for _, row in result.best_checkpoints} == kept
    assert {name for name in os.listdir(result.path) if name[0] == "c"} == {
        f"checkpoint_{step:06d}" for step in kept
    }
    assert load(result.get_best_checkpoint("score", "max"), None)["step"] == (
        4 if order == "max" else 6
    )
    assert os.listdir(tmp_path / "scratch") == []


def test_ranks_add_their_files_to_one_checkpoint(node, tmp_path):
    def loop(config):
        rank = train.get_context().get_world_rank()
        folder = f"{config['scratch']}/{rank}"
        os.makedirs(f"{folder}/parts")
        pathlib.Path(f"{folder}/parts/{rank}").write_text(str(rank))
        train.report({}, train.Checkpoint.from_directory(folder), "all")

    result = trainer(tmp_path, loop=loop).fit()
    assert result.checkpoint.path.endswith("/all")
    assert sorted(os.listdir(f"{result.checkpoint.path}/parts")) == ["0", "1", "2"]


def test_the_group_has_as_many_workers_as_there_is_room_for(node, tmp_path):
    holders = [sheaf.remote(num_cpus=1)(Holder).remote() for _ in range(2)]
    sheaf.get([holder.ready.remote() for holder in holders], timeout=WAIT_S)
    scaling = train.ScalingConfig(num_workers=(1, 3), elastic_resize_monitor_interval_s=0.1)
    room = threading.Timer(2.5, holders.clear)
    room.start()
    try:
        result = trainer(tmp_path, scaling, steps=2000, every=1, pace=0.01, loop=until_three).fit()
    finally:
        room.join()
    worlds = [row["world"] for row in result.metrics_history]
    assert worlds[0] == 2 and worlds[-1] == 3 and steps(result) == list(range(1, len(worlds) + 1))


class Holder:
    def ready(self):
        return True


def until_three(config):
    done = train.get_context().get_world_size() == 3
    first = load(train.get_checkpoint(), {"step": 0})["step"]
    count_steps({**config, "steps": first + 2 if done else config["steps"]})


def test_no_room_is_said(node, tmp_path):
    scaling = train.ScalingConfig(num_workers=9, placement_timeout_s=0.2)
    with pytest.raises(
        train.TrainingFailedError,
        match=r"no room for num_workers=9 of \{'CPU': 1.0\} each .* within 0.2 s: free are",
    ):
        trainer(tmp_path, scaling, steps=1).fit()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: train.ScalingConfig(num_workers=0), "num_workers=0: want a number from 1"),
        (lambda: train.ScalingConfig(num_workers=(3, 2)), r"num_workers=\(3, 2\)"),
        (
            lambda: train.ScalingConfig(placement_strategy="NEAR"),
            "placement_strategy='NEAR': want one of PACK",
        ),
        (
            lambda: train.ScalingConfig(resources_per_worker={"CPU": -1}),
            r"resources_per_worker\['CPU'\]=-1",
        ),
        (lambda: train.FailureConfig(max_failures=-2), "max_failures=-2: want"),
        (lambda: train.CheckpointConfig(num_to_keep=0), "num_to_keep=0: want"),
        (lambda: train.CheckpointConfig(checkpoint_score_order="up"), "'max' or 'min'"),
        (lambda: train.RunConfig(name="a/b"), "name='a/b'"),
        (lambda: train.RunConfig(callbacks=[print]), "no sheaf.train.UserCallback"),
        (lambda: train.DataParallelTrainer(3), "train_loop_per_worker=3: want a function"),
        (
            lambda: train.DataParallelTrainer(lambda: None, train_loop_config={"a": 1}),
            "takes no argument",
        ),
        (
            lambda: train.DataParallelTrainer(print, scaling_config=4),
            "scaling_config=4: want a ScalingConfig",
        ),
        (
            lambda: train.DataParallelTrainer(print, datasets={"train": iter([1])}),
            "an iterator cannot be sent",
        ),
        (lambda: train.Checkpoint("s3+unknown://bucket/x", 3), "3 is no file system"),
    ],
)
def test_wrong_values_are_named(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


def test_outside_of_a_loop_there_is_no_context():
    with pytest.raises(RuntimeError, match="inside the train_loop_per_worker"):
        train.get_context()


def test_a_checkpoint_has_files_and_metadata(tmp_path):
    checkpoint = save({"step": 3}, tmp_path / "made")
    checkpoint.set_metadata({"a": 1})
    checkpoint.update_metadata({"b": 2})
    assert checkpoint.get_metadata() == {"a": 1, "b": 2}
    copy = train.Checkpoint(checkpoint.to_directory(tmp_path / "copy"))
    assert load(copy, None) == {"step": 3} and copy.get_metadata() == {"a": 1, "b": 2}
    with pytest.raises(FileNotFoundError, match="is no folder"):
        train.Checkpoint.from_directory(tmp_path / "nowhere")


def local_file_systems():
    def fsspec():
        return pytest.importorskip("fsspec").filesystem("file")

    def pyarrow():
        return pytest.importorskip("pyarrow.fs").LocalFileSystem()

    def uri():  # fsspec finds the file system by itself.
        pytest.importorskip("fsspec")

    return [fsspec, pyarrow, uri]


@pytest.mark.parametrize("make", local_file_systems())
def test_runs_go_to_file_systems_of_other_packages(node, tmp_path, make):
    filesystem = make()

    def fit(fail):
        made = trainer(
            tmp_path,
            workers=2,
            max_failures=1,
            steps=5,
            every=2,
            fail=fail,
            keep=train.CheckpointConfig(num_to_keep=1),
        )
        made._run_config.storage_filesystem = filesystem
        scheme = "local://" if filesystem is None else ""
        made._run_config.storage_path = f"{scheme}{tmp_path}/out"
        return made.fit()

    result = fit([(0, 1, 3, "die")])
    assert steps(result) == [1, 2, 3, 4, 5] and load(result.checkpoint, None) == {"step": 4}
    assert sorted(os.listdir(tmp_path / "out" / "run")) == ["checkpoint_000004", "metrics.jsonl"]
    assert steps(fit([])) == [1, 2, 3, 4, 5]


class Recorder(train.UserCallback):
    def __init__(self):
        self.said = []

    def on_start(self, run_context, history):
        self.said.append(("start", len(history)))

    def after_report(self, run_context, metrics, checkpoint):
        self.said.append(("report", [row["step"] for row in metrics], checkpoint is not None))

    def after_rollback(self, run_context, reports):
        self.said.append(("rollback", reports))

    def after_exception(self, run_context, worker_exceptions):
        self.said.append(("failed", sorted(worker_exceptions)))

    def on_end(self, run_context, result):
        self.said.append(("end", result.error))


def report_one_dict(config):
    values = {"nested": {"step": 0}, "array": np.zeros(1)}
    for step in range(5):
        values["nested"]["step"] = values["array"][0] = step
        train.report(values)


def test_a_report_is_what_it_was_though_its_objects_are_used_again(node, tmp_path):
    made = train.DataParallelTrainer(
        report_one_dict,
        scaling_config=train.ScalingConfig(num_workers=1),
        run_config=train.RunConfig(name="r", storage_path=str(tmp_path)),
    )
    history = made.fit().metrics_history
    assert [row["nested"]["step"] for row in history] == list(range(5))
    assert [row["array"][0] for row in history] == list(range(5))


def test_callbacks_hear_what_happens(node, tmp_path):
    recorder = Recorder()
    made = trainer(tmp_path, workers=2, max_failures=1, steps=3, every=2, fail=[(0, 0, 2, "raise")])
    made._run_config.callbacks = (recorder, train.JsonLinesCallback(tmp_path / "own.jsonl"))
    made.fit()
    said = [entry for entry in recorder.said if entry != ("report", [3, 3], False)]
    assert said == [
        ("start", 0),
        ("report", [1, 1], False),
        ("report", [2, 2], True),
        ("failed", [0]),
        ("rollback", 2),
        ("end", None),
    ]
    assert recorder.said[-2:] == [("report", [3, 3], False), ("end", None)]
    assert [
        json.loads(line)["step"] for line in (tmp_path / "own.jsonl").read_text().splitlines()
    ] == [1, 2, 3]


class Spy:
    """Stands for a package: remembers calls as (name, arguments)."""

    def __init__(self, said, name=""):
        self._said, self._name = said, name

    def __getattr__(self, name):
        return Spy(self._said, name)

    def __call__(self, *arguments, **named):
        self._said.append((self._name, *arguments, *named.values()))
        return Spy(self._said)


def test_tensorboard_and_mlflow_get_numbers_of_each_step(node, tmp_path, monkeypatch):
    board, flow = [], []
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", Spy(board))
    monkeypatch.setitem(sys.modules, "mlflow", Spy(flow))
    made = trainer(tmp_path, workers=1, max_failures=1, steps=4, every=2, fail=[(0, 0, 3, "raise")])
    made._run_config.callbacks = (
        train.TensorBoardCallback(),
        train.MLflowCallback("file:x", "mine"),
    )
    made.fit()
    folder = str(tmp_path / "out" / "run" / "tensorboard")
    assert [entry[1:] for entry in board if entry[0] == "SummaryWriter"] == [
        (folder, 1),
        (folder, 3),
    ]  # Steps behind the checkpoint go.
    assert [entry[2:] for entry in board if entry[:2] == ("add_scalar", "step")] == [
        (1.0, 1),
        (2.0, 2),
        (3.0, 3),
        (3.0, 3),
        (4.0, 4),
    ]
    assert flow[:3] == [
        ("set_tracking_uri", "file:x"),
        ("set_experiment", "mine"),
        ("start_run", "run"),
    ]
    assert [entry[2] for entry in flow if entry[0] == "log_metrics"] == [1, 2, 3, 4] and flow[
        -1
    ] == ("end_run", "FINISHED")


def test_callbacks_that_lack_a_package_say_which(monkeypatch):
    for name in ("torch.utils.tensorboard", "tensorboardX", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    for make, package in (
        (train.TensorBoardCallback, "tensorboardX"),
        (train.MLflowCallback, "mlflow"),
    ):
        with pytest.raises(ImportError, match=f"pip install {package}"):
            make()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_line_shows_loss_throughput_and_time_left(monkeypatch):
    clock = iter(np.arange(100.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    for stream in (Terminal(), io.StringIO()):
        line = ProgressLine("digits", 10, stream=stream)
        for step in range(1, 7):
            line.step(step, {"loss": 1 / step, "samples": 64})
        line.close()
        line.note("rank 1 is lost")
        text = stream.getvalue()
        assert (
            "digits: step 6/10, loss 0.1667, 64 samples/s, 4 s left" in text
            and "digits: rank 1 is lost\n" in text
        )
        assert ("\r" in text) == stream.isatty() and text.count("\n") == (
            2 if stream.isatty() else 3
        )


def test_ended_runs_leave_nothing(node):
    wait_until(lambda: sheaf.available_resources().get("CPU") == 4, sheaf.available_resources)


def test_the_package_stands_on_public_names_alone():
    for file in pathlib.Path(train.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [
                    f"{node.module}.{alias.name}" if node.module == "sheaf" else node.module
                    for alias in node.names
                ]
            for name in names:
                package, _, rest = name.partition(".")
                public = rest.split(".")[0] in ("", "air", "train", "util", "exceptions", "torch")
                assert (
                    package == "sheaf" and public
                ) or package in sys.stdlib_module_names | OPTIONAL, f"{file.name} imports {name}"


OPTIONAL = {"fsspec", "mlflow", "numpy", "pandas", "pyarrow", "tensorboardX", "torch"}

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.tune beside the libraries that report to it; each test needs its own."""

import json
import logging
import os
import pathlib

import pytest
import sheaf
from sheaf import tune
from sheaf.tune.search import create_searcher

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def fit(trainable, space, folder, callbacks=(), **config):
    """Runs an experiment named "e", in which no trial fails."""
    results = tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(**config),
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), verbose=0, callbacks=list(callbacks)
        ),
    ).fit()
    assert not results.errors, results.errors[0]
    return results


def test_xgboost_reports_and_saves(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    datasets = pytest.importorskip("sklearn.datasets")
    from sheaf.tune.integration.xgboost import TuneReportCheckpointCallback

    data, target = datasets.load_breast_cancer(return_X_y=True)

    def train(config):
        matrix = xgboost.DMatrix(data, target)
        xgboost.train(
            {"objective": "binary:logistic", "eta": config["eta"], "nthread": 1},
            matrix,
            num_boost_round=6,
            evals=[(matrix, "train")],
            verbose_eval=False,
            callbacks=[TuneReportCheckpointCallback({"loss": "train-logloss"}, frequency=4)],
        )

    space = {"eta": tune.grid_search([0.01, 0.5])}
    results = fit(train, space, tmp_path, metric="loss", mode="min")
    best = results.get_best_result()
    assert best.config["eta"] == 0.5 and best.metrics["loss"] < 0.3
    losses = [row["loss"] for row in best.metrics_history]
    assert len(losses) >= 6 and losses == sorted(losses, reverse=True)
    assert len(best.best_checkpoints) == 2  # The fourth iteration, and the last.
    with best.checkpoint.as_directory() as folder:
        model = xgboost.Booster(model_file=os.path.join(folder, "model.ubj"))
    assert model.num_boosted_rounds() == 6


def test_lightgbm_reports_and_saves(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    datasets = pytest.importorskip("sklearn.datasets")
    from sheaf.tune.integration.lightgbm import TuneReportCheckpointCallback

    data, target = datasets.load_breast_cancer(return_X_y=True)

    def train(config):
        table = lightgbm.Dataset(data, target)
        lightgbm.train(
            {
                "objective": "binary",
                "learning_rate": config["eta"],
                "verbose": -1,
                "num_threads": 1,
            },
            table,
            num_boost_round=6,
            valid_sets=[table],
            valid_names=["train"],
            callbacks=[TuneReportCheckpointCallback({"loss": "train-binary_logloss"})],
        )

    space = {"eta": tune.grid_search([0.01, 0.5])}
    results = fit(train, space, tmp_path, metric="loss", mode="min")
    best = results.get_best_result()
    assert best.config["eta"] == 0.5 and best.metrics["loss"] < 0.3
    with best.checkpoint.as_directory() as folder:
        model = lightgbm.Booster(model_file=os.path.join(folder, "model.txt"))
    assert model.num_trees() == 6


def test_lightning_reports_and_saves(tmp_path):
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning")

    def train(config):
        from sheaf.tune.integration.pytorch_lightning import TuneReportCheckpointCallback

        class Line(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.line = torch.nn.Linear(2, 1)

            def loss(self, batch):
                x, y = batch
                return torch.nn.functional.mse_loss(self.line(x), y)

            def training_step(self, batch, index):
                return self.loss(batch)

            def validation_step(self, batch, index):
                self.log("val_loss", self.loss(batch))

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=config["lr"])

        torch.manual_seed(1)
        x = torch.randn(64, 2)
        rows = torch.utils.data.TensorDataset(x, x @ torch.tensor([[1.0], [-2.0]]))
        loader = torch.utils.data.DataLoader(rows, batch_size=16)
        trainer = lightning.Trainer(
            max_epochs=3,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[TuneReportCheckpointCallback({"loss": "val_loss"}, on="validation_end")],
        )
        trainer.fit(Line(), loader, loader)

    results = fit(
        train, {"lr": tune.grid_search([0.0001, 0.1])}, tmp_path, metric="loss", mode="min"
    )
    best = results.get_best_result()
    assert best.config["lr"] == 0.1 and best.metrics["training_iteration"] == 3
    with best.checkpoint.as_directory() as folder:
        saved = torch.load(os.path.join(folder, "checkpoint"), weights_only=False)
    assert saved["epoch"] == 2 and "line.weight" in saved["state_dict"]


def test_keras_reports_and_saves(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")

    def train(config):
        os.environ["KERAS_BACKEND"] = "torch"
        import keras
        from sheaf.tune.integration.keras import TuneReportCheckpointCallback

        keras.utils.set_random_seed(1)
        x = np.random.default_rng(1).normal(size=(64, 2)).astype("float32")
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(config["lr"]), loss="mse")
        model.fit(
            x,
            x @ np.array([[1.0], [-2.0]], dtype="float32"),
            epochs=3,
            verbose=0,
            callbacks=[TuneReportCheckpointCallback({"v": "loss"})],
        )

    results = fit(train, {"lr": tune.grid_search([0.0001, 0.1])}, tmp_path, metric="v", mode="min")
    best = results.get_best_result()
    assert best.config["lr"] == 0.1 and best.metrics["training_iteration"] == 3
    with best.checkpoint.as_directory() as folder:
        model = keras.models.load_model(os.path.join(folder, "model.keras"))
    assert model.count_params() == 3


def report_twice(config):
    for step in range(2):
        tune.report({"loss": (config["x"] - 2) ** 2 + 1 - step, "inner": {"step": step}})


def test_tensorboard_reads_what_was_reported(tmp_path):
    pytest.importorskip("tensorboardX")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import metadata as hyperparameters

    results = fit(report_twice, {"x": tune.grid_search([1, 4])}, tmp_path)
    for result in results:
        read = events.EventAccumulator(result.path)
        read.Reload()
        seen = [(one.step, one.value) for one in read.Scalars("ray/tune/loss")]
        least = (result.config["x"] - 2) ** 2
        assert seen == [(1, least + 1), (2, least)]
        assert [one.value for one in read.Scalars("ray/tune/inner/step")] == [0, 1]
        chosen = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        values = hyperparameters.parse_session_start_info_plugin_data(chosen).hparams
        assert values["x"].number_value == result.config["x"]


def test_mlflow_has_a_run_for_each_trial_and_the_best_model(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from sheaf.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    callback = MLflowLoggerCallback(
        uri, registry_uri=uri, experiment_name="tuned", tags={"by": "tune"}
    )
    space = {"x": tune.grid_search([1, 2, 4])}
    results = fit(report_twice, space, tmp_path, [callback], metric="loss", mode="min")
    client = mlflow.MlflowClient(uri, uri)
    experiment = client.get_experiment_by_name("tuned")
    runs = client.search_runs([experiment.experiment_id], order_by=["metrics.loss ASC"])
    assert [run.data.params["x"] for run in runs] == ["2", "1", "4"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert runs[0].data.metrics["loss"] == 0 and runs[0].data.tags["by"] == "tune"
    steps = client.get_metric_history(runs[0].info.run_id, "loss")
    assert [(one.step, one.value) for one in steps] == [(1, 1), (2, 0)]
    model = client.create_registered_model("best")
    version = client.create_model_version(
        model.name, results.get_best_result().path, run_id=runs[0].info.run_id
    )
    client.set_registered_model_alias("best", "champion", version.version)
    found = client.get_model_version_by_alias("best", "champion")
    assert found.run_id == runs[0].info.run_id and pathlib.Path(found.source).exists()

    def train(config):
        run = setup_mlflow(config, tracking_uri=uri, experiment_name="inside", tags={"by": "trial"})
        run.log_metric("loss", config["x"])
        tune.report({"loss": config["x"]})
        if config["x"] == 5:
            raise ValueError("by design")

    settings = tune.RunConfig(name="inside", storage_path=str(tmp_path), verbose=0)
    tune.Tuner(train, param_space={"x": tune.grid_search([3, 5])}, run_config=settings).fit()
    inside = client.search_runs([client.get_experiment_by_name("inside").experiment_id])
    assert sorted(run.data.metrics["loss"] for run in inside) == [3, 5]
    assert {run.data.tags["by"] for run in inside} == {"trial"}
    ends = {run.data.metrics["loss"]: run.info.status for run in inside}
    assert ends == {3: "FINISHED", 5: "FAILED"}


def test_mlflow_has_one_run_for_the_workers_of_a_trainer(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from sheaf import train

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.MlflowClient(uri).create_experiment("trained")  # The tables are made once.

    def loop(config):
        from sheaf.air.integrations.mlflow import setup_mlflow

        run = setup_mlflow(
            config,
            tracking_uri=uri,
            experiment_name="trained",
            create_experiment_if_not_exists=False,
        )
        with run.start_span("rank"):  # Of the others nothing is heard.
            run.log_metric("rank", train.get_context().get_world_rank())
        train.report({"loss": 1})

    train.DataParallelTrainer(
        loop,
        train_loop_config={"lr": 0.1},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="t", storage_path=str(tmp_path), progress=False),
    ).fit()
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("trained").experiment_id])
    assert (run.data.metrics, run.data.params) == ({"rank": 0}, {"lr": "0.1"})
    assert run.info.status == "FINISHED"


def test_a_searcher_has_its_study_in_a_journal_of_all_processes(tmp_path):
    optuna = pytest.importorskip("optuna")
    from sheaf.tune.search.optuna import OptunaSearch
    from sheaf.util.optuna import SheafJournal

    storage = optuna.storages.JournalStorage(SheafJournal("tuned"))
    search = OptunaSearch(storage=storage, study_name="s", metric="loss", mode="min", seed=1)
    results = fit(
        report_twice, {"x": tune.uniform(-5, 5)}, tmp_path, search_alg=search, num_samples=8
    )

    @sheaf.remote
    def best():
        other = optuna.storages.JournalStorage(SheafJournal("tuned"))
        study = optuna.load_study(study_name="s", storage=other)
        return study.best_params["x"], len(study.trials)

    assert sheaf.get(best.remote()) == (results.get_best_result("loss", "min").config["x"], 8)
    storage._backend.delete()


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        ("ax", "ax"),
        ("bayesopt", "bayes_opt"),
        ("hyperopt", "hyperopt"),
        ("nevergrad", "nevergrad"),
        ("optuna", "optuna"),
    ],
)
def test_a_searcher_finds_the_minimum_with_trials_in_processes(kind, module, tmp_path):
    pytest.importorskip(module)
    logging.getLogger(kind).setLevel(logging.ERROR)
    more, samples = {}, 6 if kind == "ax" else 16  # Ax takes long for each.
    if kind == "nevergrad":
        import nevergrad

        more = {"optimizer": nevergrad.optimizers.OnePlusOne, "optimizer_kwargs": {"budget": 16}}
    if kind == "bayesopt":
        more = {"random_search_steps": 6}
    results = fit(
        report_twice,
        {"x": tune.uniform(-5, 5)},
        tmp_path,
        metric="loss",
        mode="min",
        search_alg=create_searcher(kind, **more),
        num_samples=samples,
        max_concurrent_trials=2,
    )
    best = results.get_best_result()
    assert len(results) == samples and best.metrics["loss"] < 2
    told = json.loads((pathlib.Path(best.path) / "params.json").read_text())
    assert told == best.config

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which flights from New York are late? Joins flights with airlines, planes and weather, prints who
is late and when, and trains a model in two workers, which tells late flights beforehand.

    python flights.py [--epochs 6]
"""

import argparse
import pathlib
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import sheaf
from sheaf import data, train
from sheaf.data.aggregate import Count, Mean, MissingValuePercentage
from sheaf.data.expressions import col
from sheaf.data.preprocessors import Chain, Concatenator, SimpleImputer, StandardScaler

Batch = dict[str, npt.NDArray[Any]]
FOLDER = str(pathlib.Path(__file__).resolve().parents[1] / "data" / "flights")
LATE_MIN = 15  # Minutes, as airlines count.
FEATURES = [
    "hour",
    "hour_2",
    "distance",
    "age",
    "temp",
    "wind_speed",
    "precip",
    "pressure",
    "visib",
]
WORKERS, BATCH, RATE = 2, 256, 0.3


def flights() -> data.Dataset:
    """A row per flight that arrived, with its airline, plane and weather."""
    hours = ("origin", "month", "day", "hour")
    rows = data.read_parquet(f"{FOLDER}/flights.parquet", override_num_blocks=4)
    return (
        rows.filter(expr=col("arr_delay").is_not_null())
        .join(data.read_csv(f"{FOLDER}/airlines.csv"), "inner", on=("carrier",))
        .join(data.read_parquet(f"{FOLDER}/planes.parquet"), "left_outer", on=("tailnum",))
        .join(data.read_parquet(f"{FOLDER}/weather.parquet"), "left_outer", on=hours)
        .with_columns(
            {
                "late": (col("arr_delay") > LATE_MIN).cast("float64"),
                "hour": col("hour").cast("float64"),
                "hour_2": col("hour").cast("float64").power(2),
                "age": 2013 - col("built"),
            }
        )
    )


def bar(part: float) -> str:
    return "\u2588" * round(100 * part)


def table(title: str, rows: Iterable[dict[str, Any]], key: str) -> None:
    print(f"\n{title}")
    for row in rows:
        late = row["late"]
        print(f"  {row[key]!s:>26} {100 * late:4.0f} % of {row['n']:6,} {bar(late)}")


def look(joined: data.Dataset) -> None:
    """Who is late, and when."""
    shares = [Mean("late", alias_name="late"), Count(alias_name="n")]
    airlines = joined.groupby("name").aggregate(*shares).sort("late", descending=True)
    table(f"More than {LATE_MIN} minutes late, by airline", airlines.take_all(), "name")
    hours = joined.groupby("hour").aggregate(*shares).sort("hour").take_all()
    named = [{**row, "at": f"{row['hour']:02.0f}:00"} for row in hours if row["n"] >= 100]
    table("By hour of departure", named, "at")
    rain = joined.with_column("rain", (col("precip") > 0).cast("string"))
    wet = {row["rain"]: row["late"] for row in rain.groupby("rain").aggregate(*shares).take_all()}
    print(f"\nIn rain {100 * wet['true']:.0f} % are late, else {100 * wet['false']:.0f} %.")
    unknown = joined.aggregate(MissingValuePercentage("age", alias_name="age"))
    print(f"The age of the plane is not known for {unknown['age']:.0f} % of the flights.")


def loop(config: dict[str, Any]) -> None:
    """Runs in each worker: logistic regression by the gradients of all workers."""
    shard, group = train.get_dataset_shard("train"), train.get_context().group
    weights = np.zeros(len(FEATURES) + 1)
    sums = group.zeros(len(weights) + 2, "float64")  # Behind the gradient: rows, and their loss.
    for _ in range(config["epochs"]):
        loss = rows = 0.0
        for batch in shard.iter_batches(batch_size=BATCH, drop_last=True):
            x = np.column_stack([batch["x"], np.ones(len(batch["late"]))])
            guess = 1 / (1 + np.exp(-x @ weights))
            chance = np.where(batch["late"] > 0, guess, 1 - guess)
            sums[:] = [*x.T @ (guess - batch["late"]), len(x), -np.log(chance).sum()]
            group.all_reduce(sums)
            weights = weights - RATE * sums[:-2] / sums[-2]
            loss, rows = loss + sums[-1], rows + sums[-2]
        train.report({"loss": loss / rows, "weights": weights.tolist()})


class Model:
    """Runs in an actor: the probability that a flight is late."""

    def __init__(self, weights: list[float]):
        self._weights = np.array(weights)

    def __call__(self, batch: Batch) -> Batch:
        score = batch["x"] @ self._weights[:-1] + self._weights[-1]
        return {"late": batch["late"], "guess": 1 / (1 + np.exp(-score))}


def area(scored: Batch) -> float:
    """How often a late flight has a higher guess than another (the area under the curve)."""
    ranks = scored["guess"].argsort().argsort() + 1.0
    late = scored["late"] > 0
    count = late.sum()
    return float((ranks[late].sum() - count * (count + 1) / 2) / (count * (~late).sum()))


def learn(joined: data.Dataset, epochs: int) -> float:
    """Trains, and gives the area under the curve for flights that the model has not seen."""
    known = joined.select_columns([*FEATURES, "late"])
    part, rest = known.train_test_split(0.25, shuffle=True, seed=1)
    ready = Chain(
        SimpleImputer(FEATURES),
        StandardScaler(FEATURES),
        Concatenator(FEATURES, output_column_name="x"),
    )
    result = train.DataParallelTrainer(
        loop,
        train_loop_config={"epochs": epochs},
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        datasets={"train": ready.fit_transform(part)},
    ).fit()
    losses = [row["loss"] for row in result.metrics_history]
    weights = result.metrics_history[-1]["weights"]
    scored = ready.transform(rest).map_batches(Model, fn_constructor_args=(weights,), concurrency=1)
    found = area(scored.take_batch(rest.count()))
    print(f"\n{WORKERS} workers, {epochs} epochs: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    order = np.argsort(-np.abs(weights[:-1]))
    print("What counts: " + ", ".join(f"{FEATURES[i]} {weights[i]:+.2f}" for i in order[:5]))
    print(f"Of a late flight and another, {100 * found:.0f} % are told apart beforehand.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    began = time.monotonic()
    with sheaf.init(num_cpus=4, log_to_driver=False):
        joined = flights().materialize()
        print(f"{joined.count():,} flights from New York, 36 days of 2013")
        look(joined)
        learn(joined, given.epochs)
    print(f"({time.monotonic() - began:.1f} s)")


if __name__ == "__main__":
    main()

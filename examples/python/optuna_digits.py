# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Searches the learning rate and the decay of a classifier of handwritten digits with Optuna, whose
study all nodes share. It outlives this program: run again, the search goes on, also from another
machine.

    python optuna_digits.py [ADDRESS [TRIALS]]    # without an address on a cluster of its own
"""

import pathlib
import sys
from typing import Any

import numpy as np
import optuna  # type: ignore[import-not-found,unused-ignore]
import sheaf
from optuna.storages import JournalStorage  # type: ignore[import-not-found,unused-ignore]
from sheaf.util.optuna import SheafJournal, optimize

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.npz"
EPOCHS = 27


def objective(trial: Any) -> float:
    """Runs in a task, on any node; the pruner ends what falls behind the other trials."""
    with np.load(DATA) as file:
        images, labels = file["x"] / 16.0, file["y"].astype(int)
    rate = trial.suggest_float("rate", 0.01, 10, log=True)
    decay = trial.suggest_categorical("decay", [0, 1e-4, 1e-3, 1e-2])
    trial.set_user_attr("node", sheaf.get_runtime_context().get_node_id())
    train_images, train_labels = images[::2], labels[::2]
    weights, accuracy = np.zeros((images.shape[1], 10)), 0.0
    for epoch in range(EPOCHS):
        scores = train_images @ weights
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors = exponents / exponents.sum(axis=1, keepdims=True)
        errors[np.arange(len(train_labels)), train_labels] -= 1
        gradient = train_images.T @ errors / len(train_labels)
        weights = (1 - decay) * weights - rate * gradient
        accuracy = float((np.argmax(images[1::2] @ weights, axis=1) == labels[1::2]).mean())
        trial.report(accuracy, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


def main() -> None:
    sheaf.init(sys.argv[1] if len(sys.argv) > 1 else None, log_to_driver=False)
    study: Any = optuna.create_study(
        storage=JournalStorage(SheafJournal("digits")),
        study_name="digits",
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=3),
        load_if_exists=True,
    )
    optimize(study, objective, n_trials=int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    trials = study.get_trials()
    nodes = {trial.user_attrs["node"] for trial in trials}
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in trials)
    print(
        f"{len(trials)} trials on {len(nodes)} nodes, {pruned} pruned; the best with rate "
        f"{study.best_params['rate']:.3g}: {study.best_value:.1%}"
    )


if __name__ == "__main__":
    main()

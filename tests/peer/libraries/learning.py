# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Libraries that learn and search."""

import tempfile

from program import main, program, say


@program
def scikit_learn_by_joblib():
    """cross-validation of a random forest, and squares"""
    import joblib
    from ray.util.joblib import register_ray
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    register_ray()
    images, digits = load_digits(return_X_y=True)
    with joblib.parallel_backend("ray", n_jobs=2):
        scores = cross_val_score(RandomForestClassifier(20, random_state=1), images, digits, cv=4)
        squares = joblib.Parallel()(joblib.delayed(pow)(k, 2) for k in range(20))
    say([round(score, 6) for score in scores])
    say(squares)


@program
def xgboost_on_actors():
    """10 rounds of boosting and a prediction by 2 actors"""
    from sklearn.datasets import load_breast_cancer
    from xgboost_ray import RayDMatrix, RayParams, predict, train

    features, label = load_breast_cancer(return_X_y=True)
    result = {}
    booster = train(
        {
            "objective": "binary:logistic",
            "eval_metric": ["logloss"],
            "tree_method": "hist",
            "max_depth": 3,
            "nthread": 1,
            "seed": 1,
        },
        RayDMatrix(features, label),
        num_boost_round=10,
        evals_result=result,
        evals=[(RayDMatrix(features, label), "train")],
        verbose_eval=False,
        ray_params=RayParams(num_actors=2, cpus_per_actor=1),
    )
    losses = result["train"]["logloss"]
    say([round(loss, 4) for loss in losses], booster.num_boosted_rounds())
    guesses = predict(booster, RayDMatrix(features), ray_params=RayParams(num_actors=2))
    say(int(((guesses > 0.5) == label).sum()))


@program
def lightgbm_on_actors():
    """10 rounds of boosting by 2 actors"""
    from lightgbm_ray import RayDMatrix, RayParams, train
    from sklearn.datasets import load_breast_cancer

    features, label = load_breast_cancer(return_X_y=True)
    result = {}
    train(
        {"objective": "binary", "metric": ["binary_logloss"], "verbose": -1},
        RayDMatrix(features, label),
        num_boost_round=10,
        evals_result=result,
        valid_sets=[RayDMatrix(features, label)],
        valid_names=["train"],
        verbose_eval=False,
        ray_params=RayParams(num_actors=2, cpus_per_actor=2),
    )
    losses = result["train"]["binary_logloss"]
    say([round(loss, 4) for loss in losses])


@program
def deephyper_search():
    """a random search whose evaluations are tasks"""
    from deephyper.evaluator import Evaluator
    from deephyper.hpo import HpProblem, RandomSearch

    def run(job):
        return -((job.parameters["x"] - 2) ** 2)

    problem = HpProblem()
    problem.add((-10.0, 10.0), "x")
    evaluator = Evaluator.create(run, method="ray", method_kwargs={"num_cpus": 2})
    with tempfile.TemporaryDirectory() as folder:
        results = RandomSearch(problem, random_state=3, log_dir=folder).search(evaluator, 20)
    right = results["objective"] == -((results["p:x"] - 2) ** 2)  # How many is left to chance.
    say(len(results) >= 20, bool(right.all()), results["p:x"].nunique() == len(results))


@program(alone=True)
def sktime_evaluation():
    """a forecaster over 4 windows, each a task"""
    from sktime.datasets import load_airline
    from sktime.forecasting.model_evaluation import evaluate
    from sktime.forecasting.naive import NaiveForecaster
    from sktime.split import ExpandingWindowSplitter

    found = evaluate(
        NaiveForecaster(strategy="mean", sp=3),
        ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=100, step_length=12),
        load_airline(),
        backend="ray",
        backend_params={"ray_remote_args": {"num_cpus": 2, "log_to_driver": False}},
    )
    scores = found["test_MeanAbsolutePercentageError"]
    say([round(float(score), 6) for score in scores])


@program
def pymoo_minimum():
    """a genetic algorithm whose evaluations are tasks"""
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.optimize import minimize
    from pymoo.parallelization.ray import RayParallelization

    class Sphere(ElementwiseProblem):
        def __init__(self, **kwargs):
            super().__init__(n_var=3, n_obj=1, xl=-5, xu=5, **kwargs)

        def _evaluate(self, x, out, *args, **kwargs):
            out["F"] = (x**2).sum()

    problem = Sphere(elementwise_runner=RayParallelization(job_resources={"num_cpus": 1}))
    found = minimize(problem, GA(pop_size=20), ("n_gen", 5), seed=1, verbose=False)
    say(round(float(found.F[0]), 6))


if __name__ == "__main__":
    main()

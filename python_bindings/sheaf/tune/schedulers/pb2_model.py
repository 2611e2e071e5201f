# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The model of PB2: a Gaussian process over time, reward and hyperparameters, whose past fades, and
the point of it that promises most."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

_EPSILON_BOUNDS = (1e-5, 0.5)
_SHORTEST_WINDOW = 200  # Of fewer observations all are used.
_WINDOW_STEP = 10
_STARTS = 10  # Of the search for the best point.


class TimeVaryingKernel(Kernel):  # type: ignore[misc]
    """A squared exponential kernel, times (1 - epsilon) ** (half of the distance in time).

    The first column is the time.

    Args:
        variance: of the process.
        lengthscale: of all columns but the time.
        epsilon: how fast the past fades, of 1.
    """

    def __init__(
        self, variance: float = 1.0, lengthscale: float = 1.0, epsilon: float = 0.1
    ) -> None:
        self.variance = variance
        self.lengthscale = lengthscale
        self.epsilon = epsilon

    @property
    def hyperparameter_variance(self) -> Any:
        """For scikit-learn."""
        return Hyperparameter("variance", "numeric", (1e-5, 1e5))

    @property
    def hyperparameter_lengthscale(self) -> Any:
        """For scikit-learn."""
        return Hyperparameter("lengthscale", "numeric", (1e-5, 1e5))

    @property
    def hyperparameter_epsilon(self) -> Any:
        """For scikit-learn."""
        return Hyperparameter("epsilon", "numeric", _EPSILON_BOUNDS)

    @property
    def theta(self) -> Any:
        """The logarithms of the parameters, in the order in which gradients have them."""
        return np.log([self.variance, self.lengthscale, self.epsilon])

    @theta.setter
    def theta(self, theta: Any) -> None:
        self.variance, self.lengthscale, self.epsilon = np.exp(theta)

    @property
    def bounds(self) -> Any:
        """Of theta."""
        return np.log([(1e-5, 1e5), (1e-5, 1e5), _EPSILON_BOUNDS])

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        X = np.atleast_2d(X)
        Y = X if Y is None else Y
        epsilon = np.clip(self.epsilon, *_EPSILON_BOUNDS)
        half_times = np.abs(X[:, None, 0] - Y[None, :, 0]) / 2
        squares = np.sum((X[:, None, 1:] - Y[None, :, 1:]) ** 2, axis=2)
        K = self.variance * np.exp(-squares / self.lengthscale) * (1 - epsilon) ** half_times
        if not eval_gradient:
            return K
        fading = -K * half_times * epsilon / (1 - epsilon)
        return K, np.dstack([K, K * squares / self.lengthscale, fading])

    def diag(self, X: Any) -> Any:
        """Returns the variances of points."""
        return np.full(X.shape[0], self.variance, dtype=np.float64)

    def is_stationary(self) -> bool:
        """Returns False: the past fades."""
        return False


def propose(observed: Any, improvements: Any, pending: Any, now: Any, bounds: Any) -> Any:
    """Chooses hyperparameters.

    Args:
        observed: rows of time, reward before, and hyperparameters.
        improvements: of the reward, per time, one for each row.
        pending: hyperparameters that others go on with and have not reported on; None: there are
            none.
        now: time and reward of the trial that goes on.
        bounds: rows of least and greatest values, one for each hyperparameter.

    Returns:
        The hyperparameters, as float32.
    """
    bounds = np.asarray(bounds, dtype=float).T
    fixed_count = len(now)
    window = _window(observed, improvements, bounds, fixed_count)
    observed, improvements = observed[-window:], improvements[-window:]
    X = _normalized(observed, _limits(observed, bounds, fixed_count))
    y = _standardized(improvements).reshape(-1, 1)
    fixed = _normalized(now, observed[:, :fixed_count])
    model = certainty = _fitted(X, y)
    if pending is not None:
        # What is under way counts as observed for the uncertainty: others explore elsewhere.
        rows = np.hstack((np.tile(fixed, (len(pending), 1)), _normalized(pending, bounds)))
        certainty = _fitted(np.vstack((X, rows)), np.vstack((y, np.zeros((len(pending), 1)))))
    best = _best_point(model, certainty, fixed, bounds.shape[1])
    span = bounds.max(axis=0) - bounds.min(axis=0)
    return (best * span + bounds.min(axis=0)).astype(np.float32)


def _fitted(X: Any, y: Any) -> Any:
    def fit(alpha: float) -> Any:
        kernel = TimeVaryingKernel()
        model = GaussianProcessRegressor(kernel, optimizer="fmin_l_bfgs_b", alpha=alpha)
        return model.fit(X, y)

    try:
        return fit(1e-10)
    except np.linalg.LinAlgError:
        return fit(1e-3)  # Rows that are almost alike: noise makes the matrix regular.


def _window(observed: Any, improvements: Any, bounds: Any, fixed_count: int) -> int:
    """How many of the last observations explain themselves best."""
    if len(observed) < _SHORTEST_WINDOW:
        return len(observed)
    lengths = range(_SHORTEST_WINDOW, len(observed) + 1, _WINDOW_STEP)

    def likelihood(length: int) -> float:
        rows, values = observed[-length:], improvements[-length:]
        X = _normalized(rows, _limits(rows, bounds, fixed_count))
        return float(
            _fitted(X, _standardized(values).reshape(-1, 1)).log_marginal_likelihood_value_
        )

    return max(lengths, key=likelihood)


def _best_point(model: Any, certainty: Any, fixed: Any, count: int) -> Any:
    """The hyperparameters with the greatest upper confidence bound, within [0, 1]."""
    kappa = np.sqrt(0.2 + max(0.0, np.log(0.4 * model.X_train_.shape[0])))

    def confidence_bound(x: Any) -> float:
        point = np.concatenate((fixed, x)).reshape(1, -1)
        mean = np.ravel(model.predict(point))[0]
        deviation = np.ravel(certainty.predict(point, return_std=True)[1])[0]
        return float(mean + kappa * deviation**2)

    best_value, best = -np.inf, np.full(count, 0.5)
    for _ in range(_STARTS):
        found = minimize(
            lambda x: -confidence_bound(x),
            np.random.uniform(0, 1, count),
            bounds=[(0, 1)] * count,
            method="L-BFGS-B",
            options={"maxiter": 200, "maxfun": 200},
        )
        value = confidence_bound(found.x)
        if value > best_value:
            best_value, best = value, found.x
    return np.clip(best, 0, 1)


def _limits(observed: Any, bounds: Any, fixed_count: int) -> Any:
    fixed = observed[:, :fixed_count]
    return np.concatenate((np.stack((fixed.max(axis=0), fixed.min(axis=0))), bounds), axis=1)


def _normalized(values: Any, limits: Any) -> Any:
    least = np.min(limits, axis=0)
    return (values - least) / (np.max(limits, axis=0) - least + 1e-8)


def _standardized(values: Any) -> Any:
    return np.clip((values - np.mean(values)) / (np.std(values) + 1e-8), -2, 2)

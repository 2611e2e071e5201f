# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""HyperOpt on a cluster: `hyperopt.fmin(..., trials=SheafTrials(4))` runs each trial as a task.
Needs the package hyperopt."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from typing import Any

try:
    import hyperopt
    from hyperopt import base
    from hyperopt.fmin import FMinIter, space_eval
    from hyperopt.utils import coarse_utcnow
except ImportError as error:
    raise ImportError(
        f"sheaf.util.hyperopt needs the package hyperopt: pip install hyperopt ({error})"
    ) from error

import sheaf
from sheaf.exceptions import RayTaskError

_LOOK_S = 1.0  # How often what bounds the search is looked at while trials run.
_CANCEL_S = 5.0  # How long cancelled trials have to leave their function.


class SheafTrials(hyperopt.Trials):  # type: ignore[misc]
    """Trials of hyperopt.fmin that run as tasks, several at once.

    A trial that raises, or whose process ends, counts as failed (its `misc["error"]` says why), and
    the search goes on. May be pickled, also while a search runs.

    Args:
        parallelism: how many trials run at once; None: as many as the cluster has CPUs for.
        timeout: the search ends after so many seconds, and cancels what runs; None: no bound.
        loss_threshold: the search ends when a loss is below it; None: no bound.
        num_cpus: of each trial.
        num_gpus: of each trial.
        resources: more of each trial, by name.

    Raises:
        ValueError: the parallelism is not positive.
        Exception: HyperOpt's: the timeout or threshold is none.
    """

    def __init__(
        self,
        parallelism: int | None = None,
        timeout: float | None = None,
        loss_threshold: float | None = None,
        *,
        num_cpus: float = 1,
        num_gpus: float = 0,
        resources: Mapping[str, float] | None = None,
    ):
        if parallelism is not None and not parallelism >= 1:
            raise ValueError(f"parallelism={parallelism!r}: want a number from 1, or None")
        base.validate_timeout(timeout)
        base.validate_loss_threshold(loss_threshold)
        super().__init__()
        self.parallelism, self.timeout, self.loss_threshold = parallelism, timeout, loss_threshold
        self.task_options = {
            "num_cpus": num_cpus,
            "num_gpus": num_gpus,
            "resources": dict(resources or {}),
        }
        self.cancelled_reason: str | None = None

    def fmin(
        self,
        fn: Any,
        space: Any,
        algo: Any = None,
        max_evals: int | None = None,
        timeout: float | None = None,
        loss_threshold: float | None = None,
        max_queue_len: int = 1,
        rstate: Any = None,
        verbose: bool = True,
        pass_expr_memo_ctrl: bool | None = None,
        catch_eval_exceptions: bool = False,
        return_argmin: bool = True,
        show_progressbar: Any = True,
        early_stop_fn: Any = None,
        trials_save_file: str = "",
    ) -> Any:
        """Is what hyperopt.fmin calls.

        Args:
            fn: see hyperopt.fmin, as all arguments.
            space: the search space.
            algo: proposes trials.
            max_evals: how many.
            timeout: as of SheafTrials, which goes first.
            loss_threshold: as of SheafTrials, which goes first.
            max_queue_len: without effect: trials are proposed as they can run.
            rstate: where seeds come from.
            verbose: whether anything is shown.
            pass_expr_memo_ctrl: must be false: a task has nothing of this process at hand.
            catch_eval_exceptions: without effect: trials that fail never end the search.
            return_argmin: whether the values that were best are returned, or the point of the
                space.
            show_progressbar: whether progress is shown.
            early_stop_fn: ends the search, and cancels what runs.
            trials_save_file: where this object is saved after each step.

        Returns:
            What was best; None: no trial has succeeded, and return_argmin is false.

        Raises:
            ValueError: pass_expr_memo_ctrl.
            hyperopt.exceptions.AllTrialsFailed: no trial has succeeded.
        """
        if pass_expr_memo_ctrl or getattr(fn, "fmin_pass_expr_memo_ctrl", False):
            raise ValueError(
                "pass_expr_memo_ctrl: SheafTrials runs the function in other processes, which get "
                "the values alone"
            )
        self.cancelled_reason = None
        search = _Search(
            self,
            hyperopt.Domain(fn, space),
            algo=algo or hyperopt.tpe.suggest,
            rstate=rstate,
            max_evals=max_evals,
            timeout=timeout if self.timeout is None else self.timeout,
            loss_threshold=loss_threshold if self.loss_threshold is None else self.loss_threshold,
            verbose=verbose,
            show_progressbar=show_progressbar,
            early_stop_fn=early_stop_fn,
            trials_save_file=trials_save_file,
        )
        search.go()
        if return_argmin:
            self._check_any()
            return self.argmin
        return space_eval(space, self.argmin) if len(self) else None

    def _check_any(self) -> None:
        if any(state == base.JOB_STATE_DONE for state in self._states()):
            return
        failed = [one for one in self._dynamic_trials if one["state"] == base.JOB_STATE_ERROR]
        last = f"; the last failed by {failed[-1]['misc']['error'][1]}" if failed else ""
        raise hyperopt.exceptions.AllTrialsFailed(
            f"no trial has succeeded: {len(failed)} failed, {self.count_cancelled_trials()} were "
            f"cancelled{last}"
        )

    def _states(self) -> list[int]:
        return [one["state"] for one in self._dynamic_trials]

    def count_successful_trials(self) -> int:
        """Returns how many have ended well."""
        return self._states().count(base.JOB_STATE_DONE)

    def count_failed_trials(self) -> int:
        """Returns how many have failed."""
        return self._states().count(base.JOB_STATE_ERROR)

    def count_cancelled_trials(self) -> int:
        """Returns how many were cancelled."""
        return self._states().count(base.JOB_STATE_CANCEL)

    def count_total_trials(self) -> int:
        """Returns how many are over."""
        running = (base.JOB_STATE_NEW, base.JOB_STATE_RUNNING)
        return sum(state not in running for state in self._states())


class _Search(FMinIter):  # type: ignore[misc]
    """HyperOpt's own loop, whose step "evaluate what is new" hands trials to tasks and waits while
    no further one can run."""

    def __init__(self, trials: SheafTrials, domain: Any, *, early_stop_fn: Any, **settings: Any):
        super().__init__(
            domain=domain,
            trials=trials,
            asynchronous=False,
            early_stop_fn=early_stop_fn and self._watch(early_stop_fn),
            **settings,
        )
        self._domain_ref = sheaf.put(domain)
        self._evaluate = sheaf.remote(_evaluate).options(**trials.task_options)
        self._running: dict[Any, dict[str, Any]] = {}  # Trials by reference.

    def go(self) -> None:
        """To the end."""
        try:
            self.run(self.max_evals - len(self.trials), block_until_done=True)
        except BaseException as error:
            self._cancel("by the user" if isinstance(error, KeyboardInterrupt) else repr(error))
            raise

    def _watch(self, early_stop: Any) -> Any:
        def watch(trials: SheafTrials, *arguments: Any) -> Any:
            stop, kept = early_stop(trials, *arguments)
            if stop:
                trials.cancelled_reason = "early stopping condition"
            return stop, kept

        return watch

    def serial_evaluate(self, N: int = -1) -> None:
        """Is HyperOpt's name for the step."""
        new = [one for one in self.trials._dynamic_trials if one["state"] == base.JOB_STATE_NEW]
        for trial in new:
            trial["state"] = base.JOB_STATE_RUNNING
            trial["book_time"] = trial["refresh_time"] = coarse_utcnow()
            values = base.spec_from_misc(trial["misc"])
            self._running[self._evaluate.remote([self._domain_ref], values)] = trial
        self._hear(0 if new else self._patience())
        most = self.trials.parallelism or _cpus(self.trials.task_options)
        while len(self._running) >= most and self._reason() is None:
            self._hear(self._patience())
        self.trials.refresh()

    def block_until_done(self) -> None:
        """Is called when nothing new is wanted: waits for what runs, or cancels it where the search
        has ended before."""
        while self._running:
            reason = self._reason()
            if reason is not None:
                self._cancel(reason)
            else:
                self._hear(self._patience())
        self.trials.refresh()

    def _patience(self) -> float:
        if self.timeout is None:
            return _LOOK_S
        left: float = self.timeout - (time.perf_counter() - self.start_time)
        return min(max(left, 0.0), _LOOK_S)

    def _reason(self) -> str | None:
        """Why what runs shall not be waited for."""
        if self.trials.cancelled_reason is not None:
            return str(self.trials.cancelled_reason)
        if self.timeout is not None and time.perf_counter() - self.start_time >= self.timeout:
            return "timeout"
        losses = [loss for loss in self.trials.losses() if loss is not None and loss == loss]
        if self.loss_threshold is not None and losses and min(losses) < self.loss_threshold:
            return "loss threshold"
        return None

    def _hear(self, timeout_s: float) -> None:
        if not self._running:
            return
        refs = list(self._running)
        ready, _ = sheaf.wait(refs, num_returns=1, timeout=timeout_s)
        if ready and len(refs) > 1:
            ready, _ = sheaf.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            trial = self._running.pop(ref)
            try:
                result = sheaf.get(ref)
            except Exception as error:
                cause = error.cause if isinstance(error, RayTaskError) else error
                text = "".join(traceback.format_exception_only(cause)).strip()
                trial["state"], trial["misc"]["error"] = base.JOB_STATE_ERROR, _said(cause, text)
            else:
                attachments = self.trials.trial_attachments(trial)
                for name, value in result.pop("attachments", {}).items():
                    attachments[name] = value
                trial["state"], trial["result"] = base.JOB_STATE_DONE, result
            trial["refresh_time"] = coarse_utcnow()

    def _cancel(self, reason: str) -> None:
        self.trials.cancelled_reason = reason
        refs = list(self._running)
        for ref in refs:
            sheaf.cancel(ref)
        _, left = sheaf.wait(refs, num_returns=len(refs), timeout=_CANCEL_S) if refs else ([], [])
        for ref in left:
            sheaf.cancel(ref, force=True)
        now = coarse_utcnow()
        for trial in self._running.values():
            trial["state"], trial["refresh_time"] = base.JOB_STATE_CANCEL, now
            trial["misc"]["error"] = ("cancelled", reason)
        self._running.clear()
        self.trials.refresh()


def _said(cause: Any, text: str) -> tuple[str, str]:
    return f"{type(cause).__module__}.{type(cause).__qualname__}", text


def _cpus(options: Mapping[str, Any]) -> int:
    wanted = options["num_cpus"] or 1
    return max(1, int(sheaf.cluster_resources().get("CPU", 1) / wanted))


def _evaluate(domain: list[Any], values: dict[str, Any]) -> dict[str, Any]:
    """One trial, in a task."""
    found: dict[str, Any] = sheaf.get(domain[0]).evaluate(
        values, ctrl=None, attach_attachments=False
    )
    return found

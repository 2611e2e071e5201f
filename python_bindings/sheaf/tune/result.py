# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of the fields of a result, and of the files of a trial. They are Ray's."""

from __future__ import annotations

TRAINING_ITERATION = "training_iteration"
TIME_THIS_ITER_S = "time_this_iter_s"
TIME_TOTAL_S = "time_total_s"
TIMESTAMP = "timestamp"
DONE = "done"
SHOULD_CHECKPOINT = "should_checkpoint"
HOSTNAME = "hostname"
TRIAL_ID = "trial_id"
EXPERIMENT_TAG = "experiment_tag"
NODE_IP = "node_ip"
PID = "pid"
CHECKPOINT_DIR_NAME = "checkpoint_dir_name"
DEFAULT_METRIC = "_metric"  # Of a function that returns a number.
EPISODE_REWARD_MEAN = "episode_reward_mean"
MEAN_LOSS = "mean_loss"
MEAN_ACCURACY = "mean_accuracy"
EPISODES_TOTAL = "episodes_total"
TIMESTEPS_TOTAL = "timesteps_total"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
AUTO_RESULT_KEYS = (  # What a result has besides what was reported.
    TRAINING_ITERATION,
    TIME_TOTAL_S,
    EPISODES_TOTAL,
    TIMESTEPS_TOTAL,
    NODE_IP,
    HOSTNAME,
    PID,
    TIME_THIS_ITER_S,
    TIMESTAMP,
    "date",
    "time_since_restore",
    "iterations_since_restore",
    "timesteps_since_restore",
    "config",
    TRIAL_ID,
    EXPERIMENT_TAG,
    DONE,
    CHECKPOINT_DIR_NAME,
    SHOULD_CHECKPOINT,
)
DEFAULT_RESULT_KEYS = (TRAINING_ITERATION, TIME_TOTAL_S, MEAN_ACCURACY, MEAN_LOSS)

EXPR_RESULT_FILE = "result.json"
EXPR_PROGRESS_FILE = "progress.csv"
EXPR_PARAM_FILE = "params.json"
EXPR_PARAM_PICKLE_FILE = "params.pkl"
EXPR_ERROR_FILE = "error.txt"
EXPR_ERROR_PICKLE_FILE = "error.pkl"

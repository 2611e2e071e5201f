# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Hyperparameter search: many trials of one function, with searchers and schedulers."""

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Preprocessors of tables: each is fitted to a dataset by aggregates, in one pass, and changes
datasets and batches in Arrow."""

from __future__ import annotations

from sheaf.data.preprocessors.chain import Chain
from sheaf.data.preprocessors.concatenator import Concatenator
from sheaf.data.preprocessors.discretizer import CustomKBinsDiscretizer, UniformKBinsDiscretizer
from sheaf.data.preprocessors.encoder import (
    Categorizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
)
from sheaf.data.preprocessors.hasher import FeatureHasher
from sheaf.data.preprocessors.imputer import SimpleImputer
from sheaf.data.preprocessors.normalizer import Normalizer
from sheaf.data.preprocessors.scaler import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sheaf.data.preprocessors.tokenizer import Tokenizer
from sheaf.data.preprocessors.torch import TorchVisionPreprocessor
from sheaf.data.preprocessors.transformer import PowerTransformer
from sheaf.data.preprocessors.vectorizer import CountVectorizer, HashingVectorizer

__all__ = [
    "Categorizer",
    "Chain",
    "Concatenator",
    "CountVectorizer",
    "CustomKBinsDiscretizer",
    "FeatureHasher",
    "HashingVectorizer",
    "LabelEncoder",
    "MaxAbsScaler",
    "MinMaxScaler",
    "MultiHotEncoder",
    "Normalizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "PowerTransformer",
    "RobustScaler",
    "SimpleImputer",
    "StandardScaler",
    "Tokenizer",
    "TorchVisionPreprocessor",
    "UniformKBinsDiscretizer",
]

# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TorchVisionPreprocessor: a transform of torchvision over columns of images."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from sheaf.data.errors import MissingPackageError
from sheaf.data.preprocessors.base import SerializablePreprocessorBase
from sheaf.data.preprocessors.version_support import SerializablePreprocessor
from sheaf.data.schema import check_columns

__all__ = ["TorchVisionPreprocessor"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.torchvision_preprocessor")
class TorchVisionPreprocessor(SerializablePreprocessorBase):
    """Images through a function of tensors.

    Args:
        columns: the columns.
        transform: takes a tensor, or an array where it refuses tensors by TypeError, and returns
            either.
        output_columns: where the results go, one for each; the same columns when not given.
        batched: it takes all images of a batch at once; else one by one.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        transform: Callable[[Any], Any],
        output_columns: list[str] | None = None,
        batched: bool = False,
    ) -> None:
        super().__init__()
        self.columns, self.torchvision_transform, self.batched = columns, transform, batched
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _get_serializable_fields(self) -> dict[str, Any]:
        names = ("columns", "output_columns", "torchvision_transform", "batched")
        return {name: getattr(self, name) for name in names}

    def _transform_numpy(self, np_data: Any) -> Any:
        if not isinstance(np_data, dict):
            return self._of_column(np_data)
        check_columns(self.columns, list(np_data), "TorchVisionPreprocessor")
        made = {
            output: self._of_column(np_data[name])
            for name, output in zip(self.columns, self.output_columns)
        }
        return {**np_data, **made}

    def _of_column(self, images: Any) -> Any:
        if self.batched:
            return self._called(images)
        made = [self._called(image) for image in images]
        return np.stack(made) if len({one.shape for one in made}) == 1 else made

    def _called(self, array: Any) -> Any:
        try:
            import torch
        except ImportError as error:
            raise MissingPackageError("TorchVisionPreprocessor", "torch") from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Arrays are read-only, and tensors do not know it.
                tensor = torch.as_tensor(array)
            made = self.torchvision_transform(tensor)
        except TypeError:
            made = self.torchvision_transform(array)
        if isinstance(made, torch.Tensor):
            made = made.numpy()
        if not isinstance(made, np.ndarray):
            raise ValueError(
                "TorchVisionPreprocessor: the transform returned a "
                f"{type(made).__name__}: want a torch.Tensor or a numpy.ndarray"
            )
        return made

    def _shown(self) -> dict[str, Any]:
        return {
            "columns": self.columns,
            "output_columns": self.output_columns,
            "transform": self.torchvision_transform,
        }

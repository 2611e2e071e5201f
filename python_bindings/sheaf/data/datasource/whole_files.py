# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files that are one row each: bytes and images; and NumPy's, which are one column."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.columns import column_of
from sheaf.data.datasource.file_based import FileBasedDatasource
from sheaf.data.datasource.in_memory import numpy_to_table
from sheaf.data.errors import FileFormatError, MissingPackageError

__all__ = ["BinaryDatasource", "ImageDatasource", "NumpyDatasource"]


class BinaryDatasource(FileBasedDatasource):
    """Files as rows with the column "bytes". Arguments as of FileBasedDatasource."""

    _COMPRESSED = False

    def _rows_per_file(self) -> int:
        return 1

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        yield pa.table({"bytes": pa.array([f.read()], pa.binary())})


class ImageDatasource(FileBasedDatasource):
    """Images as rows with the column "image", a tensor of (height, width) or (height, width,
    bands).

    Args:
        paths: of files or folders.
        size: (height, width) to scale to; JPEG is decoded at the next larger eighth.
        mode: of Pillow ("RGB", "L") to convert to.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    _COMPRESSED = False
    _FILE_EXTENSIONS = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp"]

    def __init__(
        self,
        paths: Any,
        size: tuple[int, int] | None = None,
        mode: str | None = None,
        **file_based_datasource_kwargs: Any,
    ):
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise ValueError(f"size={size!r}: want (height, width), both 1 or more")
        try:
            import PIL.Image  # noqa: F401
        except ImportError as error:
            raise MissingPackageError("read_images", "pillow") from error
        super().__init__(paths, **file_based_datasource_kwargs)
        self._size, self._mode = size, mode

    def _rows_per_file(self) -> int:
        return 1

    def estimate_inmemory_data_size(self) -> int | None:
        """Returns the bytes of all images when their size is given; else None."""
        if self._size is None:
            return None
        bands = {"L": 1, "RGBA": 4}.get(self._mode or "RGB", 3)
        return len(self._files) * self._size[0] * self._size[1] * bands

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        import PIL.Image

        try:
            image: Any = PIL.Image.open(io.BytesIO(f.read()))
            if self._size is not None:
                height, width = self._size
                if self._mode in ("RGB", "L"):
                    image.draft(self._mode, (width, height))
                image = image.resize((width, height), PIL.Image.Resampling.BILINEAR)
            if self._mode is not None:
                image = image.convert(self._mode)
            array = np.array(image)
        except (PIL.UnidentifiedImageError, OSError, SyntaxError) as error:
            raise FileFormatError(path, f"not an image that Pillow reads: {error}") from error
        yield pa.table({"image": column_of("image", array[np.newaxis])})


class NumpyDatasource(FileBasedDatasource):
    """Files of numpy.save, a row per element along the first axis, in the column "data".

    Args:
        paths: of files or folders.
        numpy_load_args: of numpy.load.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    _COMPRESSED = False
    _FILE_EXTENSIONS = ["npy"]

    def __init__(
        self,
        paths: Any,
        numpy_load_args: dict[str, Any] | None = None,
        **file_based_datasource_kwargs: Any,
    ):
        super().__init__(paths, **file_based_datasource_kwargs)
        self._args = dict(numpy_load_args or {})

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        try:
            yield numpy_to_table(np.load(io.BytesIO(f.read()), **self._args))
        except (ValueError, EOFError) as error:
            raise FileFormatError(path, f"not a file of numpy.save: {error}") from error

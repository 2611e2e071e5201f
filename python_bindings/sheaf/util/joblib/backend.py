# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""joblib's multiprocessing backend, with the pool of this package in the place of
multiprocessing's."""

from __future__ import annotations

from typing import Any

from joblib._parallel_backends import MultiprocessingBackend

from sheaf import _core, cluster, lifecycle
from sheaf.util.multiprocessing import Pool


class SheafBackend(MultiprocessingBackend):  # type: ignore[misc]
    """n_jobs=-1 is one process per CPU of the cluster. ray_remote_args: options of the
    processes."""

    supports_sharedmem = False

    def __init__(self, *args: Any, ray_remote_args: dict[str, Any] | None = None, **kwargs: Any):
        self._options = ray_remote_args
        super().__init__(*args, **kwargs)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many processes `n_jobs` means here."""
        if n_jobs == 0:
            raise ValueError("n_jobs=0 means nothing: want a number from 1, or -1 for all CPUs")
        if n_jobs is None or n_jobs > 0:
            return n_jobs or 1
        if not _core.is_initialized():
            lifecycle.init()
        return max(1, int(cluster.cluster_resources().get("CPU", 1)) + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: Any = None,
        require: Any = None,
        **others: Any,
    ) -> int:
        """Makes the pool; gives how many processes it has."""
        n_jobs = self.effective_n_jobs(n_jobs)
        self._pool: Pool | None = Pool(n_jobs, ray_remote_args=self._options)
        self.parallel = parallel
        return n_jobs

    def terminate(self) -> None:
        """Ends the pool."""
        if self._pool is not None:
            self._pool.close()
            self._pool.terminate()
            self._pool = None

"""A batch fit on the workers of a local Dask cluster, with its allocator and with one that keeps its memory."""

from __future__ import annotations

import time
from typing import Any

import joblib
import numpy as np

from momostream.estimators.table import MOMoGPRegressor

__all__ = ["ALLOCATOR", "measure_dask"]

#: Set before workers are spawned: glibc keeps freed memory instead of handing it back after every piece of work.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


def measure_dask(n_rows: int) -> dict[str, Any]:
    """Seconds of a fit alone and on two workers, CPU seconds of the workers, and whether all gave the same floats."""
    import dask
    from distributed import Client, LocalCluster

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 8))
    Y = np.c_[np.sin(X[:, 0]) * X[:, 1], X[:, 2] ** 2] + 0.1 * rng.normal(size=(n_rows, 2))
    options = {"max_points": 500, "random_state": 0}
    # Compiled code is loaded before a clock runs.
    MOMoGPRegressor(max_points=64, random_state=0).fit(X[:300], Y[:300])
    began = time.monotonic()
    expected = MOMoGPRegressor(**options).fit(X, Y).predict_distribution(X[:100])
    found: dict[str, Any] = {"rows": n_rows, "alone_seconds": time.monotonic() - began, "same": True}
    # The first is what Dask sets itself.
    for name, allocator in (("plain", {"MALLOC_TRIM_THRESHOLD_": "65536"}), ("allocator", ALLOCATOR)):
        setting = {"distributed.nanny.pre-spawn-environ": {**ONE_THREAD, **allocator}}
        with (
            dask.config.set(setting),
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        ):
            with Client(cluster) as client, joblib.parallel_config(backend="dask", n_jobs=-1):
                MOMoGPRegressor(max_points=64, random_state=0).fit(X[:300], Y[:300])
                before = sum(client.run(time.process_time).values())
                began = time.monotonic()
                distribution = MOMoGPRegressor(**options).fit(X, Y).predict_distribution(X[:100])
                found[f"{name}_seconds"] = time.monotonic() - began
                found[f"{name}_worker_cpu"] = sum(client.run(time.process_time).values()) - before
        found["same"] &= bool((distribution.mean == expected.mean).all() and (distribution.cov == expected.cov).all())
    return found

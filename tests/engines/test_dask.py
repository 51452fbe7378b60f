"""Batch fits on the workers of a Dask cluster give the floats of a serial fit."""

from __future__ import annotations

import warnings

import joblib
import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'momostream[dask]'")

from momostream.estimators.table import MOMoGPRegressor  # noqa: E402 - behind the check for its peers


@pytest.fixture(scope="module")
def cluster():
    # Dask and its event loop complain about each other's age and about ports that are in use.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**options) as found, distributed.Client(found) as client:
            yield client


@pytest.mark.filterwarnings("ignore")
def test_a_fit_on_workers_is_a_fit(cluster):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    Y = np.c_[np.sin(X[:, 0]), X[:, 1] * X[:, 2]] + 0.1 * rng.normal(size=(600, 2))
    options = {"max_points": 100, "max_iterations": 5, "random_state": 0}
    alone = MOMoGPRegressor(**options).fit(X, Y)
    with joblib.parallel_config(backend="dask"):
        together = MOMoGPRegressor(**options, n_jobs=-1).fit(X, Y)
    with joblib.parallel_config(backend="dask", n_jobs=-1):
        by_context = MOMoGPRegressor(**options).fit(X, Y)
    expected = alone.predict_distribution(X[:40])
    for model in (together, by_context):
        found = model.predict_distribution(X[:40])
        assert (found.mean == expected.mean).all() and (found.cov == expected.cov).all()
        assert (found.log_pdf(Y[:40]) == expected.log_pdf(Y[:40])).all()
    # The work was done there, and not here.
    done = cluster.run(lambda: "momostream.gp.tuning" in __import__("sys").modules)
    assert all(done.values())

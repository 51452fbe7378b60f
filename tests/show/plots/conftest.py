"""A fitted model with gates, and its predictions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from momostream import MOMoGPForecaster
from tests.show.plots.figures import fitted, frames, streamed


@pytest.fixture(scope="module")
def gated():
    return fitted(max_points=60)


@pytest.fixture(scope="module")
def distribution(gated):
    return gated.predict_distribution(frames()[0][:20])


@pytest.fixture(scope="module")
def stream():
    return streamed()


@pytest.fixture(scope="module")
def forecaster():
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-03-01", periods=260, freq="10min")
    frame = pd.DataFrame(rng.normal(size=(260, 2)).cumsum(axis=0), times, ["wind", "power"])
    return MOMoGPForecaster(horizon=3, max_points=24, seasons=(5,), seed=0).fit(frame)

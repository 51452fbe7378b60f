"""Functions of single numbers: those of the standard library, to the last digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from momostream.kernels.scalar import FARTHEST, cosine, decay, log

# Interpreted code says what compiled code keeps to itself.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")


def test_decay_is_the_exponential():
    rng = np.random.default_rng(0)
    farthest = FARTHEST
    edges = [0.0, 5e-324, 1e-300, 1e-17, farthest]
    # Where the whole number changes that is taken out, too.
    halves = np.log(2.0) * (np.arange(int(farthest)) + 0.5)
    for a in np.concatenate([edges, rng.uniform(0, farthest, 800), farthest * 10 ** rng.uniform(-20, 0, 800), halves]):
        assert decay(a) == pytest.approx(math.exp(-a), rel=5e-16, abs=0.0)
    assert decay(0.0) == 1.0


@pytest.mark.parametrize("a", [np.nextafter(FARTHEST, 1e9), 745.0, 1e6, 1e300, np.inf])
def test_decay_is_zero_far_away(a):
    assert decay(a) == 0.0


def test_log_is_the_logarithm():
    rng = np.random.default_rng(1)
    places = np.concatenate([[1.0, 2.0, 0.5, 2.2250738585072014e-308, 1.7e308], 10 ** rng.uniform(-300, 300, 1000)])
    for x in places:
        assert log(x) == pytest.approx(math.log(x), rel=4e-15, abs=1e-15)
    for x in 1.0 + np.concatenate([rng.uniform(-0.5, 1.0, 1000), 10 ** rng.uniform(-16, -1, 200)]):
        assert log(x) == pytest.approx(math.log(x), rel=1e-14, abs=3e-16)


def test_cosine_is_that_of_the_library():
    rng = np.random.default_rng(2)
    turns = np.pi * np.concatenate([np.arange(-40, 41) / 2.0, rng.uniform(-2.0, 2.0, 500), rng.uniform(-1e3, 1e3, 500)])
    for x in np.concatenate([[0.0, 1e-300], turns, np.nextafter(turns, np.inf)]):
        assert cosine(x) == pytest.approx(math.cos(x), rel=0.0, abs=1e-15)
    assert math.isnan(cosine(math.nan))

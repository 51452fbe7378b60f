"""Moments of mixtures between limits, where limits or densities are extreme."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm, t

from momostream.distributions.moments import PLAIN, mixture_moments


def moments(low, high, components=((1.0, 0.0, 1.0, np.inf),)):
    parts = tuple(np.array(part)[np.newaxis] for part in zip(*components, strict=True))
    found = mixture_moments(PLAIN, parts, np.array([[low]]), np.array([[high]]))
    return found.mean[0], found.variance[0]


def naive(low, high, components):
    """Integrals of the density, relative to its largest value between the limits."""

    def log_density(y):
        kinds = [norm if np.isinf(v) else t(v) for *_, v in components]
        parts = zip(kinds, components, strict=True)
        return np.logaddexp.reduce([np.log(w / s) + kind.logpdf((y - m) / s) for kind, (w, m, s, _) in parts])

    def integral(function):
        return quad(lambda y: function(y) * np.exp(log_density(y) - top), low, high, epsabs=0, limit=500)[0]

    top = max(log_density(y) for y in np.linspace(low, high, 2001))
    total = integral(lambda y: 1.0)
    mean = integral(lambda y: y) / total
    return mean, integral(lambda y: (y - mean) ** 2) / total


@pytest.mark.parametrize(
    "low, high, components",
    [
        (-1.0, 2.0, [(0.3, 0.0, 1.0, np.inf), (0.7, 1.0, 2.0, 4.0)]),
        (30.0, 31.0, [(1.0, 0.0, 1.0, np.inf)]),
        (20.0, 20.5, [(0.5, 0.0, 1.0, np.inf), (0.5, -3.0, 1.0, 100.0)]),
    ],
)
def test_moments_equal_integrals_also_far_out(low, high, components):
    assert_allclose(moments(low, high, components), naive(low, high, components), rtol=1e-6)


@pytest.mark.parametrize("dof", [2.5, np.inf])
@pytest.mark.parametrize("at", [1e30, 0.0, -1e30])
def test_limits_without_a_number_between_them_are_a_point(at, dof):
    mean, variance = moments(at, at, [(0.5, 1e30, 1.0, dof), (0.5, 0.0, 1e-30, dof)])
    assert mean == pytest.approx(at)
    assert variance == 0.0


def test_components_without_weight_have_no_say():
    alone = moments(30.0, 31.0, [(1.0, 0.0, 1.0, np.inf)])
    assert_allclose(moments(30.0, 31.0, [(1.0, 0.0, 1.0, np.inf), (0.0, 30.5, 1.0, np.inf)]), alone)


def test_limits_between_which_no_component_has_mass_hold_the_mean():
    mean, variance = moments(200.0, 200.5)
    assert 200.0 <= mean <= 200.5
    assert 0.0 <= variance <= 0.25


def test_limits_beyond_all_scales():
    mean, variance = moments(1e200, np.inf)
    assert mean >= 1e200
    assert np.isfinite(variance)


def test_limits_farther_from_a_component_than_a_number_says():
    with np.errstate(over="raise", invalid="raise"):
        mean, variance = moments(-1e56, 1e57, ((0.5, 0.0, 1e-300, 2.5), (0.5, 1.0, 1.0, np.inf)))
    assert_allclose([mean, variance], [0.5, 0.75], rtol=1e-6)

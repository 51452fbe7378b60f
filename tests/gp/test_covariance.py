"""Covariances by name: words for mistakes, packing, and priors that follow the units of the data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from momostream.gp.covariance import KERNELS, LEAST_NOISE, Covariance, input_std
from momostream.kernels.covariance import gram
from tests import naive

NAMES = [*KERNELS, *(f"{name}+linear" for name in KERNELS)]


@pytest.mark.parametrize("text", NAMES)
def test_a_name_survives_parsing(text):
    covariance = Covariance.parse(text)
    assert str(covariance) == text
    assert covariance == Covariance.parse(str(covariance))
    assert covariance.linear == text.endswith("+linear")


@pytest.mark.parametrize("text", ["", "matern", "Matern32", "matern32+", "rbf+cubic", "+linear", "rbf + linear"])
def test_a_wrong_name_is_answered_in_words(text):
    with pytest.raises(ValueError, match="unknown kernel") as caught:
        Covariance.parse(text)
    message = str(caught.value)
    assert repr(text) in message
    assert all(name in message for name in KERNELS) and "+linear" in message


@pytest.mark.parametrize(
    ("name", "kind"),
    [("matern12", naive.MATERN12), ("matern32", naive.MATERN32), ("matern52", naive.MATERN52), ("rbf", naive.RBF)],
)
def test_codes_mean_the_kernels_of_that_name(name, kind):
    S = np.array([[0.0, 0.0], [0.7, -0.4]])
    K = np.empty((2, 2))
    gram(Covariance(name).code, 0.0, 0.1, S, K)
    assert_allclose(K, naive.gram(kind, 0.0, 0.1, S), rtol=1e-13)


@pytest.mark.parametrize("n_inputs", [0, 1, 3])
@pytest.mark.parametrize("linear", [False, True])
def test_packing(n_inputs, linear):
    covariance = Covariance("rbf", linear)
    lengths = np.array([0.5, 2.0, 8.0])[:n_inputs]
    theta = np.log(np.r_[lengths, 0.01, [0.3] * linear])
    assert covariance.n_parameters(n_inputs) == len(theta)
    assert covariance.n_inputs(theta) == n_inputs
    assert_allclose(covariance.lengthscales(theta), lengths)
    assert_allclose(covariance.inverse_lengths(theta), 1 / lengths)
    assert covariance.noise(theta) == pytest.approx(0.01 + LEAST_NOISE, rel=1e-12)
    assert covariance.linear_variance(theta) == pytest.approx(0.3 if linear else 0.0)


def test_noise_never_vanishes():
    assert Covariance("rbf").noise(np.array([0.0, -1e4])) == LEAST_NOISE


@pytest.mark.parametrize("text", ["matern32", "matern32+linear"])
def test_priors_shift_with_the_spread(text):
    covariance = Covariance.parse(text)
    spread, units = np.array([0.2, 1.0, 30.0]), np.array([1e3, 0.25, 1e-5])
    before, after = covariance.prior(spread), covariance.prior(spread * units)
    shift = np.r_[np.log(units), np.zeros(covariance.n_parameters(3) - 3)]
    for field in ("centre", "lower", "upper"):
        assert_allclose(getattr(after, field), getattr(before, field) + shift, rtol=0, atol=1e-12)
    assert_array_equal(after.width, before.width)


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("n_inputs", [0, 1, 200])
def test_priors_lie_within_their_bounds(text, n_inputs):
    covariance = Covariance.parse(text)
    prior = covariance.prior(np.ones(n_inputs))
    for field in (prior.centre, prior.width, prior.lower, prior.upper):
        assert field.shape == (covariance.n_parameters(n_inputs),)
    assert np.all(prior.lower < prior.centre) and np.all(prior.centre < prior.upper) and np.all(prior.width > 0)


def test_a_typical_pair_of_rows_is_neither_alike_nor_foreign():
    # Under the prior's centre the correlation of two random rows must not depend much on how many inputs there are.
    rng = np.random.default_rng(0)
    for n_inputs in (1, 5, 50):
        X = rng.normal(size=(200, n_inputs))
        theta = Covariance("matern32").prior(input_std(X)).centre
        S, K = X / np.exp(theta[:-1]), np.empty((200, 200))
        gram(Covariance("matern32").code, 0.0, 0.0, S, K)
        assert 0.15 < np.median(K[np.triu_indices(200, 1)]) < 0.6


def test_spread_of_inputs():
    X = np.array([[1.0, 5.0, 1e8, 0.0], [3.0, 5.0, 1e8, 0.0]])
    assert_array_equal(input_std(X), [1.0, 1.0, 1.0, 1.0])
    assert_array_equal(input_std(8 * X[:, :1]), [8.0])
    # Round-off of a large constant is not variation, a small variation on a large level is.
    assert_array_equal(input_std(np.array([[0.1 + 0.2], [0.3]])), [1.0])
    assert_allclose(input_std(np.array([[1e6], [1e6 + 1e-3]])), [5e-4], rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (1, 2), (3, 0)])
def test_spread_of_next_to_nothing_is_one(shape):
    assert_array_equal(input_std(np.full(shape, 4.0)), np.ones(shape[1]))

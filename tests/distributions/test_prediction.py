"""`Prediction` against the `Distribution` it wraps, and against river's Gaussian."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from momostream.distributions.copula import CopulaDistribution
from momostream.distributions.joint import Distribution, MixtureDistribution
from momostream.distributions.marginals import Marginals
from momostream.distributions.mixtures import Mixture, StudentT
from momostream.distributions.planes import DOF, LOCATION, SCALE, WEIGHT
from momostream.distributions.prediction import Prediction, intervals
from momostream.distributions.stacked import StackedDistribution
from momostream.estimators.regressor import MOMoGPRegressor

TARGETS = ("wind", "power", ("pitch", 1))
S = np.array([[1.0, 0.8, 0.1], [0.8, 4.0, -0.3], [0.1, -0.3, 0.5]])
MEAN = np.array([1.0, -2.0, 3.0])


def mixture():
    return MixtureDistribution(
        Mixture(np.log([0.3, 0.7]), [StudentT(MEAN[np.newaxis] + m, S, 7.0) for m in (0.0, 1.0)])
    )


def copula():
    R = S / np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    return CopulaDistribution(Marginals(0.5, np.stack([[MEAN, MEAN + 2.0]]), 1.0, 5.0), R, 6.0, TARGETS)


@pytest.fixture(params=[mixture, copula])
def distribution(request):
    return request.param()


@pytest.fixture
def prediction(distribution):
    return Prediction(TARGETS, distribution.mean[0], distribution)


Y = {("pitch", 1): 2.5, "wind": 2, "power": np.float32(-1.0)}
ROW = np.array([[2.0, -1.0, 2.5]])


def test_everything_is_that_of_the_distribution(prediction, distribution):
    assert prediction.targets == TARGETS and prediction.distribution is distribution
    assert list(prediction.mean) == list(prediction.std) == list(TARGETS)
    assert_array_equal(list(prediction.mean.values()), distribution.mean[0])
    assert_array_equal(list(prediction.std.values()), distribution.std[0])
    assert_array_equal(prediction.cov, distribution.cov[0])
    assert prediction.log_pdf(Y) == distribution.log_pdf(ROW)[0]
    for name in ("log_pdf_each", "cdf", "crps"):
        scores = getattr(prediction, name)(Y)
        assert list(scores) == list(TARGETS)
        assert list(scores.values()) == getattr(distribution, name)(ROW)[0].tolist()
    for values in (prediction.mean, prediction.std, prediction.cdf(Y), prediction.quantile(0.2)):
        assert {type(value) for value in values.values()} == {float}


def test_intervals_and_quantiles(prediction, distribution):
    lower, upper = distribution.interval(0.9)
    assert prediction.interval() == dict(
        zip(TARGETS, zip(lower[0].tolist(), upper[0].tolist(), strict=True), strict=True)
    )
    assert prediction.interval(0.5)["wind"] == tuple(distribution.quantile([0.25, 0.75])[:, 0, 0])
    assert prediction.quantile(0.3) == dict(zip(TARGETS, distribution.quantile(0.3)[0].tolist(), strict=True))
    several = prediction.quantile([0.1, 0.5])
    assert_array_equal(several["power"], distribution.quantile([0.1, 0.5])[:, 0, 1])
    assert several["wind"].shape == (2,) and prediction.quantile([])["wind"].shape == (0,)
    for level in (0.0, 1.0, np.nan):
        with pytest.raises(ValueError, match="level"):
            prediction.interval(level)


def test_intervals_of_many_rows_make_no_joint_distributions():
    """Within limits, which most models find, too: the joint one takes ten times as long, and runs need none."""
    model = MOMoGPRegressor(seed=0)
    for t in range(60):
        model.learn_one({"x": t % 7}, {"open": float(t % 7), "shut": max(0.0, t % 7 - 4.0)})
    predictions = [model.predict_one({"x": x}, with_dist=True) for x in range(7)]
    assert all(prediction._distribution.wrap is not None for prediction in predictions)
    ends = intervals(predictions, 0.9)
    assert all(isinstance(prediction._distribution, StackedDistribution) for prediction in predictions)
    for prediction, (lower, upper) in zip(predictions, ends, strict=True):
        joint = prediction.distribution.interval(0.9)
        assert_array_equal([lower, upper], [joint[0][0], joint[1][0]])


@pytest.mark.parametrize("gone", [{}, {"power": None}, {"power": np.nan}])
def test_what_is_not_observed_is_left_out(prediction, distribution, gone):
    y = {"wind": 2.0, ("pitch", 1): 2.5, **gone}
    row = np.array([[2.0, np.nan, 2.5]])
    assert prediction.log_pdf(y) == distribution.log_pdf(row)[0]
    assert prediction.log_pdf(y) != prediction.log_pdf(Y)
    for name in ("log_pdf_each", "cdf", "crps"):
        assert getattr(prediction, name)(y).keys() == {"wind", ("pitch", 1)}


def test_density_of_the_observed_is_the_marginal_one():
    distribution = MixtureDistribution(StudentT(MEAN[np.newaxis], S, 7.0))
    expected = stats.multivariate_t(MEAN[[0, 2]], S[np.ix_([0, 2], [0, 2])], 7.0).logpdf([2.0, 2.5])
    assert_allclose(
        Prediction(TARGETS, MEAN, distribution).log_pdf({"wind": 2.0, ("pitch", 1): 2.5}), expected, rtol=1e-12
    )


def test_nothing_observed(prediction):
    assert prediction.log_pdf({}) == pytest.approx(0.0, abs=1e-15)
    assert prediction.crps({"wind": None}) == prediction.cdf({}) == {}
    assert prediction.condition({}) is prediction and prediction.condition({"power": None}) is prediction


def test_condition_is_over_the_others(prediction, distribution):
    given = prediction.condition({"power": -1.0, "wind": None})
    expected = distribution.condition({1: [-1.0]})
    assert given.targets == ("wind", ("pitch", 1))
    assert_array_equal(list(given.mean.values()), expected.mean[0])
    assert given.log_pdf({"wind": 2.0}) == expected.log_pdf(np.array([[2.0, np.nan]]))[0]
    # Chain rule.
    rest = {"wind": 2.0, ("pitch", 1): 2.5}
    joint = prediction.log_pdf({"power": -1.0, **rest})
    assert_allclose(prediction.log_pdf({"power": -1.0}) + given.log_pdf(rest), joint, rtol=1e-9)
    with pytest.raises(ValueError, match="nothing is left"):
        prediction.condition(Y)


def test_samples(prediction, distribution):
    draws = prediction.sample(5, seed=3)
    assert draws.shape == (5, 3)
    assert_array_equal(draws, distribution.sample(5, seed=3)[:, 0])
    assert_array_equal(prediction.sample(5, np.random.default_rng(3)), draws)
    assert prediction.sample().shape == (1, 3)


@pytest.mark.parametrize("method", ["log_pdf", "log_pdf_each", "cdf", "crps", "condition"])
def test_unusable_observations_are_named(prediction, method):
    ask = getattr(prediction, method)
    with pytest.raises(
        ValueError, match=r"unknown targets 'speed', 0; the targets are 'wind', 'power', \('pitch', 1\)"
    ):
        ask({"wind": 1.0, "speed": 2.0, 0: 1.0})
    with pytest.raises(TypeError, match="'wind' is a str"):
        ask({"wind": "1.0"})
    with pytest.raises(ValueError, match="'power' is infinite"):
        ask({"power": np.inf})


def test_distribution_is_asked_for_late_and_once():
    calls = []

    def late():
        calls.append(1)
        return mixture()

    prediction = Prediction(TARGETS, MEAN, late)
    assert prediction.mean["power"] == -2.0 and not calls
    assert prediction.std["wind"] > 0.0 and prediction.cov.shape == (3, 3)
    assert isinstance(prediction.distribution, Distribution) and len(calls) == 1


def test_what_does_not_fit():
    with pytest.raises(ValueError, match="2 means for 3 targets"):
        Prediction(TARGETS, MEAN[:2], mixture)
    for wrong in (StudentT(np.zeros((2, 3)), S, 5.0), StudentT(np.zeros((1, 2)), np.eye(2), 5.0)):
        with pytest.raises(ValueError, match="one row and 3 targets"):
            _ = Prediction(TARGETS, MEAN, lambda wrong=wrong: MixtureDistribution(wrong)).std


def test_copies_carry_the_distribution(distribution):
    prediction = Prediction(TARGETS, distribution.mean[0], lambda: distribution)
    for twin in (pickle.loads(pickle.dumps(prediction)), copy.deepcopy(prediction)):
        assert twin.targets == TARGETS and twin.mean == prediction.mean
        assert twin.log_pdf(Y) == prediction.log_pdf(Y)


def test_gaussian_of_river():
    distribution = mixture()
    targets = ("wind", "power", "pitch")
    gaussian = Prediction(targets, distribution.mean[0], distribution).to_gaussian()
    assert gaussian.mu == dict(sorted(zip(targets, distribution.mean[0].tolist(), strict=True)))
    var = gaussian.var.loc[list(targets), list(targets)]
    assert_allclose(var.to_numpy(), distribution.cov[0], rtol=1e-12)
    expected = stats.multivariate_normal(distribution.mean[0], distribution.cov[0])
    y = {"power": -1.0, "wind": 2.0, "pitch": 2.5}
    assert_allclose(gaussian(y), expected.pdf(ROW[0]), rtol=1e-9)
    assert_allclose(gaussian.cdf(dict(sorted(y.items()))), expected.cdf(ROW[0]), rtol=1e-3)
    draw = gaussian.sample()
    assert draw.keys() == set(targets) and all(np.isfinite(value) for value in draw.values())
    assert gaussian.mode == gaussian.mu and "μ" in repr(gaussian)


def test_gaussian_of_one_target_and_of_heavy_tails():
    one = Prediction(("power",), np.array([2.0]), MixtureDistribution(StudentT([[2.0]], [[4.0]], np.inf)))
    gaussian = one.to_gaussian()
    assert gaussian.mu == {"power": 2.0} and gaussian.var.to_numpy() == [[4.0]]
    assert_allclose(gaussian({"power": 2.0}), stats.norm.pdf(0.0) / 2.0)
    heavy = Prediction(("power",), np.array([2.0]), MixtureDistribution(StudentT([[2.0]], [[4.0]], 2.0)))
    assert_allclose(heavy.to_gaussian().var.to_numpy(), heavy.std["power"] ** 2)


def test_repr_shows_the_first_targets():
    distribution = MixtureDistribution(StudentT(np.arange(15.0)[np.newaxis], 0.25 * np.eye(15), np.inf))
    lines = repr(Prediction(range(15), distribution.mean[0], distribution)).splitlines()
    assert lines[0] == "Prediction: 15 targets, mean ± std" and lines[-1] == "  ..." and len(lines) == 14
    assert lines[12] == "  11  11 ± 0.5"


def test_html_is_escaped_and_complete():
    distribution = MixtureDistribution(StudentT([[1.0, 2.0]], np.eye(2), np.inf))
    text = Prediction(("<b>", "power & wind"), distribution.mean[0], distribution)._repr_html_()
    assert "<b>" not in text and "&lt;b&gt;" in text and "power &amp; wind" in text
    assert text.count("<tr>") == 3 and "<td>2.645</td>" in text


@pytest.mark.parametrize("dof", [8.0, 5.0])
def test_single_targets_of_a_stack_need_no_copula(dof):
    # 5 degrees of freedom are not tabulated.
    planes = np.ones((5, 2, 3))
    planes[LOCATION], planes[SCALE], planes[DOF], planes[WEIGHT] = [MEAN, MEAN + 2.0], [[1.0], [0.3]], dof, 0.5
    stacked = StackedDistribution(planes, np.eye(3), 8.0, None)
    prediction, joint = Prediction(TARGETS, MEAN + 1.0, stacked), stacked()
    assert_array_equal(list(prediction.interval(0.8).values()), np.stack(joint.interval(0.8))[:, 0].T)
    assert_array_equal(list(prediction.std.values()), joint.std[0])
    for name in ("log_pdf_each", "cdf", "crps"):
        assert list(getattr(prediction, name)(Y).values()) == getattr(joint, name)(ROW)[0].tolist()
    assert prediction._distribution is stacked


def test_weights_of_a_stack_that_do_not_sum_to_one_are_an_error():
    planes = np.ones((5, 2, 3))
    planes[DOF] = 8.0
    with pytest.raises(ValueError, match="weights must be non-negative and sum to one"):
        Prediction(TARGETS, MEAN, StackedDistribution(planes, np.eye(3), 8.0, None)).interval(0.9)
